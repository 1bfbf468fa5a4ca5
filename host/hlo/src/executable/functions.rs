//! Functions of a running program, for targets that call back.
//!
//! A target can call the functions that its call site refers to, and no others: a reference is a
//! capability, valid for the call that it was handed to. The called function runs on the calling
//! thread, in an execution of its own. Its time counts as the calling target's. The target judges
//! the function's status: if it returns the code without setting a failure of its own, the whole
//! status is passed on.

use std::sync::{Arc, Weak};
use std::time::Instant;

use super::run::Run;
use super::space::{DeviceSpace, DeviceValue, HostSpace};
use super::{ExecuteOptions, Inner, check_arguments};
use crate::instruction::{Computation, ComputationId};
use callbox_core::call::{Bounds, Deadline, DeviceBuffer, DeviceQueue, Functions};
use callbox_core::graph_launch::MAX_DEPTH;
use callbox_core::text::shortened;
use callbox_core::values::{ArrayShape, Blame, Literal, Result, Shape, Status, StatusCode};

/// The functions that the targets of one execution can call. Keeps neither the executable nor the
/// execution alive.
#[derive(Debug)]
pub(super) struct Callbacks {
    pub(super) executable: Weak<Inner>,
    /// Alive as long as the execution is.
    pub(super) execution: Weak<()>,
    /// The execution's options, with the deadline as an instant.
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
        let parameters = computation.parameter_shapes();
        check_arguments(&computation.name, parameters, operands, &self.options.call)?;
        let mut options = self.options.clone();
        if let Some(sooner) = bounds.deadline.filter(|&at| self.is_sooner(at)) {
            options.call.deadline = Some(Deadline::At(sooner));
        }
        if bounds.fuel.is_some() {
            options.call.fuel.clone_from(&bounds.fuel);
        }
        let mut run = Run::begin(&executable, id, &options, self.depth + 1, HostSpace)?;
        with_stack(|| run.computation(id, operands.to_vec()))
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
        if depth > MAX_DEPTH {
            let message =
                format!("call-function: expected calls back at most {MAX_DEPTH} deep, found more");
            return Err(Status::new(
                StatusCode::ResourceExhausted,
                Blame::Guest,
                message,
            ));
        }
        let space = DeviceSpace::new(queue);
        let mut run = Run::begin(&executable, id, &self.options, depth, space)?;
        let result = with_stack(|| run.computation(id, arguments));
        Ok(result?.buffers())
    }
}

/// Runs a function with the stack that it may need: the executor recurses for each computation.
pub(super) fn with_stack<T>(run: impl FnOnce() -> T) -> T {
    const NEEDED: usize = 1 << 20;
    stacker::maybe_grow(NEEDED, 2 * NEEDED, run)
}

/// The arguments of a function, from the buffers of its parameters' leaves.
fn arguments(computation: &Computation, buffers: &[DeviceBuffer]) -> Result<Vec<DeviceValue>> {
    let leaves = computation.parameter_shapes().flat_map(Shape::leaves);
    let expected = Vec::from_iter(leaves.map(ArrayShape::byte_size));
    let found = Vec::from_iter(buffers.iter().map(|buffer| buffer.size()));
    ensure!(
        expected == found,
        "function {} takes arrays of {expected:?} bytes, found {found:?}",
        shortened(&computation.name)
    );
    let mut buffers = buffers.iter().cloned();
    let arguments = computation.parameter_shapes().map(|shape| {
        let leaves = buffers.by_ref().take(shape.leaf_count()).collect();
        DeviceValue::new(shape.clone(), leaves)
    });
    Ok(arguments.collect())
}

impl Callbacks {
    /// The executable and the execution, if they are still alive.
    fn alive(&self) -> Result<(Arc<Inner>, Arc<()>)> {
        let executable = self.executable.upgrade();
        let executable = executable.ok_or_else(|| gone("executable"))?;
        let execution = self.execution.upgrade().ok_or_else(|| gone("execution"))?;
        Ok((executable, execution))
    }

    /// Whether the deadline is before the execution's own.
    fn is_sooner(&self, deadline: Instant) -> bool {
        let own = self.options.call.deadline.and_then(Deadline::end);
        own.is_none_or(|own| deadline < own)
    }
}

/// The function with this number. Other computations were not planned.
fn function(executable: &Inner, id: usize) -> Result<ComputationId> {
    let id = ComputationId::new(id)?;
    let is_computation = id.index() < executable.core.program.computations.len();
    if is_computation && executable.core.plan.computation(id).is_function {
        Ok(id)
    } else {
        Err(Status::not_found(format!(
            "expected a function that a custom call refers to, found number {}",
            id.index()
        )))
    }
}

fn gone(what: &str) -> Status {
    Status::new(
        StatusCode::FailedPrecondition,
        Blame::Caller,
        format!("the {what} is gone"),
    )
}
