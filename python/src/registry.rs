//! The modules that programs were made with. A compiled program knows a module by its key, and may be run for as long as the process
//! lives: so they stay.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, PoisonError, RwLock};

use callbox::Status;

use crate::module::ModuleCore;

static MODULES: LazyLock<RwLock<HashMap<String, Arc<ModuleCore>>>> = LazyLock::new(RwLock::default);

/// Has programs find this module by its key. Modules of the same key do the same: the first one stays.
pub(crate) fn keep(module: &Arc<ModuleCore>) {
    let mut modules = MODULES.write().unwrap_or_else(PoisonError::into_inner);
    modules
        .entry(module.key.clone())
        .or_insert_with(|| Arc::clone(module));
}

/// The module of this key.
///
/// # Errors
/// NOT_FOUND if no module of this key was loaded for programs in this process.
pub(crate) fn find(key: &str) -> callbox::Result<Arc<ModuleCore>> {
    let modules = MODULES.read().unwrap_or_else(PoisonError::into_inner);
    modules.get(key).cloned().ok_or_else(|| {
        Status::not_found(format!(
            "expected a module of the key {key:?}, found {} others: a program that was made in another process needs the same module, loaded with the same policy \
             (Module.register)",
            modules.len()
        ))
    })
}
