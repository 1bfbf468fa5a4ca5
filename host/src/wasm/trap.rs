//! What became of a guest call, as a status: one code for each way to fail.

use wasmtime::{Trap, WasmBacktrace};

use super::interrupt::Interrupted;
use super::state::GuestState;
use super::text::sanitize;
use crate::values::{Backtrace, Blame, Status, StatusCode};

/// The longest function name that a backtrace shows, in bytes.
const MAX_NAME: usize = 256;

/// The status of a guest call that did not return: `what` names it, as in `target "softmax"`.
pub(super) fn status(error: &wasmtime::Error, state: &mut GuestState, what: &str) -> Status {
    let status = classify(error, state, what);
    match error.downcast_ref::<WasmBacktrace>() {
        Some(trace) => status.with_backtrace(backtrace(trace, state)),
        None => status,
    }
}

fn classify(error: &wasmtime::Error, state: &mut GuestState, what: &str) -> Status {
    let guest = |code, message: String| Status::new(code, Blame::Guest, message);
    // What the host itself ended the call with comes first: it says most.
    if let Some(status) = error.downcast_ref::<Status>() {
        return status.clone().context(what);
    }
    match error.downcast_ref::<Interrupted>() {
        Some(Interrupted::Deadline) => {
            let deadline = state.interrupt.describe_deadline();
            return guest(
                StatusCode::DeadlineExceeded,
                format!("{what} ran past {deadline}"),
            );
        }
        Some(Interrupted::Cancelled) => {
            let message = format!("{what} was cancelled");
            return Status::new(StatusCode::Cancelled, Blame::Caller, message);
        }
        None => {}
    }
    if error.is::<wasmtime::PoolConcurrencyLimitError>() {
        let limit = state.shared.policy.limits.instances;
        return Status::new(
            StatusCode::ResourceExhausted,
            Blame::Caller,
            format!("{what}: expected at most {limit} instances at one time, found more"),
        );
    }
    let Some(&trap) = error.downcast_ref::<Trap>() else {
        // The memory that the module has at first is within its own limit, but it shares another with the executable's other instances.
        if let Some(growth) = state.growth_refused.take() {
            let message = format!("{what}: {growth}");
            return Status::new(StatusCode::ResourceExhausted, Blame::Caller, message);
        }
        let message = format!("{what} could not be run: {}", clean(&format!("{error:#}")));
        return Status::new(StatusCode::Internal, Blame::Host, message);
    };
    if trap == Trap::OutOfFuel {
        let limit = state.fuel.limit();
        let message =
            format!("{what} ran past its fuel of {limit} units, or of the call that it is part of");
        return guest(StatusCode::DeadlineExceeded, message);
    }
    // A panic, and an allocator that gives up, say what they have to say and then run `unreachable`. Before another trap, a
    // failure that was set is not its cause.
    let gave_up = trap == Trap::UnreachableCodeReached;
    let failure = state.failure.take().filter(|_| gave_up);
    let growth = state.growth_refused.take().filter(|_| gave_up);
    match (growth, failure) {
        (Some(growth), failure) => {
            let last_words = failure.map_or_else(|| described(trap), |failure| failure.message);
            let message = format!("{what} failed after {growth}: {last_words}");
            guest(StatusCode::ResourceExhausted, message)
        }
        (None, Some(failure)) => guest(failure.code, format!("{what}: {}", failure.message))
            .with_recoverable(failure.recoverable),
        (None, None) => guest(code(trap), format!("{what} trapped: {}", described(trap))),
    }
}

fn code(trap: Trap) -> StatusCode {
    match trap {
        Trap::StackOverflow | Trap::AllocationTooLarge => StatusCode::ResourceExhausted,
        Trap::MemoryOutOfBounds | Trap::TableOutOfBounds | Trap::ArrayOutOfBounds => {
            StatusCode::OutOfRange
        }
        Trap::Interrupt | Trap::OutOfFuel => StatusCode::DeadlineExceeded,
        _ => StatusCode::Aborted,
    }
}

/// wasmtime's words without the prefix that we say ourselves.
fn described(trap: Trap) -> String {
    let text = trap.to_string();
    text.strip_prefix("wasm trap: ").unwrap_or(&text).to_owned()
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
            Some(name) => clean(&demangle(name)),
            None => format!("function {}", frame.func_index()),
        });
    // wasmtime collects one of the guest's frames more than is shown, so that we know whether there are more.
    Backtrace::new(names.collect(), frames.len() > limit)
}

/// Rust's mangled names read back. The crate bounds what a made-up name can expand to.
fn demangle(name: &str) -> String {
    match rustc_demangle::try_demangle(name) {
        Ok(demangled) => format!("{demangled:#}"),
        Err(_) => name.to_owned(),
    }
}

/// Fit to stand in a line.
fn clean(name: &str) -> String {
    sanitize(name.as_bytes(), name.len(), MAX_NAME).replace(['\n', '\t'], " ")
}
