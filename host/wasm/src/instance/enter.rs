//! Enters the guest, and turns its outcome into a status.

use wasmtime::Store;

#[cfg(unix)]
use callbox_core::policy::Traps;
use callbox_core::values::{Blame, Result, Status, StatusCode};

use crate::claim::{Claim, GuestFunction, Returned};
use crate::failure::{caller_exhausted, status};
use crate::interrupt::Interrupted;
#[cfg(unix)]
use crate::signal_mask;
use crate::state::{GuestState, RefusedGrowth};
use crate::trap;
use callbox_core::float_mode::FloatMode;

/// The stack that the host itself needs to enter a guest and to serve its imports.
const HOST_STACK: usize = 128 << 10;

/// Prepares a store for the guest to run: clears what the last entry left, and checks whether the
/// guest may run at all.
///
/// # Errors
/// DEADLINE_EXCEEDED, CANCELLED, RESOURCE_EXHAUSTED or FAILED_PRECONDITION, blamed on the caller:
/// the guest did not run.
#[inline]
pub(super) fn arm(store: &mut Store<GuestState>, what: &str) -> Result<()> {
    let state = store.data_mut();
    state.failure = None;
    state.growth_refused = None;
    state.callee_failure = None;
    check_stack(state.shared.policy.limits.stack_bytes, what)?;
    state.shared.check_process(what)?;
    state.shared.ticker.note_activity();
    state
        .interrupt
        .check_before()
        .map_err(|interrupted| not_called(interrupted, what))?;
    if state.shared.policy.deterministic {
        let depends = |status: Status| status.context(format_args!("{what} was not called"));
        state.fuel.check().map_err(depends)?;
        let fuel = state.fuel.give();
        store
            .set_fuel(fuel)
            .map_err(|error| Status::internal(format!("fuel cannot be set: {error:#}")))?;
    }
    store.data_mut().interrupt.arm();
    Ok(())
}

/// Ends what [`arm`] began: logs unfinished lines, and subtracts the fuel that the guest used.
#[inline]
pub(super) fn disarm(store: &mut Store<GuestState>) {
    let state = store.data_mut();
    state.interrupt.disarm();
    state.room.is_mapped();
    if let Some(capabilities) = &mut state.capabilities {
        capabilities.end_output(&mut state.log);
    }
    if state.shared.policy.deterministic {
        let left = store.get_fuel().unwrap_or(0);
        store.data_mut().fuel.take_back(left);
    }
}

/// Runs the guest in WebAssembly's floating-point mode, and notes the thread's own for imports. The
/// thread takes the signals of traps.
#[inline]
pub(super) fn in_wasm_mode<T>(
    store: &mut Store<GuestState>,
    run: impl FnOnce(&mut Store<GuestState>) -> T,
) -> T {
    #[cfg(unix)]
    if store.data().shared.policy.traps == Traps::Signals {
        signal_mask::take_traps();
    }
    let mode = FloatMode::WASM.set();
    store.data_mut().host_mode = mode.before();
    run(store)
}

/// The stack that entering a guest takes, where the guest itself may use `limit` bytes.
pub(super) fn stack_needed(limit: usize) -> usize {
    limit.saturating_add(HOST_STACK)
}

/// Checks that the calling thread has the stack that the limits promise to the guest: an overflow
/// of the thread's own stack would abort the process.
#[inline]
pub(crate) fn check_stack(limit: usize, what: &str) -> Result<()> {
    let needed = stack_needed(limit);
    match stacker::remaining_stack() {
        Some(left) if left < needed => Err(small_stack(needed, left, what)),
        _ => Ok(()),
    }
}

#[cold]
fn small_stack(needed: usize, left: usize, what: &str) -> Status {
    caller_exhausted(format!(
        "{what} was not called: expected a thread with {needed} bytes of stack left, found {left}"
    ))
}

#[cold]
pub(crate) fn not_called(interrupted: Interrupted, what: &str) -> Status {
    let why = match interrupted {
        Interrupted::Deadline => "its deadline had passed",
        Interrupted::Cancelled => "it was cancelled",
    };
    let message = format!("{what} was not called: {why}");
    Status::new(interrupted.code(), Blame::Caller, message)
}

/// Calls a function of the guest.
///
/// The instance is passed in parts, because the function may be borrowed from it: cloning one costs
/// more than calling it. `healthy` becomes true again only if the guest returns, rather than
/// trapping, being interrupted, or unwinding because the log's sink panicked.
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
    let outcome = in_wasm_mode(store, |store| function.call(store, parameters, what));
    disarm(store);
    match outcome {
        Ok(results) => {
            check_growth(store.data(), what)?;
            *healthy = true;
            Ok(results)
        }
        Err(error) => Err(trap::status_of(&error, store.data_mut(), what)),
    }
}

/// Fails for a guest that was refused growth for what others take, where its results must not
/// depend on that.
#[inline]
pub(super) fn check_growth(state: &GuestState, what: &str) -> Result<()> {
    match state.refused_for_others() {
        Some(refused) => Err(trap::depends_on_others(refused, what)),
        None => Ok(()),
    }
}

/// The outcome of a guest that returned: the failure that it set through the API table, or else the
/// one that its code means.
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
        let said = failure.said();
        let blame = blame(failure.code, state);
        return Status::new(failure.code, blame, format!("{what} failed: {said}"))
            .with_recoverable(failure.recoverable);
    }
    match code.check(StatusCode::from_number) {
        Ok(code) => {
            // A target may pass on the failure of the function that it called back.
            let callee = state.callee_failure.take();
            match callee.filter(|failure| failure.code() == code) {
                Some(failure) => failure.context(what),
                None => Status::new(
                    code,
                    blame(code, state),
                    format!("{what} returned {code} without a message"),
                ),
            }
        }
        Err(code) => status!(
            Internal,
            Guest,
            "expected {what} to return a status code from 0 to 16, found {code}"
        ),
    }
}

/// Who is to blame for a failure that a guest reports: not a guest that tells of memory which the
/// process refused it.
fn blame(code: StatusCode, state: &GuestState) -> Blame {
    let refused = state.growth_refused.as_ref();
    if code == StatusCode::ResourceExhausted && refused.is_some_and(RefusedGrowth::is_of_process) {
        Blame::Caller
    } else {
        Blame::Guest
    }
}
