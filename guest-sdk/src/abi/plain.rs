//! Types of which any bytes are a value, and slices of bytes seen as slices of them.

use super::record::{Attribute, Buffer, CallFrame, CallFrame10};
use crate::{Bf16, C64, C128, F16, Pred};

/// A type of which any bytes are a value, so that memory can be seen as a slice of it.
///
/// # Safety
/// Every pattern of bits is a value of the type, and none of its bytes is padding.
pub unsafe trait Plain: Copy + 'static {}

macro_rules! plain {
    ($($type:ty),*) => {
        // SAFETY: any bits are a value of a number, `Pred`, `F16` and `Bf16` are transparent over one, `C64` and `C128` are two
        // of a kind, and the records are of numbers, with their padding spelt out.
        $(unsafe impl Plain for $type {})*
    };
}

plain!(i8, i16, i32, i64, u8, u16, u32, u64, f32, f64);
plain!(Pred, F16, Bf16, C64, C128);
plain!(Buffer, Attribute, CallFrame10, CallFrame, Chunk);

/// Bytes as elements, or `None` if the first is not aligned for one. Bytes after the last whole element are left out.
pub(crate) fn elements<T: Plain>(bytes: &[u8]) -> Option<&[T]> {
    // No bytes may lie anywhere.
    if bytes.is_empty() {
        return Some(&[]);
    }
    let (elements, count) = (bytes.as_ptr().cast::<T>(), bytes.len() / size_of::<T>());
    if !elements.is_aligned() {
        return None;
    }
    // SAFETY: the pointer is aligned, the elements lie within `bytes`, and any bits are a `T`.
    Some(unsafe { core::slice::from_raw_parts(elements, count) })
}

/// Bytes as elements to write to: [`elements`], for a slice that is borrowed alone.
pub(crate) fn elements_mut<T: Plain>(bytes: &mut [u8]) -> Option<&mut [T]> {
    if bytes.is_empty() {
        return Some(&mut []);
    }
    let count = bytes.len() / size_of::<T>();
    let elements = bytes.as_mut_ptr().cast::<T>();
    if !elements.is_aligned() {
        return None;
    }
    // SAFETY: as in `elements`; the bytes are borrowed alone, and any `T` leaves bytes that are initialised.
    Some(unsafe { core::slice::from_raw_parts_mut(elements, count) })
}

/// Elements as bytes to write to.
pub(crate) fn bytes_mut<T: Plain>(elements: &mut [T]) -> &mut [u8] {
    // SAFETY: as in `bytes`; the elements are borrowed alone, and any bytes are a `T`.
    unsafe { core::slice::from_raw_parts_mut(elements.as_mut_ptr().cast(), size_of_val(elements)) }
}

/// Elements as bytes.
pub(crate) fn bytes<T: Plain>(elements: &[T]) -> &[u8] {
    // SAFETY: a `Plain` type has no padding, so that all its bytes are initialised.
    unsafe { core::slice::from_raw_parts(elements.as_ptr().cast(), size_of_val(elements)) }
}

/// Bytes with the alignment that a buffer's data has.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub(crate) struct Chunk(pub(super) [u8; 64]);
