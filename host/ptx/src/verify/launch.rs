//! What the verifier is told: the launch, and limits.

/// The launch that a kernel is verified for.
#[derive(Clone, Debug, PartialEq, Eq)]
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

/// A parameter of a launch.
#[derive(Clone, Debug, PartialEq, Eq)]
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
    /// Blocks of instructions.
    pub blocks: usize,
    /// Registers of a kernel.
    pub registers: usize,
    /// Places where values of registers meet, times the ways into them.
    pub joins: usize,
    /// Blocks of threads in a grid.
    pub grid: u64,
    /// Bytes of shared memory, static and dynamic.
    pub shared_bytes: u64,
    /// Bytes of a thread's local variables.
    pub local_bytes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            instructions: 200_000,
            blocks: 10_000,
            registers: 200_000,
            joins: 1_000_000,
            grid: 1 << 31,
            shared_bytes: 228 << 10,
            local_bytes: 64 << 10,
        }
    }
}
