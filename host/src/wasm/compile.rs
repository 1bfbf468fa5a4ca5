//! Compiling, for no longer than the limits say.

use std::panic::{self, AssertUnwindSafe};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::shared::Shared;
use super::text::sanitize;
use crate::values::{Blame, Result, Status, StatusCode};

/// How many compilations may go on in an engine at one time, those among them that nobody waits for any longer.
const MOST_COMPILATIONS: usize = 8;

/// The places for compilations in an engine.
#[derive(Debug, Default)]
pub(super) struct Places {
    taken: Mutex<usize>,
    given_back: Condvar,
}

/// A place, until it is dropped.
struct Place(Arc<Places>);

impl Places {
    /// A place, if there is one until `end`.
    fn take(self: &Arc<Self>, end: Instant) -> Option<Place> {
        let left = end.saturating_duration_since(Instant::now());
        let is_full = |taken: &mut usize| *taken >= MOST_COMPILATIONS;
        let waited = self
            .given_back
            .wait_timeout_while(locked(&self.taken), left, is_full);
        let (mut taken, _) = waited.unwrap_or_else(PoisonError::into_inner);
        if is_full(&mut taken) {
            return None;
        }
        *taken += 1;
        Some(Place(Arc::clone(self)))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        *locked(&self.0.taken) -= 1;
        self.0.given_back.notify_one();
    }
}

/// Compiles a module that was checked.
///
/// # Errors
/// INVALID_ARGUMENT for what only compiling finds and DEADLINE_EXCEEDED past the limit, the guest's doing; RESOURCE_EXHAUSTED, the
/// caller's, if others take all places until then.
pub(super) fn compile(shared: &Shared, wasm: &[u8]) -> Result<wasmtime::Module> {
    let compiled = match shared.policy.limits.compile_time {
        None => from_binary(&shared.engine, wasm)?,
        Some(limit) => within(limit, &shared.engine, wasm, &shared.compilations)?,
    };
    compiled.map_err(|error| {
        let text = format!("{error:#}");
        let text = sanitize(
            text.as_bytes(),
            text.len(),
            shared.policy.limits.message_bytes,
        );
        // It may quote names of the module's, whose line ends would look like the host's.
        let text = text.replace(['\n', '\t'], " ");
        Status::new(
            StatusCode::InvalidArgument,
            Blame::Guest,
            format!("expected a module within the features and limits of this host: {text}"),
        )
    })
}

type Compiled = wasmtime::Result<wasmtime::Module>;

/// Compiles. A compiler that panics costs a status, not the host.
fn from_binary(engine: &wasmtime::Engine, wasm: &[u8]) -> Result<Compiled> {
    let compile = AssertUnwindSafe(|| wasmtime::Module::from_binary(engine, wasm));
    panic::catch_unwind(compile).map_err(|_| {
        Status::internal("the compiler panicked, which is a bug that deserves a report")
    })
}

/// Compiles on a thread of its own, because a compilation that has begun can't be stopped.
fn within(
    limit: Duration,
    engine: &wasmtime::Engine,
    wasm: &[u8],
    places: &Arc<Places>,
) -> Result<Compiled> {
    let now = Instant::now();
    // What no clock can say is far enough away.
    let end = now.checked_add(limit).unwrap_or(now + FAR);
    let Some(place) = places.take(end) else {
        return Err(Status::new(
            StatusCode::ResourceExhausted,
            Blame::Caller,
            format!(
                "expected one of {MOST_COMPILATIONS} places to compile in within {limit:?}, found them taken by other modules"
            ),
        ));
    };
    let (sender, receiver) = mpsc::sync_channel(1);
    let (engine, wasm) = (engine.clone(), wasm.to_vec());
    let work = move || {
        let compiled = from_binary(&engine, &wasm);
        drop(place);
        // Nobody may be waiting for it any longer.
        let _ = sender.send(compiled);
    };
    let thread = thread::Builder::new().name("callbox-compile".to_owned());
    thread.spawn(work).map_err(|error| {
        Status::new(
            StatusCode::ResourceExhausted,
            Blame::Host,
            format!("expected to start a thread that compiles: {error}"),
        )
    })?;
    let left = end.saturating_duration_since(Instant::now());
    match receiver.recv_timeout(left) {
        Ok(compiled) => compiled,
        Err(RecvTimeoutError::Timeout) => Err(Status::new(
            StatusCode::DeadlineExceeded,
            Blame::Guest,
            format!("expected the module to compile within {limit:?}, found that it takes longer"),
        )),
        Err(RecvTimeoutError::Disconnected) => Err(Status::internal(
            "a thread that compiles ended without a word",
        )),
    }
}

/// Longer than anything compiles.
const FAR: Duration = Duration::from_secs(1 << 32);

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
