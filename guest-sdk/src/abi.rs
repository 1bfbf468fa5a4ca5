//! The records of a call frame in memory, and all of the crate's unsafe code.
//!
//! This module and its children turn the offsets in a frame into slices, and no other module does.
//! They rely on the host, which keeps the contract in `wit/callbox-ffi.wit`: a frame lies within
//! the memory, its lists are aligned and in bounds, and no two of them overlap, except that a
//! result's data may be the data of the operand in its `aliased-operand`.
#![allow(
    unsafe_code,
    reason = "the records and buffers of a call are offsets that the host laid out"
)]

mod attributes;
mod buffers;
mod frame;
#[cfg(target_arch = "wasm32")]
pub(crate) mod maths;
mod plain;
#[cfg(all(feature = "getrandom", target_arch = "wasm32"))]
mod random;
mod scratch;
mod state;

#[cfg(any(
    test,
    all(feature = "runtime", not(feature = "std"), target_arch = "wasm32")
))]
mod allocator;
#[cfg(not(target_arch = "wasm32"))]
pub(crate) mod native;
#[cfg(target_arch = "wasm32")]
mod wasm;

#[cfg(not(target_arch = "wasm32"))]
use native as machine;
#[cfg(target_arch = "wasm32")]
use wasm as machine;

#[cfg(all(feature = "runtime", not(feature = "std"), target_arch = "wasm32"))]
pub use allocator::GuestAllocator;
pub(crate) use attributes::{AttributeParts, Attributes};
pub(crate) use buffers::{Array, Buffers};
pub(crate) use frame::Frame;
pub use frame::FramePointer;
pub(crate) use machine::{
    call_function, count_function_call, function_call_count, function_message, log, set_failure,
    set_success, user_data, version,
};
pub(crate) use plain::Plain;
pub(crate) use plain::{bytes, bytes_mut, elements, elements_mut, push_str};
#[cfg(all(feature = "granted-randomness", target_arch = "wasm32"))]
pub(crate) use random::granted_random_bytes;
pub(crate) use scratch::Scratch;
pub use state::State;
#[cfg(target_arch = "wasm32")]
pub use wasm::{StateWord, take_back_state};

use callbox_abi::{Attribute, BaseCallFrame, Buffer, CallFrame, List};
use machine::Memory;
use plain::Chunk;

impl Memory {
    /// Returns the elements of a list.
    ///
    /// # Safety
    /// The list must be aligned for `T` and in bounds, and nothing may write to it for `'a`.
    #[inline]
    unsafe fn slice<'a, T: Plain>(self, list: List) -> &'a [T] {
        if list.count == 0 {
            return &[];
        }
        // SAFETY: the caller guarantees alignment, bounds and no writes; every bit pattern is a
        // `T`.
        unsafe { core::slice::from_raw_parts(self.at(list.offset), list.count as usize) }
    }

    /// Returns the elements of a list for writing.
    ///
    /// # Safety
    /// The list must be aligned for `T` and in bounds, and no other slice of it may exist for `'a`.
    #[inline]
    unsafe fn slice_mut<'a, T: Plain>(self, list: List) -> &'a mut [T] {
        if list.count == 0 {
            return &mut [];
        }
        // SAFETY: the caller guarantees alignment, bounds and exclusive access; every bit pattern
        // is a `T`.
        unsafe { core::slice::from_raw_parts_mut(self.at(list.offset), list.count as usize) }
    }
}
