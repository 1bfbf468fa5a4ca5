//! The functions of WASI preview 1 that are granted, as imports.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use wasmtime::{Caller, Linker};
use wasmtime_wasi::ResourceTableError;
use wasmtime_wasi::p1::types::{Ciovec, Fd, Filetype, Lookupflags};
use wasmtime_wasi::p1::wasi_snapshot_preview1 as p1;
use wasmtime_wasi::p1::wasi_snapshot_preview1::WasiSnapshotPreview1;
use wiggle::{GuestError, GuestMemory, GuestPtr};

use super::super::claim::{self, LinearMemory, enter_host};
use super::super::fuel;
use super::super::state::GuestState;
use super::functions::{MODULE, Need, each_function};
use super::granted::OfInstance;
use crate::policy::Grants;
use crate::values::{Blame, Status, StatusCode};

/// Buffers that one call can name: as many as Linux takes.
const MOST_BUFFERS: u32 = 1024;

/// Bytes that are made, or taken from a standard stream, until it is looked whether the call is to stop.
const PIECE: usize = 64 << 10;

/// WASI's error numbers that are said here.
mod errno {
    pub(super) const SUCCESS: i32 = 0;
    pub(super) const INVALID: i32 = 28;
    pub(super) const IO: i32 = 29;
    pub(super) const TOO_MANY_FILES: i32 = 33;
    pub(super) const NOT_SUPPORTED: i32 = 58;
}

/// Defines what the grants allow.
///
/// # Errors
/// wasmtime's, if it is defined already.
pub(super) fn define(linker: &mut Linker<GuestState>, grants: &Grants) -> wasmtime::Result<()> {
    macro_rules! define {
        ($($need:ident $how:ident $name:ident($($arg:ident: $ty:ident),*) $(-> $result:ident)?;)*) => {
            $(if Need::$need.is_met(grants) {
                linker.func_wrap(
                    MODULE,
                    stringify!($name),
                    |mut caller: Caller<'_, GuestState>, $($arg: $ty),*| {
                        $(let $arg = claim::handed(stringify!($name), $arg);)*
                        #[cfg(feature = "fault-injection")]
                        claim::handed_places(stringify!($name), &mut caller, &[$(i64::from($arg)),*]);
                        serve!($how $name(&mut caller $(, $arg)*))
                    },
                )?;
            })*
        };
    }
    /// Serves a call: see `each_function`.
    macro_rules! serve {
        (own $name:ident($($arg:expr),*)) => {
            $name($($arg),*)
        };
        (now $name:ident($caller:expr $(, $arg:expr)*)) => {
            with(stringify!($name), $caller, |of, memory| p1::$name(&mut of.wasi, memory $(, $arg)*))
        };
        (later $name:ident($caller:expr $(, $arg:expr)*)) => {
            with(stringify!($name), $caller, |of, memory| {
                ready(p1::$name(&mut of.wasi, memory $(, $arg)*))
            })
        };
        (vectored $name:ident($caller:expr, $file:expr, $buffers:expr, $count:expr $(, $arg:expr)*)) => {
            match $count.cast_unsigned() > MOST_BUFFERS {
                true => Ok(errno::INVALID),
                false => serve!(later $name($caller, $file, $buffers, $count $(, $arg)*)),
            }
        };
    }
    each_function!(define);
    Ok(())
}

/// Bytes of the paths in one call.
const MOST_PATHS: usize = 1 << 20;

/// Calls wasmtime-wasi with an instance's context and memory.
fn with(
    name: &str,
    caller: &mut Caller<'_, GuestState>,
    serve: impl FnOnce(&mut OfInstance, &mut GuestMemory<'_>) -> wasmtime::Result<i32>,
) -> wasmtime::Result<i32> {
    enter_host(caller)?;
    let (bytes, state) = memory_and_state(name, caller)?;
    let most = match name.starts_with("path_") {
        // No system takes a longer path, and each is looked at as a whole.
        true => MOST_PATHS,
        false => state.shared.policy.limits.memory_bytes,
    };
    let of = capabilities(name, &mut state.capabilities)?;
    // What it copies out of the guest in one call. It can be no more than there is.
    of.wasi.set_hostcall_fuel(most);
    let outcome = serve(of, &mut GuestMemory::Unshared(bytes));
    outcome.map_err(|error| wasmtime::Error::new(misused(name, &error)))
}

fn memory_and_state<'c>(
    name: &str,
    caller: &'c mut Caller<'_, GuestState>,
) -> wasmtime::Result<(&'c mut [u8], &'c mut GuestState)> {
    let memory = match caller.data().memory {
        // While the start function runs, the instance is not known yet.
        None => LinearMemory::of_caller(caller),
        memory => memory,
    };
    match memory {
        Some(memory) => Ok(memory.with_state(caller)),
        None => Err(wasmtime::Error::new(Status::internal(format!(
            "{name}: a memory that was checked is not exported"
        )))),
    }
}

fn capabilities<'s>(
    name: &str,
    capabilities: &'s mut Option<Box<OfInstance>>,
) -> wasmtime::Result<&'s mut OfInstance> {
    capabilities.as_deref_mut().ok_or_else(|| {
        wasmtime::Error::new(Status::internal(format!(
            "{name} was linked for an instance that has no capabilities"
        )))
    })
}

/// What a future gives that has nothing to wait for: where the calling thread may block, wasmtime-wasi's do all at once.
fn ready<T>(future: impl Future<Output = wasmtime::Result<T>>) -> wasmtime::Result<T> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(outcome) => outcome,
        Poll::Pending => Err(wasmtime::Error::new(Status::internal(
            "a function of WASI waits, which none that is granted does",
        ))),
    }
}

/// The status of a guest that handed wasmtime-wasi what it stops at.
fn misused(name: &str, error: &wasmtime::Error) -> Status {
    if let Some(status) = error.downcast_ref::<Status>() {
        return status.clone();
    }
    let code = match (
        error.downcast_ref::<GuestError>(),
        error.downcast_ref::<ResourceTableError>(),
    ) {
        (Some(error), _) => misuse_code(error),
        (None, Some(ResourceTableError::Full)) => StatusCode::ResourceExhausted,
        _ => StatusCode::Aborted,
    };
    Status::new(code, Blame::Guest, format!("{name}: {error:#}"))
}

fn misuse_code(error: &GuestError) -> StatusCode {
    match error {
        GuestError::InFunc { err, .. } => misuse_code(err),
        GuestError::PtrOverflow | GuestError::PtrOutOfBounds(_) => StatusCode::OutOfRange,
        _ => StatusCode::InvalidArgument,
    }
}

/// Ends the call: a target that exits gives no results, whatever it exits with.
fn proc_exit(_: &mut Caller<'_, GuestState>, code: i32) -> wasmtime::Result<()> {
    let message = format!("exited with code {code}");
    let status = Status::new(StatusCode::Aborted, Blame::Guest, message);
    Err(wasmtime::Error::new(status))
}

/// Opens a file or a directory, and nothing that would keep the host waiting.
#[allow(clippy::too_many_arguments, reason = "they are WASI's")]
fn path_open(
    caller: &mut Caller<'_, GuestState>,
    directory: i32,
    lookup: i32,
    path: i32,
    length: i32,
    flags: i32,
    rights: i64,
    inherited: i64,
    fd_flags: i32,
    opened: i32,
) -> wasmtime::Result<i32> {
    with("path_open", caller, |of, memory| {
        let at = (path.cast_unsigned(), length.cast_unsigned());
        if !of.files.begin_open() {
            return Ok(errno::TOO_MANY_FILES);
        }
        if may_block(of, memory, (directory, lookup), at) {
            of.files.end_open();
            return Ok(errno::NOT_SUPPORTED);
        }
        let outcome = ready(p1::path_open(
            &mut of.wasi,
            memory,
            directory,
            lookup,
            path,
            length,
            flags,
            rights,
            inherited,
            fd_flags,
            opened,
        ));
        // After an error that ends the call the file may be open, until the instance goes.
        if outcome.as_ref().is_ok_and(|&errno| errno != errno::SUCCESS) {
            of.files.end_open();
        }
        outcome
    })
}

/// Whether a path leads to a FIFO, a socket or a device: the host would wait for it, and could not be stopped.
/// If it cannot be told, neither can it be opened.
fn may_block(
    of: &mut OfInstance,
    memory: &mut GuestMemory<'_>,
    (directory, lookup): (i32, i32),
    path: (u32, u32),
) -> bool {
    let Ok(lookup) = Lookupflags::try_from(lookup) else {
        return false;
    };
    let directory = Fd::from(directory.cast_unsigned());
    let path = GuestPtr::<str>::new(path);
    let mut found = false;
    let stat = async {
        let stat = of.wasi.path_filestat_get(memory, directory, lookup, path);
        found = stat.await.is_ok_and(|stat| {
            !matches!(
                stat.filetype,
                Filetype::RegularFile | Filetype::Directory | Filetype::SymbolicLink
            )
        });
        Ok(())
    };
    ready(stat).is_ok() && found
}

/// Sets a file's times, which opens it.
#[allow(clippy::too_many_arguments, reason = "they are WASI's")]
fn path_filestat_set_times(
    caller: &mut Caller<'_, GuestState>,
    directory: i32,
    lookup: i32,
    path: i32,
    length: i32,
    accessed: i64,
    modified: i64,
    flags: i32,
) -> wasmtime::Result<i32> {
    with("path_filestat_set_times", caller, |of, memory| {
        let at = (path.cast_unsigned(), length.cast_unsigned());
        if may_block(of, memory, (directory, lookup), at) {
            return Ok(errno::NOT_SUPPORTED);
        }
        ready(p1::path_filestat_set_times(
            &mut of.wasi,
            memory,
            directory,
            lookup,
            path,
            length,
            accessed,
            modified,
            flags,
        ))
    })
}

fn fd_close(caller: &mut Caller<'_, GuestState>, descriptor: i32) -> wasmtime::Result<i32> {
    with("fd_close", caller, |of, memory| {
        let outcome = ready(p1::fd_close(&mut of.wasi, memory, descriptor))?;
        if outcome == errno::SUCCESS {
            of.files.closed(descriptor.cast_unsigned());
        }
        Ok(outcome)
    })
}

fn fd_renumber(caller: &mut Caller<'_, GuestState>, from: i32, to: i32) -> wasmtime::Result<i32> {
    with("fd_renumber", caller, |of, memory| {
        let outcome = ready(p1::fd_renumber(&mut of.wasi, memory, from, to))?;
        if outcome == errno::SUCCESS {
            of.files
                .renumbered(from.cast_unsigned(), to.cast_unsigned());
        }
        Ok(outcome)
    })
}

/// Writes to a file, or to the log.
fn fd_write(
    caller: &mut Caller<'_, GuestState>,
    descriptor: i32,
    buffers: i32,
    count: i32,
    written: i32,
) -> wasmtime::Result<i32> {
    if count.cast_unsigned() > MOST_BUFFERS {
        return Ok(errno::INVALID);
    }
    let mut logged = None;
    let outcome = with("fd_write", caller, |of, memory| {
        let Some(level) = of.files.output(descriptor.cast_unsigned()) else {
            return ready(p1::fd_write(
                &mut of.wasi,
                memory,
                descriptor,
                buffers,
                count,
                written,
            ));
        };
        let bytes = first_buffer(memory, (buffers.cast_unsigned(), count.cast_unsigned()))?;
        memory.write(GuestPtr::new(written.cast_unsigned()), bytes.len() as u32)?;
        logged = Some((level, bytes));
        Ok(errno::SUCCESS)
    })?;
    if let Some((level, bytes)) = logged {
        let state = caller.data_mut();
        if let Some(mut capabilities) = state.capabilities.take() {
            capabilities.output.write(state, level, &bytes);
            state.capabilities = Some(capabilities);
        }
    }
    Ok(outcome)
}

/// The first buffer that is not empty, or the beginning of it: whoever writes more calls again.
fn first_buffer(
    memory: &GuestMemory<'_>,
    (buffers, count): (u32, u32),
) -> Result<Vec<u8>, GuestError> {
    for buffer in GuestPtr::<[Ciovec]>::new((buffers, count)).iter() {
        let buffer = memory.read(buffer?)?;
        if buffer.buf_len > 0 {
            let length = buffer.buf_len.min(PIECE as u32);
            return memory.to_vec(buffer.buf.as_array(length));
        }
    }
    Ok(Vec::new())
}

fn random_get(
    caller: &mut Caller<'_, GuestState>,
    buffer: i32,
    length: i32,
) -> wasmtime::Result<i32> {
    enter_host(caller)?;
    fuel::charge(caller, u64::from(length.cast_unsigned()))?;
    let (bytes, state) = memory_and_state("random_get", caller)?;
    let start = buffer.cast_unsigned() as usize;
    let end = start.saturating_add(length.cast_unsigned() as usize);
    let Some(buffer) = bytes.get_mut(start..end) else {
        let message = format!("random_get: expected a buffer in memory, found {start} to {end}");
        let status = Status::new(StatusCode::OutOfRange, Blame::Guest, message);
        return Err(wasmtime::Error::new(status));
    };
    let of = capabilities("random_get", &mut state.capabilities)?;
    for (i, piece) in buffer.chunks_mut(PIECE).enumerate() {
        if i > 0 {
            state.interrupt.tick().map_err(wasmtime::Error::new)?;
        }
        match of.random.as_mut().map(|source| source.fill(piece)) {
            Some(Ok(())) => {}
            Some(Err(_)) | None => return Ok(errno::IO),
        }
    }
    Ok(errno::SUCCESS)
}
