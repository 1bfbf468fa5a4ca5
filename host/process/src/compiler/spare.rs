//! Children without a job, and those that are being started.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::Instant;

use super::child::{CompilerChild, Settings, StartFailure};
use crate::spawner::Spawner;
use callbox_core::values::Status;

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
    pub(super) fn start(spawner: &Arc<Spawner>, settings: &Settings) -> io::Result<Self> {
        let (sender, receiver) = mpsc::sync_channel(1);
        let starting = Self::Starting(settings.clone(), receiver);
        let (spawner, settings) = (Arc::clone(spawner), settings.clone());
        thread::Builder::new()
            .name("callbox-refill".to_owned())
            .spawn(move || {
                let child = CompilerChild::start(&spawner, &settings);
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

    /// The child, once it has started.
    ///
    /// # Errors
    /// [`NoChild`].
    pub(super) fn wait(self, until: Option<Instant>) -> Result<CompilerChild, NoChild> {
        let (settings, receiver) = match self {
            Self::Ready(child) => return Ok(child),
            Self::Starting(settings, receiver) => (settings, receiver),
        };
        // The start itself has a time limit.
        let received = match until {
            None => receiver.recv().map_err(RecvTimeoutError::from),
            Some(until) => receiver.recv_timeout(until.saturating_duration_since(Instant::now())),
        };
        match received {
            Ok(started) => started.map_err(NoChild::Failed),
            Err(RecvTimeoutError::Timeout) => {
                Err(NoChild::Late(Box::new(Self::Starting(settings, receiver))))
            }
            Err(RecvTimeoutError::Disconnected) => Err(NoChild::Failed(StartFailure::NotStarted(
                Status::internal("the thread that starts a compiler is gone"),
            ))),
        }
    }
}

/// Why there is no child.
#[derive(Debug)]
pub(super) enum NoChild {
    /// It has not started in time.
    Late(Box<Spare>),
    /// The start failed.
    Failed(StartFailure),
}
