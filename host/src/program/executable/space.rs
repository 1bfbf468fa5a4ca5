//! Where the values of a running program are: in the host's memory, or in a device's.

mod device;
mod host;

pub(super) use self::device::{DeviceSpace, DeviceValue};
pub(super) use self::host::HostSpace;

use super::plan::BoundCall;
use super::run::Run;
use crate::call::Execution;
use crate::program::instruction::Instruction;
use crate::values::{Literal, Result, Shape};

/// A place for values, and what computes with them there.
pub(super) trait Space: Sized {
    /// A value. Cloning it copies no elements.
    type Value: Clone;

    /// Runs a module's stages `initialize`.
    fn initialize(&mut self, execution: &mut (dyn Execution + '_)) -> Result<()>;

    /// Runs an instruction that moves no control and is no custom call.
    fn evaluate(
        run: &mut Run<'_, Self>,
        instruction: &Instruction,
        operands: &[Self::Value],
    ) -> Result<Self::Value>;

    /// Calls a custom call's target.
    fn custom_call(
        run: &mut Run<'_, Self>,
        call: &BoundCall,
        instruction: &Instruction,
        operands: &[Self::Value],
    ) -> Result<Self::Value>;

    /// The value in the host's memory: what decides where control goes.
    fn read(&mut self, value: &Self::Value) -> Result<Literal>;

    /// The same value with another shape that differs in layouts at most.
    fn with_compatible_shape(value: Self::Value, shape: &Shape) -> Self::Value;

    /// The value as what comes of a loop or a branch: which one was not known before.
    fn joined(value: Self::Value) -> Self::Value;
}
