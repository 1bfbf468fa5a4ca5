//! The objects that `callbox inspect --json` prints.

#[cfg(feature = "cuda")]
mod manifest;

use callbox::ElementType;
use callbox::call::{AttributeSignature, BufferSignature, Dimension, Signature};
use serde_json::{Value, json};

use super::status;
use crate::inspect::{Inspected, InspectedLibrary, InspectedModule};

pub(super) fn object(inspected: &Inspected) -> Value {
    match inspected {
        Inspected::Module(inspected) => module(inspected),
        #[cfg(feature = "cuda")]
        Inspected::Manifest(inspected) => manifest::object(inspected),
        Inspected::Library(inspected) => library(inspected),
        #[cfg(feature = "cuda")]
        Inspected::Ptx(report) => json!(report),
    }
}

fn module(inspected: &InspectedModule) -> Value {
    let info = &inspected.info;
    let memory = info
        .memory
        .map(|m| json!({"initial": m.initial, "maximum": m.maximum}));
    let imports = info.imports.iter();
    let imports = imports.map(|i| json!({"module": i.module, "name": i.name, "type": i.ty}));
    let exports = info
        .exports
        .iter()
        .map(|e| json!({"name": e.name, "type": e.ty}));
    json!({
        "size": info.size,
        "sha256": info.sha256,
        "memory": memory,
        "stack_above_data": inspected.stack_above_data,
        "scalar_loops": inspected.scalar_loops,
        "loads": status(inspected.problem.as_ref()),
        "features": inspected.features,
        "imports": imports.collect::<Vec<_>>(),
        "exports": exports.collect::<Vec<_>>(),
        "has_metadata": info.has_metadata,
        "targets": info.targets.iter().map(target).collect::<Vec<_>>(),
        "package": inspected.package,
        "signers": inspected.signers,
    })
}

fn target(target: &Signature) -> Value {
    let buffers = |declared: &[BufferSignature]| declared.iter().map(buffer).collect::<Vec<_>>();
    json!({
        "name": target.name,
        "api_versions": target.api_versions.iter().map(|v| v.name()).collect::<Vec<_>>(),
        "stages": target.stages.iter().map(|s| s.name()).collect::<Vec<_>>(),
        "operands": target.operands.as_deref().map(buffers),
        "remaining_operands": target.remaining_operands,
        "results": target.results.as_deref().map(buffers),
        "remaining_results": target.remaining_results,
        "attributes": target.attributes.as_deref().map(attributes),
        "traits": target.traits,
        "derivative_of": target.derivative_of.as_ref().map(|of| &of.target),
        "derivative_mode": target.derivative_of.as_ref().map(|of| of.mode.name()),
        "documentation": target.documentation,
    })
}

fn buffer(buffer: &BufferSignature) -> Value {
    let types = buffer.element_types.iter().map(|t| t.lower_name());
    let dimension = |dimension: &Dimension| match dimension {
        Dimension::Size(size) => json!(size),
        _ => json!(dimension.to_string()),
    };
    let dimensions = buffer.dimensions.as_ref();
    let dimensions = dimensions.map(|all| all.iter().map(dimension).collect::<Vec<_>>());
    json!({
        "name": buffer.name,
        "element_types": types.collect::<Vec<_>>(),
        "rank": buffer.rank,
        "dimensions": dimensions,
        "optional": buffer.optional,
    })
}

fn attributes(declared: &[AttributeSignature]) -> Vec<Value> {
    declared.iter().map(attribute).collect()
}

fn attribute(attribute: &AttributeSignature) -> Value {
    let mut object = json!({
        "name": attribute.name,
        "kind": attribute.kind,
        "element_type": attribute.element_type.map(ElementType::lower_name),
        "optional": attribute.optional,
    });
    if let Some(fields) = &attribute.fields {
        object["fields"] = attributes(fields).into();
    }
    if let Some(variants) = &attribute.variants {
        // A number of 64 bits, as JSON has it.
        let number = |number: i128| {
            i64::try_from(number).map_or_else(|_| json!(number as u64), |n| json!(n))
        };
        let variants = variants
            .iter()
            .map(|(name, value)| (name.clone(), number(*value)));
        object["variants"] = Value::Object(variants.collect());
    }
    object
}

fn library(library: &InspectedLibrary) -> Value {
    json!({"size": library.size, "sha256": library.sha256})
}
