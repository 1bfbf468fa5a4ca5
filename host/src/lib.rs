//! A host for XLA-style custom calls whose CPU targets are untrusted WebAssembly modules.
//!
//! Weights became safe to download with safetensors; callbox does that for custom ops. A `.wasm` file holds *targets*: functions on arrays.
//! A *program*, from HLO text or a builder, calls them by name. Each call gets its operands copied into the guest's memory and its
//! results copied out; a guest that traps, loops, floods or lies costs its caller a [`Status`], and the host nothing.
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
//!       ROOT y = f32[3] custom-call(x), custom_call_target="negate", api_version=API_VERSION_TYPED_FFI
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
//! # Where to look
//!
//! - [`policy`]: what guests may take, do and reach.
//! - [`wasm`]: engines and modules; calls without a program ([`wasm::Module::prepare_call`]).
//! - [`program`]: programs and their execution.
//! - [`jax_ffi`]: the JAX FFI proposal's interface to targets of its convention.
//! - [`values`]: shapes, literals, attributes, statuses; re-exported here.
//! - `arrays`: arrays in .npy and .safetensors files, with the feature of that name.
//! - [`call`]: what a backend is, for whoever writes one.
//! - [`frame`]: the call frame, byte for byte, and where buffers lie in a guest's memory.
//!
//! # Words
//!
//! They are XLA's, with XLA's meaning: target, platform, operand, result, attribute, shape, layout, literal, call frame, stage, status,
//! executable, registry. A *guest* is a module and the code in it; the *host* is this crate.
//!
//! # Failures
//!
//! Everything that can fail returns a [`Status`]: a code with XLA's name and number, a message that says what was expected and what was
//! found, whether the target calls it recoverable, and whose doing it is. Nothing that a guest, a program or a file can do
//! makes this crate panic.
//!
//! # Features
//!
//! - `cli` (default): the command line `callbox`. The library needs none of it.
//! - `arrays`: arrays in .npy and .safetensors files.
//! - `process`: modules in processes of their own. Linux only.

#![warn(missing_debug_implementations)]

#[cfg(feature = "arrays")]
pub mod arrays;
pub mod call;
#[cfg(feature = "cuda")]
pub mod cuda;
pub mod frame;
pub mod graph_launch;
pub mod jax_ffi;
pub mod policy;
#[cfg(feature = "process")]
pub mod process;
pub mod program;
mod registry;
pub mod values;
pub mod wasm;

pub use call::{CallOptions, CallSite, CancelToken, Deadline, Platform, StaticInfo, UserData};
pub use registry::{RegisteredTarget, Registry};
pub use values::*;
