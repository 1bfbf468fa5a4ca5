//! The FFI API table: what a guest may import.

use wasmtime::Caller;

use super::callback;
use super::claim::{Claim, Extent, LinearMemory, import};
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
    import(linker, &module, "version", |_, []: [Claim<u32>; 0]| {
        Ok(abi::VERSION)
    })?;
    import(
        linker,
        &module,
        "set-failure",
        |caller, [code, message, length, recoverable]| {
            set_failure(caller, code, (message, length), recoverable).map_err(wasmtime::Error::new)
        },
    )?;
    import(
        linker,
        &module,
        "set-success",
        |mut caller, []: [Claim<u32>; 0]| {
            caller.data_mut().failure = None;
            Ok(())
        },
    )?;
    import(
        linker,
        &module,
        "log",
        |caller, [level, message, length]| {
            log(caller, level, (message, length)).map_err(wasmtime::Error::new)
        },
    )?;
    if minor >= 1 {
        callback::define(linker, &module)?;
        import(
            linker,
            &module,
            "user-data",
            |caller, [name, length, into, room]| {
                user_data(caller, (name, length), (into, room)).map_err(wasmtime::Error::new)
            },
        )?;
    }
    Ok(())
}

fn set_failure(
    mut caller: Caller<'_, GuestState>,
    code: Claim<u32>,
    message: (Claim<u32>, Claim<u32>),
    recoverable: Claim<u32>,
) -> Result<()> {
    let known = |code| StatusCode::from_number(code).filter(|&code| code != StatusCode::Ok);
    let code = code.check(known).map_err(|code| {
        misuse(format!(
            "set-failure: expected a status code from 1 to 16, found {code}"
        ))
    })?;
    let limit = caller.data().shared.policy.limits.message_bytes;
    let message = message_of(&mut caller, "set-failure's message", message, limit)?;
    caller.data_mut().failure = Some(GuestFailure {
        code,
        message,
        // All numbers but 0 say so.
        recoverable: recoverable.opaque() != 0,
    });
    Ok(())
}

fn log(
    mut caller: Caller<'_, GuestState>,
    level: Claim<u32>,
    text: (Claim<u32>, Claim<u32>),
) -> Result<()> {
    let level = level
        .check(LogLevel::from_number)
        .map_err(|level| misuse(format!("log: expected a level from 0 to 4, found {level}")))?;
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
    let message = message_of(&mut caller, "log's message", text, kept)?;
    if !listens {
        return Ok(());
    }
    let state = caller.data_mut();
    // A message without bytes costs one, so that a flood of them ends.
    state.log_budget -= text.1.to_check().clamp(1, limit);
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
    name: (Claim<u32>, Claim<u32>),
    into: (Claim<u32>, Claim<u32>),
) -> Result<i64> {
    let data = caller.data().user_data.clone();
    let mut memory = memory(&mut caller, "user-data's name")?;
    let name = memory.read("user-data's name", name.0, name.1)?;
    // A name that is longer than each that there is need not be looked at: it may be as long as memory.
    let names = data.iter().flat_map(|data| data.keys());
    let longest = names.map(String::len).max().unwrap_or(0);
    let found = Some(&*name)
        .filter(|name| name.len() <= longest)
        .and_then(|name| std::str::from_utf8(name).ok())
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
    (into, room): (Claim<u32>, Claim<u32>),
) -> Result<()> {
    memory.check(what, into, room)?;
    memory.write(what, into, &bytes[..bytes.len().min(room.to_check())])
}

/// A guest's text. All of it must be in memory, as much as is kept of it is read.
fn message_of(
    caller: &mut Caller<'_, GuestState>,
    what: &str,
    (offset, length): (Claim<u32>, Claim<u32>),
    limit: usize,
) -> Result<String> {
    let memory = memory(caller, what)?;
    let bytes = memory.read(what, offset, length)?;
    Ok(sanitize(&bytes, bytes.len(), limit))
}

/// The memory of the guest that calls.
pub(super) fn memory<'c>(
    caller: &'c mut Caller<'_, GuestState>,
    what: &str,
) -> Result<GuestMemory<'c>> {
    let memory = match caller.data().memory {
        Some(memory) => memory,
        // While the start function runs, the instance is not known yet.
        None => LinearMemory::of_caller(caller)
            .ok_or_else(|| misuse(format!("{what}: expected an exported memory, found none")))?,
    };
    Ok(memory.borrow(caller))
}

fn misuse(message: String) -> Status {
    Status::new(StatusCode::InvalidArgument, Blame::Guest, message)
}
