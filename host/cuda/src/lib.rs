//! The CUDA platform of callbox: native targets that run on an NVIDIA GPU.
//!
//! A target is a kernel that a manifest describes ([`CudaModule::load_manifest`]), a function with
//! the documents' C calling convention ([`CudaModule::load_library`]), or a handler in Rust
//! ([`CudaTarget`]). A [`CudaDevice`] is a GPU's primary context, and a [`CudaQueue`] is a stream
//! on it.
//!
//! Granted CUDA targets are native code and are *not* sandboxed: they run with the rights of the
//! process. Loading one takes a [grant](NativeGrants), and granting is `unsafe`. PTX of a manifest
//! without a grant is verified for each call site, and launched with a fence.
//!
//! # Example
//!
//! The driver is opened when it is first needed, so that a program which can use a GPU also starts
//! on a machine without one:
//!
//! ```
//! match callbox_cuda::probe() {
//!     Ok(driver) => println!("{} devices, CUDA {:?}", driver.devices(), driver.version()),
//!     Err(status) => println!("{status}"),
//! }
//! ```
//!
//! A target in Rust that copies its operand to its result, called with arrays in the host's memory:
//!
//! ```no_run
//! use std::sync::Arc;
//!
//! use callbox_core::call::{CallSite, DeviceQueue};
//! use callbox_cuda::{CudaDevice, CudaModule, CudaTarget};
//!
//! let copy = CudaTarget::new("copy", |call| {
//!     let (from, to) = (call.operands()[0], call.results()[0]);
//!     call.queue().copy(from.memory(), to.memory())
//! });
//! let module = CudaModule::from_targets([copy])?;
//! let shape: callbox_core::Shape = "u8[4]".parse()?;
//! let site = CallSite::new("copy", vec![shape.clone()], shape);
//! let call = module.prepare_call(&CudaDevice::open(0)?, site)?;
//! let mut result = [0; 4];
//! call.call(&[&[1, 2, 3, 4]], &mut [&mut result])?;
//! # Ok::<(), callbox_core::Status>(())
//! ```
//!
//! # Features
//!
//! None. Neither a GPU nor the CUDA toolkit is needed to build the crate.
//!
//! # Where to go next
//!
//! - [`manifest`]: kernels described as data, and `guests/MANIFEST.md` for the format.
//! - [`GraphLaunch`]: a function of a program, captured into a CUDA graph.
//! - [`CudaDevice::queue_on`] and [`CudaDevice::borrow_memory`]: calls on the streams and memory of
//!   another framework.
//! - [`nvrtc`]: CUDA source compiled at run time.
//! - [`ptx`]: the reader, the verifier and the fence of PTX.

pub mod assembler;
mod c_abi;
mod call;
mod device;
mod driver;
mod expression;
mod failure;
mod fenced;
mod files;
mod grants;
mod graphs;
mod guard;
mod kernel;
pub mod manifest;
mod module;
pub mod nvrtc;
mod places;
mod probe;
mod queue;
mod staging;

pub use c_abi::{Buffers, LibraryTarget};
pub use call::{CudaBuffer, CudaCall, CudaStage, State};
pub use callbox_ptx as ptx;
pub use device::CudaDevice;
pub use grants::NativeGrants;
pub use graphs::{GraphCounts, GraphLaunch, GraphOptions, Uncapturable};
pub use module::{Conventions, CudaModule, CudaPreparedCall, CudaTarget, register_cuda};
pub use probe::{Driver, probe};
pub use queue::CudaQueue;
