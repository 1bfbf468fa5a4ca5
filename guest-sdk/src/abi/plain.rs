//! Conversion between slices of bytes and slices of elements.

use alloc::string::String;

use super::{Attribute, BaseCallFrame, Buffer, CallFrame};
use crate::{Bf16, C64, C128, F16, Pred};

/// A type that any bytes are a valid value of.
///
/// # Safety
/// Every bit pattern must be a value of the type, and the type must have no padding.
pub unsafe trait Plain: Copy + 'static {}

macro_rules! plain {
    ($($type:ty),*) => {
        // SAFETY: every bit pattern is a number. `Pred`, `F16` and `Bf16` are transparent over one,
        // `C64` and `C128` are `repr(C)` pairs of one type, `Chunk` is bytes, and the records
        // consist of numbers with explicit padding, whose sizes `callbox-abi` asserts.
        $(unsafe impl Plain for $type {})*
    };
}

plain!(i8, i16, i32, i64, u8, u16, u32, u64, f32, f64);
plain!(Pred, F16, Bf16, C64, C128);
plain!(Buffer, Attribute, BaseCallFrame, CallFrame, Chunk);

/// Casts bytes to elements. `None` if the bytes are not aligned. Bytes after the last whole element
/// are ignored.
pub(crate) fn elements<T: Plain>(bytes: &[u8]) -> Option<&[T]> {
    // An empty slice may have any address.
    if bytes.is_empty() {
        return Some(&[]);
    }
    let (elements, count) = (bytes.as_ptr().cast::<T>(), bytes.len() / size_of::<T>());
    if !elements.is_aligned() {
        return None;
    }
    // SAFETY: the pointer is aligned and the elements lie within `bytes`; every bit pattern is a
    // `T`.
    Some(unsafe { core::slice::from_raw_parts(elements, count) })
}

/// Casts bytes to elements for writing, as [`elements`] does.
pub(crate) fn elements_mut<T: Plain>(bytes: &mut [u8]) -> Option<&mut [T]> {
    if bytes.is_empty() {
        return Some(&mut []);
    }
    let count = bytes.len() / size_of::<T>();
    let elements = bytes.as_mut_ptr().cast::<T>();
    if !elements.is_aligned() {
        return None;
    }
    // SAFETY: as in `elements`. The bytes are borrowed exclusively, and writing a `T` initialises
    // them.
    Some(unsafe { core::slice::from_raw_parts_mut(elements, count) })
}

/// Casts elements to bytes for writing.
pub(crate) fn bytes_mut<T: Plain>(elements: &mut [T]) -> &mut [u8] {
    // SAFETY: as in `bytes`. The elements are borrowed exclusively, and any bytes are a `T`.
    unsafe { core::slice::from_raw_parts_mut(elements.as_mut_ptr().cast(), size_of_val(elements)) }
}

/// Casts elements to bytes.
pub(crate) fn bytes<T: Plain>(elements: &[T]) -> &[u8] {
    // SAFETY: a `Plain` type has no padding, so that all of its bytes are initialised.
    unsafe { core::slice::from_raw_parts(elements.as_ptr().cast(), size_of_val(elements)) }
}

/// Appends to a text if there is memory for it. `String::push_str` panics otherwise, and brings the
/// panic's message into every guest.
pub(crate) fn push_str(text: &mut String, more: &str) {
    if text.try_reserve(more.len()).is_err() {
        return;
    }
    // SAFETY: the text has room for the bytes, which do not overlap it and are UTF-8.
    unsafe {
        let bytes = text.as_mut_vec();
        let end = bytes.as_mut_ptr().add(bytes.len());
        core::ptr::copy_nonoverlapping(more.as_ptr(), end, more.len());
        bytes.set_len(bytes.len() + more.len());
    }
}

/// Bytes with the alignment of a buffer's data.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub(crate) struct Chunk(pub(super) [u8; 64]);
