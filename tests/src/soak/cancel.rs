//! A thread that cancels tokens when their time has come.

use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::mpsc::{self, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use callbox::CancelToken;

/// Cancels tokens for threads that are busy with the calls that are to be cancelled. It ends when it is dropped.
#[derive(Debug)]
pub(super) struct Canceller {
    sender: Mutex<Option<Sender<(Instant, CancelToken)>>>,
    thread: Option<JoinHandle<()>>,
}

impl Canceller {
    pub(super) fn start() -> Self {
        let (sender, receiver) = mpsc::channel::<(Instant, CancelToken)>();
        // One after the other: a token that was handed in behind a later one is cancelled a few milliseconds late, no more.
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

    /// A token that will be cancelled after this time.
    pub(super) fn after(&self, time: Duration) -> CancelToken {
        let token = CancelToken::new();
        let sender = self.sender.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(sender) = &*sender {
            let sent = sender.send((Instant::now() + time, token.clone()));
            sent.expect("the canceller lives for as long as this does");
        }
        token
    }
}

impl Drop for Canceller {
    fn drop(&mut self) {
        let sender = self.sender.get_mut();
        sender.unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = self.thread.take() {
            // It does nothing that can panic.
            let _ = thread.join();
        }
    }
}
