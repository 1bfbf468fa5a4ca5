//! The driver's result codes: their names and descriptions, and which of them break a context.

use std::ffi::c_char;

use cudarc::driver::sys::CUresult;

use super::foreign::Out;
use crate::ptx::FaultKind;

macro_rules! codes {
    ($($code:ident = $text:literal,)*) => {
        /// Every code with its name and its description, both NUL-terminated.
        static CODES: &[(CUresult, &str, &str)] =
            &[$((CUresult::$code, concat!(stringify!($code), "\0"), concat!($text, "\0")),)*];
    };
}

codes! {
    CUDA_SUCCESS = "no error",
    CUDA_ERROR_INVALID_VALUE = "invalid argument",
    CUDA_ERROR_OUT_OF_MEMORY = "out of memory",
    CUDA_ERROR_NOT_INITIALIZED = "initialization error",
    CUDA_ERROR_DEINITIALIZED = "an error that the stand-in driver does not cause",
    CUDA_ERROR_PROFILER_DISABLED = "an error that the stand-in driver does not cause",
    CUDA_ERROR_PROFILER_NOT_INITIALIZED = "an error that the stand-in driver does not cause",
    CUDA_ERROR_PROFILER_ALREADY_STARTED = "an error that the stand-in driver does not cause",
    CUDA_ERROR_PROFILER_ALREADY_STOPPED = "an error that the stand-in driver does not cause",
    CUDA_ERROR_STUB_LIBRARY = "an error that the stand-in driver does not cause",
    CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER = "an error that the stand-in driver does not cause",
    CUDA_ERROR_DEVICE_UNAVAILABLE = "an error that the stand-in driver does not cause",
    CUDA_ERROR_NO_DEVICE = "no CUDA-capable device is detected",
    CUDA_ERROR_INVALID_DEVICE = "invalid device ordinal",
    CUDA_ERROR_DEVICE_NOT_LICENSED = "an error that the stand-in driver does not cause",
    CUDA_ERROR_INVALID_IMAGE = "device kernel image is invalid",
    CUDA_ERROR_INVALID_CONTEXT = "invalid device context",
    CUDA_ERROR_CONTEXT_ALREADY_CURRENT = "an error that the stand-in driver does not cause",
    CUDA_ERROR_MAP_FAILED = "an error that the stand-in driver does not cause",
    CUDA_ERROR_UNMAP_FAILED = "an error that the stand-in driver does not cause",
    CUDA_ERROR_ARRAY_IS_MAPPED = "an error that the stand-in driver does not cause",
    CUDA_ERROR_ALREADY_MAPPED = "an error that the stand-in driver does not cause",
    CUDA_ERROR_NO_BINARY_FOR_GPU = "no kernel image is available for execution on the device",
    CUDA_ERROR_ALREADY_ACQUIRED = "an error that the stand-in driver does not cause",
    CUDA_ERROR_NOT_MAPPED = "an error that the stand-in driver does not cause",
    CUDA_ERROR_NOT_MAPPED_AS_ARRAY = "an error that the stand-in driver does not cause",
    CUDA_ERROR_NOT_MAPPED_AS_POINTER = "an error that the stand-in driver does not cause",
    CUDA_ERROR_ECC_UNCORRECTABLE = "an error that the stand-in driver does not cause",
    CUDA_ERROR_UNSUPPORTED_LIMIT = "an error that the stand-in driver does not cause",
    CUDA_ERROR_CONTEXT_ALREADY_IN_USE = "an error that the stand-in driver does not cause",
    CUDA_ERROR_PEER_ACCESS_UNSUPPORTED = "an error that the stand-in driver does not cause",
    CUDA_ERROR_INVALID_PTX = "a PTX JIT compilation failed",
    CUDA_ERROR_INVALID_GRAPHICS_CONTEXT = "an error that the stand-in driver does not cause",
    CUDA_ERROR_NVLINK_UNCORRECTABLE = "an error that the stand-in driver does not cause",
    CUDA_ERROR_JIT_COMPILER_NOT_FOUND = "an error that the stand-in driver does not cause",
    CUDA_ERROR_UNSUPPORTED_PTX_VERSION = "the provided PTX was compiled with an unsupported toolchain.",
    CUDA_ERROR_JIT_COMPILATION_DISABLED = "an error that the stand-in driver does not cause",
    CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY = "an error that the stand-in driver does not cause",
    CUDA_ERROR_UNSUPPORTED_DEVSIDE_SYNC = "an error that the stand-in driver does not cause",
    CUDA_ERROR_CONTAINED = "an error that the stand-in driver does not cause",
    CUDA_ERROR_INVALID_SOURCE = "an error that the stand-in driver does not cause",
    CUDA_ERROR_FILE_NOT_FOUND = "an error that the stand-in driver does not cause",
    CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND = "an error that the stand-in driver does not cause",
    CUDA_ERROR_SHARED_OBJECT_INIT_FAILED = "an error that the stand-in driver does not cause",
    CUDA_ERROR_OPERATING_SYSTEM = "an error that the stand-in driver does not cause",
    CUDA_ERROR_INVALID_HANDLE = "invalid resource handle",
    CUDA_ERROR_ILLEGAL_STATE = "the operation cannot be performed in the present state",
    CUDA_ERROR_LOSSY_QUERY = "an error that the stand-in driver does not cause",
    CUDA_ERROR_NOT_FOUND = "named symbol not found",
    CUDA_ERROR_NOT_READY = "device not ready",
    CUDA_ERROR_ILLEGAL_ADDRESS = "an illegal memory access was encountered",
    CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES = "too many resources requested for launch",
    CUDA_ERROR_LAUNCH_TIMEOUT = "the launch timed out and was terminated",
    CUDA_ERROR_LAUNCH_INCOMPATIBLE_TEXTURING = "an error that the stand-in driver does not cause",
    CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED = "an error that the stand-in driver does not cause",
    CUDA_ERROR_PEER_ACCESS_NOT_ENABLED = "an error that the stand-in driver does not cause",
    CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE = "an error that the stand-in driver does not cause",
    CUDA_ERROR_CONTEXT_IS_DESTROYED = "context is destroyed",
    CUDA_ERROR_ASSERT = "device-side assert triggered",
    CUDA_ERROR_TOO_MANY_PEERS = "an error that the stand-in driver does not cause",
    CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED = "an error that the stand-in driver does not cause",
    CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED = "an error that the stand-in driver does not cause",
    CUDA_ERROR_HARDWARE_STACK_ERROR = "an error that the stand-in driver does not cause",
    CUDA_ERROR_ILLEGAL_INSTRUCTION = "an illegal instruction was encountered",
    CUDA_ERROR_MISALIGNED_ADDRESS = "misaligned address",
    CUDA_ERROR_INVALID_ADDRESS_SPACE = "an error that the stand-in driver does not cause",
    CUDA_ERROR_INVALID_PC = "an error that the stand-in driver does not cause",
    CUDA_ERROR_LAUNCH_FAILED = "unspecified launch failure",
    CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE = "an error that the stand-in driver does not cause",
    CUDA_ERROR_TENSOR_MEMORY_LEAK = "an error that the stand-in driver does not cause",
    CUDA_ERROR_NOT_PERMITTED = "operation not permitted",
    CUDA_ERROR_NOT_SUPPORTED = "operation not supported",
    CUDA_ERROR_SYSTEM_NOT_READY = "an error that the stand-in driver does not cause",
    CUDA_ERROR_SYSTEM_DRIVER_MISMATCH = "an error that the stand-in driver does not cause",
    CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE = "an error that the stand-in driver does not cause",
    CUDA_ERROR_MPS_CONNECTION_FAILED = "an error that the stand-in driver does not cause",
    CUDA_ERROR_MPS_RPC_FAILURE = "an error that the stand-in driver does not cause",
    CUDA_ERROR_MPS_SERVER_NOT_READY = "an error that the stand-in driver does not cause",
    CUDA_ERROR_MPS_MAX_CLIENTS_REACHED = "an error that the stand-in driver does not cause",
    CUDA_ERROR_MPS_MAX_CONNECTIONS_REACHED = "an error that the stand-in driver does not cause",
    CUDA_ERROR_MPS_CLIENT_TERMINATED = "an error that the stand-in driver does not cause",
    CUDA_ERROR_CDP_NOT_SUPPORTED = "an error that the stand-in driver does not cause",
    CUDA_ERROR_CDP_VERSION_MISMATCH = "an error that the stand-in driver does not cause",
    CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED = "operation not permitted when stream is capturing",
    CUDA_ERROR_STREAM_CAPTURE_INVALIDATED = "operation failed due to a previous error during capture",
    CUDA_ERROR_STREAM_CAPTURE_MERGE = "operation would result in a merge of separate capture sequences",
    CUDA_ERROR_STREAM_CAPTURE_UNMATCHED = "capture was not ended in the same stream as it began",
    CUDA_ERROR_STREAM_CAPTURE_UNJOINED = "capturing stream has unjoined work",
    CUDA_ERROR_STREAM_CAPTURE_ISOLATION = "dependency created on uncaptured work in another stream",
    CUDA_ERROR_STREAM_CAPTURE_IMPLICIT = "operation would make the legacy stream depend on a capturing blocking stream",
    CUDA_ERROR_CAPTURED_EVENT = "operation not permitted on an event last recorded in a capturing stream",
    CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD = "attempt to terminate a thread-local capture sequence from another thread",
    CUDA_ERROR_TIMEOUT = "an error that the stand-in driver does not cause",
    CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE = "the graph update was not performed because it included changes which violated constraints specific to instantiated graph update",
    CUDA_ERROR_EXTERNAL_DEVICE = "an error that the stand-in driver does not cause",
    CUDA_ERROR_INVALID_CLUSTER_SIZE = "an error that the stand-in driver does not cause",
    CUDA_ERROR_FUNCTION_NOT_LOADED = "an error that the stand-in driver does not cause",
    CUDA_ERROR_INVALID_RESOURCE_TYPE = "an error that the stand-in driver does not cause",
    CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION = "an error that the stand-in driver does not cause",
    CUDA_ERROR_KEY_ROTATION = "an error that the stand-in driver does not cause",
    CUDA_ERROR_UNKNOWN = "unknown error",
}

fn entry(code: u32) -> Option<&'static (CUresult, &'static str, &'static str)> {
    CODES.iter().find(|(known, ..)| *known as u32 == code)
}

/// Returns the code with this number.
pub(super) fn code(number: u32) -> Option<CUresult> {
    entry(number).map(|(code, ..)| *code)
}

/// Returns whether a context is unusable after this error.
pub(super) const fn breaks_context(code: CUresult) -> bool {
    matches!(
        code,
        CUresult::CUDA_ERROR_ECC_UNCORRECTABLE
            | CUresult::CUDA_ERROR_ILLEGAL_ADDRESS
            | CUresult::CUDA_ERROR_LAUNCH_TIMEOUT
            | CUresult::CUDA_ERROR_ASSERT
            | CUresult::CUDA_ERROR_HARDWARE_STACK_ERROR
            | CUresult::CUDA_ERROR_ILLEGAL_INSTRUCTION
            | CUresult::CUDA_ERROR_MISALIGNED_ADDRESS
            | CUresult::CUDA_ERROR_INVALID_ADDRESS_SPACE
            | CUresult::CUDA_ERROR_INVALID_PC
            | CUresult::CUDA_ERROR_LAUNCH_FAILED
    )
}

/// Returns the driver's code for a kernel's fault.
pub(super) const fn fault_code(kind: FaultKind) -> CUresult {
    match kind {
        FaultKind::IllegalAddress => CUresult::CUDA_ERROR_ILLEGAL_ADDRESS,
        FaultKind::MisalignedAddress => CUresult::CUDA_ERROR_MISALIGNED_ADDRESS,
        FaultKind::IllegalInstruction => CUresult::CUDA_ERROR_ILLEGAL_INSTRUCTION,
        FaultKind::Assert => CUresult::CUDA_ERROR_ASSERT,
        FaultKind::Timeout => CUresult::CUDA_ERROR_LAUNCH_TIMEOUT,
    }
}

// These two functions are not recorded as calls and never made to fail, because error messages need
// them.

#[unsafe(no_mangle)]
unsafe extern "C" fn cuGetErrorName(error: u32, name: Out<*const c_char>) -> CUresult {
    answer(entry(error).map(|(_, name, _)| *name), name)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuGetErrorString(error: u32, text: Out<*const c_char>) -> CUresult {
    answer(entry(error).map(|(.., text)| *text), text)
}

fn answer(text: Option<&'static str>, place: Out<*const c_char>) -> CUresult {
    let pointer = text.map_or(std::ptr::null(), |text| text.as_ptr().cast());
    match place.put(pointer) {
        Ok(()) if text.is_some() => CUresult::CUDA_SUCCESS,
        _ => CUresult::CUDA_ERROR_INVALID_VALUE,
    }
}
