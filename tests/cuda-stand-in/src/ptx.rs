//! An interpreter for PTX: runs kernels as they ship on the CPU and checks every memory access.
//!
//! A [`Module`] is parsed once. Its [`Entry`]s describe their parameters, and [`launch`] runs one
//! over a grid.
//!
//! The interpreter supports the PTX that NVRTC generates from ordinary C++ kernels, and Triton for
//! sm_80, with `mma`, `ldmatrix` and `cp.async`. It rejects everything else, such as `wmma`, tensor
//! maps, textures, calls through pointers and packed integer instructions (`vabsdiff4`). A copy by
//! `cp.async` happens at once, so that a missing wait is not noticed. Blocks run sequentially and
//! threads take turns in a fixed order, so that a launch always gives the same result; a device
//! guarantees no order. Operations that PTX calls approximate are more precise here than on a
//! device.

mod access;
mod assertion;
mod block;
mod body;
mod code;
mod decode;
mod initial;
mod lanes;
mod launch;
mod matrix;
mod module;
mod outline;
mod rounding;
mod run;
mod spaces;
mod thread;
mod types;

use std::fmt;

pub use self::module::{Entry, Global, Module, ParseError, Relocation};
pub use self::run::{BUDGET, launch, launch_within};

/// Device memory, as accessed by a kernel's global loads and stores.
pub trait Memory: Sync {
    /// Reads `bytes.len()` bytes from a device address.
    ///
    /// # Errors
    /// The reason why the access is invalid, as text.
    fn load(&self, address: u64, bytes: &mut [u8]) -> Result<(), String>;

    /// Writes bytes to a device address.
    ///
    /// # Errors
    /// The reason why the access is invalid, as text.
    fn store(&self, address: u64, bytes: &[u8]) -> Result<(), String>;

    /// Returns the address of a module's global variable, which the driver assigns when it loads
    /// the module.
    fn global(&self, name: &str) -> Option<u64>;
}

/// The dimensions of a launch.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Blocks in x, y and z.
    pub grid: [u32; 3],
    /// Threads per block in x, y and z.
    pub block: [u32; 3],
    /// Bytes of dynamic shared memory.
    pub shared_bytes: u32,
}

/// A fault, which ends a kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The error that a driver would report.
    pub kind: FaultKind,
    /// The place and the reason: the PTX line, the block, the thread.
    pub detail: String,
}

/// Driver errors that a running kernel can cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// CUDA_ERROR_ILLEGAL_ADDRESS.
    IllegalAddress,
    /// CUDA_ERROR_MISALIGNED_ADDRESS.
    MisalignedAddress,
    /// CUDA_ERROR_ILLEGAL_INSTRUCTION: `trap`.
    IllegalInstruction,
    /// CUDA_ERROR_ASSERT.
    Assert,
    /// CUDA_ERROR_LAUNCH_TIMEOUT: the kernel exceeded the stand-in's instruction limit, or its
    /// threads deadlocked.
    Timeout,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.kind, self.detail)
    }
}
