//! The workers of one executable that nobody uses.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::child::Process;

/// Idle workers.
#[derive(Debug, Default)]
pub(super) struct Pool(Mutex<Vec<Process>>);

/// The right to a worker. When it ends, the worker stays in the pool if it is healthy and may serve again.
#[derive(Debug)]
pub(super) struct Lease {
    process: Option<Process>,
    pool: Option<Arc<Pool>>,
}

impl Pool {
    /// An idle worker. Those that ended meanwhile are buried.
    pub(super) fn take(&self) -> Option<Process> {
        loop {
            // The lock is let go before a worker is.
            let idle = self.locked().pop()?;
            if idle.is_there() {
                return Some(idle);
            }
        }
    }

    pub(super) fn put(&self, process: Process) {
        if process.is_healthy() {
            self.locked().push(process);
        }
    }

    fn locked(&self) -> MutexGuard<'_, Vec<Process>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Lease {
    /// A worker that goes to this pool afterwards, or nowhere.
    pub(super) fn new(process: Process, pool: Option<Arc<Pool>>) -> Self {
        Self {
            process: Some(process),
            pool,
        }
    }

    /// The worker, if it is healthy.
    pub(super) fn process(&mut self) -> Option<&mut Process> {
        self.process.as_mut().filter(|process| process.is_healthy())
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if let (Some(process), Some(pool)) = (self.process.take(), &self.pool) {
            pool.put(process);
        }
    }
}
