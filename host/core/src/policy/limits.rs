//! Limits on the resources that guests use.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Limits on the resources that guests use.
///
/// A call that exceeds a limit fails with RESOURCE_EXHAUSTED, or with DEADLINE_EXCEEDED if the
/// limit is a time. Texts that exceed their limit are cut.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// Bytes of an instance's linear memory, the arena included; at most 4 GiB. Default: 1 GiB.
    pub memory_bytes: usize,
    /// Elements of a table, and of all element segments of a module. Default: 65,536.
    pub table_elements: usize,
    /// Bytes of the calling thread's stack that a call may use. Default: 512 KiB.
    ///
    /// A call is refused with RESOURCE_EXHAUSTED if the thread has less left than this and 128 KiB
    /// for the host. Main threads usually have 8 MiB, Rust's other threads 2 MiB.
    pub stack_bytes: usize,
    /// The time for a call without a deadline of the caller; `None` for no limit. Default: 10
    /// seconds. In JSON: `deadline_ms`.
    ///
    /// A mapped call has this time for all elements of its batch and all pieces together. The
    /// deleters of a dropped instance have it, too, but at most 1 second.
    #[serde(rename = "deadline_ms", with = "super::json::milliseconds")]
    pub deadline: Option<Duration>,
    /// In deterministic mode, the instructions that a call may execute, in place of `deadline`.
    /// Instructions that move many bytes count more, as do those that grow a memory or a table. All
    /// calls of a mapped call share it. Default: 20,000,000,000.
    pub fuel: u64,
    /// Bytes of a module's file. Default: 64 MiB.
    pub module_bytes: usize,
    /// Functions defined by a module. Default: 65,536.
    pub functions: usize,
    /// Bytes of a function's body. Default: 256 KiB.
    pub function_bytes: usize,
    /// The work of compiling a function, or a module's initializers. Default: 1,048,576 units.
    ///
    /// A unit is an operator, or a value that a block, a branch or a call carries. A `br_table`
    /// counts each target with its values, and a block or loop counts the locals assigned in it,
    /// once for each branch to it. All types together have at most as many, at 4 units for each
    /// parameter and result. Compiling takes at most about 1 KiB of memory for each unit, a
    /// part of which the engine keeps for later functions.
    pub function_work: u64,
    /// The work of compiling all functions of a module, in the same units. Default: 67,108,864.
    pub module_work: u64,
    /// Types of a module. Default: 16,384.
    pub types: usize,
    /// Parameters of a function or block, and its results. Default: 128.
    ///
    /// Compilers pass larger values by address.
    pub type_values: usize,
    /// Imports of a module. Default: 1,024.
    pub imports: usize,
    /// Exports of a module. Default: 32,768.
    pub exports: usize,
    /// Globals of a module. Default: 1,024.
    pub globals: usize,
    /// Data and element segments of a module. Default: 16,384.
    pub segments: usize,
    /// Bytes of the section `name`, from which backtraces take the names of functions. The names of
    /// all imports and exports together may have an eighth as many. Default: 16 MiB.
    pub name_bytes: usize,
    /// The time for validating a module, and again for compiling it; `None` for no limit. Default:
    /// 60 seconds. In JSON: `compile_time_ms`.
    ///
    /// Waiting for a place to compile in counts, but a load that fails for that reason is not the
    /// module's fault. A compiler in a process of its own is killed on timeout. In this process it
    /// cannot be interrupted: the load fails, and the compilation ends in the background.
    #[serde(rename = "compile_time_ms", with = "super::json::milliseconds")]
    pub compile_time: Option<Duration>,
    /// Bytes of memory for compiling a module in a process of its own. Default: 2 GiB.
    ///
    /// A compilation in this process is not limited by it.
    pub compile_memory_bytes: u64,
    /// How long a module that failed to compile is refused with the same status, without another
    /// attempt; `None` to compile it again each time. Default: 60 seconds. In JSON:
    /// `compile_refusal_ms`.
    ///
    /// Only failures that cost time or memory count, or that crashed the compiler.
    #[serde(rename = "compile_refusal_ms", with = "super::json::milliseconds")]
    pub compile_refusal: Option<Duration>,
    /// Bytes of the section `callbox.targets`. Default: 1 MiB.
    pub metadata_bytes: usize,
    /// Nesting of lists and objects in the section `callbox.targets`; at most 128. Default: 16.
    pub metadata_depth: usize,
    /// Bytes of an error message or log message; longer ones are cut. Default: 4 KiB.
    pub message_bytes: usize,
    /// Bytes of log messages in one call; further ones are discarded. Default: 64 KiB.
    pub log_bytes: usize,
    /// Frames of a backtrace. Default: 20.
    pub backtrace_frames: usize,
    /// Nesting of calls back into the program: a target calls a function, which calls a target, and
    /// so on. Default: 8.
    ///
    /// Each level takes up to `stack_bytes` and 1 MiB of stack, on a new stack if the thread's own
    /// is too small.
    pub callback_depth: usize,
    /// Concurrent instances of all modules of an engine. Default: 1,000.
    ///
    /// An engine reserves 4 GiB of address space for each, which is not memory, unless the process
    /// has too little of it: see `callbox_wasm::Allocation`.
    pub instances: u32,
    /// Concurrent instances of a module for one executable: one for each concurrent execution.
    /// Default: 256.
    pub executable_instances: usize,
    /// Bytes of linear memory of all instances of a module for one executable, or of a file for
    /// all calls outside programs. Idle instances give way to those that grow. Default: 8 GiB.
    pub executable_memory_bytes: usize,
    /// Threads that share the elements or pieces of one call of a pure target, the calling thread
    /// included, each with an instance of its own. Default: 8.
    ///
    /// There are no more than processors, nor than `executable_memory_bytes` has room for instances
    /// of `memory_bytes`. A thread for which there is no instance does not help. With 0 or 1 the
    /// calling thread works alone.
    pub threads: usize,
    /// Files and directories that an instance has open in its granted directories. Opening more
    /// fails with WASI's error for too many files. Default: 64.
    pub open_files: usize,
    /// Files and directories that all instances of an engine have open. Leaves descriptors to the
    /// process, which often has 1,024. Default: 512.
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
            function_work: 1 << 20,
            module_work: 1 << 26,
            types: 1 << 14,
            type_values: 128,
            imports: 1 << 10,
            exports: 1 << 15,
            globals: 1 << 10,
            segments: 1 << 14,
            name_bytes: 16 << 20,
            compile_time: Some(Duration::from_secs(60)),
            compile_memory_bytes: 2 << 30,
            compile_refusal: Some(Duration::from_secs(60)),
            metadata_bytes: 1 << 20,
            metadata_depth: 16,
            message_bytes: 4 << 10,
            log_bytes: 64 << 10,
            backtrace_frames: 20,
            callback_depth: 8,
            instances: 1000,
            executable_instances: 256,
            executable_memory_bytes: 8 << 30,
            threads: 8,
            open_files: 64,
            engine_open_files: 512,
        }
    }
}
