//! The Host platform of callbox: custom-call targets in untrusted WebAssembly modules, run in
//! wasmtime.
//!
//! An [`Engine`] holds what its modules share: compiler settings, a
//! [`Policy`](callbox_core::policy::Policy), and the ticker that enforces deadlines.
//! [`Engine::load`] checks and compiles a module. An `Executable` of `callbox-hlo` calls the
//! module's targets, and [`Module::prepare_call`] prepares a call without a program.
//!
//! # Example
//!
//! ```
//! use callbox_core::call::CallSite;
//! use callbox_core::values::Shape;
//! use callbox_wasm::Engine;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let wasm = wat::parse_str(include_str!("../../callbox/examples/negate.wat"))?;
//! let module = Engine::new()?.load(&wasm)?; // the bytes of a .wasm file
//!
//! let shape: Shape = "f32[3]".parse()?;
//! let call = module.prepare_call(CallSite::new("negate", vec![shape.clone()], shape))?;
//!
//! // Arrays are dense, row-major and little-endian.
//! let x = [1.0_f32, 0.0, -2.5].map(f32::to_le_bytes);
//! let mut y = [[0; 4]; 3];
//! call.call(&[x.as_flattened()], &mut [y.as_flattened_mut()])?;
//! assert_eq!(y.map(f32::from_le_bytes), [-1.0, -0.0, 2.5]);
//! # Ok(())
//! # }
//! ```
//!
//! # Sandbox
//!
//! A guest can import only the FFI API table and what the policy grants. Every limit has a status,
//! and every value that the host reads from a guest passes through one checked type. A target that
//! traps, or is interrupted by its deadline or cancel token, fails with a status and is dropped;
//! other calls go on.
//!
//! # Loading
//!
//! [`ModuleFile::read`] reads, hashes and validates a file once, and [`Engine::load_file`] loads it
//! from there, with any number of grants. [`ModuleFile::info`] describes the module: its imports,
//! exports and targets, and the WebAssembly proposals that it needs.
//!
//! # Features
//!
//! - `cache`: keeps compiled modules in a directory ([`Cache`]).
//! - `capabilities`: lets a policy grant directories, the clock and random bytes, through WASI
//!   preview 1.
//! - `maths`: lends mathematics on arrays to guests, computed with the machine's widest vectors.
//! - `fault-injection`: alters values that the host reads from guests. For tests only.
//!
//! # Where to go next
//!
//! - [`callbox_core::call`] has call sites, options, and the traits that connect a backend to
//!   programs.
//! - [`callbox_core::policy`] has limits and grants.
//! - [`frame`] has the layout of a call in a guest's memory.

mod address_space;
mod allocation;
mod api;
mod budget;
#[cfg(feature = "cache")]
mod cache;
mod callback;
mod capabilities;
mod claim;
mod code;
mod compile;
mod compiled;
mod compiler;
mod compiler_threads;
mod config;
mod discard;
mod engine;
mod escaping;
mod execution;
mod failure;
mod features;
mod file;
mod fingerprint;
#[cfg(all(test, target_arch = "x86_64"))]
mod float_modes;
mod fork;
pub mod frame;
mod fuel;
mod held_up;
mod helpers;
mod import;
mod info;
mod instance;
mod interrupt;
mod linked;
mod load;
mod loads;
mod log;
mod machine_code;
mod maths;
mod memory;
mod metadata;
mod module;
mod names;
mod panics;
mod permits;
mod places;
mod pool;
mod prepared;
mod processor_time;
mod purity;
mod quota;
mod reclaim;
mod refusals;
mod requirements;
mod rewrite;
mod search;
mod sections;
mod shared;
#[cfg(unix)]
mod signal_mask;
mod site;
mod stack;
mod start_up;
mod state;
mod stop;
mod ticker;
mod trap;
mod turns;
mod types;
mod version;
mod work;

#[doc(hidden)]
pub use address_space::{
    Room, address_space_in_use, room_for_file, room_for_file_soon, room_for_load, room_to_work,
};
pub use allocation::Allocation;
#[doc(hidden)]
pub use budget::too_slow;
#[cfg(feature = "cache")]
pub use cache::{Cache, CacheOptions, CacheOutcome, CacheProblem, CacheReport, CacheReportSink};
#[doc(hidden)]
pub use callback::shown_to_guest;
pub use callbox_core::call::Mapping;
#[cfg(feature = "fault-injection")]
#[doc(hidden)]
pub use claim::faults;
pub use code::{Code, CodeBuffer};
pub use compiler::{CodeCompiler, CompileJob, CompiledIn, Compiler, CompilerSettings, NotCompiled};
pub use config::{CompileReportSink, Config, LogRecord};
pub use engine::Engine;
pub use file::{ModuleFile, inspect};
pub use fork::{PerProcess, watch_forks};
pub use info::ModuleInfo;
pub use machine_code::FunctionCode;
pub use module::Module;
pub use prepared::PreparedCall;
#[doc(hidden)]
pub use processor_time::processor_time;
pub use sections::{ExportedFunction, ImportedItem, MemoryBounds};
pub use stack::stack_above_data;
