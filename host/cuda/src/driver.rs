//! The driver's objects as owned values: contexts, streams, events, memory, modules and graphs.
//!
//! No other module calls the driver. Nothing here may be called before [`super::probe`] has found a
//! driver: cudarc panics without one. cudarc's own safe wrappers are not used, because their event
//! tracking adds waits and keeps failures for the next unrelated call.

mod context;
mod event;
mod graph;
mod memory;
mod module;
mod pinned;
mod relaxed;
mod stream;

use cudarc::driver::sys::CUresult;

pub(super) use self::context::{Context, has_function, initialize, is_library_present, ordinal_of};
pub(super) use self::event::Event;
pub(super) use self::graph::{Graph, GraphExec, Updated};
pub(super) use self::memory::{Allocation, MemoryKind, copy, fill, kind_of};
pub(super) use self::module::{Function, Image, Module};
pub(super) use self::pinned::Pinned;
pub(super) use self::relaxed::Relaxed;
pub(super) use self::stream::{HostTask, Stream, StreamId};

use super::failure::DriverFailure;

/// The result of a driver call.
pub(super) type Outcome<T> = Result<T, DriverFailure>;

/// Turns a driver call's result into an outcome.
fn check(call: &'static str, result: CUresult) -> Outcome<()> {
    match result as u32 {
        0 => Ok(()),
        code => Err(DriverFailure { call, code }),
    }
}
