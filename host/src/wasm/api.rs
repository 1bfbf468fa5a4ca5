//! The FFI API table: what a guest may import.

use wasmtime::{Caller, Extern};

use super::callback;
use super::memory::GuestMemory;
use super::state::{GuestFailure, GuestState, LogRecord};
use super::text::sanitize;
use crate::frame::abi;
use crate::policy::LogLevel;
use crate::values::{Blame, Result, Status, StatusCode};

/// A function of `callbox:ffi/api`.
pub(super) struct ApiFunction {
    pub(super) name: &'static str,
    /// Its parameters and results as the canonical ABI flattens them.
    pub(super) ty: &'static str,
    /// The minor version that brought it.
    pub(super) since: u32,
}

/// The functions of `callbox:ffi/api`.
pub(super) const FUNCTIONS: &[ApiFunction] = &[
    function("version", "() -> i32", 0),
    function("set-failure", "(i32, i32, i32, i32)", 0),
    function("set-success", "()", 0),
    function("log", "(i32, i32, i32)", 0),
    function("call-function", "(i32, i32, i32, i32, i32) -> i32", 1),
    function("function-message", "(i32, i32) -> i32", 1),
    function("user-data", "(i32, i32, i32, i32) -> i64", 1),
];

const fn function(name: &'static str, ty: &'static str, since: u32) -> ApiFunction {
    ApiFunction { name, ty, since }
}

/// The module name of the table of this minor version.
pub(super) fn module_name(minor: u32) -> String {
    format!("{}{}.{minor}.0", abi::API_MODULE, abi::MAJOR)
}

/// Makes the table. A guest that misuses it is stopped: the error that a function returns here becomes the call's status.
pub(super) fn linker(engine: &wasmtime::Engine) -> Result<wasmtime::Linker<GuestState>> {
    let mut linker = wasmtime::Linker::new(engine);
    let defined = (0..=abi::MINOR).try_for_each(|minor| define(&mut linker, minor));
    defined
        .map_err(|error| Status::internal(format!("the API table cannot be made: {error:#}")))?;
    Ok(linker)
}

/// Defines the functions that the table has in this minor version.
fn define(linker: &mut wasmtime::Linker<GuestState>, minor: u32) -> wasmtime::Result<()> {
    let module = module_name(minor);
    linker.func_wrap(&module, "version", || abi::VERSION)?;
    linker.func_wrap(
        &module,
        "set-failure",
        |caller: Caller<'_, GuestState>, code: u32, message: u32, length: u32, recoverable: u32| {
            set_failure(caller, code, message, length, recoverable != 0)
                .map_err(wasmtime::Error::new)
        },
    )?;
    linker.func_wrap(
        &module,
        "set-success",
        |mut caller: Caller<'_, GuestState>| {
            caller.data_mut().failure = None;
        },
    )?;
    linker.func_wrap(
        &module,
        "log",
        |caller: Caller<'_, GuestState>, level: u32, message: u32, length: u32| {
            log(caller, level, message, length).map_err(wasmtime::Error::new)
        },
    )?;
    if minor >= 1 {
        callback::define(linker, &module)?;
        linker.func_wrap(
            &module,
            "user-data",
            |caller: Caller<'_, GuestState>, name: u32, length: u32, into: u32, room: u32| {
                user_data(caller, (name, length), (into, room)).map_err(wasmtime::Error::new)
            },
        )?;
    }
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
    let limit = caller.data().shared.policy.limits.message_bytes;
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
    let limit = state
        .shared
        .policy
        .limits
        .message_bytes
        .min(state.log_budget);
    let granted = state.grants.log.is_some_and(|least| level <= least);
    let listens = granted && state.shared.log.is_some() && limit > 0;
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

/// Copies what the embedder attached under a name into the guest's memory.
fn user_data(
    mut caller: Caller<'_, GuestState>,
    name: (u32, u32),
    into: (u32, u32),
) -> Result<i64> {
    let data = caller.data().user_data.clone();
    let mut memory = memory(&mut caller, "user-data's name")?;
    let name = memory.read("user-data's name", name.0 as usize, name.1 as usize)?;
    let found = std::str::from_utf8(name)
        .ok()
        .and_then(|name| data.as_ref()?.get(name));
    let bytes = found.map_or(&[][..], Vec::as_slice);
    copy_what_fits(&mut memory, "user-data's room", bytes, into)?;
    Ok(found.map_or(-1, |bytes| bytes.len() as i64))
}

/// Writes as much of `bytes` as there is room for. All of the room must be in memory.
pub(super) fn copy_what_fits(
    memory: &mut GuestMemory<'_>,
    what: &str,
    bytes: &[u8],
    (into, room): (u32, u32),
) -> Result<()> {
    memory.read(what, into as usize, room as usize)?;
    memory.write(
        what,
        into as usize,
        &bytes[..bytes.len().min(room as usize)],
    )
}

/// A guest's text. All of it must be in memory, as much as is kept of it is read.
fn message_of(
    caller: &mut Caller<'_, GuestState>,
    what: &str,
    offset: u32,
    length: u32,
    limit: usize,
) -> Result<String> {
    let memory = memory(caller, what)?;
    let bytes = memory.read(what, offset as usize, length as usize)?;
    Ok(sanitize(bytes, bytes.len(), limit))
}

/// The memory of the guest that calls.
pub(super) fn memory<'c>(
    caller: &'c mut Caller<'_, GuestState>,
    what: &str,
) -> Result<GuestMemory<'c>> {
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
    Ok(GuestMemory::new(memory.data_mut(caller)))
}

fn misuse(message: String) -> Status {
    Status::new(StatusCode::InvalidArgument, Blame::Guest, message)
}
