//! Starts the workers of one executable. A call waits for as long as its caller does, and no longer: a start that it does not wait for to the end
//! goes on, and the next call takes it. So calls whose deadlines are shorter than a start come to a worker all the same.

use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::child::{Asking, Process, START};
use super::exchange::{Loss, Patience};
use super::message::Request;
use super::module::ProcessModule;
use crate::call::{CallSite, CancelToken};
use crate::values::{Blame, Result, Status, StatusCode};

/// How often one who waits without a deadline looks whether there is anything to wait for.
const LOOK: Duration = Duration::from_secs(1);

/// What is prepared, for messages.
const PREPARATION: &str = "the preparation of call sites";

/// What a worker of an executable is made of.
#[derive(Debug)]
pub(super) struct Recipe {
    pub(super) module: Arc<ProcessModule>,
    pub(super) sites: Vec<CallSite>,
    /// Whether it is one call site without a program.
    pub(super) is_alone: bool,
    /// Bytes of the largest call's buffers.
    pub(super) bytes: usize,
}

/// A start under way, or done with nobody there to take its worker.
type Start = Receiver<Result<Process>>;

/// Starts an executable's workers.
#[derive(Debug)]
pub(super) struct Starter {
    recipe: Arc<Recipe>,
    /// Those that a call did not wait for to the end.
    left: Mutex<Vec<Start>>,
    /// Nobody will want a worker any more.
    end: CancelToken,
}

impl Recipe {
    /// A worker that has prepared the call sites.
    fn start(&self, cancel: Option<&CancelToken>) -> Result<Process> {
        let mut process = self.module.worker(cancel)?;
        let limit = self.module.shared.policy.limits.deadline;
        let until = limit.and_then(|limit| Instant::now().checked_add(limit.saturating_add(START)));
        let asking = Asking {
            cancel,
            calls: self.sites.len(),
            ..Asking::plain(PREPARATION, until)
        };
        process.ask(&Request::Prepare(self.sites.clone(), self.is_alone), asking)?;
        let sized = process.buffers.set_size(self.bytes);
        sized.map_err(|error| process.lose(Loss::Failed(error), PREPARATION))?;
        Ok(process)
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

    /// Starts a worker, however long it takes.
    pub(super) fn start(&self) -> Result<Process> {
        self.recipe.start(None)
    }

    /// A worker, for one who waits as long as this lets it.
    ///
    /// # Errors
    /// What `check` says once there is no patience left, or why there is no worker.
    pub(super) fn start_within(
        &self,
        patience: Patience<'_>,
        check: impl Fn() -> Result<()>,
    ) -> Result<Process> {
        let left = self.left().pop();
        if let Some(left) = left {
            // What that start failed with was another's to hear.
            match self.wait(left, patience, &check)? {
                Ok(process) if process.is_there() => return Ok(process),
                _ => {}
            }
        }
        match patience.is_endless() {
            true => self.start(),
            false => self.wait(self.begin()?, patience, &check)?,
        }
    }

    fn begin(&self) -> Result<Start> {
        let (sender, receiver) = mpsc::sync_channel(1);
        let recipe = Arc::clone(&self.recipe);
        let end = self.end.clone();
        let thread = thread::Builder::new().name("callbox-starter".to_owned());
        // Without a receiver the worker ends here.
        let started = thread.spawn(move || drop(sender.send(recipe.start(Some(&end)))));
        started.map(|_| receiver).map_err(|error| {
            Status::new(
                StatusCode::ResourceExhausted,
                Blame::Host,
                format!("expected a thread to start a worker: {error}"),
            )
        })
    }

    /// Waits for a start, or leaves it to others.
    fn wait(
        &self,
        start: Start,
        patience: Patience<'_>,
        check: impl Fn() -> Result<()>,
    ) -> Result<Result<Process>> {
        loop {
            match start.recv_timeout(patience.slice().unwrap_or(LOOK)) {
                Ok(started) => return Ok(started),
                Err(RecvTimeoutError::Timeout) => {
                    if let Err(status) = check() {
                        self.left().push(start);
                        return Err(status);
                    }
                }
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(Status::internal("the thread that starts a worker is gone"));
                }
            }
        }
    }

    fn left(&self) -> MutexGuard<'_, Vec<Start>> {
        self.left.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Starter {
    fn drop(&mut self) {
        self.end.cancel();
    }
}
