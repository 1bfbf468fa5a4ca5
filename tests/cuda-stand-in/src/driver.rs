//! The driver API as C functions. Only this module accesses the caller's memory.
//!
//! Handles are passed as numbers and enumerations as integers: invalid ones are looked up and
//! rejected, never dereferenced.
#![allow(unsafe_code, reason = "C functions over the caller's memory")]
#![allow(non_snake_case, reason = "the driver's names")]

mod capture;
mod codes;
mod context;
mod copy;
mod device;
mod event;
mod foreign;
mod graph;
mod launch;
mod memory;
mod module;
mod pointer;
mod remote;
mod run;
mod stream;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, MutexGuard, PoisonError};

use cudarc::driver::sys::CUresult;

use self::codes::breaks_context;
use crate::state::{State, in_host_function};

static STATE: Mutex<State> = Mutex::new(State::new());

/// The locked state.
type Guard = MutexGuard<'static, State>;

fn state() -> Guard {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The precondition of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Needs {
    Nothing,
    /// `cuInit`.
    Initialised,
    /// A current context that is not broken.
    Context,
    /// None: it releases an object even if it then reports an error.
    Release,
}

/// Runs a driver call: records it, fails it if the tests requested that, and checks its
/// precondition.
fn call(
    name: &'static str,
    needs: Needs,
    body: impl FnOnce(Guard) -> Result<(), CUresult>,
) -> CUresult {
    let outcome = catch_unwind(AssertUnwindSafe(|| checked(name, needs, body)));
    match outcome {
        Ok(Ok(())) => CUresult::CUDA_SUCCESS,
        Ok(Err(code)) => code,
        Err(_) => {
            state().log.fault = format!("{name}: the stand-in itself failed");
            CUresult::CUDA_ERROR_UNKNOWN
        }
    }
}

fn checked(
    name: &'static str,
    needs: Needs,
    body: impl FnOnce(Guard) -> Result<(), CUresult>,
) -> Result<(), CUresult> {
    if in_host_function() {
        return Err(CUresult::CUDA_ERROR_NOT_PERMITTED);
    }
    let mut guard = state();
    guard.log.calls.push(name);
    let injected = inject(&mut guard, name);
    if let Some(code) = injected
        && needs != Needs::Release
    {
        return Err(code);
    }
    if needs != Needs::Nothing && !guard.initialised {
        return Err(CUresult::CUDA_ERROR_NOT_INITIALIZED);
    }
    if needs == Needs::Context {
        let current = guard.current()?;
        guard.check(current)?;
    }
    let done = body(guard);
    if let Some(code) = injected {
        return Err(code);
    }
    if needs == Needs::Release {
        let guard = state();
        if let Ok(current) = guard.current() {
            guard.check(current)?;
        }
    }
    done
}

/// Maps a function's name to a number (FNV-1a), which crosses the C interface without its bytes.
pub(crate) fn name_number(name: &str) -> u64 {
    name.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

/// Counts a call towards the injected failure, and returns its code when it is due.
fn inject(state: &mut State, name: &str) -> Option<CUresult> {
    let injected = state.log.injected.as_mut()?;
    if injected.of.is_some_and(|of| name_number(name) != of) {
        return None;
    }
    injected.left -= 1;
    if injected.left > 0 {
        return None;
    }
    let code = injected.code;
    state.log.injected = None;
    let why = format!("injected {code:?} at {name}");
    state.log.fault.clone_from(&why);
    if breaks_context(code)
        && let Ok(current) = state.current()
    {
        state.fail(current, code, why);
    }
    Some(code)
}
