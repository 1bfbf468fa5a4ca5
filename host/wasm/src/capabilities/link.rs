//! Links the granted functions of WASI preview 1.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use wasmtime::{Caller, Linker};
use wasmtime_wasi::ResourceTableError;
use wasmtime_wasi::p1::types::{Ciovec, Fd, Filetype, Lookupflags};
use wasmtime_wasi::p1::wasi_snapshot_preview1 as p1;
use wasmtime_wasi::p1::wasi_snapshot_preview1::WasiSnapshotPreview1;
use wiggle::{GuestError, GuestMemory, GuestPtr};

use callbox_core::policy::Grants;
use callbox_core::values::{Blame, Status, StatusCode};

use super::functions::{MODULE, Need, each_function};
use super::instance::InstanceCapabilities;
use crate::claim;
use crate::failure::status;
use crate::import::{charge, enter_host, linear_memory};
use crate::state::GuestState;

/// The most buffers of one call, which is Linux's limit.
const MOST_BUFFERS: u32 = 1024;

/// The bytes that are generated, or taken from a standard stream, between checks for interruption.
const PIECE: usize = 64 << 10;

/// The most bytes of a file that one call reads or writes. wasmtime-wasi would move a whole buffer,
/// however long the guest's memory makes it: 700 MiB took a second.
const MOST_MOVED: u32 = 256 << 10;

/// The most bytes of paths in one call.
const MOST_PATH_BYTES: usize = 1 << 20;

/// The error numbers of WASI that this crate returns itself.
mod errno {
    pub(super) const SUCCESS: i32 = 0;
    pub(super) const INVALID: i32 = 28;
    pub(super) const IO: i32 = 29;
    pub(super) const TOO_MANY_FILES: i32 = 33;
    pub(super) const NOT_SUPPORTED: i32 = 58;
}

/// Defines the functions that the grants allow.
///
/// # Errors
/// wasmtime's, if the linker has one of them already.
pub(super) fn define(linker: &mut Linker<GuestState>, grants: &Grants) -> wasmtime::Result<()> {
    macro_rules! define {
        ($($need:ident $how:ident $name:ident($($arg:ident: $ty:ident),*) $(-> $result:ident)?;)*) => {
            $(if Need::$need.is_met(grants) {
                linker.func_wrap(
                    MODULE,
                    stringify!($name),
                    |mut caller: Caller<'_, GuestState>, $($arg: $ty),*| {
                        $(let $arg = claim::wasi_parameter(stringify!($name), $arg);)*
                        #[cfg(feature = "fault-injection")]
                        claim::alter_wasi_memory(stringify!($name), &mut caller, &[$(i64::from($arg)),*]);
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
        (guarded $name:ident($caller:expr, $at:expr, $lookup:expr, $path:expr, $length:expr $(, $arg:expr)*)) => {
            with(stringify!($name), $caller, |of, memory| {
                if may_block(of, memory, $at, $lookup, $path, $length) {
                    return Ok(errno::NOT_SUPPORTED);
                }
                ready(p1::$name(&mut of.wasi, memory, $at, $lookup, $path, $length $(, $arg)*))
            })
        };
        (opening $name:ident($caller:expr, $at:expr, $lookup:expr, $path:expr, $length:expr $(, $arg:expr)*)) => {
            with(stringify!($name), $caller, |of, memory| {
                if !of.files.begin_open()? {
                    return Ok(errno::TOO_MANY_FILES);
                }
                let outcome = if may_block(of, memory, $at, $lookup, $path, $length) {
                    Ok(errno::NOT_SUPPORTED)
                } else {
                    ready(p1::$name(&mut of.wasi, memory, $at, $lookup, $path, $length $(, $arg)*))
                };
                // After an error that ends the call, the file may stay open until the instance is
                // dropped.
                if outcome.as_ref().is_ok_and(|&errno| errno != errno::SUCCESS) {
                    of.files.end_open();
                }
                outcome
            })
        };
        (vectored $name:ident($caller:expr, $file:expr, $buffers:expr, $count:expr $(, $arg:expr)*)) => {
            if $count.cast_unsigned() > MOST_BUFFERS {
                Ok(errno::INVALID)
            } else {
                serve!(later $name($caller, $file, $buffers, $count $(, $arg)*))
            }
        };
    }
    each_function!(define);
    Ok(())
}

/// Calls wasmtime-wasi with an instance's context and memory.
fn with(
    name: &str,
    caller: &mut Caller<'_, GuestState>,
    serve: impl FnOnce(&mut InstanceCapabilities, &mut GuestMemory<'_>) -> wasmtime::Result<i32>,
) -> wasmtime::Result<i32> {
    let _mode = enter_host(caller)?;
    let (bytes, state) = linear_memory(caller, name)?.with_state(caller);
    let most = if name.starts_with("path_") {
        // No system takes a longer path, and wasmtime-wasi scans each path as a whole.
        MOST_PATH_BYTES
    } else {
        state.shared.policy.limits.memory_bytes
    };
    let of = capabilities(name, &mut state.capabilities)?;
    // Limits how much wasmtime-wasi copies out of the guest in this call.
    of.wasi.set_hostcall_fuel(most);
    serve(of, &mut GuestMemory::Unshared(bytes)).map_err(|error| misused(name, &error).into())
}

fn capabilities<'s>(
    name: &str,
    capabilities: &'s mut Option<Box<InstanceCapabilities>>,
) -> Result<&'s mut InstanceCapabilities, Status> {
    capabilities.as_deref_mut().ok_or_else(|| {
        Status::internal(format!(
            "{name} was linked for an instance that has no capabilities"
        ))
    })
}

/// The output of a future that never waits: wasmtime-wasi's complete at once where the calling
/// thread may block.
fn ready<T>(future: impl Future<Output = wasmtime::Result<T>>) -> wasmtime::Result<T> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(outcome) => outcome,
        Poll::Pending => Err(Status::internal(
            "a function of WASI waits, which none that is granted does",
        )
        .into()),
    }
}

/// The status for an error by which wasmtime-wasi stops the guest.
fn misused(name: &str, error: &wasmtime::Error) -> Status {
    if let Some(status) = error.downcast_ref::<Status>() {
        return status.clone();
    }
    let code = if let Some(error) = error.downcast_ref::<GuestError>() {
        misuse_code(error)
    } else if let Some(ResourceTableError::Full) = error.downcast_ref() {
        StatusCode::ResourceExhausted
    } else {
        StatusCode::Aborted
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

/// Ends the call: a target that exits has no results, whatever its exit code.
fn proc_exit(_: &mut Caller<'_, GuestState>, code: i32) -> wasmtime::Result<()> {
    Err(status!(Aborted, Guest, "exited with code {code}").into())
}

/// Whether a path leads to a FIFO, a socket or a device, on which the host could wait for ever. A
/// path that cannot be examined cannot be opened either.
fn may_block(
    of: &mut InstanceCapabilities,
    memory: &mut GuestMemory<'_>,
    directory: i32,
    lookup: i32,
    path: i32,
    length: i32,
) -> bool {
    let Ok(lookup) = Lookupflags::try_from(lookup) else {
        return false;
    };
    let directory = Fd::from(directory.cast_unsigned());
    let path = GuestPtr::<str>::new((path.cast_unsigned(), length.cast_unsigned()));
    let stat = async {
        let stat = of.wasi.path_filestat_get(memory, directory, lookup, path);
        Ok(stat.await.is_ok_and(|stat| {
            !matches!(
                stat.filetype,
                Filetype::RegularFile | Filetype::Directory | Filetype::SymbolicLink
            )
        }))
    };
    ready(stat).unwrap_or(false)
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

/// A buffer of a guest's, in a memory of its own that wasmtime-wasi gets in place of the guest's.
struct Moved(Vec<u8>);

impl Moved {
    /// The offsets of the list of buffers, which has one, of the number of bytes that were moved,
    /// and of the buffer.
    const LIST: i32 = 0;
    const COUNT: i32 = 8;
    const BUFFER: usize = 12;

    fn new(length: usize) -> Self {
        let mut bytes = vec![0; Self::BUFFER + length];
        bytes[..4].copy_from_slice(&(Self::BUFFER as u32).to_le_bytes());
        bytes[4..8].copy_from_slice(&(length as u32).to_le_bytes());
        Self(bytes)
    }

    fn memory(&mut self) -> GuestMemory<'_> {
        GuestMemory::Unshared(&mut self.0)
    }

    fn buffer(&mut self) -> &mut [u8] {
        &mut self.0[Self::BUFFER..]
    }

    /// Writes the number of bytes that were moved into the guest's memory, if the call succeeded,
    /// and returns its outcome.
    fn tell(&self, memory: &mut GuestMemory<'_>, outcome: i32, at: i32) -> wasmtime::Result<i32> {
        if outcome == errno::SUCCESS {
            memory.write(GuestPtr::new(at.cast_unsigned()), self.count())?;
        }
        Ok(outcome)
    }

    /// The number of bytes that were moved.
    fn count(&self) -> u32 {
        let at = Self::COUNT as usize;
        let bytes = self.0[at..Self::BUFFER].try_into();
        bytes.map_or(0, u32::from_le_bytes)
    }
}

/// The first buffer of a list that is not empty, all of which is in memory, and its length, which
/// is cut: a guest that wants more calls again.
fn first_of(
    memory: &GuestMemory<'_>,
    buffers: i32,
    count: i32,
) -> Result<GuestPtr<[u8]>, GuestError> {
    let list = GuestPtr::<[Ciovec]>::new((buffers.cast_unsigned(), count.cast_unsigned()));
    for buffer in list.iter() {
        let buffer = memory.read(buffer?)?;
        if buffer.buf_len > 0 {
            memory.as_slice(buffer.buf.as_array(buffer.buf_len))?;
            return Ok(buffer.buf.as_array(buffer.buf_len.min(MOST_MOVED)));
        }
    }
    Ok(GuestPtr::new((0, 0)))
}

/// Reads a file.
fn fd_read(
    caller: &mut Caller<'_, GuestState>,
    descriptor: i32,
    buffers: i32,
    count: i32,
    read: i32,
) -> wasmtime::Result<i32> {
    if count.cast_unsigned() > MOST_BUFFERS {
        return Ok(errno::INVALID);
    }
    with("fd_read", caller, |of, memory| {
        let buffer = first_of(memory, buffers, count)?;
        let mut moved = Moved::new(buffer.len() as usize);
        let outcome = ready(p1::fd_read(
            &mut of.wasi,
            &mut moved.memory(),
            descriptor,
            Moved::LIST,
            1,
            Moved::COUNT,
        ))?;
        if outcome == errno::SUCCESS {
            let bytes = moved.count();
            if let Some(filled) = buffer.get_range(0..bytes) {
                memory.copy_from_slice(&moved.buffer()[..bytes as usize], filled)?;
            }
        }
        moved.tell(memory, outcome, read)
    })
}

/// Lists a directory, of which wasmtime-wasi reads all entries at once.
fn fd_readdir(
    caller: &mut Caller<'_, GuestState>,
    descriptor: i32,
    buffer: i32,
    length: i32,
    cookie: i64,
    used: i32,
) -> wasmtime::Result<i32> {
    with("fd_readdir", caller, |of, memory| {
        let file = Fd::from(descriptor.cast_unsigned());
        let size = async {
            let stat = of.wasi.fd_filestat_get(memory, file).await;
            Ok(stat.map_or(0, |stat| stat.size))
        };
        let _room = of.files.room_to_list(ready(size)?)?;
        let wasi = &mut of.wasi;
        ready(p1::fd_readdir(
            wasi, memory, descriptor, buffer, length, cookie, used,
        ))
    })
}

/// Writes to a file at an offset.
fn fd_pwrite(
    caller: &mut Caller<'_, GuestState>,
    descriptor: i32,
    buffers: i32,
    count: i32,
    offset: i64,
    written: i32,
) -> wasmtime::Result<i32> {
    if count.cast_unsigned() > MOST_BUFFERS {
        return Ok(errno::INVALID);
    }
    with("fd_pwrite", caller, |of, memory| {
        let mut moved = to_move(memory, buffers, count)?;
        let outcome = ready(p1::fd_pwrite(
            &mut of.wasi,
            &mut moved.memory(),
            descriptor,
            Moved::LIST,
            1,
            offset,
            Moved::COUNT,
        ))?;
        moved.tell(memory, outcome, written)
    })
}

/// The beginning of what a guest writes.
fn to_move(memory: &GuestMemory<'_>, buffers: i32, count: i32) -> Result<Moved, GuestError> {
    let bytes = memory.to_vec(first_of(memory, buffers, count)?)?;
    let mut moved = Moved::new(bytes.len());
    moved.buffer().copy_from_slice(&bytes);
    Ok(moved)
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
            let mut moved = to_move(memory, buffers, count)?;
            let outcome = ready(p1::fd_write(
                &mut of.wasi,
                &mut moved.memory(),
                descriptor,
                Moved::LIST,
                1,
                Moved::COUNT,
            ))?;
            return moved.tell(memory, outcome, written);
        };
        let bytes = first_buffer(memory, buffers.cast_unsigned(), count.cast_unsigned())?;
        memory.write(GuestPtr::new(written.cast_unsigned()), bytes.len() as u32)?;
        logged = Some((level, bytes));
        Ok(errno::SUCCESS)
    })?;
    let state = caller.data_mut();
    if let (Some((level, bytes)), Some(of)) = (logged, &mut state.capabilities) {
        let check = || state.interrupt.check();
        of.output.write(&mut state.log, level, &bytes, check)?;
    }
    Ok(outcome)
}

/// The first buffer that is not empty, or its beginning: a guest that wrote more calls again.
fn first_buffer(memory: &GuestMemory<'_>, buffers: u32, count: u32) -> Result<Vec<u8>, GuestError> {
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
    const NAME: &str = "random_get";
    let _mode = enter_host(caller)?;
    charge(caller, u64::from(length.cast_unsigned()))?;
    let (bytes, state) = linear_memory(caller, NAME)?.with_state(caller);
    let start = buffer.cast_unsigned() as usize;
    let end = start.saturating_add(length.cast_unsigned() as usize);
    let buffer = bytes.get_mut(start..end).ok_or_else(|| {
        status!(
            OutOfRange,
            Guest,
            "{NAME}: expected a buffer in memory, found {start} to {end}"
        )
    })?;
    let of = capabilities(NAME, &mut state.capabilities)?;
    for piece in buffer.chunks_mut(PIECE) {
        state.interrupt.check()?;
        match of.random.as_mut().map(|source| source.fill(piece)) {
            Some(Ok(())) => {}
            Some(Err(_)) | None => return Ok(errno::IO),
        }
    }
    Ok(errno::SUCCESS)
}
