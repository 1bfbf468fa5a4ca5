//! The CUDA platform's backend: native targets, launched through cudarc.
//!
//! CUDA targets are native code and are *not* sandboxed: whoever loads one trusts it with the whole process.

mod batch;
mod c_abi;
mod call;
mod device;
mod driver;
mod expression;
mod failure;
mod files;
mod grants;
mod graphs;
mod guard;
mod kernel;
pub mod manifest;
mod module;
pub mod nvrtc;
mod probe;
mod queue;
mod staging;

pub use c_abi::{Buffers, LibraryTarget, OriginalTarget, StatusTarget};
pub use call::{CudaBuffer, CudaCall, CudaStage, State};
pub use device::CudaDevice;
pub use grants::{NativeGrants, hex};
pub use graphs::{GraphCounts, GraphLaunch, GraphOptions, Uncapturable};
pub use module::{
    Conventions, CudaMappedCall, CudaModule, CudaPreparedCall, CudaTarget, register_cuda,
};
pub use probe::{Driver, probe};
pub use queue::CudaQueue;
