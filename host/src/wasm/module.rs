//! Modules: compiled once, instantiated for each executable.

use std::fmt;
use std::sync::Arc;

use super::bulk;
#[cfg(feature = "cache")]
use super::cache::CacheOutcome;
use super::capabilities::Granted;
use super::compile::compile;
use super::inspect::{self, ModuleInfo};
use super::instance::forked;
use super::outside::malformed;
use super::shared::Shared;
use super::state::GuestState;
use super::text::is_plain;
use crate::call::Signature;
use crate::frame::abi;
use crate::policy::Grants;
use crate::values::{Result, Status};

/// A guest's module, checked and compiled.
pub struct Module {
    pub(super) shared: Arc<Shared>,
    /// What it may reach.
    pub(super) grants: Arc<Grants>,
    /// That, opened.
    pub(super) granted: Granted,
    pub(super) pre: wasmtime::InstancePre<GuestState>,
    pub(super) exports: Exports,
    /// Functions from this index on are not the file's: [`bulk`].
    pub(super) helpers_from: u32,
    info: ModuleInfo,
    pub(super) identity: String,
    #[cfg(feature = "cache")]
    cache_outcome: CacheOutcome,
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
        if !shared.ticker.is_here() {
            return Err(forked("the module"));
        }
        let info = inspect::inspect(wasm, limits)?;
        grants.check_digest(&info.sha256)?;
        info.check(limits, grants)?;
        let granted = Granted::open(&shared.policy, grants)?;
        let in_pieces = bulk::in_pieces(wasm).map_err(malformed)?;
        // What the compiler gets is what the cache knows a module by.
        let compile = || compile(shared, &in_pieces.wasm);
        #[cfg(not(feature = "cache"))]
        let module = compile()?;
        #[cfg(feature = "cache")]
        let (module, cache_outcome) = match &shared.cache {
            Some(cache) => cache.module(&shared.engine, &in_pieces.wasm, compile)?,
            None => (compile()?, CacheOutcome::NotUsed),
        };
        let pre = granted.link(&shared.linker, &module).map_err(|error| {
            Status::internal(format!("imports that were checked do not link: {error:#}"))
        })?;
        Ok(Self {
            shared: Arc::clone(shared),
            granted,
            pre,
            exports: Exports::of(&module)?,
            helpers_from: in_pieces.helpers_from,
            identity: format!("{} of engine {} with {grants:?}", info.sha256, shared.id),
            grants: Arc::new(grants.clone()),
            info,
            #[cfg(feature = "cache")]
            cache_outcome,
        })
    }

    /// What can be said of the module without running it.
    #[must_use]
    pub fn info(&self) -> &ModuleInfo {
        &self.info
    }

    /// What the engine's cache did for it.
    #[cfg(feature = "cache")]
    #[must_use]
    pub fn cache_outcome(&self) -> &CacheOutcome {
        &self.cache_outcome
    }

    /// Whether the engine's cache has an entry for this file.
    ///
    /// # Errors
    /// What is wrong with the file, or with the entry.
    #[cfg(feature = "cache")]
    pub(super) fn is_cached(shared: &Shared, wasm: &[u8]) -> Result<bool> {
        let Some(cache) = &shared.cache else {
            return Ok(false);
        };
        inspect::inspect(wasm, &shared.policy.limits)?;
        let in_pieces = bulk::in_pieces(wasm).map_err(malformed)?;
        cache.has(&shared.engine, &in_pieces.wasm)
    }

    /// The type of the exported function of this name.
    pub(super) fn export_type(&self, name: &str) -> Option<&str> {
        let mut exports = self.info.exports.iter();
        exports
            .find(|export| export.name == name && is_plain(name))
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
