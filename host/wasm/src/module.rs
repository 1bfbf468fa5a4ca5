//! Modules: compiled once, instantiated for each executable.

use std::fmt;
use std::sync::Arc;

use callbox_core::call::Signature;
use callbox_core::policy::Grants;
use callbox_core::untrusted_text::{is_plain, shown_name};
use callbox_core::values::{Result, Status};

#[cfg(feature = "cache")]
use crate::cache::CacheOutcome;
use crate::capabilities::ModuleCapabilities;
use crate::compiler::CompiledIn;
use crate::file::ModuleFile;
use crate::frame::abi;
use crate::info::ModuleInfo;
use crate::linked::Linked;
use crate::quota::Together;
use crate::shared::{Compiled, EngineShared};
use crate::state::GuestState;

/// A guest's module, checked and compiled.
///
/// The same file in two engines is two modules, because the engines' limits may differ. A registry
/// does not accept both under one name.
pub struct Module {
    pub(crate) shared: Arc<EngineShared>,
    pub(crate) grants: Grants,
    pub(crate) capabilities: ModuleCapabilities,
    pub(crate) linked: Linked,
    pub(crate) exports: Exports,
    /// The index of the first helper function: see [`rewrite`](crate::rewrite).
    pub(crate) helpers_from: u32,
    /// Whether an instance begins with a function or with data of the module.
    pub(crate) starts: bool,
    /// Whether it begins with a function.
    pub(crate) has_start: bool,
    /// The bytes of an instance's record.
    pub(crate) record_bytes: u64,
    info: Arc<ModuleInfo>,
    /// The indices of the exported functions, sorted by name.
    exports_by_name: Vec<u32>,
    /// The module's name in messages.
    pub(crate) label: Arc<str>,
    pub(crate) identity: String,
    /// After what holds the module, too.
    pub(crate) compiled: Arc<Compiled>,
    /// The memory of calls outside programs.
    pub(crate) outside_programs: Arc<Together>,
}

/// The exports that every instance needs, looked up once.
pub(crate) struct Exports {
    pub(crate) memory: wasmtime::ModuleExport,
    /// `cabi_realloc`.
    pub(crate) realloc: Option<wasmtime::ModuleExport>,
    /// `_initialize`.
    pub(crate) initialize: Option<wasmtime::ModuleExport>,
}

impl Exports {
    fn of(module: &wasmtime::Module) -> Result<Self> {
        Ok(Self {
            memory: module
                .get_export_index("memory")
                .ok_or_else(|| Status::internal("a memory that was checked is not exported"))?,
            realloc: module.get_export_index(abi::REALLOC),
            initialize: module.get_export_index("_initialize"),
        })
    }
}

impl Module {
    /// Loads a file. `linker` has the API table.
    pub(crate) fn new(
        shared: &Arc<EngineShared>,
        linker: &Arc<wasmtime::Linker<GuestState>>,
        file: ModuleFile,
        grants: &Grants,
    ) -> Result<Self> {
        let limits = &shared.policy.limits;
        shared.check_process("the module")?;
        let mut file = file.within(limits)?;
        let info = Arc::clone(&file.info);
        grants.check_digest(&info.sha256)?;
        info.check(limits, grants)?;
        let capabilities = ModuleCapabilities::open(&shared.policy, grants)?;
        let outside_programs = shared.outside_programs(file.digest());
        let compiled = Compiled::of(shared, &mut file)?;
        let module = &compiled.module;
        let mut exports_by_name: Vec<_> = (0..).take(info.exports.len()).collect();
        exports_by_name.sort_by_key(|&at: &u32| info.exports[at as usize].name.as_str());
        let linker = capabilities
            .linker(linker)
            .map_err(|error| Status::internal(format!("imports cannot be defined: {error:#}")))?;
        Ok(Self {
            shared: Arc::clone(shared),
            capabilities,
            exports: Exports::of(module)?,
            linked: Linked::new(wasmtime::Module::clone(module), linker),
            helpers_from: file.helpers_from(),
            starts: file.starts,
            has_start: file.has_start,
            record_bytes: file.record_bytes,
            identity: format!("{} of engine {} with {grants:?}", info.sha256, shared.id),
            grants: grants.clone(),
            info,
            exports_by_name,
            label: file.label().into(),
            compiled,
            outside_programs,
        })
    }

    /// A description of the module.
    #[must_use]
    pub fn info(&self) -> &ModuleInfo {
        &self.info
    }

    /// Where the module was compiled. If this engine had it already, where it was then.
    #[must_use]
    pub fn compiled_in(&self) -> &CompiledIn {
        &self.compiled.place
    }

    /// The outcome of looking the module up in the engine's cache.
    #[cfg(feature = "cache")]
    #[must_use]
    pub fn cache_outcome(&self) -> &CacheOutcome {
        &self.compiled.cache_outcome
    }

    /// The memory of an instance before it grows.
    pub(crate) fn least_memory(&self) -> usize {
        const PAGE: u64 = 64 << 10;
        let mut exports = self.compiled.module.exports();
        let pages = exports.find_map(|export| Some(export.ty().memory()?.minimum()));
        usize::try_from(pages.unwrap_or(0) * PAGE).unwrap_or(usize::MAX)
    }

    /// The type of the exported function of this name.
    pub(crate) fn export_type(&self, name: &str) -> Option<&str> {
        if !is_plain(name) {
            return None;
        }
        let exports = &self.info.exports;
        let found = self
            .exports_by_name
            .binary_search_by(|&at| exports[at as usize].name.as_str().cmp(name));
        let at = self.exports_by_name[found.ok()?];
        Some(exports[at as usize].ty.as_str())
    }

    /// The target of this name.
    pub(crate) fn target(&self, name: &str) -> Result<&Signature> {
        const MOST: usize = 8;
        let targets = &self.info.targets;
        let found = targets.binary_search_by(|target| target.name.as_str().cmp(name));
        found.map(|at| &targets[at]).map_err(|_| {
            let names = targets.iter().take(MOST).map(|t| format!("{:?}", t.name));
            Status::not_found(format!(
                "expected a target of the module ({}), found \"{}\"",
                names.collect::<Vec<_>>().join(", "),
                shown_name(name)
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
