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
    // SAFETY: XLA passes a valid call frame, and everything it points to lives until the handler
    // returns. The benchmark is the only caller and makes the call with these operands, results and
    // attributes.
    unsafe {
        let frame = &*frame;
        if answer_metadata(frame) || frame.stage != STAGE_EXECUTE {
            return std::ptr::null_mut();
        }
        let (x, y): (&Buffer, &Buffer) = (&**frame.operands.values, &**frame.results.values);
        let n = *(*(*frame.attributes.values).cast::<Scalar>()).value;
        let (from, to) = (x.data.cast::<f32>(), y.data.cast::<f32>());
        for place in 0..elements(x) {
            // The operand and the result may be the same memory.
            *to.add(place) = *from.add(place) + n;
        }
    }
    std::ptr::null_mut()
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
