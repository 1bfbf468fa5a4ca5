//! A host for XLA-style custom calls whose CPU targets are untrusted WebAssembly modules.
//!
//! A custom call is an instruction of an ML program that names a *target*: a function on arrays,
//! which a library supplies. With callbox, that library is a `.wasm` file that you need not trust.
//! A target gets copies of its operands in a sandboxed memory. If it traps, loops for ever, takes
//! too much memory or breaks the contract, the call fails with a [`Status`], and the host goes on.
//!
//! # Example
//!
//! Load a module, and run a program that calls its target `negate`:
//!
//! ```
//! use callbox::program::{Executable, ExecuteOptions, Program};
//! use callbox::wasm::Engine;
//! use callbox::{Literal, Platform, Registry};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let kernels = wat::parse_str(include_str!("../examples/negate.wat"))?;
//! let module = Engine::new()?.load(&kernels)?; // the bytes of a .wasm file
//! let mut registry = Registry::new();
//! registry.register_module(module)?;
//!
//! let program = Program::from_hlo_text(
//!     r#"HloModule m
//!     ENTRY main {
//!       x = f32[3] parameter(0)
//!       ROOT y = f32[3] custom-call(x), custom_call_target="negate",
//!         api_version=API_VERSION_TYPED_FFI
//!     }"#,
//! )?;
//! let executable = Executable::compile(&program, &registry, Platform::Host)?;
//!
//! let x = Literal::array(&[3], &[1.0_f32, 0.0, -2.5])?;
//! let y = executable.execute(0, &[x], &ExecuteOptions::default())?;
//! assert_eq!(y.to_vec::<f32>()?, [-1.0, -0.0, 2.5]);
//! # Ok(())
//! # }
//! ```
//!
//! # Terms
//!
//! Target, platform, operand, result, attribute, shape, layout, literal, call frame, stage, status,
//! executable and registry mean what they mean in XLA. A *guest* is a WebAssembly module and its
//! code; the *host* is callbox and the program that embeds it.
//!
//! # Errors
//!
//! Every function that can fail returns a [`Status`]: XLA's status code, a message, the party to
//! [blame](Blame), and whether the target declared the failure recoverable. No guest, program or
//! file can make this crate panic.
//!
//! # Features
//!
//! - `wasm` (default): targets in WebAssembly modules, in this process.
//! - `hlo`: programs: HLO text, the builder and the executor.
//! - `cuda`: native targets on NVIDIA GPUs. Neither building nor starting a program needs CUDA.
//! - `process`: modules in processes of their own, and compilation in child processes. Linux only.
//! - `cache`: compiled modules kept in a directory.
//! - `capabilities`: directories, clocks and random bytes that a policy grants.
//! - `maths`: mathematics on arrays that the host computes for guests.
//! - `fault-injection`: alters values that the host reads from guests. For tests only.
//!
//! # Where to go next
//!
//! - [`policy`]: the limits and grants of guests.
//! - [`wasm`]: engines and modules, and calls without a program ([`wasm::Module::prepare_call`]).
//! - [`program`]: programs and their execution.
//! - [`values`]: shapes, literals, attributes and statuses, which this crate also exports.
//! - [`process`]: modules and compilers in child processes.
//! - [`cuda`]: native targets, which are trusted.
//! - [`call`]: the traits that a backend implements.
//! - [`frame`]: the call frame in a guest's memory, byte for byte.

#![warn(missing_debug_implementations)]

pub use callbox_core::{
    ArrayShape, Attribute, Backtrace, Blame, CallOptions, CallSite, CancelToken, Deadline,
    Dictionary, ElementType, Layout, Literal, NativeType, Platform, RegisteredTarget, Registry,
    Result, Shape, ShapeIndex, StaticInfo, Status, StatusCode, TupleShape, UserData,
    attributes_from_mlir, attributes_to_mlir, call, graph_launch, policy, traced, untrusted_text,
    values,
};
#[cfg(feature = "cuda")]
pub use callbox_cuda as cuda;
#[cfg(feature = "hlo")]
pub use callbox_hlo as program;
#[cfg(feature = "process")]
pub use callbox_process as process;
#[cfg(feature = "wasm")]
pub use callbox_wasm as wasm;
#[cfg(feature = "wasm")]
pub use callbox_wasm::frame;
