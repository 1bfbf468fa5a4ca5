//! Starts the workers of one executable.
//!
//! A call waits for a start no longer than its own deadline. A start that a call gives up
//! continues, and a later call takes its worker. Calls with deadlines shorter than a start thus get
//! a worker eventually.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

use crate::child::{Asking, Process, START};
use crate::exchange::{Loss, Patience};
use crate::message::Request;
use crate::module::ProcessModule;
use callbox_core::call::{CallSite, CancelToken, Stage};
use callbox_core::locks::locked;
use callbox_core::values::{Blame, Result, Status, StatusCode};

/// The interval at which a wait without a deadline checks whether the call should still run.
const LOOK: Duration = Duration::from_secs(1);

/// The name of the preparation in messages.
const PREPARATION: &str = "the preparation of call sites";

/// The module and call sites of an executable's workers.
#[derive(Debug)]
pub(super) struct Recipe {
    pub(super) module: Arc<ProcessModule>,
    pub(super) sites: Vec<CallSite>,
    /// Whether this is a single call site outside a program.
    pub(super) is_alone: bool,
    /// Bytes of the buffers of the largest call.
    pub(super) bytes: usize,
}

/// A start in progress, or one whose worker has not been taken.
#[derive(Debug)]
struct Start {
    worker: Receiver<Result<Process>>,
    /// Whether the worker prepares the call sites now.
    prepares: Arc<AtomicBool>,
}

/// Starts an executable's workers.
#[derive(Debug)]
pub(super) struct Starter {
    recipe: Arc<Recipe>,
    /// The starts that calls gave up.
    left: Mutex<Vec<Start>>,
    /// Cancelled when the executable is dropped.
    end: CancelToken,
}

impl Recipe {
    /// Starts a worker and has it prepare the call sites, while `prepares` is true.
    fn start(&self, cancel: Option<&CancelToken>, prepares: &AtomicBool) -> Result<Process> {
        let mut process = self.module.worker(cancel)?;
        let limit = self.module.shared.policy.limits.deadline;
        let until = limit.and_then(|limit| Instant::now().checked_add(limit.saturating_add(START)));
        let asking = Asking {
            cancel,
            calls: self.sites.len(),
            ..Asking::plain(PREPARATION, until)
        };
        let request = Request::prepare(&self.sites, self.is_alone)?;
        prepares.store(true, Ordering::Relaxed);
        let answer = process.ask(&request, asking);
        prepares.store(false, Ordering::Relaxed);
        answer?;
        let sized = process.buffers.set_size(self.bytes);
        sized.map_err(|error| process.lose(Loss::Failed(error), PREPARATION))?;
        Ok(process)
    }

    /// The target whose stage instantiate is part of the preparation.
    fn instantiated(&self) -> Option<&str> {
        let targets = &self.module.info().targets;
        let has_stage = |site: &&CallSite| {
            let mut targets = targets.iter();
            targets.any(|target| {
                target.name == site.target && target.stages.contains(&Stage::Instantiate)
            })
        };
        let site = self.sites.iter().find(has_stage)?;
        Some(&site.target)
    }

    /// The status of a call that gave up a start. If its deadline passed while the worker prepared
    /// a target that runs then, it is the guest that took the time.
    fn blamed(&self, status: Status, start: &Start) -> Status {
        let is_late = status.code() == StatusCode::DeadlineExceeded;
        match self.instantiated() {
            Some(target) if is_late && start.prepares.load(Ordering::Relaxed) => {
                let message = format!("stage instantiate: target {target:?} ran past its deadline");
                let code = StatusCode::DeadlineExceeded;
                Status::new(code, Blame::Guest, message).context(self.module.label())
            }
            _ => status,
        }
    }
}

impl Starter {
    pub(super) fn new(recipe: Recipe) -> Self {
        Self {
            recipe: Arc::new(recipe),
            left: Mutex::default(),
            end: CancelToken::new(),
        }
    }

    /// Starts a worker without a time limit.
    pub(super) fn start(&self) -> Result<Process> {
        self.recipe.start(None, &AtomicBool::new(false))
    }

    /// Starts a worker, or takes an earlier start's, within the time limit of `patience`.
    ///
    /// # Errors
    /// The status of `check` once the time is up, or the reason why no worker started.
    pub(super) fn start_within(
        &self,
        patience: Patience<'_>,
        check: impl Fn() -> Result<()>,
    ) -> Result<Process> {
        let left = self.left().pop();
        if let Some(left) = left {
            // An error of an earlier start is not this call's.
            match self.wait(left, patience, &check)? {
                Ok(process) if process.is_there() => return Ok(process),
                _ => {}
            }
        }
        if patience.is_endless() {
            self.start()
        } else {
            self.wait(self.begin()?, patience, &check)?
        }
    }

    fn begin(&self) -> Result<Start> {
        let (sender, worker) = mpsc::sync_channel(1);
        let prepares = Arc::<AtomicBool>::default();
        let start = Start {
            worker,
            prepares: Arc::clone(&prepares),
        };
        let recipe = Arc::clone(&self.recipe);
        let end = self.end.clone();
        let thread = thread::Builder::new().name("callbox-starter".to_owned());
        // If the executable was dropped, so was the receiver, and the worker is dropped here.
        let started = thread.spawn(move || drop(sender.send(recipe.start(Some(&end), &prepares))));
        started.map(|_| start).map_err(|error| {
            Status::new(
                StatusCode::ResourceExhausted,
                Blame::Host,
                format!("cannot start a thread for the start of a worker: {error}"),
            )
        })
    }

    /// Waits for a start. When the time is up, the start is left to a later call.
    fn wait(
        &self,
        start: Start,
        patience: Patience<'_>,
        check: impl Fn() -> Result<()>,
    ) -> Result<Result<Process>> {
        loop {
            match start.worker.recv_timeout(patience.slice().unwrap_or(LOOK)) {
                Ok(started) => return Ok(started),
                Err(RecvTimeoutError::Timeout) => {
                    if let Err(status) = check() {
                        let status = self.recipe.blamed(status, &start);
                        self.left().push(start);
                        return Err(status);
                    }
                }
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(Status::internal(
                        "the thread that starts a worker has ended",
                    ));
                }
            }
        }
    }

    fn left(&self) -> MutexGuard<'_, Vec<Start>> {
        locked(&self.left)
    }
}

impl Drop for Starter {
    fn drop(&mut self) {
        self.end.cancel();
    }
}
