//! Functions of a program that is running, for targets that call back.

use std::sync::Weak;
use std::time::Instant;

use super::run::Run;
use super::{ExecuteOptions, Inner, check_arguments};
use crate::call::{Bounds, Deadline, Functions};
use crate::program::instruction::ComputationId;
use crate::values::{Blame, Literal, Result, Status, StatusCode};

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
        let executable = self
            .executable
            .upgrade()
            .ok_or_else(|| gone("executable"))?;
        let _execution = self.execution.upgrade().ok_or_else(|| gone("execution"))?;
        let id = function(&executable, id)?;
        let computation = &executable.program.computations[id.index()];
        check_arguments(&computation.name, computation.parameter_shapes(), operands)?;
        let mut options = self.options.clone();
        if let Some(sooner) = bounds.deadline.filter(|&at| self.is_sooner(at)) {
            options.call.deadline = Some(Deadline::At(sooner));
        }
        if bounds.fuel.is_some() {
            options.call.fuel.clone_from(&bounds.fuel);
        }
        Run::begin(&executable, id, &options, self.depth + 1)?.function(id, operands)
    }
}

impl Callbacks {
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
    let is_computation = id.index() < executable.program.computations.len();
    match is_computation && executable.plan.computation(id).is_function {
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
