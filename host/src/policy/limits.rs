//! Limits: how much of the machine a guest may take.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// How much a guest may take. A limit of 0 refuses whatever it limits. Limits past what the machine has make
/// [`Engine::with_config`](crate::wasm::Engine::with_config) fail with RESOURCE_EXHAUSTED.
///
/// What passes a limit fails with RESOURCE_EXHAUSTED, but for times, which end in DEADLINE_EXCEEDED, and texts, which are cut.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// Bytes of linear memory that an instance may have, the arena included. At most 4 GiB counts. Default: 1 GiB.
    pub memory_bytes: usize,
    /// Elements that a table may have. Default: 65,536.
    pub table_elements: usize,
    /// Bytes of the calling thread's stack that a call may use. A call from a thread that has less than that and 128 KiB for the host left
    /// is refused with RESOURCE_EXHAUSTED: main threads have 8 MiB and Rust's others 2 MiB. Default: 512 KiB.
    pub stack_bytes: usize,
    /// How long a call may take for which the caller sets no deadline. `None`: as long as it likes. Default: 10 seconds. What an instance
    /// takes back when it goes has as long, and 1 second at most. As JSON: `deadline_ms`.
    #[serde(rename = "deadline_ms", with = "super::json::milliseconds")]
    pub deadline: Option<Duration>,
    /// In the deterministic mode, what a call may take in place of the deadline: about one unit for each instruction, and more for those
    /// that move many bytes. Default: 20,000,000,000.
    pub fuel: u64,
    /// Bytes of a module's file. Default: 64 MiB.
    pub module_bytes: usize,
    /// Functions that a module defines. Default: 65,536.
    pub functions: usize,
    /// Bytes of a function's body. Compiling takes more than its share of time for large ones, and some 500 bytes of memory for each byte,
    /// a part of which the engine keeps for the next function. Default: 256 KiB.
    pub function_bytes: usize,
    /// How long compiling a module may take. Past it nobody waits any longer; what was begun ends on a thread of its own. At most 8
    /// modules compile at one time in an engine, these among them; waiting for a place counts. `None`: as long as it takes. Default: 60 seconds. As JSON: `compile_time_ms`.
    #[serde(rename = "compile_time_ms", with = "super::json::milliseconds")]
    pub compile_time: Option<Duration>,
    /// Bytes of the section `callbox.targets`. Default: 1 MiB.
    pub metadata_bytes: usize,
    /// How deep lists and objects in the section `callbox.targets` may nest, at most 128. Default: 16.
    pub metadata_depth: usize,
    /// Bytes of a failure's message, and of one log message. What is longer is cut. Default: 4 KiB.
    pub message_bytes: usize,
    /// Bytes of log messages in one call. What comes after is dropped. Default: 64 KiB.
    pub log_bytes: usize,
    /// Frames of a backtrace. Default: 20.
    pub backtrace_frames: usize,
    /// How deep calls back into the program may nest: a target that calls a function which calls a target, and so on. Each takes
    /// up to `stack_bytes` and 1 MiB of stack, on one of its own where the thread's does not do. Default: 8.
    pub callback_depth: usize,
    /// Instances at one time, of all modules of an engine. Each takes up some 4 GiB of address space, not of memory.
    /// Default: 1,000.
    pub instances: u32,
    /// Instances at one time of a module for one executable: as many as it has executions at one time. Default: 256.
    pub executable_instances: usize,
    /// Bytes of linear memory at one time of all instances of a module for one executable. Default: 8 GiB.
    pub executable_memory_bytes: usize,
    /// Files and directories that an instance may have opened at one time in the directories that are granted. Another fails with WASI's
    /// error number for too many files. Default: 64.
    pub open_files: usize,
    /// The same for all instances of an engine together, so that the process has descriptors left: it has 1,024 on many systems.
    /// Default: 512.
    pub engine_open_files: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            memory_bytes: 1 << 30,
            table_elements: 1 << 16,
            stack_bytes: 512 << 10,
            deadline: Some(Duration::from_secs(10)),
            fuel: 20_000_000_000,
            module_bytes: 64 << 20,
            functions: 1 << 16,
            function_bytes: 256 << 10,
            compile_time: Some(Duration::from_secs(60)),
            metadata_bytes: 1 << 20,
            metadata_depth: 16,
            message_bytes: 4 << 10,
            log_bytes: 64 << 10,
            backtrace_frames: 20,
            callback_depth: 8,
            instances: 1000,
            executable_instances: 256,
            executable_memory_bytes: 8 << 30,
            open_files: 64,
            engine_open_files: 512,
        }
    }
}
