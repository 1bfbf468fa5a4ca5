//! The FFI API table: what a guest may import.

use wasmtime::{Caller, Extern};

use super::memory::GuestMemory;
use super::state::{GuestFailure, GuestState, LogLevel, LogRecord};
use super::text::sanitize;
use crate::frame::abi;
use crate::values::{Blame, Result, Status, StatusCode};

/// The functions of `callbox:ffi/api`, with their parameters and results as the canonical ABI flattens them.
pub(super) const FUNCTIONS: &[(&str, &str)] = &[
    ("version", "() -> i32"),
    ("set-failure", "(i32, i32, i32, i32)"),
    ("set-success", "()"),
    ("log", "(i32, i32, i32)"),
];

/// Makes the table. A guest that misuses it is stopped: the error that a function returns here becomes the call's status.
pub(super) fn linker(engine: &wasmtime::Engine) -> Result<wasmtime::Linker<GuestState>> {
    let mut linker = wasmtime::Linker::new(engine);
    let defined = define(&mut linker);
    defined
        .map_err(|error| Status::internal(format!("the API table cannot be made: {error:#}")))?;
    Ok(linker)
}

fn define(linker: &mut wasmtime::Linker<GuestState>) -> wasmtime::Result<()> {
    linker.func_wrap(abi::API_MODULE, "version", || abi::VERSION)?;
    linker.func_wrap(
        abi::API_MODULE,
        "set-failure",
        |caller: Caller<'_, GuestState>, code: u32, message: u32, length: u32, recoverable: u32| {
            set_failure(caller, code, message, length, recoverable != 0)
                .map_err(wasmtime::Error::new)
        },
    )?;
    linker.func_wrap(
        abi::API_MODULE,
        "set-success",
        |mut caller: Caller<'_, GuestState>| {
            caller.data_mut().failure = None;
        },
    )?;
    linker.func_wrap(
        abi::API_MODULE,
        "log",
        |caller: Caller<'_, GuestState>, level: u32, message: u32, length: u32| {
            log(caller, level, message, length).map_err(wasmtime::Error::new)
        },
    )?;
    Ok(())
}

fn set_failure(
    mut caller: Caller<'_, GuestState>,
    code: u32,
    message: u32,
    length: u32,
    recoverable: bool,
) -> Result<()> {
    let Some(code) = StatusCode::from_number(code).filter(|&code| code != StatusCode::Ok) else {
        return Err(misuse(format!(
            "set-failure: expected a status code from 1 to 16, found {code}"
        )));
    };
    let limit = caller.data().shared.limits.message_bytes;
    let message = message_of(&mut caller, "set-failure's message", message, length, limit)?;
    caller.data_mut().failure = Some(GuestFailure {
        code,
        message,
        recoverable,
    });
    Ok(())
}

fn log(mut caller: Caller<'_, GuestState>, level: u32, message: u32, length: u32) -> Result<()> {
    let Some(level) = LogLevel::from_number(level) else {
        return Err(misuse(format!(
            "log: expected a level from 0 to 4, found {level}"
        )));
    };
    let state = caller.data();
    let limit = state.shared.limits.message_bytes.min(state.log_budget);
    let listens = state.shared.log.is_some() && limit > 0;
    // A message that is not there is a failure whether or not someone listens.
    let kept = if listens { limit } else { 0 };
    let message = message_of(&mut caller, "log's message", message, length, kept)?;
    if !listens {
        return Ok(());
    }
    let state = caller.data_mut();
    // A message without bytes costs one, so that a flood of them ends.
    state.log_budget -= (length as usize).clamp(1, limit);
    if let Some(sink) = &state.shared.log {
        sink(&LogRecord {
            level,
            message: &message,
        });
    }
    Ok(())
}

/// A guest's text. All of it must be in memory, as much as is kept of it is read.
fn message_of(
    caller: &mut Caller<'_, GuestState>,
    what: &str,
    offset: u32,
    length: u32,
    limit: usize,
) -> Result<String> {
    let memory = match caller.data().memory {
        Some(memory) => memory,
        // While the start function runs, the instance is not known yet.
        None => match caller.get_export("memory") {
            Some(Extern::Memory(memory)) => memory,
            _ => {
                return Err(misuse(format!(
                    "{what}: expected an exported memory, found none"
                )));
            }
        },
    };
    let memory = GuestMemory::new(memory.data_mut(caller));
    let bytes = memory.read(what, offset as usize, length as usize)?;
    Ok(sanitize(bytes, bytes.len(), limit))
}

fn misuse(message: String) -> Status {
    Status::new(StatusCode::InvalidArgument, Blame::Guest, message)
}
