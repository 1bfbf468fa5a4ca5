//! A call site as a module's target sees it.

use std::sync::Arc;

use super::metadata::{STAGE_DROP_TYPE, drop_name};
use super::module::Module;
use super::text::clean_message;
use crate::call::{ApiVersion, CallSite, FunctionReference, Stage, StaticInfo};
use crate::frame::{ArenaLayout, abi};
use crate::values::{Blame, Result, Status, StatusCode};

/// A call site, laid out.
pub(super) struct Site {
    /// How a program's messages name it.
    pub(super) name: String,
    pub(super) target: String,
    /// How messages name its target.
    pub(super) what: String,
    pub(super) api_version: ApiVersion,
    pub(super) stages: Vec<Stage>,
    /// The stages whose state has a deleter.
    pub(super) drops: Vec<Stage>,
    pub(super) layout: ArenaLayout,
    /// Whether the target declares that the same operands give the same results.
    pub(super) is_pure: bool,
    /// How many bytes the caller gives for each result leaf: none for what nobody reads.
    pub(super) result_sizes: Box<[usize]>,
    pub(super) static_info: Option<StaticInfo>,
    /// What the target may call back, by the numbers that it knows.
    pub(super) functions: Arc<[Arc<FunctionReference>]>,
}

impl Site {
    /// Checks a call site against the target's signature, and lays it out.
    pub(super) fn new(module: &Module, site: &CallSite) -> Result<Self> {
        let limit = module.shared.policy.limits.message_bytes;
        let target = module.target(&site.target)?;
        target
            .check(site)
            .map_err(|status| clean_message(status, limit))?;
        check_convention(module, site).map_err(|status| clean_message(status, limit))?;
        check_scratch(site)?;
        let layout = ArenaLayout::new(site, module.shared.policy.limits.memory_bytes)?;
        let sizes = layout.results().iter().map(|place| place.size).enumerate();
        let wanted = |(leaf, size)| match site.scratch.contains(&leaf) {
            true => 0,
            false => size,
        };
        Ok(Self {
            name: site.name.clone(),
            target: target.name.clone(),
            what: format!("target {:?}", target.name),
            api_version: site.api_version,
            stages: target.stages.clone(),
            drops: drops(module, &target.name, &target.stages),
            result_sizes: sizes.map(wanted).collect(),
            layout,
            is_pure: target.has_trait("pure"),
            static_info: site.static_info.clone(),
            // The older conventions have no place for a function's number.
            functions: match site.api_version {
                ApiVersion::TypedFfi => site.functions.iter().cloned().collect(),
                _ => Arc::default(),
            },
        })
    }

    /// Whether its target has stages that run once for each execution.
    pub(super) fn has_execution_stages(&self) -> bool {
        self.stages.contains(&Stage::Prepare) || self.stages.contains(&Stage::Initialize)
    }

    /// Whether something is made for it once for each executable.
    pub(super) fn is_made_early(&self) -> bool {
        self.stages.contains(&Stage::Instantiate)
            || matches!(self.static_info, Some(StaticInfo::Reference { .. }))
    }
}

/// The stages whose state the module takes back.
fn drops(module: &Module, target: &str, stages: &[Stage]) -> Vec<Stage> {
    let has_drop =
        |stage: &&Stage| module.export_type(&drop_name(target, **stage)) == Some(STAGE_DROP_TYPE);
    stages.iter().filter(has_drop).copied().collect()
}

/// Checks that what nobody reads is there.
fn check_scratch(site: &CallSite) -> Result<()> {
    let leaves = site.result.leaves().len();
    match site.scratch.iter().find(|&&leaf| leaf >= leaves) {
        Some(leaf) => Err(Status::invalid_argument(format!(
            "expected scratch to name one of the {leaves} leaves of the result, found {leaf}"
        ))),
        None => Ok(()),
    }
}

/// Checks that a call site says nothing that its convention has no place for, and that the module has what the convention needs.
fn check_convention(module: &Module, site: &CallSite) -> Result<()> {
    let version = site.api_version;
    if version != ApiVersion::TypedFfi && !site.attributes.is_empty() {
        return Err(Status::invalid_argument(format!(
            "expected no attributes, which {version} has no place for, found {}",
            site.attributes.len()
        )));
    }
    match (&site.static_info, version) {
        (_, ApiVersion::JaxFfi) => check_jax_ffi(module, site),
        (Some(_), _) => Err(Status::invalid_argument(format!(
            "expected no static information, which {version} has no place for, found some"
        ))),
        (None, _) => Ok(()),
    }
}

/// Checks that the module has what a target of the JAX FFI proposal needs besides itself.
fn check_jax_ffi(module: &Module, site: &CallSite) -> Result<()> {
    let check = |what: &str, name: &str, ty: &str| match module.export_type(name) {
        Some(found) if found == ty => Ok(()),
        found => Err(Status::new(
            StatusCode::InvalidArgument,
            Blame::Guest,
            format!(
                "expected {what} {name:?} to be an exported function {ty}, found {}",
                found.unwrap_or("none")
            ),
        )),
    };
    check("the API table", abi::JAX_FFI_API, "() -> i32")?;
    match &site.static_info {
        Some(StaticInfo::Reference {
            constructor,
            destructor,
            ..
        }) => {
            check("the constructor", constructor, "(i32, i32) -> i32")?;
            check("the destructor", destructor, "(i32)")
        }
        _ => Ok(()),
    }
}
