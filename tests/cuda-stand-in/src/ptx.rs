//! An interpreter for PTX: kernels as they ship, run on the CPU, with every access to memory checked.
//!
//! A [`Module`] is read once. Its [`Entry`]s say what they take, and [`launch`] runs one over a grid.
//!
//! It knows what NVRTC makes of ordinary C++ kernels, and refuses what it does not know: tensor cores, asynchronous copies, textures,
//! calls through pointers and instructions on packed integers (`vabsdiff4`) among them. Blocks run one after the other, and threads
//! take turns in a fixed order, so that a launch gives the same result each time; no order is promised by a device. What PTX calls
//! approximate is nearer to the true result here than a device's.

mod access;
mod assertion;
mod block;
mod body;
mod code;
mod cursor;
mod decode;
mod header;
mod initial;
mod lanes;
mod launch;
mod lexer;
mod module;
mod parse;
mod rounding;
mod run;
mod scope;
mod spaces;
mod thread;
mod types;

use std::fmt;

pub use self::module::{Entry, Global, Module, ParseError, Relocation};
pub use self::run::{BUDGET, launch, launch_within};

/// Device memory, as a kernel's global loads and stores reach it.
pub trait Memory: Sync {
    /// Reads `bytes.len()` bytes at a device address.
    ///
    /// # Errors
    /// What is wrong with the address, for a person to read.
    fn load(&self, address: u64, bytes: &mut [u8]) -> Result<(), String>;

    /// Writes bytes at a device address.
    ///
    /// # Errors
    /// What is wrong with the address, for a person to read.
    fn store(&self, address: u64, bytes: &[u8]) -> Result<(), String>;

    /// The address of a module's global variable, which the driver places when it loads the module.
    fn global(&self, name: &str) -> Option<u64>;
}

/// How many blocks, how many threads each, and how many bytes of dynamic shared memory.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Blocks in x, y and z.
    pub grid: [u32; 3],
    /// Threads of a block in x, y and z.
    pub block: [u32; 3],
    /// Bytes of dynamic shared memory.
    pub shared_bytes: u32,
}

/// What broke a kernel off.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// What the driver would report.
    pub kind: FaultKind,
    /// Where and why: the PTX line, the block, the thread.
    pub detail: String,
}

/// The driver's errors that a running kernel can cause.
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
    /// CUDA_ERROR_LAUNCH_TIMEOUT: it took more instructions than the stand-in lets a kernel take, or its threads wait for one another for ever.
    Timeout,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.kind, self.detail)
    }
}
