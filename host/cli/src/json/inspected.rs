//! The objects that `callbox inspect --json` prints, borrowed from what was read.

#[cfg(feature = "cuda")]
mod manifest;

use callbox::ElementType;
use callbox::call::{AttributeSignature, BufferSignature, Dimension, Signature};
use serde::{Serialize, Serializer};

use super::{StatusObject, status};
use crate::inspect::{Inspected, InspectedLibrary, InspectedModule, InspectedPackage};
use crate::signing::DescribedSigner;

impl Serialize for Inspected {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Module(inspected) => module(inspected).serialize(serializer),
            #[cfg(feature = "cuda")]
            Self::Manifest(inspected) => manifest::object(inspected).serialize(serializer),
            Self::Library(inspected) => library(inspected).serialize(serializer),
            #[cfg(feature = "cuda")]
            Self::Ptx(report) => report.serialize(serializer),
        }
    }
}

/// A sequence that is written without being collected: a file may declare very many of anything.
struct Sequence<I>(I);

impl<I: Iterator<Item: Serialize> + Clone> Serialize for Sequence<I> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.clone())
    }
}

fn module(inspected: &InspectedModule) -> impl Serialize {
    #[derive(Serialize)]
    struct Object<'a, I, E, T> {
        size: usize,
        sha256: &'a str,
        memory: Option<Memory>,
        stack_above_data: bool,
        scalar_loops: bool,
        loads: StatusObject,
        features: &'a [&'static str],
        imports: I,
        exports: E,
        has_metadata: bool,
        targets: T,
        package: Option<&'a InspectedPackage>,
        signers: &'a [DescribedSigner],
    }
    #[derive(Serialize)]
    struct Memory {
        initial: u64,
        maximum: Option<u64>,
    }
    #[derive(Serialize)]
    struct Import<'a> {
        module: &'a str,
        name: &'a str,
        r#type: &'a str,
    }
    #[derive(Serialize)]
    struct Export<'a> {
        name: &'a str,
        r#type: &'a str,
    }
    let info = &inspected.info;
    Object {
        size: info.size,
        sha256: &info.sha256,
        memory: info.memory.map(|memory| Memory {
            initial: memory.initial,
            maximum: memory.maximum,
        }),
        stack_above_data: inspected.stack_above_data,
        scalar_loops: inspected.scalar_loops,
        loads: status(inspected.problem.as_ref()),
        features: &inspected.features,
        imports: Sequence(info.imports.iter().map(|import| Import {
            module: &import.module,
            name: &import.name,
            r#type: &import.ty,
        })),
        exports: Sequence(info.exports.iter().map(|export| Export {
            name: &export.name,
            r#type: &export.ty,
        })),
        has_metadata: info.has_metadata,
        targets: Sequence(info.targets.iter().map(Target::of)),
        package: inspected.package.as_ref(),
        signers: &inspected.signers,
    }
}

/// A target. Operands, results and attributes are null if they are not declared.
#[derive(Serialize)]
struct Target<'a> {
    name: &'a str,
    api_versions: Vec<&'static str>,
    stages: Vec<&'static str>,
    operands: Option<Buffers<'a>>,
    remaining_operands: bool,
    results: Option<Buffers<'a>>,
    remaining_results: bool,
    attributes: Option<Attributes<'a>>,
    traits: &'a [String],
    derivative_of: Option<&'a str>,
    derivative_mode: Option<&'static str>,
    documentation: &'a str,
}

impl<'a> Target<'a> {
    fn of(target: &'a Signature) -> Self {
        let derivative_of = target.derivative_of.as_ref();
        Self {
            name: &target.name,
            api_versions: target.api_versions.iter().map(|v| v.name()).collect(),
            stages: target.stages.iter().map(|s| s.name()).collect(),
            operands: target.operands.as_deref().map(Buffers),
            remaining_operands: target.remaining_operands,
            results: target.results.as_deref().map(Buffers),
            remaining_results: target.remaining_results,
            attributes: target.attributes.as_deref().map(Attributes),
            traits: &target.traits,
            derivative_of: derivative_of.map(|of| of.target.as_str()),
            derivative_mode: derivative_of.map(|of| of.mode.name()),
            documentation: &target.documentation,
        }
    }
}

struct Buffers<'a>(&'a [BufferSignature]);

impl Serialize for Buffers<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.iter().map(buffer))
    }
}

fn buffer(buffer: &BufferSignature) -> impl Serialize {
    #[derive(Serialize)]
    struct Object<'a, E, D> {
        name: &'a str,
        element_types: E,
        rank: Option<usize>,
        dimensions: Option<D>,
        optional: bool,
    }
    #[derive(Serialize)]
    #[serde(untagged)]
    enum Written {
        Size(usize),
        Expression(String),
    }
    let dimension = |dimension: &Dimension| match dimension {
        Dimension::Size(size) => Written::Size(*size),
        _ => Written::Expression(dimension.to_string()),
    };
    let dimensions = buffer.dimensions.as_ref();
    Object {
        name: &buffer.name,
        element_types: Sequence(buffer.element_types.iter().map(|t| t.lower_name())),
        rank: buffer.rank,
        dimensions: dimensions.map(|all| Sequence(all.iter().map(dimension))),
        optional: buffer.optional,
    }
}

struct Attributes<'a>(&'a [AttributeSignature]);

impl Serialize for Attributes<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.iter().map(Attribute::of))
    }
}

#[derive(Serialize)]
struct Attribute<'a> {
    name: &'a str,
    kind: &'a str,
    element_type: Option<&'static str>,
    optional: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    fields: Option<Attributes<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    variants: Option<Variants<'a>>,
}

impl<'a> Attribute<'a> {
    fn of(attribute: &'a AttributeSignature) -> Self {
        Self {
            name: &attribute.name,
            kind: &attribute.kind,
            element_type: attribute.element_type.map(ElementType::lower_name),
            optional: attribute.optional,
            fields: attribute.fields.as_deref().map(Attributes),
            variants: attribute.variants.as_deref().map(Variants),
        }
    }
}

/// The names of an enum with their numbers.
struct Variants<'a>(&'a [(String, i128)]);

impl Serialize for Variants<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, number)| (name, number)))
    }
}

fn library(library: &InspectedLibrary) -> impl Serialize {
    #[derive(Serialize)]
    struct Object<'a> {
        size: u64,
        sha256: &'a str,
    }
    Object {
        size: library.size,
        sha256: &library.sha256,
    }
}
