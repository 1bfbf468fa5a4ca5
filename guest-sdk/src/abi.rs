//! The records of the call frame as they lie in memory, and the only way to them.
//!
//! This module and its children are the one place of the crate with unsafe code: everything that the host says by
//! offsets becomes a slice here, and nothing else does. What they rely on is `wit/callbox-ffi.wit`: the frame that the
//! host hands over lies whole within the memory, its lists are aligned, and no two of them overlap but a result's data
//! and that of the operand it says it shares memory with.
#![allow(
    unsafe_code,
    reason = "the records and buffers of a call are offsets that the host laid out"
)]

mod attributes;
mod buffers;
mod frame;
mod plain;
mod record;
mod scratch;
mod state;

#[cfg(not(target_arch = "wasm32"))]
pub(crate) mod native;
#[cfg(target_arch = "wasm32")]
mod wasm;

#[cfg(not(target_arch = "wasm32"))]
use native as machine;
#[cfg(target_arch = "wasm32")]
use wasm as machine;

pub(crate) use attributes::{AttributeParts, Attributes};
pub(crate) use buffers::{Array, Buffers};
pub(crate) use frame::Frame;
pub use frame::FramePointer;
pub(crate) use machine::{
    call_function, count_function_call, function_call_count, function_message, log, set_failure,
    set_success, user_data, version,
};
pub(crate) use plain::Plain;
pub(crate) use plain::{bytes, bytes_mut, elements, elements_mut};
pub use record::{LAYOUT, OPTION_PAYLOAD, RECORDS};
pub(crate) use scratch::Scratch;
pub use state::State;
#[cfg(target_arch = "wasm32")]
pub use wasm::{StateWord, take_back_state};

use machine::Memory;
use plain::Chunk;
use record::{Attribute, Buffer, CallFrame, List};

impl Memory {
    /// The elements of a list.
    ///
    /// # Safety
    /// The list lies within the memory, aligned, and nothing writes to it for `'a`.
    #[inline]
    unsafe fn slice<'a, T: Plain>(self, list: List) -> &'a [T] {
        if list.count == 0 {
            return &[];
        }
        // SAFETY: the caller's promise; any bits are a `T`.
        unsafe { core::slice::from_raw_parts(self.at(list.offset), list.count as usize) }
    }

    /// The elements of a list, to write to.
    ///
    /// # Safety
    /// The list lies within the memory, aligned, and there is no other slice of it for `'a`.
    #[inline]
    unsafe fn slice_mut<'a, T: Plain>(self, list: List) -> &'a mut [T] {
        if list.count == 0 {
            return &mut [];
        }
        // SAFETY: the caller's promise; any bits are a `T`.
        unsafe { core::slice::from_raw_parts_mut(self.at(list.offset), list.count as usize) }
    }
}
