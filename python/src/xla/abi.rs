//! The structs of XLA's C API for custom calls that the handler reads, in the versions 0.1 to 0.5.
//!
//! They are declared in xla/ffi/api/c_api.h. Newer versions only add members after these.
//! `struct_size` differs from `sizeof` (a struct's macro ends at its last declared member), so
//! nothing is inferred from it.

use std::ffi::{c_char, c_void};
use std::mem::offset_of;

/// A handler, which returns null on success.
pub(crate) type Handler = unsafe extern "C" fn(*mut CallFrame) -> *mut Error;

/// An error, opaque, owned by XLA.
#[repr(C)]
pub(crate) struct Error {
    _private: [u8; 0],
}

/// `XLA_FFI_Extension_Base`.
#[repr(C)]
pub(crate) struct Extension {
    pub(crate) struct_size: usize,
    pub(crate) kind: i32,
    pub(crate) next: *mut Extension,
}

/// `XLA_FFI_Extension_Metadata`.
pub(crate) const EXTENSION_METADATA: i32 = 1;

/// `XLA_FFI_Metadata_Extension`.
#[repr(C)]
pub(crate) struct MetadataExtension {
    pub(crate) base: Extension,
    pub(crate) metadata: *mut Metadata,
}

/// `XLA_FFI_Metadata`, without `state_type_id`, which older versions do not have.
#[repr(C)]
pub(crate) struct Metadata {
    pub(crate) struct_size: usize,
    pub(crate) api_version: ApiVersion,
    pub(crate) traits: u32,
}

/// `XLA_FFI_HANDLER_TRAITS_COMMAND_BUFFER_COMPATIBLE`.
pub(crate) const TRAIT_COMMAND_BUFFER_COMPATIBLE: u32 = 1;

/// `XLA_FFI_Api_Version`.
#[repr(C)]
pub(crate) struct ApiVersion {
    pub(crate) struct_size: usize,
    pub(crate) extension: *mut Extension,
    pub(crate) major: i32,
    pub(crate) minor: i32,
}

/// `XLA_FFI_CallFrame`, without `future`.
#[repr(C)]
pub(crate) struct CallFrame {
    pub(crate) struct_size: usize,
    pub(crate) extension: *mut Extension,
    pub(crate) api: *const Api,
    pub(crate) context: *mut c_void,
    pub(crate) stage: i32,
    pub(crate) operands: Buffers,
    pub(crate) results: Buffers,
    pub(crate) attributes: Attributes,
}

/// `XLA_FFI_ExecutionStage_EXECUTE`.
pub(crate) const STAGE_EXECUTE: i32 = 3;

/// `XLA_FFI_Args` and `XLA_FFI_Rets`.
#[repr(C)]
pub(crate) struct Buffers {
    pub(crate) struct_size: usize,
    pub(crate) extension: *mut Extension,
    pub(crate) count: i64,
    pub(crate) kinds: *const i32,
    pub(crate) values: *const *const Buffer,
}

/// `XLA_FFI_ArgType_BUFFER` and `XLA_FFI_RetType_BUFFER`.
pub(crate) const KIND_BUFFER: i32 = 1;

/// `XLA_FFI_Buffer`.
#[repr(C)]
pub(crate) struct Buffer {
    pub(crate) struct_size: usize,
    pub(crate) extension: *mut Extension,
    pub(crate) element_type: i32,
    pub(crate) data: *mut c_void,
    pub(crate) rank: i64,
    pub(crate) dimensions: *const i64,
}

/// `XLA_FFI_Attrs`.
#[repr(C)]
pub(crate) struct Attributes {
    pub(crate) struct_size: usize,
    pub(crate) extension: *mut Extension,
    pub(crate) count: i64,
    pub(crate) kinds: *const i32,
    pub(crate) names: *const *const ByteSpan,
    pub(crate) values: *const *const c_void,
}

/// `XLA_FFI_AttrType_STRING`, whose value is a [`ByteSpan`].
pub(crate) const ATTRIBUTE_STRING: i32 = 4;

/// `XLA_FFI_ByteSpan`.
#[repr(C)]
pub(crate) struct ByteSpan {
    pub(crate) data: *const c_char,
    pub(crate) length: usize,
}

/// `XLA_FFI_Api`, up to the last function in use.
#[repr(C)]
pub(crate) struct Api {
    pub(crate) struct_size: usize,
    pub(crate) extension: *mut Extension,
    pub(crate) api_version: ApiVersion,
    pub(crate) internal_api: *const c_void,
    pub(crate) error_create: unsafe extern "C" fn(*mut ErrorCreateArgs) -> *mut Error,
    pub(crate) error_get_message: *const c_void,
    pub(crate) error_destroy: unsafe extern "C" fn(*mut ErrorDestroyArgs),
    pub(crate) handler_register: *const c_void,
    pub(crate) stream_get: unsafe extern "C" fn(*mut StreamGetArgs) -> *mut Error,
}

/// `XLA_FFI_Api` of a version that has `XLA_FFI_RunId_Get`, up to that function.
#[repr(C)]
pub(crate) struct ApiWithRuns {
    pub(crate) first: Api,
    pub(crate) type_id_register: *const c_void,
    pub(crate) execution_context_get: *const c_void,
    pub(crate) state_set: *const c_void,
    pub(crate) state_get: *const c_void,
    pub(crate) device_memory_allocate: *const c_void,
    pub(crate) device_memory_free: *const c_void,
    pub(crate) thread_pool_schedule: *const c_void,
    pub(crate) thread_pool_num_threads: *const c_void,
    pub(crate) future_create: *const c_void,
    pub(crate) future_set_available: *const c_void,
    pub(crate) future_set_error: *const c_void,
    pub(crate) run_id_get: unsafe extern "C" fn(*mut RunIdGetArgs) -> *mut Error,
}

/// `XLA_FFI_RunId_Get_Args`.
#[repr(C)]
pub(crate) struct RunIdGetArgs {
    pub(crate) struct_size: usize,
    pub(crate) extension: *mut Extension,
    pub(crate) context: *mut c_void,
    pub(crate) run_id: i64,
}

/// `XLA_FFI_Error_Create_Args`.
#[repr(C)]
pub(crate) struct ErrorCreateArgs {
    pub(crate) struct_size: usize,
    pub(crate) extension: *mut Extension,
    pub(crate) message: *const c_char,
    pub(crate) code: i32,
}

/// The `struct_size` of `ErrorCreateArgs`: up to the end of `code`.
pub(crate) const ERROR_CREATE_ARGS_SIZE: usize = 28;

/// `XLA_FFI_Error_Destroy_Args`.
#[repr(C)]
pub(crate) struct ErrorDestroyArgs {
    pub(crate) struct_size: usize,
    pub(crate) extension: *mut Extension,
    pub(crate) error: *mut Error,
}

/// `XLA_FFI_Stream_Get_Args`.
#[repr(C)]
pub(crate) struct StreamGetArgs {
    pub(crate) struct_size: usize,
    pub(crate) extension: *mut Extension,
    pub(crate) context: *mut c_void,
    pub(crate) stream: *mut c_void,
}

// Sizes and offsets of a C compiler on a 64-bit machine.
const _: () = {
    assert!(size_of::<Extension>() == 24 && offset_of!(Extension, next) == 16);
    assert!(size_of::<MetadataExtension>() == 32);
    assert!(offset_of!(Metadata, traits) == 32 && offset_of!(Metadata, api_version) == 8);
    assert!(size_of::<ApiVersion>() == 24 && offset_of!(ApiVersion, minor) == 20);
    assert!(size_of::<CallFrame>() == 168 && offset_of!(CallFrame, stage) == 32);
    assert!(offset_of!(CallFrame, operands) == 40 && offset_of!(CallFrame, results) == 80);
    assert!(offset_of!(CallFrame, attributes) == 120);
    assert!(size_of::<Buffers>() == 40 && size_of::<Attributes>() == 48);
    assert!(size_of::<Buffer>() == 48 && offset_of!(Buffer, dimensions) == 40);
    assert!(size_of::<ByteSpan>() == 16);
    assert!(offset_of!(Api, error_create) == 48 && offset_of!(Api, stream_get) == 80);
    assert!(offset_of!(ApiWithRuns, run_id_get) == 176);
    assert!(size_of::<RunIdGetArgs>() == 32 && offset_of!(RunIdGetArgs, run_id) == 24);
    assert!(size_of::<ErrorCreateArgs>() == 32 && offset_of!(ErrorCreateArgs, code) == 24);
    assert!(size_of::<StreamGetArgs>() == 32 && size_of::<ErrorDestroyArgs>() == 24);
};
