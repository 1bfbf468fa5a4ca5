//! The modules of compiled programs, which find them by key.
//!
//! A module stays until it is closed or the process ends, because XLA does not tell when it drops a
//! program. The key covers file, policy and native code, so a cached program never calls another
//! module.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, PoisonError, RwLock, RwLockWriteGuard, Weak};

use callbox::{Blame, Status, StatusCode};

use crate::module::ModuleCore;

/// The characters of a key, which has 64, that an error quotes.
const MOST_SHOWN: usize = 80;

/// By key. None: the module was closed, and the next one with its key takes its place.
static MODULES: LazyLock<RwLock<Modules>> = LazyLock::new(RwLock::default);

/// All open modules of this process by key. Several hosts may have loaded the same file.
static LOADED: LazyLock<RwLock<Loaded>> = LazyLock::new(RwLock::default);

type Modules = HashMap<String, Option<Arc<ModuleCore>>>;
type Loaded = HashMap<String, Vec<Weak<ModuleCore>>>;

/// Keeps all other threads from what is known.
pub(crate) fn locked() -> (
    RwLockWriteGuard<'static, Loaded>,
    RwLockWriteGuard<'static, Modules>,
) {
    let loaded = LOADED.write().unwrap_or_else(PoisonError::into_inner);
    let modules = MODULES.write().unwrap_or_else(PoisonError::into_inner);
    (loaded, modules)
}

/// Makes a module known to [`loaded`] while it exists, and to programs whose module of this key was
/// closed.
pub(crate) fn note_loaded(module: &Arc<ModuleCore>) {
    let (mut loaded, mut modules) = locked();
    loaded.retain(|_, modules| {
        modules.retain(|module| module.strong_count() > 0);
        !modules.is_empty()
    });
    let same = loaded.entry(module.key.clone()).or_default();
    same.push(Arc::downgrade(module));
    let closed = match modules.get_mut(&module.key) {
        Some(kept) if !is_open(kept.as_ref()) => kept.replace(Arc::clone(module)),
        _ => None,
    };
    drop((loaded, modules));
    // Without the locks: dropping a module takes time.
    drop(closed);
}

fn is_open(kept: Option<&Arc<ModuleCore>>) -> bool {
    kept.is_some_and(|module| module.is_open())
}

/// The module with this key that a program was traced with or that is loaded now.
pub(crate) fn loaded(key: &str) -> Option<Arc<ModuleCore>> {
    let loaded = LOADED.read().unwrap_or_else(PoisonError::into_inner);
    let known = loaded.get(key).into_iter().flatten();
    let known = known.rev().find_map(Weak::upgrade);
    known.or_else(|| find(key).ok())
}

/// Registers a module. Modules with the same key behave the same, so the first one stays while it
/// is open.
///
/// # Errors
/// FAILED_PRECONDITION if the module is closed.
pub(crate) fn keep(module: &Arc<ModuleCore>) -> callbox::Result<()> {
    let mut modules = MODULES.write().unwrap_or_else(PoisonError::into_inner);
    // With the lock: a module that is closed later is forgotten afterwards.
    module.check_open()?;
    let kept = modules.entry(module.key.clone()).or_default();
    let closed = if is_open(kept.as_ref()) {
        None
    } else {
        kept.replace(Arc::clone(module))
    };
    drop(modules);
    drop(closed);
    Ok(())
}

/// Forgets a module that is being closed. Programs go on with another module of its key, if one is
/// loaded.
pub(crate) fn forget(module: &Arc<ModuleCore>) {
    let (mut loaded, mut modules) = locked();
    let mut other = None;
    if let Some(same) = loaded.get_mut(&module.key) {
        same.retain(|known| !std::ptr::eq(known.as_ptr(), Arc::as_ptr(module)));
        other = same.iter().rev().find_map(Weak::upgrade);
    }
    let gone = match modules.get_mut(&module.key) {
        Some(kept) if kept.as_ref().is_some_and(|kept| Arc::ptr_eq(kept, module)) => {
            std::mem::replace(kept, other)
        }
        _ => other,
    };
    drop((modules, loaded));
    // Without the locks: dropping a module takes time.
    drop(gone);
}

/// Finds the module with this key.
///
/// # Errors
/// NOT_FOUND if no such module is registered in this process, FAILED_PRECONDITION if it was closed.
pub(crate) fn find(key: &str) -> callbox::Result<Arc<ModuleCore>> {
    let modules = MODULES.read().unwrap_or_else(PoisonError::into_inner);
    // A stranger's program may have it.
    let shown: String = key.chars().take(MOST_SHOWN).collect();
    match modules.get(key) {
        Some(Some(module)) => Ok(Arc::clone(module)),
        Some(None) => Err(Status::new(
            StatusCode::FailedPrecondition,
            Blame::Caller,
            format!(
                "the program's module, of the key {shown:?}, is closed: load the same file again \
                 with the same policy"
            ),
        )),
        None => Err(Status::not_found(format!(
            "expected a module of the key {shown:?}, found {} others: a program that was made in \
             another process needs the same module, loaded with the same policy (Module.register)",
            modules.len()
        ))),
    }
}
