//! Engines and modules that cases share: an engine takes up much address space, and a guest takes time to compile.

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

/// Instances of an engine that serves one case: each takes up address space, and cases run side by side.
const INSTANCES: u32 = 32;

/// The engines that cases share, and the guests that these have loaded.
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

/// Lets go of the engines that cases share, and of what they loaded: the next case makes them anew. For a process that goes on for long
/// and looks at its memory: an engine keeps what compiling its largest function took.
pub fn forget_shared() {
    let old = std::mem::take(&mut *kept());
    // Here and not under the lock: an engine that goes takes its time.
    drop(old);
}

/// A module that this process runs.
type LoadedHere = Result<Arc<Module>, Status>;

thread_local! {
    /// What guests logged in calls of this thread. A call logs on the thread that makes it, so that calls of many threads
    /// at once keep their messages apart.
    static LOG: RefCell<Vec<ExpectedLog>> = const { RefCell::new(Vec::new()) };
}

/// The engine of all cases that need no other, with the default limits.
///
/// # Panics
/// If the machine does not give what an engine takes.
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

/// The shared engine of the default way to run cases.
///
/// # Panics
/// As for any engine that the machine does not give what it takes.
pub fn shared() -> &'static Engine {
    static SHARED: OnceLock<Engine> = OnceLock::new();
    SHARED.get_or_init(|| match shared_by(Host::default()) {
        Backend::Wasm(engine) => engine,
        Backend::Process(_) => unreachable!("the default is no process"),
    })
}

/// A built guest, loaded into [`shared`] once.
///
/// # Errors
/// The outer one if it was not built, the inner one if it does not load.
pub fn guest(name: &str) -> Result<LoadedHere> {
    Ok(guest_by(Host::default(), name)?.map(|loaded| match loaded {
        Loaded::Wasm(module) => module,
        Loaded::Process(_) => unreachable!("the default is no process"),
    }))
}

/// A built guest, loaded into the shared engine once.
///
/// # Errors
/// The outer one if it was not built, the inner one if it does not load.
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

/// An engine with a case's settings. What guests log is kept for [`take_log`].
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

/// What was logged on this thread since the last time.
pub(super) fn take_log() -> Vec<ExpectedLog> {
    LOG.take()
}
