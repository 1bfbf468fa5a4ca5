//! Custom calls, calls and control flow, tuples and tokens.

use super::{Op, ProgramBuilder};
use crate::{ComputationId, CustomCall, FusionKind, Opcode};
use callbox_core::values::{Result, Shape, bounded};

impl ProgramBuilder {
    /// Calls a target, whose result has this shape.
    ///
    /// # Errors
    /// - INVALID_ARGUMENT if the target's name is empty or starts with `$`, or if operand layouts
    ///   or aliasing do not fit.
    /// - RESOURCE_EXHAUSTED if attributes nest more than 64 deep.
    pub fn custom_call(
        &mut self,
        mut call: CustomCall,
        operands: &[Op],
        shape: Shape,
    ) -> Result<Op> {
        call.attributes = bounded(call.attributes)?;
        self.instruction(Opcode::CustomCall(Box::new(call)), operands, Some(&shape))
    }

    /// Calls a computation.
    ///
    /// # Errors
    /// See [`ProgramBuilder`].
    pub fn call(&mut self, computation: ComputationId, operands: &[Op]) -> Result<Op> {
        self.instruction(Opcode::Call(computation), operands, None)
    }

    /// Calls a computation that XLA would have made by fusing instructions.
    ///
    /// # Errors
    /// See [`ProgramBuilder`].
    pub fn fusion(
        &mut self,
        kind: FusionKind,
        computation: ComputationId,
        operands: &[Op],
    ) -> Result<Op> {
        self.instruction(Opcode::Fusion(kind, computation), operands, None)
    }

    /// Runs `body` on the state as long as `condition` holds for it.
    ///
    /// # Errors
    /// See [`ProgramBuilder`].
    pub fn while_loop(
        &mut self,
        condition: ComputationId,
        body: ComputationId,
        state: Op,
    ) -> Result<Op> {
        self.instruction(Opcode::While { condition, body }, &[state], None)
    }

    /// Runs one of several branches on its operand.
    ///
    /// An S32 index selects a branch, the last one if it is out of range. A PRED selects the first
    /// of two branches if it is true.
    ///
    /// # Errors
    /// See [`ProgramBuilder`].
    pub fn conditional(&mut self, index: Op, branches: &[(ComputationId, Op)]) -> Result<Op> {
        let (computations, arguments): (Vec<_>, Vec<_>) = branches.iter().copied().unzip();
        let operands = [&[index], arguments.as_slice()].concat();
        self.instruction(Opcode::Conditional(computations), &operands, None)
    }

    /// A tuple.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED if it nests too deep or becomes too large.
    pub fn tuple(&mut self, elements: &[Op]) -> Result<Op> {
        self.instruction(Opcode::Tuple, elements, None)
    }

    /// An element of a tuple.
    ///
    /// # Errors
    /// See [`ProgramBuilder`].
    pub fn get_tuple_element(&mut self, tuple: Op, index: usize) -> Result<Op> {
        self.instruction(Opcode::GetTupleElement(index), &[tuple], None)
    }

    /// A token that comes after all of these tokens.
    ///
    /// # Errors
    /// See [`ProgramBuilder`].
    pub fn after_all(&mut self, tokens: &[Op]) -> Result<Op> {
        self.instruction(Opcode::AfterAll, tokens, None)
    }

    /// The operand, or a tuple of several operands. Its readers are not moved before it.
    ///
    /// # Errors
    /// See [`ProgramBuilder`].
    pub fn optimization_barrier(&mut self, operands: &[Op]) -> Result<Op> {
        self.instruction(Opcode::OptimizationBarrier, operands, None)
    }
}
