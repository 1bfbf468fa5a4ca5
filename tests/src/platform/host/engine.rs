//! Engines and modules that cases share: an engine takes up much address space, and a guest takes time to compile.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use anyhow::Result;
use callbox::Status;
use callbox::wasm::{Config, Engine, Module};

use crate::case::{Case, ExpectedLog};
use crate::module::read_guest;

type Loaded = Result<Arc<Module>, Status>;

thread_local! {
    /// What guests logged in calls of this thread. A call logs on the thread that makes it, so that calls of many threads
    /// at once keep their messages apart.
    static LOG: RefCell<Vec<ExpectedLog>> = const { RefCell::new(Vec::new()) };
}

/// The engine of all cases that need no other, with the default limits.
///
/// # Panics
/// If the machine does not give what an engine takes.
pub fn shared() -> &'static Engine {
    static ENGINE: OnceLock<Engine> = OnceLock::new();
    ENGINE.get_or_init(|| Engine::new().expect("expected an engine with the default limits"))
}

/// A built guest, loaded into the shared engine once.
///
/// # Errors
/// The outer one if it was not built, the inner one if it does not load.
pub fn guest(name: &str) -> Result<Loaded> {
    static GUESTS: OnceLock<Mutex<HashMap<String, Loaded>>> = OnceLock::new();
    let guests = GUESTS.get_or_init(Mutex::default);
    let mut guests = guests.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(module) = guests.get(name) {
        return Ok(module.clone());
    }
    let module = shared().load(&read_guest(name)?);
    guests.insert(name.to_owned(), module.clone());
    Ok(module)
}

/// An engine with a case's settings. What guests log is kept for [`take_log`].
pub(super) fn own(case: &Case) -> Result<Engine> {
    Ok(Engine::with_config(Config {
        limits: case.limits.clone(),
        isolation: case.isolation,
        log: Some(Arc::new(|record| {
            let message = ExpectedLog {
                level: record.level.to_string(),
                message: record.message.to_owned(),
            };
            LOG.with_borrow_mut(|log| log.push(message));
        })),
    })?)
}

/// What was logged on this thread since the last time.
pub(super) fn take_log() -> Vec<ExpectedLog> {
    LOG.take()
}
