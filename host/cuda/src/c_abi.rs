//! Functions with the documents' C calling convention: `(stream, buffers, opaque, opaque_len)`, and
//! the same with a status.
//!
//! `buffers` is an array of device pointers in the host's memory: those of the operands, then those
//! of the result. [`Buffers`] lists its two layouts.
#![allow(unsafe_code, reason = "calls functions of the C calling convention")]

mod library;
mod pointers;
mod status;

use std::ffi::{c_char, c_void};
use std::sync::Arc;

use callbox_core::call::{ApiVersion, CallSite, DeviceBuffer, DeviceLeaf};
use callbox_core::values::{Result, Status};
use cudarc::driver::sys::CUstream;

pub use self::library::LibraryTarget;
use self::library::NativeLibrary;
use self::pointers::PointerArray;
use self::status::CStatus;
use crate::module::Conventions;
use crate::queue::CudaQueue;

/// A function of `API_VERSION_ORIGINAL` on CUDA.
type OriginalTarget = unsafe extern "C" fn(CUstream, *mut *mut c_void, *const c_char, usize);

/// A function of `API_VERSION_STATUS_RETURNING`, or the unified version, on CUDA.
///
/// Its last argument is XLA's opaque `XlaCustomCallStatus`.
type StatusTarget =
    unsafe extern "C" fn(CUstream, *mut *mut c_void, *const c_char, usize, *mut c_void);

/// Which pointers a C function is passed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Buffers {
    /// One pointer for each leaf, in preorder: six in the documents' example.
    #[default]
    Leaves,
    /// One pointer for each node in preorder, tuples included: nine in the documents' example.
    ///
    /// A tuple is an array of pointers in the device's memory. The function fills the root tuple of
    /// the result. An operand's sub-buffer is null if its address is unknown, and the function
    /// reads it from the operand's root tuple: as in XLA, the results of a `conditional`, a `while`
    /// and a `select` of tuples have sub-buffers of unknown address.
    Preorder,
}

/// A function with the C calling convention.
#[derive(Clone, Debug)]
pub(super) struct CFunction {
    entry: CEntry,
    buffers: Buffers,
    /// The library that the function is from, which must stay loaded.
    _library: Arc<NativeLibrary>,
}

#[derive(Clone, Copy, Debug)]
enum CEntry {
    Original(OriginalTarget),
    Status(StatusTarget),
}

/// A function and how it is called.
struct NamedFunction {
    name: String,
    entry: CEntry,
    buffers: Buffers,
}

impl CEntry {
    fn api_versions(self) -> Vec<ApiVersion> {
        match self {
            Self::Original(_) => vec![ApiVersion::Original],
            Self::Status(_) => vec![
                ApiVersion::StatusReturning,
                ApiVersion::StatusReturningUnified,
            ],
        }
    }
}

impl CFunction {
    /// Checks that the convention can express the call site.
    pub(super) fn check(&self, site: &CallSite) -> Result<()> {
        if site.attributes.is_empty() {
            Ok(())
        } else {
            Err(Status::invalid_argument(
                "expected no attributes, for which this convention has no place, found some",
            ))
        }
    }

    /// Calls the function.
    pub(super) fn call(
        &self,
        site: &CallSite,
        queue: &mut CudaQueue,
        operands: &[DeviceLeaf],
        results: &[DeviceBuffer],
        conventions: Conventions,
    ) -> Result<()> {
        let array = match self.buffers {
            Buffers::Leaves => PointerArray::of_leaves(operands, results),
            Buffers::Preorder => {
                PointerArray::of_nodes(site, queue, operands, results, conventions)?
            }
        };
        let mut pointers = array.pointers();
        let context = queue.stream().context().bind();
        queue.check("making its context current", context)?;
        let (stream, buffers) = (queue.stream().raw(), pointers.as_mut_ptr());
        let padded = PaddedOpaque::new(&site.opaque);
        let (opaque, opaque_len) = (padded.0.as_ptr().cast(), site.opaque.len());
        let mut status = CStatus::default();
        // SAFETY: the stream, the pointers, the opaque bytes and the status are those of the
        // convention, and live until the function returns. The caller of
        // `CudaModule::load_library` promised that the function has this convention and is sound
        // to call.
        unsafe {
            match self.entry {
                CEntry::Original(function) => function(stream, buffers, opaque, opaque_len),
                CEntry::Status(function) => {
                    let status = (&raw mut status).cast();
                    function(stream, buffers, opaque, opaque_len, status);
                }
            }
        }
        status.into_result()?;
        if conventions.check_roots && !queue.is_capturing() {
            array.check_roots(queue)?;
        }
        Ok(())
    }
}

/// Opaque bytes as targets find them on either platform: aligned to 16, and followed by a NUL.
struct PaddedOpaque(Vec<u128>);

impl PaddedOpaque {
    fn new(bytes: &[u8]) -> Self {
        let mut padded = bytes.to_vec();
        padded.resize((bytes.len() / 16 + 1) * 16, 0);
        let (words, _) = padded.as_chunks();
        Self(
            words
                .iter()
                .map(|word| u128::from_ne_bytes(*word))
                .collect(),
        )
    }
}
