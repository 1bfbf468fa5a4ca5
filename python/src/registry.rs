//! The modules of compiled programs, which find them by key.
//!
//! A module stays until the process ends, because XLA does not tell when it drops a program. The
//! key covers file, policy and native code, so a cached program never calls another module.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, PoisonError, RwLock, Weak};

use callbox::Status;

use crate::module::ModuleCore;

static MODULES: LazyLock<RwLock<HashMap<String, Arc<ModuleCore>>>> = LazyLock::new(RwLock::default);

/// All modules of this process by key, for unpickling.
static LOADED: LazyLock<RwLock<HashMap<String, Weak<ModuleCore>>>> = LazyLock::new(RwLock::default);

/// Makes a module known to [`loaded`] while it exists.
pub(crate) fn note_loaded(module: &Arc<ModuleCore>) {
    let mut loaded = LOADED.write().unwrap_or_else(PoisonError::into_inner);
    loaded.retain(|_, module| module.strong_count() > 0);
    loaded.insert(module.key.clone(), Arc::downgrade(module));
}

/// The module with this key that a program was traced with or that is loaded now.
pub(crate) fn loaded(key: &str) -> Option<Arc<ModuleCore>> {
    let loaded = LOADED.read().unwrap_or_else(PoisonError::into_inner);
    let known = loaded.get(key).and_then(Weak::upgrade);
    known.or_else(|| find(key).ok())
}

/// Registers a module. Modules with the same key behave the same, so the first one stays.
pub(crate) fn keep(module: &Arc<ModuleCore>) {
    let mut modules = MODULES.write().unwrap_or_else(PoisonError::into_inner);
    modules
        .entry(module.key.clone())
        .or_insert_with(|| Arc::clone(module));
}

/// Finds the module with this key.
///
/// # Errors
/// NOT_FOUND if no such module is registered in this process.
pub(crate) fn find(key: &str) -> callbox::Result<Arc<ModuleCore>> {
    let modules = MODULES.read().unwrap_or_else(PoisonError::into_inner);
    modules.get(key).cloned().ok_or_else(|| {
        Status::not_found(format!(
            "expected a module of the key {key:?}, found {} others: a program that was made in \
             another process needs the same module, loaded with the same policy (Module.register)",
            modules.len()
        ))
    })
}
