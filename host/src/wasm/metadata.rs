//! The section `callbox.targets`: what a module declares of its targets, one JSON object after the other.
//!
//! It is part of an untrusted file: its size is limited before it gets here, its depth by the JSON reader, and what it says
//! must agree with the exported functions.

use std::collections::{BTreeMap, HashMap};

use serde::Deserialize;
use serde_json::Value;

use super::outside::{ExportedFunction, exhausted};
use super::text::{is_plain, sanitize, shown_name};
use super::version::FfiVersion;
use crate::call::{
    ApiVersion, AttributeSignature, BufferSignature, Signature, Stage, signature_json as json,
};
use crate::frame::abi;
use crate::values::{Blame, Result, Status, StatusCode};

/// The type of a stage's function: `(frame) -> status`.
pub(super) const STAGE_TYPE: &str = "(i32) -> i32";

/// The type of what takes a stage's state back.
pub(super) const STAGE_DROP_TYPE: &str = "(i32)";

/// How much of a target's documentation is kept, in bytes.
const MAX_DOCUMENTATION: usize = 64 << 10;

/// One object of the section. Objects of the same name are one target: its stages may be declared apart.
#[derive(Debug, Deserialize)]
struct Entry {
    name: String,
    #[serde(default = "typed_ffi")]
    api_version: String,
    /// The version of `callbox:ffi` that it needs.
    #[serde(default = "first_version")]
    ffi_version: String,
    #[serde(default)]
    stages: Vec<String>,
    operands: Option<Vec<json::Buffer>>,
    #[serde(default)]
    remaining_operands: bool,
    results: Option<Vec<json::Buffer>>,
    #[serde(default)]
    remaining_results: bool,
    attributes: Option<Vec<json::Attribute>>,
    #[serde(default)]
    doc: String,
    #[serde(default)]
    traits: Vec<String>,
}

fn typed_ffi() -> String {
    ApiVersion::TypedFfi.name().to_owned()
}

fn first_version() -> String {
    "1.0".to_owned()
}

/// Exported functions' types, by name.
type Types<'a> = HashMap<&'a str, &'a str>;

fn types(exports: &[ExportedFunction]) -> Types<'_> {
    exports
        .iter()
        .map(|export| (export.name.as_str(), export.ty.as_str()))
        .collect()
}

/// Reads the section and holds it against the exported functions.
pub(super) fn read(
    section: &[u8],
    exports: &[ExportedFunction],
    depth: usize,
) -> Result<Vec<Signature>> {
    targets(section, exports, depth)
        .map_err(|status| status.context(format_args!("section {}", abi::METADATA_SECTION)))
}

fn targets(section: &[u8], exports: &[ExportedFunction], most: usize) -> Result<Vec<Signature>> {
    let mut targets: BTreeMap<String, Signature> = BTreeMap::new();
    // The depth of what no field takes is bounded only where it is read as a value.
    for value in serde_json::Deserializer::from_slice(section).into_iter::<Value>() {
        let depth = depth(&value.map_err(not_json)?);
        if depth > most {
            return Err(exhausted(format!(
                "expected lists and objects at most {most} deep, found {depth}"
            )));
        }
    }
    for entry in serde_json::Deserializer::from_slice(section).into_iter::<Entry>() {
        let entry = entry.map_err(not_json)?;
        let name = entry.name.clone();
        let signature = signature(entry)
            .map_err(|status| status.context(format_args!("target \"{}\"", shown_name(&name))))?;
        match targets.get_mut(&name) {
            Some(known) => merge(known, signature)?,
            None => {
                targets.insert(name, signature);
            }
        }
    }
    let types = types(exports);
    for target in targets.values() {
        check_exports(target, &types)?;
    }
    Ok(targets.into_values().collect())
}

/// How deep lists and objects nest. The JSON reader goes 128 deep at most.
fn depth(value: &Value) -> usize {
    match value {
        Value::Array(values) => 1 + values.iter().map(depth).max().unwrap_or(0),
        Value::Object(values) => 1 + values.values().map(depth).max().unwrap_or(0),
        _ => 0,
    }
}

/// The targets of a module that declares none: the exported functions whose types a target can have.
pub(super) fn from_types(exports: &[ExportedFunction]) -> Vec<Signature> {
    let types = types(exports);
    let mut targets: Vec<_> = exports
        .iter()
        .filter(|export| !is_internal(&export.name) && is_plain(&export.name))
        .filter_map(|export| undeclared(export, &types))
        .collect();
    targets.sort_by(|a, b| a.name.cmp(&b.name));
    targets
}

/// Whether a name is a toolchain's, or a stage's, rather than a target's.
fn is_internal(name: &str) -> bool {
    let stage = name
        .rsplit_once('.')
        .is_some_and(|(_, suffix)| stage_of(suffix).is_some());
    stage || name.starts_with('_') || name == abi::REALLOC
}

fn undeclared(export: &ExportedFunction, types: &Types<'_>) -> Option<Signature> {
    let api_versions = match export.ty.as_str() {
        STAGE_TYPE => vec![ApiVersion::TypedFfi],
        "(i32, i32)" => vec![ApiVersion::Original],
        "(i32, i32, i32)" => vec![ApiVersion::StatusReturning],
        "(i32, i32, i32, i32, i32)" => {
            vec![ApiVersion::StatusReturningUnified, ApiVersion::JaxFfi]
        }
        _ => return None,
    };
    let is_typed = api_versions == [ApiVersion::TypedFfi];
    let exported = |stage: &Stage| {
        let name = export_name(&export.name, *stage);
        *stage == Stage::Execute || is_typed && types.get(name.as_str()) == Some(&STAGE_TYPE)
    };
    Some(Signature {
        name: export.name.clone(),
        api_versions,
        stages: Stage::ALL.into_iter().filter(exported).collect(),
        operands: None,
        remaining_operands: false,
        results: None,
        remaining_results: false,
        attributes: None,
        documentation: String::new(),
        traits: Vec::new(),
    })
}

/// The name of the export that is a target's stage.
pub(super) fn export_name(target: &str, stage: Stage) -> String {
    match stage {
        Stage::Execute => target.to_owned(),
        _ => format!("{target}.{stage}"),
    }
}

/// The name of the export that takes back what a target's stage left.
pub(super) fn drop_name(target: &str, stage: Stage) -> String {
    format!("{target}.{stage}.drop")
}

fn signature(entry: Entry) -> Result<Signature> {
    check_name(&entry.name)?;
    check_version(&entry.ffi_version)?;
    let api_version: ApiVersion = entry.api_version.parse().map_err(blame_guest)?;
    let stages = entry.stages.iter().map(|name| {
        stage_of(name)
            .ok_or_else(|| wrong(format!("expected a stage such as execute, found {name:?}")))
    });
    let stages: Vec<Stage> = match entry.stages.is_empty() {
        true => vec![Stage::Execute],
        false => stages.collect::<Result<_>>()?,
    };
    if let Some(stage) = stages
        .iter()
        .enumerate()
        .find_map(|(i, s)| stages[..i].contains(s).then_some(s))
    {
        return Err(wrong(format!(
            "expected the stage {stage} to be declared once, found it again"
        )));
    }
    let signature = Signature {
        name: entry.name,
        api_versions: vec![api_version],
        stages,
        operands: entry.operands.map(buffers).transpose()?,
        remaining_operands: entry.remaining_operands,
        results: entry.results.map(buffers).transpose()?,
        remaining_results: entry.remaining_results,
        attributes: entry.attributes.map(attributes).transpose()?,
        documentation: sanitize(entry.doc.as_bytes(), entry.doc.len(), MAX_DOCUMENTATION),
        traits: entry.traits.iter().map(|name| shown_name(name)).collect(),
    };
    signature.with_implied_traits().map_err(wrong)
}

/// Checks that a name can stand in a line and between quotation marks: it is part of many messages.
fn check_name(name: &str) -> Result<()> {
    match is_plain(name) {
        true => Ok(()),
        false => Err(wrong(format!(
            "expected a name of at most 1024 bytes without quotation marks, backslashes, and control and invisible characters, found \"{}\"",
            shown_name(name)
        ))),
    }
}

/// Checks that this host has the version of `callbox:ffi` that a target is made for.
fn check_version(text: &str) -> Result<()> {
    match FfiVersion::parse(text) {
        Some(version) if version.is_supported() => Ok(()),
        Some(version) => Err(version.too_new("it")),
        None => Err(wrong(format!(
            "expected ffi_version to be two numbers such as 1.0, found {text:?}"
        ))),
    }
}

fn buffers(declared: Vec<json::Buffer>) -> Result<Vec<BufferSignature>> {
    let mut declared = json::buffers(declared).map_err(wrong)?;
    for buffer in &mut declared {
        buffer.name = shown_name(&buffer.name);
    }
    Ok(declared)
}

fn attributes(declared: Vec<json::Attribute>) -> Result<Vec<AttributeSignature>> {
    let attribute = |attribute: json::Attribute| {
        check_name(&attribute.name)?;
        if attribute.kind == "pointer" {
            return Err(wrong(format!(
                "attribute {:?}: a pointer into the host's memory means nothing in a sandbox; expected its value as an attribute, or static information that the guest makes",
                attribute.name
            )));
        }
        json::attribute(attribute).map_err(wrong)
    };
    declared.into_iter().map(attribute).collect()
}

fn stage_of(name: &str) -> Option<Stage> {
    Stage::ALL.into_iter().find(|stage| stage.name() == name)
}

/// Adds what another object of the same name declares. The one that has the stage `execute` says the rest.
fn merge(known: &mut Signature, other: Signature) -> Result<()> {
    if let Some(stage) = other
        .stages
        .iter()
        .find(|stage| known.stages.contains(stage))
    {
        return Err(wrong(format!(
            "target {:?}: expected the stage {stage} to be declared once, found it again",
            known.name
        )));
    }
    let mut stages = [known.stages.as_slice(), &other.stages].concat();
    stages.sort();
    let takes_none =
        |signature: &Signature| signature.attributes.as_ref().is_some_and(Vec::is_empty);
    let every_stage_takes_none = takes_none(known) && takes_none(&other);
    if other.stages.contains(&Stage::Execute) {
        *known = other;
    }
    // What another stage takes is given to this one as well.
    if takes_none(known) && !every_stage_takes_none {
        known.attributes = None;
    }
    known.stages = stages;
    Ok(())
}

fn check_exports(target: &Signature, types: &Types<'_>) -> Result<()> {
    if !target.stages.contains(&Stage::Execute) {
        return Err(wrong(format!(
            "target {:?}: expected the stage execute, found none",
            target.name
        )));
    }
    if let ([api_version], Some(stage)) = (
        target.api_versions.as_slice(),
        target.stages.iter().find(|stage| **stage != Stage::Execute),
    ) && *api_version != ApiVersion::TypedFfi
    {
        return Err(wrong(format!(
            "target {:?}: expected the stage execute alone, as {api_version} has it, found {stage}",
            target.name
        )));
    }
    let ty = match target.api_versions.as_slice() {
        [ApiVersion::Original] => "(i32, i32)",
        [ApiVersion::StatusReturning] => "(i32, i32, i32)",
        [ApiVersion::StatusReturningUnified | ApiVersion::JaxFfi] => "(i32, i32, i32, i32, i32)",
        _ => STAGE_TYPE,
    };
    for &stage in &target.stages {
        let name = export_name(&target.name, stage);
        let expected = if stage == Stage::Execute {
            ty
        } else {
            STAGE_TYPE
        };
        match types.get(name.as_str()) {
            Some(&found) if found == expected => {}
            Some(found) => {
                return Err(wrong(format!(
                    "target {:?}: expected the export {name:?} to be a function {expected}, found {found}",
                    target.name
                )));
            }
            None => {
                return Err(wrong(format!(
                    "target {:?}: expected an exported function {name:?}, found none",
                    target.name
                )));
            }
        }
        let name = drop_name(&target.name, stage);
        match types.get(name.as_str()) {
            Some(&found) if found != STAGE_DROP_TYPE => {
                return Err(wrong(format!(
                    "target {:?}: expected the export {name:?} to be a function {STAGE_DROP_TYPE}, found {found}",
                    target.name
                )));
            }
            _ => {}
        }
    }
    Ok(())
}

fn not_json(error: serde_json::Error) -> Status {
    wrong(format!("expected a JSON object for each target: {error}"))
}

fn wrong(message: String) -> Status {
    Status::new(StatusCode::InvalidArgument, Blame::Guest, message)
}

fn blame_guest(status: Status) -> Status {
    wrong(status.message().to_owned())
}
