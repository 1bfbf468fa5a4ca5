//! The limits of GPU kernels without a grant.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The limits of GPU kernels without a grant.
///
/// Such kernels are PTX, which callbox verifies for each launch and runs with a fence: run-time
/// checks for what the verifier did not prove. Granted native code is not limited. Exceeding a
/// limit fails with RESOURCE_EXHAUSTED, except that time gives DEADLINE_EXCEEDED.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Gpu {
    /// Whether kernels without a grant are run at all. Default: true.
    pub fenced: bool,
    /// The time for one launch of a call without a deadline of the caller; `None` for no limit.
    /// Default: 10 seconds. In JSON: `deadline_ms`.
    ///
    /// The time begins when the stream reaches the launch. Loops that are not proved to be short
    /// look whether it is over.
    #[serde(rename = "deadline_ms", with = "super::json::milliseconds")]
    pub deadline: Option<Duration>,
    /// Bytes of all PTX of a manifest together, or of a PTX file. Default: 4 MiB.
    pub ptx_bytes: usize,
    /// Blocks in a grid. Default: 16,777,216.
    pub grid_blocks: u64,
    /// Threads in a block. Default: 1,024.
    pub block_threads: u32,
    /// Bytes of shared memory of a block, static and dynamic. Default: 227 KiB.
    pub shared_bytes: u64,
    /// Bytes of scratch memory of a call. Default: 1 GiB.
    pub scratch_bytes: usize,
    /// Whether kernels may read clocks and their place on the device, and wait for time. Default:
    /// false.
    pub clock: bool,
    /// What turns PTX into machine code. Default: [`Assembler::Any`].
    pub assembler: Assembler,
    /// The time for assembling a kernel in a child process; `None` for no limit. Default: 20
    /// seconds. In JSON: `assemble_ms`.
    #[serde(rename = "assemble_ms", with = "super::json::milliseconds")]
    pub assemble_time: Option<Duration>,
    /// Bytes of address space of that process. Default: 4 GiB.
    pub assemble_memory_bytes: u64,
}

/// What turns PTX into machine code.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Assembler {
    /// `ptxas` in a child process, or the driver if this machine has no `ptxas`.
    #[default]
    Any,
    /// `ptxas` in a child process: without it, kernels are not loaded.
    Child,
    /// The driver, in this process, which ends if the driver's compiler crashes.
    Driver,
}

impl Default for Gpu {
    fn default() -> Self {
        Self {
            fenced: true,
            deadline: Some(Duration::from_secs(10)),
            ptx_bytes: 4 << 20,
            grid_blocks: 1 << 24,
            block_threads: 1024,
            shared_bytes: 227 << 10,
            scratch_bytes: 1 << 30,
            clock: false,
            assembler: Assembler::default(),
            assemble_time: Some(Duration::from_secs(20)),
            assemble_memory_bytes: 4 << 30,
        }
    }
}
