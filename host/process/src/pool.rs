//! Idle workers of one executable.

use std::sync::{Arc, Mutex, MutexGuard};

use callbox_core::locks::locked;

use crate::child::Process;

/// Idle workers.
#[derive(Debug, Default)]
pub(super) struct Pool(Mutex<Vec<Process>>);

/// A worker for one user. Dropping the lease returns a healthy worker to the pool.
#[derive(Debug)]
pub(super) struct Lease {
    process: Option<Process>,
    pool: Option<Arc<Pool>>,
}

impl Pool {
    /// Takes an idle worker. Workers whose process has ended are dropped.
    pub(super) fn take(&self) -> Option<Process> {
        loop {
            // The lock is released before a worker is dropped.
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
        locked(&self.0)
    }
}

impl Lease {
    /// A lease whose worker returns to `pool`, or is dropped if there is none.
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
