//! A compiled module with its imports resolved, once for each watch.
//!
//! All imports but the stop memory are the same for every instance. Resolving them takes longer
//! than the rest of a fresh instance's start, so that the result is kept.

use std::sync::{Arc, Mutex};

use callbox_core::locks::locked;

use wasmtime::{InstancePre, Linker, Store};

use crate::fork;
use crate::rewrite;
use crate::state::GuestState;

/// The most results that are kept. A module with more instances at one time resolves the imports of
/// the others anew.
const MOST: usize = 32;

/// A compiled module and the functions that it may import.
pub(crate) struct Linked {
    module: wasmtime::Module,
    linker: Arc<Linker<GuestState>>,
    /// Results by the watch's number.
    ready: Mutex<Vec<(usize, InstancePre<GuestState>)>>,
    /// The process that loaded the module.
    generation: u32,
}

impl Drop for Linked {
    /// In a forked child, leaks what was linked: dropping it takes locks of wasmtime, which a
    /// thread that does not exist there may hold. `LoadedModule` leaks the module itself.
    fn drop(&mut self) {
        if self.generation != fork::generation() {
            std::mem::forget(Arc::clone(&self.linker));
            std::mem::forget(std::mem::take(&mut self.ready));
        }
    }
}

impl Linked {
    pub(crate) fn new(module: wasmtime::Module, linker: Arc<Linker<GuestState>>) -> Self {
        Self {
            module,
            linker,
            ready: Mutex::default(),
            generation: fork::generation(),
        }
    }

    /// Links the module for an instance in this store, with the stop memory of the store's watch.
    ///
    /// # Errors
    /// wasmtime's, if the module has an import that is not defined.
    pub(crate) fn pre(
        &self,
        store: &mut Store<GuestState>,
    ) -> wasmtime::Result<InstancePre<GuestState>> {
        let watch = store.data().interrupt.watch();
        let (id, memory) = (watch.id(), watch.memory().clone());
        let mut ready = locked(&self.ready);
        if let Some((_, pre)) = ready.iter().find(|(of, _)| *of == id) {
            return Ok(pre.clone());
        }
        let mut linker = Linker::clone(&self.linker);
        let (module, name) = rewrite::IMPORT;
        linker.define(&mut *store, module, name, memory)?;
        let pre = linker.instantiate_pre(&self.module)?;
        if ready.len() < MOST {
            ready.push((id, pre.clone()));
        }
        Ok(pre)
    }
}
