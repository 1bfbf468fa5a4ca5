//! Values in the host's memory.

use super::Space;
use crate::call::Execution;
use crate::program::Program;
use crate::program::evaluate::{Callee, evaluate, from_layout, to_layout, zeroed};
use crate::program::executable::plan::BoundCall;
use crate::program::executable::run::Run;
use crate::program::instruction::{ComputationId, Instruction};
use crate::values::{Blame, Literal, Result, Shape, Status, StatusCode};

/// The host's memory: values are literals.
pub(in crate::program::executable) struct HostSpace;

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

    fn custom_call(
        run: &mut Run<'_, Self>,
        call: &BoundCall,
        instruction: &Instruction,
        operands: &[Literal],
    ) -> Result<Literal> {
        let handed_over: Vec<_> = std::iter::zip(operands, &call.operands)
            .map(|(operand, shape)| to_layout(operand, shape))
            .collect::<Result<_>>()?;
        let bytes: Vec<&[u8]> = handed_over
            .iter()
            .flat_map(|o| o.leaves().map(|(_, bytes)| bytes))
            .collect();
        let is_scratch = |leaf| call.scratch.binary_search(&leaf).is_ok();
        let shapes = call.result.leaves().into_iter().enumerate();
        let mut leaves = shapes
            .map(|(leaf, shape)| match is_scratch(leaf) {
                true => untouched(shape.byte_size()),
                false => zeroed(shape.byte_size()),
            })
            .collect::<Result<Vec<Vec<u8>>>>()?;
        let results = leaves.iter_mut().enumerate();
        let mut results: Vec<&mut [u8]> = results
            .map(|(leaf, bytes)| match is_scratch(leaf) {
                true => Default::default(),
                false => bytes.as_mut_slice(),
            })
            .collect();
        let Some(Some(execution)) = run.executions.get_mut(call.module) else {
            return Err(Status::internal("a module has no part in its own call"));
        };
        execution
            .call(call.site, &bytes, &mut results)
            .map_err(|status| status.context(format_args!("custom call %{}", instruction.name)))?;
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

    fn run(&mut self, id: ComputationId, arguments: &[Literal]) -> Result<Literal> {
        self.computation(id, arguments)
    }
}

/// As many zeros, which take no memory as long as nobody looks: the system has pages for them only then.
fn untouched(count: usize) -> Result<Vec<u8>> {
    // What gives untouched zeros cannot fail but by ending the process, so something that can fail asks first.
    let room = Vec::<u8>::new().try_reserve_exact(count);
    room.map_err(|_| {
        Status::new(
            StatusCode::ResourceExhausted,
            Blame::Caller,
            format!("expected scratch memory of {count} bytes to fit into memory"),
        )
    })?;
    Ok(vec![0; count])
}
