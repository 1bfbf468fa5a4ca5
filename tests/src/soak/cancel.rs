//! A thread that cancels tokens at given times.

use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::mpsc::{self, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use callbox::CancelToken;

/// Cancels tokens for threads that are inside the calls to cancel. Dropping it ends its thread.
#[derive(Debug)]
pub(super) struct Canceller {
    sender: Mutex<Option<Sender<(Instant, CancelToken)>>>,
    thread: Option<JoinHandle<()>>,
}

impl Canceller {
    pub(super) fn start() -> Self {
        let (sender, receiver) = mpsc::channel::<(Instant, CancelToken)>();
        // The tokens are handled in order of arrival. One that is due before an earlier arrival is
        // cancelled at most a few milliseconds late.
        let thread = thread::spawn(move || {
            for (when, token) in receiver {
                thread::sleep(when.saturating_duration_since(Instant::now()));
                token.cancel();
            }
        });
        Self {
            sender: Mutex::new(Some(sender)),
            thread: Some(thread),
        }
    }

    /// Returns a token that is cancelled after this time.
    pub(super) fn after(&self, time: Duration) -> CancelToken {
        let token = CancelToken::new();
        let sender = self.sender.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(sender) = &*sender {
            let sent = sender.send((Instant::now() + time, token.clone()));
            sent.expect("the canceller's thread outlives its handle");
        }
        token
    }
}

impl Drop for Canceller {
    fn drop(&mut self) {
        let sender = self.sender.get_mut();
        sender.unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = self.thread.take() {
            // The thread does nothing that can panic.
            let _ = thread.join();
        }
    }
}
