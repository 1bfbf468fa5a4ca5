//! The call frame: how a call site is laid out in a guest's memory.
//!
//! [`abi`] has the records of `wit/callbox-ffi.wit`, byte for byte. [`ArenaLayout`] places a frame and its buffers in one block,
//! the arena, once for each call site: shapes are static, so a call only copies.

pub mod abi;
mod arena;
mod records;

pub use arena::{ARENA_ALIGNMENT, ArenaLayout, Frame};
pub use records::{BufferPlace, FrameImage};
