//! Engines and modules that cases share: an engine takes up much address space, and a guest takes time to compile.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use anyhow::Result;
use callbox::Status;
use callbox::wasm::{Config, Engine, Module};

use crate::case::{Case, ExpectedLog};
use crate::module::read_guest;

type Loaded = Result<Arc<Module>, Status>;

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

/// An engine with a case's settings. What guests log goes to `log`.
pub(super) fn own(case: &Case, log: &Arc<Mutex<Vec<ExpectedLog>>>) -> Result<Engine> {
    let log = Arc::clone(log);
    Ok(Engine::with_config(Config {
        limits: case.limits.clone(),
        isolation: case.isolation,
        log: Some(Arc::new(move |record| {
            let message = ExpectedLog {
                level: record.level.to_string(),
                message: record.message.to_owned(),
            };
            log.lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push(message);
        })),
    })?)
}
