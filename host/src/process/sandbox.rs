//! The sandbox: what all modules behind the second wall share.

use std::fmt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use super::config::{LogSink, SandboxConfig};
use super::module::ProcessModule;
use super::pool::Pool;
use super::spawner::Spawner;
use crate::policy::{Grants, Policy};
use crate::values::{Blame, Result, Status, StatusCode};

/// Instances that a worker's engine has room for. It runs one call at a time.
const INSTANCES: u32 = 4;

/// Starts workers and loads modules into them. Cloning it is cheap and gives the same sandbox.
#[derive(Clone, Debug)]
pub struct Sandbox {
    shared: Arc<Shared>,
}

/// What modules and workers need of their sandbox.
pub(super) struct Shared {
    pub(super) policy: Policy,
    pub(super) log: Option<LogSink>,
    pub(super) spawner: Spawner,
    /// Tells this sandbox's modules from another's.
    pub(super) id: u64,
    processes: Arc<AtomicUsize>,
    /// Idle workers, which make way for others.
    pools: Mutex<Vec<Weak<Pool>>>,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared")
            .field("policy", &self.policy)
            .finish_non_exhaustive()
    }
}

/// A worker's place among those that there may be.
#[derive(Debug)]
pub(super) struct Place(Arc<AtomicUsize>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The next sandbox's number.
static NEXT_ID: AtomicU64 = AtomicU64::new(0);

impl Sandbox {
    /// A sandbox. No worker is started yet.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED if the machine does not give the thread that it takes.
    pub fn new(config: SandboxConfig) -> Result<Self> {
        let SandboxConfig {
            policy,
            worker,
            log,
        } = config;
        let spawner = Spawner::start(worker).map_err(|error| {
            Status::new(
                StatusCode::ResourceExhausted,
                Blame::Host,
                format!("expected to start the thread that starts workers: {error}"),
            )
        })?;
        let shared = Shared {
            policy,
            log,
            spawner,
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            processes: Arc::default(),
            pools: Mutex::default(),
        };
        Ok(Self {
            shared: Arc::new(shared),
        })
    }

    /// Loads a module: reads what it declares here, and compiles it in a worker.
    ///
    /// # Errors
    /// As for [`Engine::load`](crate::wasm::Engine::load); UNIMPLEMENTED if the policy grants more than log messages; UNAVAILABLE if
    /// no worker can be started, or one ends while it compiles.
    pub fn load(&self, wasm: &[u8]) -> Result<Arc<ProcessModule>> {
        self.load_with(wasm, &self.shared.policy.grants)
    }

    /// Loads a module that may reach this, in place of what the policy grants to targets that it does not name.
    ///
    /// # Errors
    /// As for [`Sandbox::load`].
    pub fn load_with(&self, wasm: &[u8], grants: &Grants) -> Result<Arc<ProcessModule>> {
        ProcessModule::new(&self.shared, wasm, grants).map(Arc::new)
    }

    /// The policy.
    #[must_use]
    pub fn policy(&self) -> &Policy {
        &self.shared.policy
    }
}

impl Shared {
    /// The policy for a worker that serves a module with these grants, as JSON.
    pub(super) fn policy_for(&self, grants: &Grants) -> Result<String> {
        let mut policy = self.policy.clone();
        policy.grants = grants.clone();
        policy.targets.clear();
        policy.limits.instances = policy.limits.instances.min(INSTANCES);
        policy.to_json()
    }

    /// A place for one more worker that runs something. Where there is none, an idle one makes way.
    pub(super) fn place(&self) -> Result<Place> {
        let most = self.policy.limits.instances as usize;
        loop {
            let before = self.processes.fetch_add(1, Ordering::Relaxed);
            let place = Place(Arc::clone(&self.processes));
            if before < most {
                return Ok(place);
            }
            drop(place);
            if !self.evict_one() {
                return Err(Status::new(
                    StatusCode::ResourceExhausted,
                    Blame::Caller,
                    format!(
                        "the module's start: expected at most {most} instances at one time, found more"
                    ),
                ));
            }
        }
    }

    /// Checks that this is the process that the sandbox was made in.
    pub(super) fn check_here(&self) -> Result<()> {
        match self.spawner.is_here() {
            true => Ok(()),
            false => Err(Status::new(
                StatusCode::FailedPrecondition,
                Blame::Caller,
                "expected a sandbox that was made in this process, found one from before a fork",
            )),
        }
    }

    /// Lets a pool's idle workers make way.
    pub(super) fn add_pool(&self, pool: &Arc<Pool>) {
        let mut pools = self.pools.lock().unwrap_or_else(PoisonError::into_inner);
        pools.retain(|pool| pool.strong_count() > 0);
        pools.push(Arc::downgrade(pool));
    }

    /// Drops an idle worker, if there is one.
    fn evict_one(&self) -> bool {
        let pools = self.pools.lock().unwrap_or_else(PoisonError::into_inner);
        let alive: Vec<_> = pools.iter().filter_map(Weak::upgrade).collect();
        drop(pools);
        alive.iter().any(|pool| pool.take().is_some())
    }

    /// Bytes that a guest's text may have here. A worker has cut it and made it fit to be shown, which can make it longer.
    pub(super) fn text_limit(&self) -> usize {
        const MORE: usize = 256;
        let limit = self.policy.limits.message_bytes;
        limit.saturating_mul(3).saturating_add(MORE)
    }
}
