//! Read access to programs, which do not change once verified.

use std::collections::BTreeSet;

use super::{Computation, ComputationId, Instruction, InstructionId, Opcode, Program};
use crate::Function;
use callbox_core::text::shortened;
use callbox_core::values::{Blame, Result, Shape, Status, StatusCode};

impl Program {
    /// The program's name: HLO's module name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// All computations, by number. Callers and callees are in no particular order.
    #[must_use]
    pub fn computations(&self) -> &[Computation] {
        &self.computations
    }

    /// The computations of the exported functions, by ordinal. There is at least one.
    #[must_use]
    pub fn exports(&self) -> &[ComputationId] {
        &self.exports
    }

    /// The targets that custom calls of the program name.
    #[must_use]
    pub fn called_targets(&self) -> BTreeSet<&str> {
        let instructions = self.computations.iter().flat_map(|c| &c.instructions);
        let targets = instructions.filter_map(|instruction| match &instruction.opcode {
            Opcode::CustomCall(call) => Some(call.target.as_str()),
            _ => None,
        });
        targets.collect()
    }

    /// The exported functions, by ordinal. There is at least one.
    #[must_use]
    pub fn functions(&self) -> Vec<Function> {
        let exports = self.exports.iter().enumerate();
        let functions = exports.map(|(ordinal, id)| {
            let computation = &self.computations[id.index()];
            Function {
                name: computation.name.clone(),
                ordinal,
                parameters: computation.parameter_shapes().cloned().collect(),
                result: computation.result_shape().clone(),
            }
        });
        functions.collect()
    }
}

impl Computation {
    /// A computation of these instructions, with the parameters that are among them.
    ///
    /// # Errors
    /// INVALID_ARGUMENT if parameter numbers have gaps or one occurs twice.
    pub(crate) fn new(
        name: String,
        instructions: Vec<Instruction>,
        root: InstructionId,
    ) -> Result<Self> {
        let parameters = parameters(&instructions)
            .map_err(|status| status.context(format_args!("computation %{}", shortened(&name))))?;
        Ok(Self {
            name,
            instructions,
            parameters,
            root,
        })
    }

    /// The name, without the leading `%` of HLO text.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The instructions, by number.
    #[must_use]
    pub fn instructions(&self) -> &[Instruction] {
        &self.instructions
    }

    /// The parameters' instructions, by parameter number.
    #[must_use]
    pub fn parameters(&self) -> &[InstructionId] {
        &self.parameters
    }

    /// The instruction whose value is the computation's result.
    #[must_use]
    pub fn root(&self) -> InstructionId {
        self.root
    }

    /// The parameters' shapes, by parameter number.
    pub fn parameter_shapes(&self) -> impl ExactSizeIterator<Item = &Shape> {
        self.parameters.iter().map(|&id| self.shape(id))
    }

    /// The shape of the computation's result.
    #[must_use]
    pub fn result_shape(&self) -> &Shape {
        self.shape(self.root)
    }

    /// The shape of one instruction's value. The id is this computation's.
    pub(crate) fn shape(&self, id: InstructionId) -> &Shape {
        &self.instructions[id.index()].shape
    }
}

impl Instruction {
    /// The name, without the leading `%` of HLO text.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The shape of the instruction's value.
    #[must_use]
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// The operation, with its attributes.
    #[must_use]
    pub fn opcode(&self) -> &Opcode {
        &self.opcode
    }

    /// The instructions whose values this one reads.
    #[must_use]
    pub fn operands(&self) -> &[InstructionId] {
        &self.operands
    }

    /// Instructions that run before this one although it does not read their values.
    #[must_use]
    pub fn control_predecessors(&self) -> &[InstructionId] {
        &self.control_predecessors
    }

    /// Operands, then control predecessors. One id may occur several times.
    pub(crate) fn predecessors(&self) -> impl Iterator<Item = InstructionId> {
        let operands = self.operands.iter();
        operands.chain(&self.control_predecessors).copied()
    }
}

/// The parameters among the instructions, by parameter number.
///
/// # Errors
/// INVALID_ARGUMENT if parameter numbers have gaps or one occurs twice.
pub(crate) fn parameters(instructions: &[Instruction]) -> Result<Vec<InstructionId>> {
    let numbered = instructions.iter().enumerate();
    let numbered = numbered.filter_map(|(i, instruction)| match instruction.opcode {
        Opcode::Parameter(number) => Some((number, i)),
        _ => None,
    });
    let mut found = Vec::from_iter(numbered);
    found.sort_unstable();
    for (expected, &(number, i)) in found.iter().enumerate() {
        ensure!(
            expected == number,
            "expected parameters with the numbers 0 to {}, each once, found parameter {number} \
             (%{})",
            found.len() - 1,
            shortened(&instructions[i].name)
        );
    }
    let ids = found.into_iter().map(|(_, i)| InstructionId::new(i));
    ids.collect()
}

impl InstructionId {
    /// The id of the instruction with this number.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED for a number above 2^32 - 1.
    pub(crate) fn new(number: usize) -> Result<Self> {
        id(number, "instructions in a computation").map(Self)
    }
}

impl ComputationId {
    /// The id of the computation with this number.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED for a number above 2^32 - 1.
    pub(crate) fn new(number: usize) -> Result<Self> {
        id(number, "computations").map(Self)
    }
}

fn id(number: usize, what: &str) -> Result<u32> {
    u32::try_from(number).map_err(|_| {
        let message = format!("expected at most {} {what}, found more", u32::MAX);
        Status::new(StatusCode::ResourceExhausted, Blame::Caller, message)
    })
}
