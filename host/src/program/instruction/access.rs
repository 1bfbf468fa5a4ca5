//! Reading programs. All is fixed once a program is verified: nothing here changes one.

use super::{Computation, ComputationId, Instruction, InstructionId, Opcode, Program};
use crate::program::Function;
use crate::values::{Result, Shape, Status};

impl Program {
    /// The program's name: HLO's module name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// All computations, by number. Those that call come in no order.
    #[must_use]
    pub fn computations(&self) -> &[Computation] {
        &self.computations
    }

    /// The computations of the exported functions, by ordinal: one at least.
    #[must_use]
    pub fn exports(&self) -> &[ComputationId] {
        &self.exports
    }

    /// The exported functions, by ordinal: one at least.
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
    /// A computation of these instructions. Parameters are found among them.
    ///
    /// # Errors
    /// INVALID_ARGUMENT if parameter numbers have gaps or one occurs twice.
    pub(crate) fn new(
        name: String,
        instructions: Vec<Instruction>,
        root: InstructionId,
    ) -> Result<Self> {
        let parameters = parameters(&instructions)
            .map_err(|status| status.context(format_args!("computation %{name}")))?;
        Ok(Self {
            name,
            instructions,
            parameters,
            root,
        })
    }

    /// The name, without the `%` that HLO text may have before it.
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
        let parameters = self.parameters.iter();
        parameters.map(|id| &self.instructions[id.index()].shape)
    }

    /// The shape of the computation's result.
    #[must_use]
    pub fn result_shape(&self) -> &Shape {
        &self.instructions[self.root.index()].shape
    }
}

impl Instruction {
    /// The name, without the `%` that HLO text may have before it.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The shape of the instruction's value.
    #[must_use]
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// What it does.
    #[must_use]
    pub fn opcode(&self) -> &Opcode {
        &self.opcode
    }

    /// The instructions whose values it reads.
    #[must_use]
    pub fn operands(&self) -> &[InstructionId] {
        &self.operands
    }

    /// Instructions that run before it though it does not read their values.
    #[must_use]
    pub fn control_predecessors(&self) -> &[InstructionId] {
        &self.control_predecessors
    }
}

/// The parameters among the instructions, by parameter number.
///
/// # Errors
/// INVALID_ARGUMENT if parameter numbers have gaps or one occurs twice.
pub(crate) fn parameters(instructions: &[Instruction]) -> Result<Vec<InstructionId>> {
    let mut found = Vec::new();
    for (i, instruction) in instructions.iter().enumerate() {
        if let Opcode::Parameter(number) = instruction.opcode {
            found.push((number, i));
        }
    }
    found.sort_unstable();
    for (expected, &(number, i)) in found.iter().enumerate() {
        if expected != number {
            return Err(Status::invalid_argument(format!(
                "expected parameters with the numbers 0 to {}, each once, found parameter {number} (%{})",
                found.len() - 1,
                instructions[i].name
            )));
        }
    }
    found
        .into_iter()
        .map(|(_, i)| InstructionId::new(i))
        .collect()
}

impl InstructionId {
    /// The id of the instruction of this number.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED for a number above 2^32 - 1.
    pub(crate) fn new(number: usize) -> Result<Self> {
        id(number, "instructions in a computation").map(Self)
    }
}

impl ComputationId {
    /// The id of the computation of this number.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED for a number above 2^32 - 1.
    pub(crate) fn new(number: usize) -> Result<Self> {
        id(number, "computations").map(Self)
    }
}

fn id(number: usize, what: &str) -> Result<u32> {
    u32::try_from(number).map_err(|_| {
        Status::new(
            crate::StatusCode::ResourceExhausted,
            crate::Blame::Caller,
            format!("expected at most {} {what}, found more", u32::MAX),
        )
    })
}
