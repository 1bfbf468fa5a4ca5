//! What the verifier is told: the launch, and limits.

use super::{is_dynamic, variable_bytes};
use crate::ast::Variable;

/// The launch that a kernel is verified for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Launch {
    /// Blocks in x, y and z.
    pub grid: [u32; 3],
    /// Threads of a block in x, y and z.
    pub block: [u32; 3],
    /// Bytes of dynamic shared memory.
    pub shared_bytes: u32,
    /// The kernel's parameters, in order.
    pub params: Vec<Param>,
    /// Whether the kernel may read clocks and wait for time.
    pub has_clock: bool,
}

impl Launch {
    /// The size of a variable. That of dynamic shared memory is the launch's.
    pub(crate) fn variable_bytes(&self, variable: &Variable) -> u64 {
        if is_dynamic(variable) {
            u64::from(self.shared_bytes)
        } else {
            variable_bytes(variable).unwrap_or(0)
        }
    }
}

/// A parameter of a launch.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Param {
    /// The address of a buffer in global memory.
    Buffer {
        /// Its length.
        bytes: u64,
        /// Whether the kernel may write it.
        writable: bool,
        /// A power of two that divides its address.
        align: u32,
    },
    /// A scalar: its bytes in memory.
    Value(Vec<u8>),
}

/// Limits on a kernel and on the work of the verifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Instructions of a kernel.
    pub instructions: usize,
    /// Instructions of a kernel with its checks.
    pub fenced_instructions: usize,
    /// Blocks of instructions.
    pub blocks: usize,
    /// Blocks of all loops: a block counts once for each loop that it is in.
    pub loop_blocks: usize,
    /// Registers of a kernel.
    pub registers: usize,
    /// Places where values of registers meet, times the ways into them.
    pub joins: usize,
    /// Steps of the verifier: a few seconds.
    pub work: u64,
    /// Blocks of threads in a grid.
    pub grid: u64,
    /// Bytes of shared memory, static and dynamic.
    pub shared_bytes: u64,
    /// Bytes of a thread's local variables. The driver reserves as much for each thread that a
    /// device can run: a gigabyte on a large GPU.
    pub local_bytes: u64,
    /// Bytes of the module's variables in global and constant memory, which take device memory for
    /// as long as the kernel is loaded.
    pub global_bytes: u64,
    /// Units of work of all threads of a grid: an instruction counts 1, an access of global memory
    /// 64, an atomic operation 4096. Where there may be more, each block looks at the stop word as
    /// it begins.
    pub grid_instructions: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            instructions: 200_000,
            fenced_instructions: 500_000,
            blocks: 10_000,
            loop_blocks: 100_000,
            registers: 200_000,
            joins: 1_000_000,
            work: 100_000_000,
            grid: 1 << 31,
            shared_bytes: 228 << 10,
            local_bytes: 4 << 10,
            global_bytes: 16 << 20,
            // Some 50 ms of a large GPU.
            grid_instructions: 1 << 40,
        }
    }
}
