//! Programs: what the seeds' `XlaBuilder` builds and what HLO text says.
//!
//! [`ProgramBuilder`] and [`hlo`] lead to a [`Program`], which is verified: instructions are in an order in which operands come first, shapes
//! are what the operations give, and computations do not call themselves. An [`Executable`] is a program whose
//! custom calls have been bound to targets.

pub mod hlo;

mod builder;
mod evaluate;
mod executable;
mod instruction;
mod shape_inference;
mod verify;

pub use builder::{CustomCallOptions, Op, ProgramBuilder};
pub use executable::{Executable, ExecuteOptions, Function};
pub use hlo::attribute_text::{attributes_from_mlir, attributes_to_mlir};
pub use instruction::{
    BinaryOperation, Comparison, ComparisonOrder, Computation, ComputationId, CustomCall,
    DotDimensions, FusionKind, Instruction, InstructionId, Opcode, PaddingDimension, Program,
    Schedule, SliceDimension, UnaryOperation,
};
