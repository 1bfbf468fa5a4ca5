//! Native XLA FFI handlers that do the work of the sample guests: the baseline of the Python
//! benchmarks.
#![allow(unsafe_code, reason = "XLA calls these handlers with raw pointers")]

// The structs of XLA's C API are those of the Python extension; only some are used here.
#[allow(
    dead_code,
    reason = "a baseline needs fewer of XLA's structs than the extension"
)]
#[path = "../../../../python/src/xla/abi.rs"]
mod abi;

use abi::{Buffer, CallFrame, EXTENSION_METADATA, Error, MetadataExtension, STAGE_EXECUTE};

/// `XLA_FFI_Scalar`.
#[repr(C)]
struct Scalar {
    element_type: i32,
    value: *const f32,
}

/// Computes `y = x + n` on f32 arrays with an f32 attribute `n`, as `guests/add_n` does.
///
/// # Safety
/// `frame` points to a call frame of XLA's C API with one operand and one result of the same number
/// of f32 elements, and `n` as its only attribute.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn add_n(frame: *mut CallFrame) -> *mut Error {
    // SAFETY: XLA passes a valid call frame. The benchmark is the only caller and makes the call
    // with these operands, results and attributes.
    if let Some((from, to, count, n)) = unsafe { arrays(frame) } {
        for place in 0..count {
            // SAFETY: both have `count` elements. They may be the same memory.
            unsafe { *to.add(place) = *from.add(place) + n };
        }
    }
    std::ptr::null_mut()
}

/// The same, of one array that is both the operand and the result. The compiler makes vectors of
/// this loop: it knows that no store changes a later element.
///
/// # Safety
/// As for [`add_n`], with an operand and a result that are the same memory.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn add_n_in_place(frame: *mut CallFrame) -> *mut Error {
    // SAFETY: as in `add_n`.
    if let Some((_, to, count, n)) = unsafe { arrays(frame) } {
        // SAFETY: the result has `count` elements, and belongs to the call while it runs.
        let y = unsafe { std::slice::from_raw_parts_mut(to, count) };
        y.iter_mut().for_each(|y| *y += n);
    }
    std::ptr::null_mut()
}

/// The operand, the result, their number of elements, and `n`. `None` unless the frame is that of
/// an execution.
///
/// # Safety
/// As for [`add_n`].
unsafe fn arrays(frame: *mut CallFrame) -> Option<(*const f32, *mut f32, usize, f32)> {
    // SAFETY: the caller guarantees it, and everything that the frame points to lives until the
    // handler returns.
    unsafe {
        let frame = &*frame;
        if answer_metadata(frame) || frame.stage != STAGE_EXECUTE {
            return None;
        }
        let (x, y): (&Buffer, &Buffer) = (&**frame.operands.values, &**frame.results.values);
        let n = *(*(*frame.attributes.values).cast::<Scalar>()).value;
        Some((x.data.cast::<f32>(), y.data.cast::<f32>(), elements(x), n))
    }
}

/// Answers XLA's metadata query. Returns whether the frame was such a query.
///
/// # Safety
/// As for [`add_n`].
unsafe fn answer_metadata(frame: &CallFrame) -> bool {
    if frame.extension.is_null() {
        return false;
    }
    // SAFETY: XLA passes a valid chain of extensions, and one of this kind is a
    // `MetadataExtension`.
    unsafe {
        if (*frame.extension).kind != EXTENSION_METADATA {
            return false;
        }
        let metadata = &mut *(*frame.extension.cast::<MetadataExtension>()).metadata;
        metadata.api_version.major = 0;
        metadata.api_version.minor = 1;
        metadata.traits = 0;
    }
    true
}

/// Returns the number of elements of a buffer.
///
/// # Safety
/// As for [`add_n`].
unsafe fn elements(buffer: &Buffer) -> usize {
    // SAFETY: XLA passes `rank` dimensions with each buffer.
    let dimensions = (0..buffer.rank as usize).map(|i| unsafe { *buffer.dimensions.add(i) });
    dimensions.product::<i64>() as usize
}
