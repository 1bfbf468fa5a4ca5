//! Functions of a program that is running, for targets that call back.

use std::sync::{Arc, Weak};
use std::time::Instant;

use super::run::Run;
use super::space::{DeviceSpace, DeviceValue, HostSpace};
use super::{ExecuteOptions, Inner, check_arguments};
use crate::call::{Bounds, Deadline, DeviceBuffer, DeviceQueue, Functions};
use crate::program::instruction::{Computation, ComputationId};
use crate::values::{ArrayShape, Blame, Literal, Result, Status, StatusCode};

/// What one execution lets its targets call back. It keeps neither the executable nor the execution alive.
#[derive(Debug)]
pub(super) struct Callbacks {
    pub(super) executable: Weak<Inner>,
    /// The execution is there as long as this is.
    pub(super) execution: Weak<()>,
    /// The execution's, with its deadline as an instant.
    pub(super) options: ExecuteOptions,
    pub(super) depth: usize,
}

impl Functions for Callbacks {
    fn depth(&self) -> usize {
        self.depth
    }

    fn call(&self, id: usize, operands: &[Literal], bounds: &Bounds) -> Result<Literal> {
        let (executable, _execution) = self.alive()?;
        let id = function(&executable, id)?;
        let computation = &executable.core.program.computations[id.index()];
        check_arguments(&computation.name, computation.parameter_shapes(), operands)?;
        let mut options = self.options.clone();
        if let Some(sooner) = bounds.deadline.filter(|&at| self.is_sooner(at)) {
            options.call.deadline = Some(Deadline::At(sooner));
        }
        if bounds.fuel.is_some() {
            options.call.fuel.clone_from(&bounds.fuel);
        }
        Run::begin(&executable, id, &options, self.depth + 1, HostSpace)?.computation(id, operands)
    }

    fn enqueue(
        &self,
        id: usize,
        queue: &mut dyn DeviceQueue,
        operands: &[DeviceBuffer],
    ) -> Result<Vec<DeviceBuffer>> {
        let (executable, _execution) = self.alive()?;
        let id = function(&executable, id)?;
        let computation = &executable.core.program.computations[id.index()];
        let arguments = arguments(computation, operands)?;
        let depth = self.depth + 1;
        if depth > MAX_DEVICE_DEPTH {
            return Err(Status::new(
                StatusCode::ResourceExhausted,
                Blame::Guest,
                format!(
                    "call-function: expected calls back at most {MAX_DEVICE_DEPTH} deep, found more"
                ),
            ));
        }
        let space = DeviceSpace::new(queue);
        let mut run = Run::begin(&executable, id, &self.options, depth, space)?;
        Ok(run.computation(id, &arguments)?.buffers())
    }
}

/// How deep calls back may nest on a device, where no policy says so: native targets have none.
const MAX_DEVICE_DEPTH: usize = 8;

/// What a function is called with, from the buffers of its parameters' leaves.
fn arguments(computation: &Computation, buffers: &[DeviceBuffer]) -> Result<Vec<DeviceValue>> {
    let expected: Vec<usize> = computation
        .parameter_shapes()
        .flat_map(|shape| shape.leaves().into_iter().map(ArrayShape::byte_size))
        .collect();
    let found: Vec<usize> = buffers.iter().map(|buffer| buffer.size()).collect();
    if expected != found {
        return Err(Status::invalid_argument(format!(
            "function {} takes arrays of {expected:?} bytes, found {found:?}",
            computation.name
        )));
    }
    let mut buffers = buffers.iter().cloned();
    let arguments = computation.parameter_shapes().map(|shape| {
        let leaves = buffers.by_ref().take(shape.leaves().len()).collect();
        DeviceValue::new(shape.clone(), leaves)
    });
    Ok(arguments.collect())
}

impl Callbacks {
    /// The executable and the execution, if they are still there.
    fn alive(&self) -> Result<(Arc<Inner>, Arc<()>)> {
        let executable = self.executable.upgrade();
        let executable = executable.ok_or_else(|| gone("executable"))?;
        let execution = self.execution.upgrade().ok_or_else(|| gone("execution"))?;
        Ok((executable, execution))
    }

    /// Whether this is before the execution's own deadline.
    fn is_sooner(&self, deadline: Instant) -> bool {
        match self.options.call.deadline {
            Some(Deadline::At(own)) => deadline < own,
            _ => true,
        }
    }
}

/// The function of this number: other computations were not planned.
fn function(executable: &Inner, id: usize) -> Result<ComputationId> {
    let id = ComputationId::new(id)?;
    let is_computation = id.index() < executable.core.program.computations.len();
    match is_computation && executable.core.plan.computation(id).is_function {
        true => Ok(id),
        false => Err(Status::not_found(format!(
            "expected a function that a custom call refers to, found number {}",
            id.index()
        ))),
    }
}

fn gone(what: &str) -> Status {
    Status::new(
        StatusCode::FailedPrecondition,
        Blame::Caller,
        format!("the {what} is gone"),
    )
}
