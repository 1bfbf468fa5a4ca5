//! The sandbox that modules behind the second wall share.

use std::fmt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};

use crate::config::{LogSink, SandboxConfig};
use crate::module::ProcessModule;
use crate::pool::Pool;
use crate::spawner::{End, Spawner};
use callbox_core::locks::locked;
use callbox_core::policy::{CompileIn, Grants, Policy};
use callbox_core::values::{Blame, Result, Status, StatusCode};
use callbox_wasm::ModuleFile;

/// The instances that a worker's engine can hold. It runs one call at a time.
const INSTANCES: u32 = 4;

/// Starts workers and loads modules into them. A clone refers to the same sandbox.
#[derive(Clone, Debug)]
pub struct Sandbox {
    shared: Arc<Shared>,
}

/// The part of a sandbox that its modules and workers share.
pub(super) struct Shared {
    pub(super) policy: Policy,
    pub(super) log: Option<LogSink>,
    pub(super) spawner: Spawner,
    /// A number that is unique in this process.
    pub(super) id: u64,
    processes: Arc<AtomicUsize>,
    /// Idle workers, which are evicted when the limit on processes is met.
    pools: Mutex<Vec<Weak<Pool>>>,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared")
            .field("policy", &self.policy)
            .finish_non_exhaustive()
    }
}

/// A worker's share of the limit on processes.
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
    /// Makes a sandbox. Workers are started when a module is loaded.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED if the thread that starts workers cannot be started.
    pub fn new(config: SandboxConfig) -> Result<Self> {
        let SandboxConfig {
            policy,
            worker,
            log,
        } = config;
        let spawner = Spawner::start(worker, End::AllGone).map_err(|error| {
            Status::new(
                StatusCode::ResourceExhausted,
                Blame::Host,
                format!("cannot start the thread that starts workers: {error}"),
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

    /// Loads a module: reads its declarations in this process and compiles it in a worker.
    ///
    /// # Errors
    /// As for [`Engine::load`](callbox_wasm::Engine::load); UNIMPLEMENTED if the policy grants more
    /// than log messages; UNAVAILABLE if no worker can be started, or one ends while it compiles.
    pub fn load(&self, wasm: &[u8]) -> Result<Arc<ProcessModule>> {
        self.load_with(wasm, &self.shared.policy.grants)
    }

    /// Loads a module with these grants in place of the policy's default ones.
    ///
    /// # Errors
    /// As for [`Sandbox::load`].
    pub fn load_with(&self, wasm: &[u8], grants: &Grants) -> Result<Arc<ProcessModule>> {
        self.load_described(self.describe(wasm)?, grants)
    }

    /// Loads a module from a file that was read or described before.
    ///
    /// # Errors
    /// As for [`Sandbox::load`].
    pub fn load_file(&self, file: &ModuleFile, grants: &Grants) -> Result<Arc<ProcessModule>> {
        let file = if file.is_within(&self.shared.policy.limits) {
            file.clone()
        } else {
            self.describe(file.bytes())?
        };
        self.load_described(file, grants)
    }

    fn describe(&self, wasm: &[u8]) -> Result<ModuleFile> {
        ModuleFile::describe(wasm.to_vec(), &self.shared.policy.limits)
    }

    fn load_described(&self, file: ModuleFile, grants: &Grants) -> Result<Arc<ProcessModule>> {
        ProcessModule::new(&self.shared, file, grants).map(Arc::new)
    }

    /// The policy of the sandbox.
    #[must_use]
    pub fn policy(&self) -> &Policy {
        &self.shared.policy
    }
}

impl Shared {
    /// The policy, as JSON, of a worker whose module has these grants.
    pub(super) fn policy_for(&self, grants: &Grants) -> Result<String> {
        let mut policy = self.policy.clone();
        policy.grants = grants.clone();
        policy.targets.clear();
        // A worker starts no processes.
        policy.compile = CompileIn::ThisProcess;
        policy.limits.instances = policy.limits.instances.min(INSTANCES);
        policy.to_json()
    }

    /// Takes a place for one more worker, evicting idle workers if there is none.
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

    /// Fails in a forked child: workers belong to the process that made the sandbox.
    pub(super) fn check_here(&self) -> Result<()> {
        if self.spawner.is_here() {
            return Ok(());
        }
        Err(Status::new(
            StatusCode::FailedPrecondition,
            Blame::Caller,
            "the sandbox was made before this process was forked: make another one in this process",
        ))
    }

    /// Makes the idle workers of a pool evictable.
    pub(super) fn add_pool(&self, pool: &Arc<Pool>) {
        let mut pools = locked(&self.pools);
        pools.retain(|pool| pool.strong_count() > 0);
        pools.push(Arc::downgrade(pool));
    }

    /// Drops an idle worker, if there is one.
    fn evict_one(&self) -> bool {
        let pools = locked(&self.pools);
        let alive: Vec<_> = pools.iter().filter_map(Weak::upgrade).collect();
        drop(pools);
        alive.iter().any(|pool| pool.take().is_some())
    }

    /// The longest text of a guest here. A worker cuts texts to the limit, then escapes them: a
    /// line break between quotation marks becomes five bytes.
    pub(super) fn text_limit(&self) -> usize {
        const MORE: usize = 256;
        let limit = self.policy.limits.message_bytes;
        limit.saturating_mul(5).saturating_add(MORE)
    }
}
