//! The call frame: how a call site is laid out in a guest's memory.
//!
//! `callbox-abi` has the records of `wit/callbox-ffi.wit`, byte for byte. [`ArenaLayout`] places
//! the buffers, and a frame or the pointer arrays of an older convention, in one range of memory,
//! the arena. It does so once per call site: shapes are static, so that a call only copies.
//!
//! Buffers come first in the arena and records after them, so that the offsets of buffers depend
//! only on the shapes and are computed in one pass.

pub(crate) mod abi;
mod arena;
mod block;
mod pointers;
mod records;

pub use arena::{ArenaLayout, Frame};
pub use block::{ARENA_ALIGNMENT, FrameImage};
pub use pointers::Pointers;
pub use records::BufferPlace;
