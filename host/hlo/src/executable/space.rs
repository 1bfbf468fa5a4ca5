//! The memory that holds the values of a running program: the host's or a device's.

mod device;
mod host;

pub(super) use self::device::{DeviceSpace, DeviceValue};
pub(super) use self::host::HostSpace;

use super::plan::BoundCall;
use super::run::Run;
use crate::evaluate::Pass;
use crate::instruction::{Computation, Instruction};
use callbox_core::call::Execution;
use callbox_core::values::{Literal, Result, Shape};

/// A memory for values, and the operations on them.
pub(super) trait Space: Sized {
    /// A value. Cloning it copies no elements.
    type Value: Clone;

    /// Runs the `initialize` stages of a module's targets.
    fn initialize(&mut self, execution: &mut (dyn Execution + '_)) -> Result<()>;

    /// Runs an instruction other than control flow and custom calls.
    fn evaluate(
        run: &mut Run<'_, Self>,
        instruction: &Instruction,
        operands: &[Self::Value],
    ) -> Result<Self::Value>;

    /// Runs elementwise instructions in one pass. Gives the results of the pass.
    fn pass(
        run: &mut Run<'_, Self>,
        pass: &Pass,
        computation: &Computation,
        inputs: Vec<Self::Value>,
    ) -> Result<Vec<Self::Value>>;

    /// Calls a custom call's target.
    fn custom_call(
        run: &mut Run<'_, Self>,
        call: &BoundCall,
        instruction: &Instruction,
        operands: &[Self::Value],
    ) -> Result<Self::Value>;

    /// Copies a value to the host's memory, where it decides control flow.
    fn read(&mut self, value: &Self::Value) -> Result<Literal>;

    /// The value with another shape, which differs in layouts at most.
    fn with_compatible_shape(value: Self::Value, shape: &Shape) -> Self::Value;

    /// The value as the result of a loop or branch, whose buffers are not known in advance.
    fn joined(value: Self::Value) -> Self::Value;
}
