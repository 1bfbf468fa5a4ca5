//! Custom calls, calls and control, tuples and tokens.

use super::{Op, ProgramBuilder};
use crate::call::{Alias, ApiVersion, StaticInfo};
use crate::program::{ComputationId, CustomCall, FusionKind, Opcode, Schedule};
use crate::values::{Dictionary, Literal, Result, Shape, bounded};

/// What a custom call may say besides its target, operands and shape: the parameters of `xla::CustomCall` under their names.
/// The default is a typed-FFI call that says nothing.
#[derive(Clone, Debug, PartialEq)]
pub struct CustomCallOptions {
    /// Bytes for the target, for the API versions before typed FFI.
    pub opaque: Vec<u8>,
    /// Static information for the target, for the JAX FFI proposal's API version.
    pub static_info: Option<StaticInfo>,
    /// Whether the call has an effect besides its result, so that it runs even if nothing reads that.
    pub has_side_effect: bool,
    /// The result's arrays that share memory with operands.
    pub output_operand_aliasing: Vec<Alias>,
    /// A literal for the target.
    pub literal: Option<Literal>,
    /// When it is to run.
    pub schedule: Schedule,
    /// The convention by which the target is called.
    pub api_version: ApiVersion,
    /// Attributes for the target, for typed FFI. Those that are functions name computations of the program, exported or not, built before
    /// or after the call: the call's own too.
    pub attributes: Dictionary,
    /// The operands' shapes with the layouts in which the target gets them. Then the layouts of the result count as well;
    /// otherwise all is handed over row-major.
    pub operand_layouts: Option<Vec<Shape>>,
    /// Computations for the target to call. They are functions that it can call back, of any signature.
    pub called_computations: Vec<ComputationId>,
}

impl Default for CustomCallOptions {
    fn default() -> Self {
        Self {
            opaque: Vec::new(),
            static_info: None,
            has_side_effect: false,
            output_operand_aliasing: Vec::new(),
            literal: None,
            schedule: Schedule::None,
            api_version: ApiVersion::TypedFfi,
            attributes: Dictionary::new(),
            operand_layouts: None,
            called_computations: Vec::new(),
        }
    }
}

impl ProgramBuilder {
    /// Calls a target, whose result has this shape.
    ///
    /// # Errors
    /// - INVALID_ARGUMENT if the name is empty or starts with `$`, or if operand layouts or aliasing do not fit.
    /// - RESOURCE_EXHAUSTED if attributes nest more than 64 deep.
    pub fn custom_call(
        &mut self,
        target: &str,
        operands: &[Op],
        shape: Shape,
        options: CustomCallOptions,
    ) -> Result<Op> {
        let call = CustomCall {
            target: target.to_owned(),
            api_version: options.api_version,
            attributes: bounded(options.attributes)?,
            opaque: options.opaque,
            static_info: options.static_info,
            has_side_effect: options.has_side_effect,
            aliasing: options.output_operand_aliasing,
            operand_layouts: options.operand_layouts,
            called_computations: options.called_computations,
            schedule: options.schedule,
            literal: options.literal,
        };
        self.instruction(Opcode::CustomCall(Box::new(call)), operands, Some(&shape))
    }

    /// Calls a computation.
    ///
    /// # Errors
    /// See [`ProgramBuilder`].
    pub fn call(&mut self, computation: ComputationId, operands: &[Op]) -> Result<Op> {
        self.instruction(Opcode::Call(computation), operands, None)
    }

    /// Calls a computation, as XLA has it after optimisation.
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

    /// Runs `body` on `state` as long as `condition` of it is true.
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

    /// Runs one of several branches on its operand: chosen by an S32, where the last stands for all numbers out of range,
    /// or by a PRED, where the first of two is for true.
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

    /// A token after these tokens; a new one after none.
    ///
    /// # Errors
    /// See [`ProgramBuilder`].
    pub fn after_all(&mut self, tokens: &[Op]) -> Result<Op> {
        self.instruction(Opcode::AfterAll, tokens, None)
    }

    /// The operand, or a tuple of several: what reads it is not moved before it.
    ///
    /// # Errors
    /// See [`ProgramBuilder`].
    pub fn optimization_barrier(&mut self, operands: &[Op]) -> Result<Op> {
        self.instruction(Opcode::OptimizationBarrier, operands, None)
    }
}
