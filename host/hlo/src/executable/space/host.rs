//! Values in the host's memory.

use super::Space;
use crate::Program;
use crate::evaluate::{Callee, Pass, Team, evaluate, from_layout, run_pass, to_layout, zeroed};
use crate::executable::plan::BoundCall;
use crate::executable::run::{Run, serving};
use crate::instruction::{Computation, ComputationId, Instruction};
use callbox_core::call::Execution;
use callbox_core::text::shortened;
use callbox_core::values::{Literal, Result, Shape, untouched};

/// The host's memory: values are literals.
pub(in crate::executable) struct HostSpace;

impl Space for HostSpace {
    type Value = Literal;

    fn initialize(&mut self, execution: &mut (dyn Execution + '_)) -> Result<()> {
        execution.initialize()
    }

    fn evaluate(
        run: &mut Run<'_, Self>,
        instruction: &Instruction,
        operands: &[Literal],
    ) -> Result<Literal> {
        evaluate(instruction, operands, run)
    }

    fn pass(
        run: &mut Run<'_, Self>,
        pass: &Pass,
        computation: &Computation,
        inputs: Vec<Literal>,
    ) -> Result<Vec<Literal>> {
        run_pass(pass, computation, inputs, run.team())
    }

    fn custom_call(
        run: &mut Run<'_, Self>,
        call: &BoundCall,
        instruction: &Instruction,
        operands: &[Literal],
    ) -> Result<Literal> {
        let operands = std::iter::zip(operands, &call.operands);
        let operands = operands.map(|(operand, shape)| to_layout(operand, shape));
        let operands = operands.collect::<Result<Vec<_>>>()?;
        let leaves = operands.iter().flat_map(Literal::leaves);
        let inputs = Vec::from_iter(leaves.map(|(_, bytes)| bytes));
        let is_scratch = |leaf| call.scratch.binary_search(&leaf).is_ok();
        let shapes = call.result.leaves().into_iter().enumerate();
        let leaves = shapes.map(|(leaf, shape)| {
            let allocate = if is_scratch(leaf) { untouched } else { zeroed };
            allocate(shape.byte_size())
        });
        let mut leaves = leaves.collect::<Result<Vec<Vec<u8>>>>()?;
        let outputs = leaves.iter_mut().enumerate();
        let outputs = outputs.map(|(leaf, bytes)| {
            if is_scratch(leaf) {
                Default::default()
            } else {
                bytes.as_mut_slice()
            }
        });
        let mut outputs = Vec::from_iter(outputs);
        serving(&mut run.executions, call)?
            .call(call.site, &inputs, &mut outputs)
            .map_err(|status| {
                let name = shortened(&instruction.name);
                status.context(format_args!("custom call %{name}"))
            })?;
        from_layout(
            Literal::from_leaves(call.result.clone(), leaves)?,
            &instruction.shape,
        )
    }

    fn read(&mut self, value: &Literal) -> Result<Literal> {
        Ok(value.clone())
    }

    fn with_compatible_shape(value: Literal, shape: &Shape) -> Literal {
        value.with_compatible_shape(shape)
    }

    fn joined(value: Literal) -> Literal {
        value
    }
}

impl Callee for Run<'_, HostSpace> {
    fn program(&self) -> &Program {
        &self.core.program
    }

    fn team(&self) -> Team<'_> {
        Team {
            threads: self.threads,
            check: &self.stop,
        }
    }

    fn run(&mut self, id: ComputationId, arguments: &[Literal]) -> Result<Literal> {
        self.computation(id, arguments.to_vec())
    }
}
