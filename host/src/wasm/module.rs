//! Modules: compiled once, instantiated for each executable.

use std::fmt;
use std::sync::Arc;

use super::inspect::{self, ModuleInfo};
use super::shared::Shared;
use super::state::GuestState;
use super::text::sanitize;
use crate::call::Signature;
use crate::frame::abi;
use crate::policy::Grants;
use crate::values::{Blame, Result, Status, StatusCode};

/// A guest's module, checked and compiled.
pub struct Module {
    pub(super) shared: Arc<Shared>,
    /// What it may reach.
    pub(super) grants: Arc<Grants>,
    pub(super) pre: wasmtime::InstancePre<GuestState>,
    pub(super) exports: Exports,
    info: ModuleInfo,
    pub(super) identity: String,
}

/// The exports that every instance is asked for, found once.
pub(super) struct Exports {
    pub(super) memory: wasmtime::ModuleExport,
    /// `cabi_realloc`.
    pub(super) realloc: Option<wasmtime::ModuleExport>,
    /// `_initialize`.
    pub(super) initialize: Option<wasmtime::ModuleExport>,
}

impl Exports {
    fn of(module: &wasmtime::Module) -> Result<Self> {
        let memory = module.get_export_index("memory");
        Ok(Self {
            memory: memory
                .ok_or_else(|| Status::internal("a memory that was checked is not exported"))?,
            realloc: module.get_export_index(abi::REALLOC),
            initialize: module.get_export_index("_initialize"),
        })
    }
}

impl Module {
    pub(super) fn new(shared: &Arc<Shared>, wasm: &[u8], grants: &Grants) -> Result<Self> {
        let limits = &shared.policy.limits;
        let info = inspect::inspect(wasm, limits)?;
        info.check(limits, grants)?;
        let module = wasmtime::Module::from_binary(&shared.engine, wasm).map_err(|error| {
            let text = format!("{error:#}");
            let text = sanitize(text.as_bytes(), text.len(), limits.message_bytes);
            Status::new(
                StatusCode::InvalidArgument,
                Blame::Guest,
                format!("expected a module within the features and limits of this host: {text}"),
            )
        })?;
        let pre = shared.linker.instantiate_pre(&module).map_err(|error| {
            Status::internal(format!("imports that were checked do not link: {error:#}"))
        })?;
        Ok(Self {
            shared: Arc::clone(shared),
            pre,
            exports: Exports::of(&module)?,
            identity: format!("{} of engine {} with {grants:?}", info.sha256, shared.id),
            grants: Arc::new(grants.clone()),
            info,
        })
    }

    /// What can be said of the module without running it.
    #[must_use]
    pub fn info(&self) -> &ModuleInfo {
        &self.info
    }

    /// The type of the exported function of this name.
    pub(super) fn export_type(&self, name: &str) -> Option<&str> {
        let mut exports = self.info.exports.iter();
        exports
            .find(|export| export.name == name)
            .map(|export| export.ty.as_str())
    }

    /// The target of this name.
    pub(super) fn target(&self, name: &str) -> Result<&Signature> {
        let targets = &self.info.targets;
        targets
            .iter()
            .find(|target| target.name == name)
            .ok_or_else(|| {
                const MOST: usize = 8;
                let names: Vec<_> = targets
                    .iter()
                    .map(|t| format!("{:?}", t.name))
                    .take(MOST)
                    .collect();
                Status::not_found(format!(
                    "expected a target of the module ({}), found {name:?}",
                    names.join(", ")
                ))
            })
    }
}

impl fmt::Debug for Module {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Module")
            .field("info", &self.info)
            .finish_non_exhaustive()
    }
}
