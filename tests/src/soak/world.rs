//! An engine with a limited lifetime, and the module and executables that all threads share.

use std::sync::Arc;
use std::time::Duration;

use callbox::Status;
use callbox::policy::{Grants, Isolation, Limits, LogLevel, Policy, Traps};
use callbox::wasm::{Config, Engine, Module};
use fastrand::Rng;

use super::subject::{self, Subject};

/// The subject of the threads' calls until it is replaced. The engine is dropped with its last
/// user.
pub(super) struct World {
    pub(super) isolation: Isolation,
    pub(super) module: Arc<Module>,
    /// Executables that all threads share.
    pub(super) shared: Subject,
}

impl World {
    /// Makes an engine with one of the policies.
    ///
    /// It has fewer instance slots than the call sites would pool, so that idle instances are
    /// evicted all the time. One call needs at most three slots.
    pub(super) fn new(random: &mut Rng, threads: usize) -> Result<Self, Status> {
        let isolation = *pick(random, &[Isolation::Executable, Isolation::Fresh]);
        let policy = Policy {
            limits: Limits {
                instances: u32::try_from(threads * 4).unwrap_or(u32::MAX),
                memory_bytes: 8 << 20,
                // No call that the soak wants to stop waits for this deadline.
                deadline: Some(Duration::from_secs(60)),
                ..Limits::default()
            },
            isolation,
            traps: *pick(random, &[Traps::Signals, Traps::Signals, Traps::Explicit]),
            grants: Grants::log(LogLevel::Trace),
            ..Policy::default()
        };
        let engine = Engine::with_config(Config {
            policy,
            log: Some(Arc::new(subject::sink)),
            ..Config::default()
        })?;
        let module = engine.load(&subject::module())?;
        Ok(Self {
            isolation,
            shared: Subject::new(&module)?,
            module,
        })
    }
}

fn pick<'a, T>(random: &mut Rng, from: &'a [T]) -> &'a T {
    &from[random.usize(..from.len())]
}
