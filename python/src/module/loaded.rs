//! What a process keeps of a module.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use callbox::policy::Grants;
use callbox::wasm::{self, Engine, ModuleFile};
use pyo3::prelude::*;

use super::sites::{SiteKey, Sites};
use crate::targets::DirectSites;

/// The module as loaded in one process. A forked child needs another.
pub(crate) struct Loaded {
    /// One module for each set of grants.
    pub(super) modules: Vec<Arc<wasm::Module>>,
    sites: Mutex<Sites>,
    /// The call sites of direct calls, by the target's number.
    direct: Vec<Mutex<DirectSites>>,
}

impl Loaded {
    pub(super) fn new(
        engine: &Engine,
        file: &ModuleFile,
        grants: &[Grants],
    ) -> callbox::Result<Self> {
        let modules = grants.iter().map(|grants| engine.load_file(file, grants));
        Ok(Self {
            modules: modules.collect::<callbox::Result<_>>()?,
            sites: Mutex::default(),
            direct: file
                .info()
                .targets
                .iter()
                .map(|_| Mutex::default())
                .collect(),
        })
    }

    pub(super) fn sites(&self) -> MutexGuard<'_, Sites> {
        self.sites.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The memory that the call sites have, that of running calls included.
    pub(crate) fn kept_bytes(&self) -> usize {
        self.sites().bytes()
    }

    /// The call sites without a call since `before`, with the time of the last call.
    pub(crate) fn idle(&self, before: Instant, now: Instant) -> Vec<(Instant, SiteKey)> {
        self.sites().idle(before, now)
    }

    /// Drops an idle call site, and returns the size of its memory.
    pub(crate) fn drop_idle(&self, key: &SiteKey) -> usize {
        // Dropped without the lock: that takes time.
        let gone = self.sites().drop_idle(key);
        gone.map_or(0, |gone| gone.bytes)
    }

    /// The call sites that direct calls of a target have prepared. The lock is taken with the GIL
    /// alone, so that no thread has it when the process forks.
    pub(crate) fn direct(&self, target: usize) -> MutexGuard<'_, DirectSites> {
        let direct = self.direct[target].lock();
        direct.unwrap_or_else(PoisonError::into_inner)
    }

    /// Drops what direct calls keep, while the GIL is held: Python objects are part of it.
    pub(crate) fn forget_all(&self, _py: Python<'_>) {
        for target in 0..self.direct.len() {
            *self.direct(target) = DirectSites::default();
        }
    }

    /// Drops what direct calls keep of call sites that are gone. Needs the GIL.
    pub(crate) fn forget_dropped(&self, _py: Python<'_>) {
        for target in 0..self.direct.len() {
            self.direct(target).forget_dropped();
        }
    }
}
