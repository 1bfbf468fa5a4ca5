//! Native XLA FFI handlers that do what guests do: the baseline of the Python benchmarks.
#![allow(
    unsafe_code,
    reason = "is called by XLA with pointers: it is the native code that callbox is compared with"
)]

// The structs are the extension's. Of what the file has, only a part is used here.
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

/// `y = x + n`, for arrays of f32 and an attribute `n` of f32: what `guests/add_n` does.
///
/// # Safety
/// XLA's C API: `frame` is a call frame with one operand and one result of the same number of f32, and `n` as its only attribute.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn add_n(frame: *mut CallFrame) -> *mut Error {
    // SAFETY: what XLA hands over is a call frame, and all that it points to is there for the call. The benchmark makes the call with the operands,
    // results and attributes that are read here.
    unsafe {
        let frame = &*frame;
        if answer_metadata(frame) || frame.stage != STAGE_EXECUTE {
            return std::ptr::null_mut();
        }
        let (x, y): (&Buffer, &Buffer) = (&**frame.operands.values, &**frame.results.values);
        let n = *(*(*frame.attributes.values).cast::<Scalar>()).value;
        let (from, to) = (x.data.cast::<f32>(), y.data.cast::<f32>());
        for place in 0..elements(x) {
            // Operand and result may be the same memory.
            *to.add(place) = *from.add(place) + n;
        }
    }
    std::ptr::null_mut()
}

/// # Safety
/// As for [`add_n`].
unsafe fn answer_metadata(frame: &CallFrame) -> bool {
    if frame.extension.is_null() {
        return false;
    }
    // SAFETY: as XLA promises.
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

/// # Safety
/// As for [`add_n`].
unsafe fn elements(buffer: &Buffer) -> usize {
    // SAFETY: a buffer has as many dimensions as it says.
    let dimensions = (0..buffer.rank as usize).map(|i| unsafe { *buffer.dimensions.add(i) });
    dimensions.product::<i64>() as usize
}
