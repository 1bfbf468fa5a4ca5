//! Children without a job, and those that are being started.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver};
use std::thread;

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

    /// The child, once it has started. The start has a time limit of its own.
    ///
    /// # Errors
    /// [`StartFailure`].
    pub(super) fn wait(self) -> Result<CompilerChild, StartFailure> {
        match self {
            Self::Ready(child) => Ok(child),
            Self::Starting(_, receiver) => receiver.recv().unwrap_or_else(|_| {
                let gone = "the thread that starts a compiler is gone";
                Err(StartFailure::NotStarted(Status::internal(gone)))
            }),
        }
    }
}
