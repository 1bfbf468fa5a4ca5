//! Compiling outside this process: the jobs that an engine gives to a [`Compiler`], and the
//! [`CodeCompiler`] that carries one out at the other end.
//!
//! A compiler is trusted with code: it returns native code that the engine runs. It is not trusted
//! to end, or to get by with some amount of memory, whatever module it is given. A child process
//! can be limited and killed, a thread cannot.
#![allow(
    unsafe_code,
    reason = "an engine runs what a compiler returns, so that an implementation must vouch for it"
)]

use std::fmt;
use std::time::{Duration, Instant};

use callbox_core::policy::{Policy, Traps};
use callbox_core::untrusted_text::{clean_line, quoted, sanitize};
use callbox_core::values::{Result, Status};
use serde::{Deserialize, Serialize};
use wasmtime::WasmFeatures;

use crate::allocation::Allocation;
use crate::code::Code;
use crate::compiler_threads;
use crate::failure::{exhausted, host_exhausted, invalid, status};
use crate::features;
use crate::fingerprint::fingerprint;
use crate::fork;
use crate::panics;
use crate::rewrite::rewrite;
use callbox_core::float_mode::FloatMode;

/// The bytes that a memory that moves reserves beyond those in use, so that it moves seldom.
const GROWTH: u64 = 32 << 20;

/// The bytes of a page of WebAssembly.
const PAGE: u64 = 64 << 10;

/// The bytes of its guard regions. Guests check each access themselves.
const COMPACT_GUARD: u64 = 64 << 10;

/// The most bytes that a memory that moves reserves beyond those in use.
pub(crate) const COMPACT_MEMORY: u64 = GROWTH + 2 * COMPACT_GUARD;

/// The longest message about a panic that is shown, in bytes.
const MAX_PANIC: usize = 256;

/// Compiles modules for engines, in another process.
///
/// # Safety
/// [`Compiler::compile`] must return the unaltered bytes that [`CodeCompiler::compile`] returned,
/// for the job's module and settings. The engine loads them as native code.
pub unsafe trait Compiler: fmt::Debug + Send + Sync {
    /// Compiles a module.
    ///
    /// # Errors
    /// [`NotCompiled`].
    fn compile(&self, job: &CompileJob<'_>) -> Result<Code, NotCompiled>;

    /// Prepares for jobs with these settings and this [`CompileJob::memory_bytes`], in the
    /// background. Default: nothing.
    fn prepare(&self, settings: &CompilerSettings, memory_bytes: u64) {
        let _ = (settings, memory_bytes);
    }
}

/// A module to compile.
#[derive(Debug)]
pub struct CompileJob<'a> {
    /// The module's file, which is valid.
    pub wasm: &'a [u8],
    /// The bytes of its functions' code, which say what it will take: data takes none.
    pub code_bytes: usize,
    /// The settings that the code depends on.
    pub settings: &'a CompilerSettings,
    /// The required [`CodeCompiler::fingerprint`].
    pub fingerprint: [u8; 32],
    /// `Limits::compile_time`.
    pub time: Option<Duration>,
    /// The time at which `time` is over. Reading the file and waiting for a place count, but not
    /// the start of a process.
    pub until: Option<Instant>,
    /// The processor time in which the file was read.
    pub read_used: Duration,
    /// The processor time of recent jobs for the module that were [`NotCompiled::Crowded`].
    pub earlier: Duration,
    /// `Limits::compile_memory_bytes`.
    pub memory_bytes: u64,
    /// `Limits::message_bytes`.
    pub message_bytes: usize,
}

/// Why a [`Compiler`] returns no code.
#[derive(Debug)]
pub enum NotCompiled {
    /// There is no process to compile in. The module is not to blame.
    NoProcess(Status),
    /// The module did not compile, or not within the limits.
    Failed(Status),
    /// The module did not compile in time because of other work.
    Crowded {
        /// Blamed on the caller.
        status: Status,
        /// The processor time that the job used, with [`CompileJob::earlier`].
        used: Duration,
    },
}

/// The settings of an engine that compiled code depends on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CompilerSettings {
    traps: Traps,
    deterministic: bool,
    /// Whether memories move when they grow: [`Allocation::Compact`].
    moving_memories: bool,
}

impl CompilerSettings {
    pub(crate) fn of(policy: &Policy, allocation: Allocation) -> Self {
        Self {
            traps: policy.traps,
            deterministic: policy.deterministic,
            moving_memories: allocation == Allocation::Compact,
        }
    }

    /// wasmtime's settings. WebAssembly proposals that callbox does not need are off.
    pub(crate) fn config(&self) -> wasmtime::Config {
        let mut config = wasmtime::Config::new();
        config
            .signals_based_traps(self.traps == Traps::Signals)
            .cranelift_nan_canonicalization(self.deterministic)
            .relaxed_simd_deterministic(self.deterministic)
            .consume_fuel(self.deterministic)
            .concurrency_support(false)
            .wasm_features(WasmFeatures::all(), false)
            .wasm_features(features::compiled(), true)
            .shared_memory(true)
            // Backtraces have the names of functions and no offsets.
            .generate_address_map(false)
            .memory_may_move(self.moving_memories)
            .cranelift_opt_level(wasmtime::OptLevel::Speed);
        if self.deterministic {
            config.operator_cost(fuel_costs());
        }
        if self.moving_memories {
            config
                // A page, which is all of a stop word's memory: it never grows.
                .memory_reservation(PAGE)
                .memory_reservation_for_growth(GROWTH)
                .memory_guard_size(COMPACT_GUARD);
        }
        config
    }
}

/// The fuel of instructions, in deterministic mode. Those that call the host take some hundred
/// times as long as others, even if the growth of a memory is refused or nothing is copied.
fn fuel_costs() -> wasmtime::OperatorCost {
    const CALL: u8 = 100;
    wasmtime::OperatorCost {
        MemoryGrow: u8::MAX,
        TableGrow: u8::MAX,
        MemoryInit: CALL,
        MemoryCopy: CALL,
        MemoryFill: CALL,
        DataDrop: CALL,
        TableInit: CALL,
        TableCopy: CALL,
        TableFill: CALL,
        ElemDrop: CALL,
        RefFunc: CALL,
        ..wasmtime::OperatorCost::default()
    }
}

/// Compiles modules on behalf of another process's engine. It runs none.
pub struct CodeCompiler {
    engine: wasmtime::Engine,
}

impl CodeCompiler {
    /// The smallest module with a function.
    const WARM_UP: &[u8] =
        b"\0asm\x01\0\0\0\x01\x04\x01\x60\0\0\x03\x02\x01\0\x0a\x04\x01\x02\0\x0b";

    /// Makes a compiler, and starts the threads that it compiles on.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED if the system lacks memory or threads.
    pub fn new(settings: &CompilerSettings) -> Result<Self> {
        let cannot = |error| host_exhausted(format!("expected a compiler: {error:#}"));
        compiler_threads::start()?;
        let engine = {
            let _forks_later = fork::forks_later();
            wasmtime::Engine::new(&settings.config()).map_err(cannot)?
        };
        engine.precompile_module(Self::WARM_UP).map_err(cannot)?;
        Ok(Self { engine })
    }

    /// Identifies the compiler's version and settings. Code runs only in engines that have the same
    /// fingerprint.
    #[must_use]
    pub fn fingerprint(&self) -> [u8; 32] {
        fingerprint(&self.engine)
    }

    /// Compiles a valid module's file to native code, with looks at the stop word.
    ///
    /// # Errors
    /// Blamed on the guest: INVALID_ARGUMENT for errors that only compiling finds,
    /// RESOURCE_EXHAUSTED if the process's memory does not suffice, INTERNAL if the compiler
    /// panics.
    pub fn compile(&self, wasm: &[u8], message_bytes: usize) -> Result<Vec<u8>> {
        precompile(&self.engine, wasm, message_bytes)
    }
}

impl fmt::Debug for CodeCompiler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CodeCompiler").finish_non_exhaustive()
    }
}

/// Native code as a compiler returned it. Only this file makes one: see [`load`](crate::load).
#[derive(Debug)]
pub(crate) struct CompiledCode(Code);

impl CompiledCode {
    /// Has a compiler in another process compile a module.
    ///
    /// # Errors
    /// As for [`Compiler::compile`].
    pub(crate) fn from_compiler(
        compiler: &dyn Compiler,
        job: &CompileJob<'_>,
    ) -> Result<Self, NotCompiled> {
        compiler.compile(job).map(Self)
    }

    /// Compiles a valid file in this process.
    ///
    /// # Errors
    /// As for [`CodeCompiler::compile`].
    pub(crate) fn compile(
        engine: &wasmtime::Engine,
        wasm: &[u8],
        message_bytes: usize,
    ) -> Result<Self> {
        let bytes = precompile(engine, wasm, message_bytes)?;
        Ok(Self(bytes.into()))
    }

    /// The serialized module.
    pub(crate) fn code(&self) -> &Code {
        &self.0
    }
}

/// Where a module was compiled.
#[derive(Clone, Debug)]
pub enum CompiledIn {
    /// Nowhere: the code came from the cache.
    Cache,
    /// In another process, by the engine's [`Compiler`].
    Process,
    /// In this process. The status says why, if the policy prefers another process.
    ThisProcess(Option<Status>),
}

/// The module of a valid file as it is compiled.
///
/// # Errors
/// INTERNAL if the file is not valid.
pub(crate) fn rewritten(wasm: &[u8]) -> Result<Vec<u8>> {
    rewrite(wasm).map_err(|error| {
        Status::internal(format!("a module that was checked cannot be read: {error}"))
    })
}

/// Compiles a valid file to native code. A panic of the compiler becomes a status.
///
/// # Errors
/// As for [`CodeCompiler::compile`].
fn precompile(engine: &wasmtime::Engine, wasm: &[u8], message_bytes: usize) -> Result<Vec<u8>> {
    compiler_threads::start()?;
    let wasm = rewritten(wasm)?;
    // The compiler computes constants in the mode that guests have.
    let _mode = FloatMode::WASM.set();
    let compiled = panics::catch(|| engine.precompile_module(&wasm)).map_err(|message| {
        let status = status!(
            Internal,
            Guest,
            "the compiler panicked on the module: {message}"
        );
        clean_line(status, message_bytes.min(MAX_PANIC))
    })?;
    compiled.map_err(|error| {
        if error.is::<wasmtime::OutOfMemory>() {
            return exhausted(format!(
                "expected memory to compile the module in, found too little: {error:#}"
            ));
        }
        let text = format!("{error:#}");
        // The text may have the module's names in it, which could forge some of the host's.
        let text = sanitize(text.as_bytes(), text.len(), message_bytes).replace(['\n', '\t'], " ");
        invalid(format!(
            "expected a module within the features and limits of this host, the compiler says {}",
            quoted(&text)
        ))
    })
}
