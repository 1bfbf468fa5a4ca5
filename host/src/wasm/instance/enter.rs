//! The way into a guest and back: what is looked at before, and what came of it.

use wasmtime::Store;

use super::super::capabilities;
use super::super::claim::{Claim, GuestFunction, Returned};
use super::super::fuel;
use super::super::interrupt::Interrupted;
use super::super::shared::Shared;
use super::super::state::GuestState;
use super::super::trap;
use crate::values::{Blame, Result, Status, StatusCode};

/// Stack that the host itself needs to enter a guest and to serve its imports.
const HOST_STACK: usize = 128 << 10;

/// Makes a store ready for the guest to run: forgets what the last entry left, and looks whether to run at all.
///
/// # Errors
/// DEADLINE_EXCEEDED, CANCELLED or RESOURCE_EXHAUSTED, the caller's doing: the guest did not run.
#[inline]
pub(super) fn arm(store: &mut Store<GuestState>, what: &str) -> Result<()> {
    store.set_epoch_deadline(1);
    let state = store.data_mut();
    state.failure = None;
    state.growth_refused = None;
    state.callee_failure = None;
    check_stack(state.shared.policy.limits.stack_bytes, what)?;
    let shared: &Shared = &state.shared;
    if !shared.ticker.is_here() {
        return Err(forked(what));
    }
    shared.ticker.note_activity();
    let is_metered = shared.policy.deterministic;
    state
        .interrupt
        .check_before()
        .map_err(|interrupted| not_called(interrupted, what))?;
    match is_metered {
        true => fuel::fill(store)
            .map_err(|error| Status::internal(format!("fuel cannot be set: {error:#}"))),
        false => Ok(()),
    }
}

/// Notes what a guest took that ran after [`arm`], and ends what it wrote.
#[inline]
pub(super) fn disarm(store: &mut Store<GuestState>) {
    capabilities::end_output(store.data_mut());
    if store.data().shared.policy.deterministic {
        fuel::note_used(store);
    }
}

#[cold]
pub(in crate::wasm) fn forked(what: &str) -> Status {
    Status::new(
        StatusCode::FailedPrecondition,
        Blame::Caller,
        format!(
            "{what} was not called: expected an engine that was made in this process, found one from before a fork"
        ),
    )
}

/// Stack that entering a guest takes, with a limit of `limit` bytes for the guest.
pub(super) fn stack_needed(limit: usize) -> usize {
    limit.saturating_add(HOST_STACK)
}

/// Checks that the calling thread has the stack that the limits promise the guest: running off its end would end the process.
#[inline]
pub(in crate::wasm) fn check_stack(limit: usize, what: &str) -> Result<()> {
    let needed = stack_needed(limit);
    match stacker::remaining_stack() {
        Some(left) if left < needed => Err(small_stack(needed, left, what)),
        _ => Ok(()),
    }
}

#[cold]
fn small_stack(needed: usize, left: usize, what: &str) -> Status {
    Status::new(
        StatusCode::ResourceExhausted,
        Blame::Caller,
        format!(
            "{what} was not called: expected a thread with {needed} bytes of stack left, found {left}"
        ),
    )
}

#[cold]
pub(in crate::wasm) fn not_called(interrupted: Interrupted, what: &str) -> Status {
    let (code, why) = match interrupted {
        Interrupted::Deadline => (StatusCode::DeadlineExceeded, "its deadline had passed"),
        Interrupted::Cancelled => (StatusCode::Cancelled, "it was cancelled"),
    };
    Status::new(code, Blame::Caller, format!("{what} was not called: {why}"))
}

/// Enters the guest. It takes an instance's parts, so that the function may be another: cloning one costs more than calling it. The
/// instance is healthy again only if the guest returns: not if it traps, is stopped, or if the log's sink panics.
#[inline]
pub(super) fn enter<P: wasmtime::WasmParams, R: Returned>(
    store: &mut Store<GuestState>,
    healthy: &mut bool,
    function: &GuestFunction<P, R>,
    parameters: P,
    what: &str,
) -> Result<R::Claimed> {
    arm(store, what)?;
    *healthy = false;
    let outcome = function.call(store, parameters, what);
    disarm(store);
    match outcome {
        Ok(results) => {
            *healthy = true;
            Ok(results)
        }
        Err(error) => Err(trap::status(&error, store.data_mut(), what)),
    }
}

/// The outcome of a guest that returned: what it set through the API table, or else what the code says.
#[inline]
pub(super) fn returned(code: Claim<u32>, state: &mut GuestState, what: &str) -> Result<()> {
    let succeeded = code.check(|code| (code == 0).then_some(()));
    match (succeeded, &state.failure) {
        (Ok(()), None) => Ok(()),
        _ => Err(reported(code, state, what)),
    }
}

#[cold]
fn reported(code: Claim<u32>, state: &mut GuestState, what: &str) -> Status {
    if let Some(failure) = state.failure.take() {
        return Status::new(failure.code, Blame::Guest, failure.message)
            .with_recoverable(failure.recoverable);
    }
    match code.check(StatusCode::from_number) {
        // A target that hands on what a function failed with.
        Ok(code)
            if state
                .callee_failure
                .as_ref()
                .is_some_and(|f| f.code() == code) =>
        {
            let failure = state.callee_failure.take();
            failure.map_or_else(
                || Status::internal("a function's failure is gone"),
                |failure| failure.context(what),
            )
        }
        Ok(code) => Status::new(
            code,
            Blame::Guest,
            format!("{what} returned {code} without a message"),
        ),
        Err(code) => Status::new(
            StatusCode::Internal,
            Blame::Guest,
            format!("expected {what} to return a status code from 0 to 16, found {code}"),
        ),
    }
}

pub(super) fn exhausted(message: String) -> Status {
    Status::new(StatusCode::ResourceExhausted, Blame::Guest, message)
}
