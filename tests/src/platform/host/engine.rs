//! Engines and modules shared by cases, because an engine reserves much address space and guests
//! take long to compile.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use anyhow::Result;
use callbox::Status;
use callbox::policy::{Limits, LogLevel, Policy};
use callbox::wasm::{Config, Engine, Module};

use super::{Backend, Host, Loaded};
use crate::case::{Case, ExpectedLog};
use crate::module::read_guest;

/// Instances of an engine that serves one case. Each reserves address space, and cases run
/// concurrently.
const INSTANCES: u32 = 32;

/// The shared engines and the guests loaded into them.
#[derive(Default)]
struct Kept {
    backends: HashMap<Host, Backend>,
    guests: HashMap<(Host, String), Result<Loaded, Status>>,
}

fn kept() -> MutexGuard<'static, Kept> {
    static KEPT: OnceLock<Mutex<Kept>> = OnceLock::new();
    let kept = KEPT.get_or_init(Mutex::default);
    kept.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Drops the shared engines and their modules; the next case makes new ones.
///
/// Long-running processes that watch their memory call it, because an engine keeps the memory of
/// its largest compilation.
pub fn forget_shared() {
    let old = std::mem::take(&mut *kept());
    // Dropped after the lock is released, because dropping an engine takes time.
    drop(old);
}

/// A module loaded into this process.
type LoadedHere = Result<Arc<Module>, Status>;

thread_local! {
    /// Messages that guests logged on this thread. A call logs on its calling thread, so concurrent
    /// calls keep their messages apart.
    static LOG: RefCell<Vec<ExpectedLog>> = const { RefCell::new(Vec::new()) };
}

/// Returns the engine of all cases with default settings.
///
/// # Panics
/// If the machine lacks the resources of an engine.
pub(super) fn shared_by(host: Host) -> Backend {
    kept().backend(host)
}

impl Kept {
    fn backend(&mut self, host: Host) -> Backend {
        let new = || {
            let policy = Policy {
                traps: host.traps,
                ..Policy::default()
            };
            let config = Config {
                policy,
                ..Config::default()
            };
            Backend::new(host.wall, config).expect("expected an engine with the default limits")
        };
        self.backends.entry(host).or_insert_with(new).clone()
    }
}

/// Returns the shared engine for the default settings of Host.
///
/// # Panics
/// If the machine lacks the resources of an engine.
pub fn shared() -> &'static Engine {
    static SHARED: OnceLock<Engine> = OnceLock::new();
    SHARED.get_or_init(|| match shared_by(Host::default()) {
        Backend::Wasm(engine) => engine,
        Backend::Process(_) => unreachable!("the default is no process"),
    })
}

/// Loads a built guest into the [`shared`] engine, once.
///
/// # Errors
/// The outer error if it was not built, the inner one if it does not load.
pub fn guest(name: &str) -> Result<LoadedHere> {
    Ok(guest_by(Host::default(), name)?.map(|loaded| match loaded {
        Loaded::Wasm(module) => module,
        Loaded::Process(_) => unreachable!("the default is no process"),
    }))
}

/// Loads a built guest into the shared engine for these settings, once.
///
/// # Errors
/// The outer error if it was not built, the inner one if it does not load.
pub(super) fn guest_by(host: Host, name: &str) -> Result<Result<Loaded, Status>> {
    let mut kept = kept();
    let key = (host, name.to_owned());
    if let Some(module) = kept.guests.get(&key) {
        return Ok(module.clone());
    }
    let module = kept.backend(host).load(&read_guest(name)?);
    kept.guests.insert(key, module.clone());
    Ok(module)
}

/// Makes an engine with a case's settings. [`take_log`] returns what its guests log.
pub(super) fn own(host: Host, case: &Case) -> Result<Backend> {
    let mut policy = case.policy.clone().unwrap_or_default();
    policy.traps = host.traps;
    if policy.limits.instances == Limits::default().instances {
        policy.limits.instances = INSTANCES;
    }
    if policy.grants.log.is_none() {
        policy.grants.log = Some(LogLevel::Trace);
    }
    let config = Config {
        policy,
        log: Some(Arc::new(|record| {
            let message = ExpectedLog {
                level: record.level.to_string(),
                message: record.message.to_owned(),
            };
            LOG.with_borrow_mut(|log| log.push(message));
        })),
        ..Config::default()
    };
    Ok(Backend::new(host.wall, config)?)
}

/// Returns and clears the messages logged on this thread.
pub(super) fn take_log() -> Vec<ExpectedLog> {
    LOG.take()
}
