//! The call frame: how a call site is laid out in a guest's memory.
//!
//! [`abi`] has the records of `wit/callbox-ffi.wit`, byte for byte. [`ArenaLayout`] places a frame, or the pointer arrays of an older
//! convention, and the buffers in one stretch of memory, the arena, once for each call site: shapes are static, so a call only copies.

pub mod abi;
mod arena;
mod block;
mod pointers;
mod records;

#[cfg(feature = "cuda")]
pub(crate) use arena::resolve_aliases;
pub use arena::{ArenaLayout, Frame};
pub use block::{ARENA_ALIGNMENT, FrameImage};
pub use pointers::Pointers;
pub use records::BufferPlace;
