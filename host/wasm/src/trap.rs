//! Turns a guest call that did not return into a status: one code for each way to fail.

use wasmtime::{Trap, WasmBacktrace};

use callbox_core::untrusted_text::{formatted, sanitize};
use callbox_core::values::{Backtrace, Blame, Status, StatusCode};

use crate::address_space;
use crate::failure::{caller_exhausted, status};
use crate::instance::not_called;
use crate::interrupt::Interrupted;
use crate::names;
use crate::quota::too_many;
use crate::rewrite;
use crate::state::{GuestState, NotStarted, RefusedGrowth};

/// The longest text of an error of wasmtime, in bytes.
const MAX_ERROR: usize = 256;

/// The status of a guest call that did not return. `what` names the call, as in `target "softmax"`.
pub(crate) fn status_of(error: &wasmtime::Error, state: &mut GuestState, what: &str) -> Status {
    let status = classify(error, state, what);
    match error.downcast_ref::<WasmBacktrace>() {
        Some(trace) => status.with_backtrace(backtrace(trace, state)),
        None => status,
    }
}

fn classify(error: &wasmtime::Error, state: &mut GuestState, what: &str) -> Status {
    if let Some(NotStarted(interrupted)) = error.downcast_ref() {
        return not_called(*interrupted, "the module");
    }
    let interrupted = interrupted(error, state);
    if interrupted.is_none()
        && let Some(refused) = state.refused_for_others()
    {
        return depends_on_others(refused, what);
    }
    // A status by which the host itself ended the call is the most precise.
    if let Some(status) = error.downcast_ref::<Status>() {
        return status.clone().context(what);
    }
    match interrupted {
        Some(Interrupted::Deadline) => {
            let deadline = state.interrupt.describe_deadline();
            if let Some(time) = state.held_up() {
                let millis = time.as_millis();
                return status!(
                    DeadlineExceeded,
                    Caller,
                    "{what} ran past {deadline}: its instance was held up for {millis} ms"
                );
            }
            return status!(DeadlineExceeded, Guest, "{what} ran past {deadline}");
        }
        Some(Interrupted::Cancelled) => {
            return status!(Cancelled, Caller, "{what} was cancelled");
        }
        None => {}
    }
    if is_full_pool(error) {
        // An instance no longer counts, but its place in the pool is not yet free.
        return too_many(state.shared.policy.limits.instances);
    }
    if lacks_memory(error) {
        let advice = address_space::advice();
        return caller_exhausted(format!("{what}: no room for one more memory: {advice}"));
    }
    if let Some(&trap) = error.downcast_ref::<Trap>() {
        return trapped(trap, state, what);
    }
    // The module's initial memory is within its own limit, but the executable's other instances
    // share another.
    if let Some(growth) = state.growth_refused.take() {
        return caller_exhausted(format!("{what}: {growth}"));
    }
    let error = formatted(format_args!("{error:#}"), MAX_ERROR + 1);
    let error = sanitize(error.as_bytes(), error.len(), MAX_ERROR).replace(['\n', '\t'], " ");
    status!(Internal, Host, "{what} could not be run: {error}")
}

/// The status of a call that was refused growth for what others take, and whose results must not
/// depend on that.
#[cold]
pub(crate) fn depends_on_others(refused: &RefusedGrowth, what: &str) -> Status {
    caller_exhausted(format!(
        "{what}: {refused}, for what others take: its results would depend on them"
    ))
}

/// The reason why the host or a look at the stop word interrupted the call, if one did.
fn interrupted(error: &wasmtime::Error, state: &GuestState) -> Option<Interrupted> {
    match error.downcast_ref::<Trap>() {
        Some(&rewrite::TRAP) => state.interrupt.stopped(),
        Some(_) => None,
        None => error.downcast_ref().copied(),
    }
}

/// Whether wasmtime's pool has no room for an instance.
pub(crate) fn is_full_pool(error: &wasmtime::Error) -> bool {
    error.is::<wasmtime::PoolConcurrencyLimitError>()
}

/// Whether the operating system refused memory or address space.
pub(crate) fn lacks_memory(error: &wasmtime::Error) -> bool {
    #[cfg(unix)]
    if error.downcast_ref::<rustix::io::Errno>() == Some(&rustix::io::Errno::NOMEM) {
        return true;
    }
    let io = error.downcast_ref::<std::io::Error>();
    io.is_some_and(|error| error.kind() == std::io::ErrorKind::OutOfMemory)
}

fn trapped(trap: Trap, state: &mut GuestState, what: &str) -> Status {
    if trap == Trap::OutOfFuel {
        let limit = state.fuel.limit();
        return status!(
            DeadlineExceeded,
            Guest,
            "{what} ran past its fuel of {limit} units, or of the call that it is part of"
        );
    }
    // A panic and a failing allocator report their reason and then execute `unreachable`. It is not
    // the cause of any other trap.
    let gave_up = trap == Trap::UnreachableCodeReached;
    let failure = state.failure.take().filter(|_| gave_up);
    let growth = state.growth_refused.take().filter(|_| gave_up);
    match (growth, failure) {
        (Some(growth), failure) => {
            let reason = failure.map_or_else(|| description(trap), |failure| failure.said());
            growth.status(format!("{what} failed after {growth}: {reason}"))
        }
        (None, Some(failure)) => {
            let message = format!("{what} failed: {}", failure.said());
            Status::new(failure.code, Blame::Guest, message).with_recoverable(failure.recoverable)
        }
        (None, None) => {
            let message = format!("{what} trapped: {}", description(trap));
            Status::new(code(trap), Blame::Guest, message)
        }
    }
}

fn code(trap: Trap) -> StatusCode {
    match trap {
        Trap::StackOverflow | Trap::AllocationTooLarge => StatusCode::ResourceExhausted,
        Trap::MemoryOutOfBounds | Trap::TableOutOfBounds | Trap::ArrayOutOfBounds => {
            StatusCode::OutOfRange
        }
        Trap::OutOfFuel => StatusCode::DeadlineExceeded,
        _ => StatusCode::Aborted,
    }
}

/// wasmtime's description, without its prefix.
fn description(trap: Trap) -> String {
    trap.to_string().replacen("wasm trap: ", "", 1)
}

fn backtrace(trace: &WasmBacktrace, state: &GuestState) -> Backtrace {
    let limit = state.shared.policy.limits.backtrace_frames;
    let frames: Vec<_> = trace
        .frames()
        .iter()
        .filter(|frame| frame.func_index() < state.helpers_from)
        .collect();
    let names = frames
        .iter()
        .take(limit)
        .map(|frame| match frame.func_name() {
            Some(name) => names::shown(name),
            None => format!("function {}", frame.func_index()),
        });
    // wasmtime collects one frame more than is shown, which tells whether there are more.
    Backtrace::new(names.collect(), frames.len() > limit)
}
