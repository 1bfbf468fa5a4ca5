//! Children without a job, and those that are being started.

use std::io;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::Instant;

use callbox_core::call::processors;
use callbox_core::locks::locked;
use callbox_core::values::Status;

use super::child::{CompilerChild, Settings, StartFailure};
use crate::spawner::Spawner;

/// The children that start at one time: as many as there are processors. Starting takes some
/// processor time, at the priority of this process.
#[derive(Debug, Default)]
pub(super) struct Starts {
    running: Mutex<usize>,
    changed: Condvar,
}

/// The right to start a child, given back when it is dropped.
struct Start<'a>(&'a Starts);

impl Starts {
    /// Waits until another child may start.
    fn begin(&self) -> Start<'_> {
        let running = locked(&self.running);
        let running = self
            .changed
            .wait_while(running, |running| *running >= processors());
        *running.unwrap_or_else(PoisonError::into_inner) += 1;
        Start(self)
    }
}

impl Drop for Start<'_> {
    fn drop(&mut self) {
        *locked(&self.0.running) -= 1;
        self.0.changed.notify_one();
    }
}

/// A child without a job.
#[derive(Debug)]
pub(super) enum Spare {
    Ready(CompilerChild),
    /// A child that a thread in the background starts.
    Starting(Settings, Receiver<Result<CompilerChild, StartFailure>>),
}

impl Spare {
    /// Starts a child in the background. If the spare is dropped, so is the child.
    ///
    /// # Errors
    /// The system's, if it cannot start a thread.
    pub(super) fn start(
        starts: &Arc<Starts>,
        spawner: &Arc<Spawner>,
        settings: &Settings,
    ) -> io::Result<Self> {
        let (sender, receiver) = mpsc::sync_channel(1);
        let starting = Self::Starting(settings.clone(), receiver);
        let (starts, spawner) = (Arc::clone(starts), Arc::clone(spawner));
        let settings = settings.clone();
        thread::Builder::new()
            .name("callbox-refill".to_owned())
            .spawn(move || {
                let start = starts.begin();
                let child = CompilerChild::start(&spawner, &settings);
                drop(start);
                // Fails if the spare was dropped.
                let _ = sender.send(child);
            })?;
        Ok(starting)
    }

    pub(super) fn has(&self, settings: &Settings) -> bool {
        match self {
            Self::Ready(child) => child.settings() == settings,
            Self::Starting(starting, _) => starting == settings,
        }
    }

    /// The child, once it has started. `Err` has the spare if it still starts at `until`.
    pub(super) fn wait(
        self,
        until: Instant,
    ) -> Result<Result<CompilerChild, StartFailure>, Box<Self>> {
        let (settings, receiver) = match self {
            Self::Ready(child) => return Ok(Ok(child)),
            Self::Starting(settings, receiver) => (settings, receiver),
        };
        match receiver.recv_timeout(until.saturating_duration_since(Instant::now())) {
            Ok(outcome) => Ok(outcome),
            Err(RecvTimeoutError::Timeout) => Err(Box::new(Self::Starting(settings, receiver))),
            Err(RecvTimeoutError::Disconnected) => {
                let gone = "the thread that starts a compiler is gone";
                Ok(Err(StartFailure::NotStarted(Status::internal(gone))))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(
        clippy::unwrap_used,
        clippy::panic,
        reason = "a test fails by panicking"
    )]

    use std::time::Duration;

    use super::*;
    use crate::message::decode;

    #[test]
    fn as_many_children_start_as_there_are_processors() {
        let starts = Starts::default();
        let mut running = Vec::from_iter((0..processors()).map(|_| starts.begin()));
        thread::scope(|scope| {
            let next = scope.spawn(|| drop(starts.begin()));
            thread::sleep(Duration::from_millis(20));
            assert!(!next.is_finished());
            running.pop();
            next.join().unwrap();
        });
    }

    #[test]
    fn a_start_that_takes_too_long_is_left_for_later() {
        let settings = Settings {
            compiler: decode(&[0; 3]).unwrap(),
            memory_bytes: 0,
        };
        let (sender, receiver) = mpsc::sync_channel(1);
        let spare = Spare::Starting(settings.clone(), receiver);
        let Err(spare) = spare.wait(Instant::now() + Duration::from_millis(20)) else {
            panic!("expected the spare to be starting");
        };
        assert!(spare.has(&settings));
        let failure = StartFailure::Lost(Status::internal("lost"));
        sender.send(Err(failure)).unwrap();
        let outcome = spare.wait(Instant::now());
        assert!(matches!(outcome, Ok(Err(StartFailure::Lost(_)))));
    }
}
