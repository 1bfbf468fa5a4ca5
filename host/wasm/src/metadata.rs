//! The section `callbox.targets`: a module's declarations of its targets, as consecutive JSON
//! objects.
//!
//! The section is untrusted: [`sections`](crate::sections) limits its size, this module its depth,
//! and the declarations must agree with the exported functions.

mod depth;

use callbox_abi::UnknownName;
use std::collections::{BTreeMap, HashMap, HashSet};

use callbox_core::call::{
    ApiVersion, AttributeSignature, BufferSignature, DerivativeMode, DerivativeOf, Signature,
    Stage, signature::derivatives, signature::json,
};
use callbox_core::json::Limited;
use callbox_core::untrusted_text::{is_plain, sanitize, shown_name};
use callbox_core::values::{Result, Status};
use serde::Deserialize;

use self::depth::depth;
use crate::failure::{exhausted, invalid};
use crate::frame::abi;
use crate::sections::ExportedFunction;
use crate::version::FfiVersion;

/// The type of a stage's function: `(frame) -> status`.
pub(crate) const STAGE_TYPE: &str = "(i32) -> i32";

/// The type of a function that deletes a stage's state.
pub(crate) const STAGE_DROP_TYPE: &str = "(i32)";

/// The most bytes of a target's documentation that are kept.
const MAX_DOCUMENTATION: usize = 64 << 10;

/// The most operands, results and attributes of all targets together. The shortest declaration has
/// three bytes, and takes a hundred bytes of memory.
const MAX_DECLARED: usize = 1 << 16;

/// The most traits of a target.
const MAX_TRAITS: usize = 64;

type Buffers = Limited<json::Buffer, { json::MAX_BUFFERS }>;

type Attributes = Limited<json::Attribute, { json::MAX_ATTRIBUTES }>;

/// An object of the section. Objects of one name describe one target, whose stages may be declared
/// apart.
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
    operands: Option<Buffers>,
    #[serde(default)]
    remaining_operands: bool,
    results: Option<Buffers>,
    #[serde(default)]
    remaining_results: bool,
    attributes: Option<Attributes>,
    #[serde(default)]
    doc: String,
    #[serde(default)]
    traits: Limited<String, MAX_TRAITS>,
    /// The name of the target whose derivatives it computes.
    derivative_of: Option<String>,
    /// Which derivatives. Default: `vjp`.
    derivative_mode: Option<String>,
}

impl Entry {
    /// The number of operands, results and attributes.
    fn declared(&self) -> usize {
        let buffers = [&self.operands, &self.results].into_iter().flatten();
        let attributes = self.attributes.as_ref().map_or(0, Limited::kept);
        attributes + buffers.map(Limited::kept).sum::<usize>()
    }
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

/// Reads the section and checks it against the exported functions.
pub(crate) fn read(
    section: &[u8],
    exports: &[ExportedFunction],
    depth: usize,
) -> Result<Vec<Signature>> {
    targets(section, exports, depth)
        .map_err(|status| status.context(format_args!("section {}", abi::METADATA_SECTION)))
}

fn targets(section: &[u8], exports: &[ExportedFunction], most: usize) -> Result<Vec<Signature>> {
    let mut targets: BTreeMap<String, Signature> = BTreeMap::new();
    // Unknown fields count, too, which the reader of `Entry` skips.
    let depth = depth(section);
    if depth > most {
        return Err(exhausted(format!(
            "expected lists and objects at most {most} deep, found {depth}"
        )));
    }
    let mut declared = 0;
    for entry in serde_json::Deserializer::from_slice(section).into_iter::<Entry>() {
        let entry = entry.map_err(not_json)?;
        let name = entry.name.clone();
        declared += entry.declared();
        if declared > MAX_DECLARED {
            return Err(exhausted(format!(
                "expected at most {MAX_DECLARED} operands, results and attributes of all targets, \
                 found more"
            )));
        }
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
        check_exports(target, &types)
            .map_err(|status| status.context(format_args!("target {:?}", target.name)))?;
    }
    derivatives::check(&targets)
        .map_err(|(name, message)| invalid(message).context(format_args!("target {name:?}")))?;
    Ok(targets.into_values().collect())
}

/// The targets of a module that declares none: the exported functions whose types fit a target.
pub(crate) fn from_types(exports: &[ExportedFunction]) -> Vec<Signature> {
    let types = types(exports);
    let mut targets: Vec<_> = exports
        .iter()
        .filter(|export| !is_internal(&export.name) && is_plain(&export.name))
        .filter_map(|export| undeclared(export, &types))
        .collect();
    targets.sort_by(|a, b| a.name.cmp(&b.name));
    targets
}

/// Whether a name belongs to the toolchain or to a stage, rather than to a target.
fn is_internal(name: &str) -> bool {
    let stage = name
        .rsplit_once('.')
        .is_some_and(|(_, suffix)| stage_of(suffix).is_some());
    stage || name.starts_with('_') || name == abi::REALLOC
}

fn undeclared(export: &ExportedFunction, types: &Types<'_>) -> Option<Signature> {
    let fits = |version: &ApiVersion| target_type(*version) == export.ty;
    let mut api_versions: Vec<_> = ApiVersion::ALL.into_iter().filter(fits).collect();
    let is_jax = |ending| types.contains_key(format!("{}.{ending}", export.name).as_str());
    if api_versions.contains(&ApiVersion::JaxFfi) && abi::JAX_FFI_ORDERS.into_iter().any(is_jax) {
        api_versions = vec![ApiVersion::JaxFfi];
    }
    let is_typed = *api_versions.first()? == ApiVersion::TypedFfi;
    let exported = |stage: &Stage| {
        let name = export_name(&export.name, *stage);
        *stage == Stage::Execute || is_typed && types.get(name.as_str()) == Some(&STAGE_TYPE)
    };
    Some(Signature {
        name: export.name.clone(),
        api_versions,
        stages: Stage::ALL.into_iter().filter(exported).collect(),
        ..Signature::default()
    })
}

/// The name of the export that is a target's stage.
pub(crate) fn export_name(target: &str, stage: Stage) -> String {
    match stage {
        Stage::Execute => target.to_owned(),
        _ => format!("{target}.{stage}"),
    }
}

/// The name of the export that deletes the state of a target's stage.
pub(crate) fn drop_name(target: &str, stage: Stage) -> String {
    format!("{target}.{stage}.drop")
}

fn signature(entry: Entry) -> Result<Signature> {
    check_name(&entry.name)?;
    check_version(&entry.ffi_version)?;
    let api_version: ApiVersion = entry
        .api_version
        .parse()
        .map_err(|error: UnknownName| blame_guest(error.into()))?;
    let stages = entry.stages.iter().map(|name| {
        stage_of(name)
            .ok_or_else(|| invalid(format!("expected a stage such as execute, found {name:?}")))
    });
    let stages: Vec<Stage> = if entry.stages.is_empty() {
        vec![Stage::Execute]
    } else {
        stages.collect::<Result<_>>()?
    };
    if let Some(stage) = stages
        .iter()
        .enumerate()
        .find_map(|(i, s)| stages[..i].contains(s).then_some(s))
    {
        return Err(invalid(format!(
            "expected the stage {stage} to be declared once, found it again"
        )));
    }
    let traits = within("traits", entry.traits)?;
    let derivative_of = derivative_of(entry.derivative_of, entry.derivative_mode)?;
    let signature = Signature {
        name: entry.name,
        api_versions: vec![api_version],
        stages,
        operands: entry
            .operands
            .map(|list| buffers("operands", list))
            .transpose()?,
        remaining_operands: entry.remaining_operands,
        results: entry
            .results
            .map(|list| buffers("results", list))
            .transpose()?,
        remaining_results: entry.remaining_results,
        attributes: entry.attributes.map(attributes).transpose()?,
        documentation: sanitize(entry.doc.as_bytes(), entry.doc.len(), MAX_DOCUMENTATION),
        traits: traits.iter().map(|name| shown_name(name)).collect(),
        derivative_of,
    };
    signature.with_implied_traits().map_err(invalid)
}

/// Checks that messages can quote a name on one line between quotation marks.
fn check_name(name: &str) -> Result<()> {
    if !is_plain(name) {
        return Err(invalid(format!(
            "expected a name of at most 1024 bytes without quotation marks, backslashes, and control and invisible characters, found \"{}\"",
            shown_name(name)
        )));
    }
    Ok(())
}

/// The target whose derivatives an object declares.
fn derivative_of(target: Option<String>, mode: Option<String>) -> Result<Option<DerivativeOf>> {
    let Some(target) = target else {
        return match mode {
            None => Ok(None),
            Some(_) => Err(invalid("expected derivative_of beside derivative_mode")),
        };
    };
    check_name(&target)?;
    let mode = match mode {
        None => DerivativeMode::Vjp,
        Some(name) => DerivativeMode::from_name(&name).ok_or_else(|| {
            invalid(format!(
                "expected derivative_mode to be vjp or jvp, found \"{}\"",
                shown_name(&name)
            ))
        })?,
    };
    Ok(Some(DerivativeOf { target, mode }))
}

/// Checks that this host supports the version of `callbox:ffi` that a target needs.
fn check_version(text: &str) -> Result<()> {
    match FfiVersion::parse(text) {
        Some(version) if version.is_supported() => Ok(()),
        Some(version) => Err(version.too_new("it")),
        None => Err(invalid(format!(
            "expected ffi_version to be two numbers such as 1.0, found {text:?}"
        ))),
    }
}

/// The items of a list that is not too long.
fn within<T, const MOST: usize>(what: &str, list: Limited<T, MOST>) -> Result<Vec<T>> {
    list.within()
        .map_err(|found| exhausted(format!("expected at most {MOST} {what}, found {found}")))
}

fn buffers(what: &str, declared: Buffers) -> Result<Vec<BufferSignature>> {
    let mut declared = json::buffers(within(what, declared)?).map_err(invalid)?;
    for buffer in &mut declared {
        buffer.name = shown_name(&buffer.name);
    }
    Ok(declared)
}

fn attributes(declared: Attributes) -> Result<Vec<AttributeSignature>> {
    let declared = within("attributes", declared)?;
    check_attributes(&declared)?;
    let declared = declared.into_iter();
    declared
        .map(|attribute| json::attribute(attribute).map_err(invalid))
        .collect()
}

/// Checks the names and kinds of attributes and of their fields.
fn check_attributes(declared: &[json::Attribute]) -> Result<()> {
    let mut names = HashSet::new();
    for attribute in declared {
        check_name(&attribute.name)?;
        if !names.insert(&attribute.name) {
            return Err(invalid(format!(
                "expected the attribute {:?} to be declared once, found it again",
                attribute.name
            )));
        }
        if attribute.kind == "pointer" {
            return Err(invalid(format!(
                "attribute {:?}: a pointer into the host's memory means nothing in a sandbox; expected its value as an attribute, or static information that the guest makes",
                attribute.name
            )));
        }
        for variant in attribute
            .variants
            .iter()
            .flat_map(|variants| variants.keys())
        {
            check_name(variant)?;
        }
        check_attributes(attribute.fields.as_deref().unwrap_or_default())?;
    }
    Ok(())
}

fn stage_of(name: &str) -> Option<Stage> {
    Stage::ALL.into_iter().find(|stage| stage.name() == name)
}

/// Merges another object of the same name. The one with the stage `execute` declares everything but
/// the stages.
fn merge(known: &mut Signature, other: Signature) -> Result<()> {
    if let Some(stage) = other
        .stages
        .iter()
        .find(|stage| known.stages.contains(stage))
    {
        return Err(invalid(format!(
            "target {:?}: expected the stage {stage} to be declared once, found it again",
            known.name
        )));
    }
    for one in [&*known, &other] {
        if one.derivative_of.is_some() && !one.stages.contains(&Stage::Execute) {
            return Err(invalid(format!(
                "target {:?}: expected a derivative to be declared in the stage execute, found it \
                 in another",
                known.name
            )));
        }
    }
    let mut stages = [known.stages.as_slice(), &other.stages].concat();
    stages.sort();
    let takes_none =
        |signature: &Signature| signature.attributes.as_ref().is_some_and(Vec::is_empty);
    let every_stage_takes_none = takes_none(known) && takes_none(&other);
    if other.stages.contains(&Stage::Execute) {
        *known = other;
    }
    // All stages get the same attributes.
    if takes_none(known) && !every_stage_takes_none {
        known.attributes = None;
    }
    known.stages = stages;
    Ok(())
}

fn check_exports(target: &Signature, types: &Types<'_>) -> Result<()> {
    if !target.stages.contains(&Stage::Execute) {
        return Err(invalid("expected the stage execute, found none"));
    }
    let version = target.api_versions[0];
    let mut others = target
        .stages
        .iter()
        .filter(|&&stage| stage != Stage::Execute);
    if version != ApiVersion::TypedFfi
        && let Some(stage) = others.next()
    {
        return Err(invalid(format!(
            "expected the stage execute alone, as {version} has it, found {stage}"
        )));
    }
    for &stage in &target.stages {
        let expected = match stage {
            Stage::Execute => target_type(version),
            _ => STAGE_TYPE,
        };
        let name = export_name(&target.name, stage);
        if !check_export(types, &name, expected)? {
            return Err(invalid(format!(
                "expected an exported function {name:?}, found none"
            )));
        }
        check_export(types, &drop_name(&target.name, stage), STAGE_DROP_TYPE)?;
    }
    Ok(())
}

/// The type of a target's function in a calling convention.
fn target_type(version: ApiVersion) -> &'static str {
    match version {
        ApiVersion::Original => "(i32, i32)",
        ApiVersion::StatusReturning => "(i32, i32, i32)",
        ApiVersion::StatusReturningUnified | ApiVersion::JaxFfi => "(i32, i32, i32, i32, i32)",
        ApiVersion::TypedFfi => STAGE_TYPE,
    }
}

/// Checks the type of an export, and returns whether there is one.
fn check_export(types: &Types<'_>, name: &str, expected: &str) -> Result<bool> {
    match types.get(name) {
        Some(&found) if found != expected => Err(invalid(format!(
            "expected the export {name:?} to be a function {expected}, found {found}"
        ))),
        found => Ok(found.is_some()),
    }
}

fn not_json(error: serde_json::Error) -> Status {
    invalid(format!("expected a JSON object for each target: {error}"))
}

fn blame_guest(status: Status) -> Status {
    invalid(status.message().to_owned())
}
