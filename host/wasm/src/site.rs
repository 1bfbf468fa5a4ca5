//! Call sites, checked against a module's target and laid out in the arena.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use callbox_core::call::{
    ApiVersion, CallSite, FunctionReference, Signature, Stage, StaticInfo, resolve_aliases,
};
use callbox_core::untrusted_text::clean_message;
use callbox_core::values::{Dictionary, Result, Status};

use crate::failure::invalid;
use crate::frame::{ArenaLayout, abi};
use crate::metadata::{STAGE_DROP_TYPE, drop_name};
use crate::module::Module;

/// A checked call site with its layout.
pub(crate) struct Site {
    /// Tells the call sites of a process apart.
    pub(crate) id: SiteId,
    /// [`CallSite::label`].
    pub(crate) label: Arc<str>,
    pub(crate) target: Arc<str>,
    /// The name of the target in messages.
    pub(crate) what: Arc<str>,
    /// The name of the module in messages.
    module: Arc<str>,
    pub(crate) api_version: ApiVersion,
    pub(crate) stages: Arc<[Stage]>,
    /// The stages whose state has a deleter.
    pub(crate) drops: Arc<[Stage]>,
    pub(crate) layout: ArenaLayout,
    /// Whether the target declares the trait `pure`.
    pub(crate) is_pure: bool,
    /// The bytes of each result leaf that the caller reads: 0 for scratch memory.
    pub(crate) result_sizes: Arc<[usize]>,
    pub(crate) static_info: Option<StaticInfo>,
    /// The functions that the target may call back, by number.
    pub(crate) functions: Arc<[Arc<FunctionReference>]>,
    /// The call site without its attributes, if its instances also serve others.
    template: Option<Arc<CallSite>>,
}

/// The identity of a call site.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SiteId(u64);

impl SiteId {
    fn new() -> Self {
        static LAST: AtomicU64 = AtomicU64::new(0);
        Self(LAST.fetch_add(1, Ordering::Relaxed))
    }
}

impl Site {
    /// Checks a call site against the target's signature, and lays it out.
    pub(crate) fn new(module: &Module, site: &CallSite) -> Result<Self> {
        let mut new = Self::lay_out(module, site)?;
        if has_only_a_frame(site, &new.stages) {
            new.template = Some(Arc::new(CallSite {
                attributes: Dictionary::new(),
                ..site.clone()
            }));
        }
        Ok(new)
    }

    fn lay_out(module: &Module, site: &CallSite) -> Result<Self> {
        let limits = &module.shared.policy.limits;
        let target = module.target(&site.target)?;
        target
            .check(site)
            .and_then(|()| check_convention(module, site))
            .map_err(|status| clean_message(status, limits.message_bytes))?;
        site.check_scratch()?;
        let layout = lay_out(target, site, limits.memory_bytes)?;
        let sizes = layout.results().iter().enumerate().map(|(leaf, place)| {
            if site.is_scratch(leaf) { 0 } else { place.size }
        });
        Ok(Self {
            id: SiteId::new(),
            template: None,
            label: site.label().into(),
            target: target.name.as_str().into(),
            what: format!("target {:?}", target.name).into(),
            module: Arc::clone(&module.label),
            api_version: site.api_version,
            stages: target.stages.as_slice().into(),
            drops: drops(module, &target.name, &target.stages).into(),
            result_sizes: sizes.collect(),
            layout,
            is_pure: target.has_trait("pure"),
            static_info: site.static_info.clone(),
            // Only typed FFI has a place for a function's number.
            functions: match site.api_version {
                ApiVersion::TypedFfi => site.functions.iter().cloned().collect(),
                _ => Arc::default(),
            },
        })
    }

    /// The same call site with other attributes, if the same instances can serve both: then only
    /// the frame differs, which every call writes anew.
    pub(crate) fn with_attributes(
        &self,
        module: &Module,
        attributes: &Dictionary,
    ) -> Option<Result<Self>> {
        let template = self.template.as_ref()?;
        let new = self.vary(template, module, attributes);
        Some(new.map_err(|status| status.context(&self.label)))
    }

    fn vary(
        &self,
        template: &Arc<CallSite>,
        module: &Module,
        attributes: &Dictionary,
    ) -> Result<Self> {
        let limits = &module.shared.policy.limits;
        let target = module.target(&template.target)?;
        target
            .check_attributes(attributes)
            .map_err(|status| clean_message(status, limits.message_bytes))?;
        let layout = &self.layout;
        Ok(Self {
            id: SiteId::new(),
            label: Arc::clone(&self.label),
            target: Arc::clone(&self.target),
            what: Arc::clone(&self.what),
            module: Arc::clone(&self.module),
            api_version: self.api_version,
            stages: Arc::clone(&self.stages),
            drops: Arc::clone(&self.drops),
            layout: layout.with_attributes(template, attributes, limits.memory_bytes)?,
            is_pure: self.is_pure,
            result_sizes: Arc::clone(&self.result_sizes),
            static_info: self.static_info.clone(),
            functions: Arc::clone(&self.functions),
            template: Some(Arc::clone(template)),
        })
    }

    /// Adds the name of the module to a failure of a call.
    #[cold]
    pub(crate) fn in_module(&self, failure: Status) -> Status {
        failure.context(&self.module)
    }

    /// Whether the target has stages that run once per execution.
    pub(crate) fn has_execution_stages(&self) -> bool {
        self.stages.contains(&Stage::Prepare) || self.stages.contains(&Stage::Initialize)
    }

    /// Whether the target makes state or an object once per instance.
    pub(crate) fn is_made_early(&self) -> bool {
        self.stages.contains(&Stage::Instantiate)
            || matches!(self.static_info, Some(StaticInfo::Reference { .. }))
    }
}

/// Lays out a call site in at most `limit` bytes.
///
/// Results lie apart from the operands whose memory they share for the caller, if the target does
/// not need them there. The guest SDK else copies such an operand, because a kernel may read it
/// after it has written the result.
fn lay_out(target: &Signature, site: &CallSite, limit: usize) -> Result<ArenaLayout> {
    if !site.aliasing.is_empty() && !target.works_in_place() {
        resolve_aliases(site, site.result.leaf_count())?;
        let apart = CallSite {
            aliasing: Vec::new(),
            ..site.clone()
        };
        if let Ok(layout) = ArenaLayout::new(&apart, limit) {
            return Ok(layout);
        }
    }
    ArenaLayout::new(site, limit)
}

/// Whether a call finds nothing of its call site in an instance but the frame: the target has no
/// other stages, in which it could make state of the attributes, and calls no functions back.
fn has_only_a_frame(site: &CallSite, stages: &[Stage]) -> bool {
    site.api_version == ApiVersion::TypedFfi
        && stages.iter().all(|stage| *stage == Stage::Execute)
        && site.functions.is_empty()
}

/// The stages whose state has a deleter in the module.
fn drops(module: &Module, target: &str, stages: &[Stage]) -> Vec<Stage> {
    let has_drop =
        |stage: &&Stage| module.export_type(&drop_name(target, **stage)) == Some(STAGE_DROP_TYPE);
    stages.iter().filter(has_drop).copied().collect()
}

/// Checks that the calling convention has a place for everything in the call site, and that the
/// module has the exports that the convention needs.
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

/// Checks the exports that a target of the JAX FFI proposal needs besides itself.
fn check_jax_ffi(module: &Module, site: &CallSite) -> Result<()> {
    let check = |what: &str, name: &str, ty: &str| match module.export_type(name) {
        Some(found) if found == ty => Ok(()),
        found => Err(invalid(format!(
            "expected {what} {name:?} to be an exported function {ty}, found {}",
            found.unwrap_or("none")
        ))),
    };
    check("the API table", abi::JAX_FFI_API, "() -> i32")?;
    let target = &site.target;
    let is_recorded = |ending| module.export_type(&format!("{target}.{ending}")).is_some();
    if module.export_type(abi::JAX_FFI_RECORDS_ORDERS).is_some()
        && !abi::JAX_FFI_ORDERS.into_iter().any(is_recorded)
    {
        return Err(invalid(format!(
            "`{target}` does not say which of `outputs` and `inputs` it takes first: export it \
             with JAX_FFI_EXPORT_OUTPUTS_FIRST or JAX_FFI_EXPORT_INPUTS_FIRST"
        )));
    }
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
