//! The driver, as values that own what they stand for: streams, events, memory, modules, graphs. Nothing outside this folder calls the driver.
//!
//! Nothing here is called before [`super::probe`] has found a driver: cudarc panics without one.

mod context;
mod event;
mod graph;
mod memory;
mod module;
mod pinned;
mod relaxed;
mod stream;

pub(super) use self::context::{Context, has_function, initialize, is_library_present, ordinal_of};
pub(super) use self::event::Event;
pub(super) use self::graph::{Graph, GraphExec, Updated};
pub(super) use self::memory::{Allocation, MemoryKind, copy, fill, kind_of};
pub(super) use self::module::{Function, Image, Module};
pub(super) use self::pinned::Pinned;
pub(super) use self::relaxed::Relaxed;
pub(super) use self::stream::{HostTask, Stream};

use cudarc::driver::sys::CUresult;

use super::failure::DriverFailure;

/// What a call of the driver's gives.
pub(super) type Outcome<T> = Result<T, DriverFailure>;

/// A call's result.
fn check(call: &'static str, result: CUresult) -> Outcome<()> {
    match result as u32 {
        0 => Ok(()),
        code => Err(DriverFailure { call, code }),
    }
}
