//! The FFI API table: the functions that every guest may import.
//!
//! The contract is WIT (`wit/callbox-ffi.wit`), so that bindings in any language link, but guests
//! are core modules rather than components. A component allocates lists for each call, so that a
//! caller cannot pass buffers that it owns.

use wasmtime::{Caller, Linker};

use callbox_core::policy::LogLevel;
use callbox_core::untrusted_text::sanitize;
use callbox_core::values::{Result, Status, StatusCode};

use crate::callback;
use crate::claim::{Claim, Extent};
use crate::failure::invalid;
use crate::frame::abi;
use crate::import::{self, charge, linear_memory, memory};
use crate::maths;
use crate::state::{GuestFailure, GuestState};

/// A function of `callbox:ffi/api`.
pub(crate) struct ApiFunction {
    pub(crate) name: &'static str,
    /// Its parameters and results as the canonical ABI flattens them.
    pub(crate) ty: &'static str,
    /// The minor version that introduced it.
    pub(crate) since: u32,
}

/// The functions of `callbox:ffi/api`.
pub(crate) const FUNCTIONS: &[ApiFunction] = &[
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

/// The name by which a guest imports the table of this minor version.
pub(crate) fn module_name(minor: u32) -> String {
    format!("{}{}.{minor}.0", abi::API_MODULE, abi::MAJOR)
}

/// A linker with the table in every minor version, and mathematics. The error of a function that
/// the guest misused becomes the status of the guest's call.
pub(crate) fn linker(engine: &wasmtime::Engine) -> Result<Linker<GuestState>> {
    let mut linker = Linker::new(engine);
    (0..=abi::MINOR)
        .try_for_each(|minor| define(&mut linker, minor))
        .and_then(|()| maths::define(&mut linker))
        .map_err(|error| Status::internal(format!("the API table cannot be made: {error:#}")))?;
    Ok(linker)
}

/// The fuel of a byte of a text that is read: its characters are looked at one by one.
const FUEL_OF_BYTE: u64 = 16;

/// A guest's text: its offset and length.
#[derive(Clone, Copy)]
struct Text(Claim<u32>, Claim<u32>);

fn define(linker: &mut Linker<GuestState>, minor: u32) -> wasmtime::Result<()> {
    let module = &module_name(minor);
    import::define(linker, module, "version", |_, []| {
        Ok::<_, Status>(abi::VERSION)
    })?;
    import::define(
        linker,
        module,
        "set-failure",
        |caller, [code, message, length, recoverable]| {
            set_failure(caller, code, Text(message, length), recoverable)
        },
    )?;
    import::define(linker, module, "set-success", |mut caller, []| {
        caller.data_mut().failure = None;
        Ok::<_, Status>(())
    })?;
    import::define(linker, module, "log", |caller, [level, message, length]| {
        log(caller, level, Text(message, length))
    })?;
    if minor >= 1 {
        callback::define(linker, module)?;
        import::define(
            linker,
            module,
            "user-data",
            |caller, [name, length, into, room]| user_data(caller, Text(name, length), into, room),
        )?;
    }
    Ok(())
}

fn set_failure(
    mut caller: Caller<'_, GuestState>,
    code: Claim<u32>,
    message: Text,
    recoverable: Claim<u32>,
) -> wasmtime::Result<()> {
    let failure = |code| StatusCode::from_number(code).filter(|&code| code != StatusCode::Ok);
    let code = code.check(failure).map_err(|code| {
        invalid(format!(
            "set-failure: expected a status code from 1 to 16, found {code}"
        ))
    })?;
    let limit = caller.data().shared.policy.limits.message_bytes;
    let message = read_text(&mut caller, "set-failure's message", message, limit)?;
    caller.data_mut().failure = Some(GuestFailure {
        code,
        message,
        recoverable: recoverable.opaque() != 0,
    });
    Ok(())
}

fn log(mut caller: Caller<'_, GuestState>, level: Claim<u32>, text: Text) -> wasmtime::Result<()> {
    let level = level
        .check(LogLevel::from_number)
        .map_err(|level| invalid(format!("log: expected a level from 0 to 4, found {level}")))?;
    // A message out of bounds is a failure even if it is discarded.
    let room = caller.data().log.room(level);
    let message = read_text(&mut caller, "log's message", text, room)?;
    let length = text.1.to_check();
    caller.data_mut().log.send(level, &message, length);
    Ok(())
}

/// Copies the user data that the embedder attached under a name into the guest's memory, in pieces
/// between which the call can be stopped.
fn user_data(
    mut caller: Caller<'_, GuestState>,
    name: Text,
    into: Claim<u32>,
    room: Claim<u32>,
) -> wasmtime::Result<i64> {
    const PIECE: usize = 64 << 10;
    let data = caller.data().attached.user_data.clone();
    let memory = memory(&mut caller, "user-data's name")?;
    let name = memory.read("user-data's name", name.0, name.1)?;
    // A name longer than every key needs no validation, which would take long for a huge one.
    let keys = data.iter().flat_map(|data| data.keys());
    let longest = keys.map(String::len).max().unwrap_or(0);
    let found = Some(&*name)
        .filter(|name| name.len() <= longest)
        .and_then(|name| std::str::from_utf8(name).ok())
        .and_then(|name| data.as_ref()?.get(name));
    let bytes = found.map_or(&[][..], Vec::as_slice);
    let room = room.to_check();
    charge(&mut caller, bytes.len().min(room) as u64)?;
    let (mut memory, state) =
        linear_memory(&mut caller, "user-data's room")?.borrow_with_state(&mut caller);
    let room = memory.room("user-data's room", into, room)?;
    for (to, from) in room.chunks_mut(PIECE).zip(bytes.chunks(PIECE)) {
        state.interrupt.check()?;
        let length = to.len().min(from.len());
        to[..length].copy_from_slice(&from[..length]);
    }
    Ok(found.map_or(-1, |bytes| bytes.len() as i64))
}

/// Reads at most `limit` bytes of a guest's text, all of which must be in bounds.
fn read_text(
    caller: &mut Caller<'_, GuestState>,
    what: &str,
    Text(offset, length): Text,
    limit: usize,
) -> wasmtime::Result<String> {
    let shown = length.to_check().min(limit);
    charge(caller, FUEL_OF_BYTE * shown as u64)?;
    let memory = memory(caller, what)?;
    let bytes = memory.read(what, offset, length)?;
    Ok(sanitize(&bytes, bytes.len(), limit))
}
