//! Programs for callbox: an HLO text reader and printer, a builder, a verifier and an executor.
//!
//! A custom call is one instruction of a program. This crate reads a program from the HLO text that
//! JAX and XLA print, or builds it in code, and executes it with the targets of a
//! [`Registry`](callbox_core::Registry). The program's own instructions are interpreted on the
//! host: the work that has to be fast belongs in targets.
//!
//! # Example
//!
//! Build a program with one custom call and execute it with a target in WebAssembly:
//!
//! ```
//! use callbox_core::ElementType::F32;
//! use callbox_core::call::{ApiVersion, Platform};
//! use callbox_core::{Literal, Registry, Shape};
//! use callbox_hlo::{CustomCall, Executable, ExecuteOptions, ProgramBuilder};
//! use callbox_wasm::Engine;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // A target that reads one f32 and writes its negation, in XLA's original calling convention.
//! let kernel = wat::parse_str(
//!     r#"(module
//!         (memory (export "memory") 1)
//!         (func (export "negate") (param $out i32) (param $ins i32)
//!             (f32.store (local.get $out)
//!                 (f32.neg (f32.load (i32.load (local.get $ins)))))))"#,
//! )?;
//! let mut registry = Registry::new();
//! registry.register_module(Engine::new()?.load(&kernel)?)?;
//!
//! let mut b = ProgramBuilder::new("main");
//! let x = b.parameter(0, Shape::scalar(F32), "x")?;
//! let call = CustomCall {
//!     api_version: ApiVersion::Original,
//!     ..CustomCall::new("negate")
//! };
//! let negated = b.custom_call(call, &[x], Shape::scalar(F32))?;
//! let sum = b.add(negated, x)?;
//! let result = b.tuple(&[negated, sum])?;
//! let program = b.build(result)?;
//!
//! let executable = Executable::compile(&program, &registry, Platform::Host)?;
//! let x = Literal::scalar(2.5_f32);
//! let result = executable.execute(0, &[x], &ExecuteOptions::default())?;
//! assert_eq!(result.into_elements()[0].to_vec::<f32>()?, [-2.5]);
//! # Ok(())
//! # }
//! ```
//!
//! # Verification
//!
//! Every [`Program`] is verified: operands come before their uses, shapes are those that the
//! operations give, and computations do not call themselves. The executor relies on this. A program
//! cannot catch the failure of a custom call; the first one ends the execution.
//!
//! # Features
//!
//! None.
//!
//! # Where to go next
//!
//! - [`hlo`]: HLO text, what it may contain, and how programs export several functions.
//! - [`ProgramBuilder`]: one method for each operation.
//! - [`CustomCall`]: the attributes of a custom call.
//! - [`Executable`]: execution on the host or a device, deadlines, and progress.
//! - [`Program`]: read access to a verified program.

#[macro_use]
mod refusal;

pub mod hlo;

mod builder;
mod dependency_order;
mod evaluate;
mod executable;

mod instruction;
mod lapack;
mod shape_inference;
mod verify;

pub use builder::{Op, ProgramBuilder};
pub use callbox_core::{attributes_from_mlir, attributes_to_mlir};
pub use executable::{Executable, ExecuteOptions, Function};
pub use instruction::{
    BinaryOperation, Comparison, ComparisonOrder, Computation, ComputationId, Convolution,
    ConvolutionDimensions, CustomCall, DotDimensions, FftKind, FusionKind, IndexedWindows,
    Instruction, InstructionId, Opcode, PaddingDimension, Program, RandomAlgorithm, Schedule,
    SliceDimension, Transposition, TriangularSolve, UnaryOperation, WindowDimension,
};
