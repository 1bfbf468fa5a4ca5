//! Runs a planned program, one instruction after the other.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use super::super::instruction::{ComputationId, Instruction, Opcode};
use super::functions::Callbacks;
use super::plan::Step;
use super::space::Space;
use super::{Core, ExecuteOptions, Inner};
use crate::call::{CallOptions, CancelToken, Deadline, Execution, Functions};
use crate::values::{Blame, Literal, Result, Status, StatusCode};

/// One execution of a program, whose values are in some space.
pub(super) struct Run<'a, S: Space> {
    pub(super) core: &'a Arc<Core>,
    pub(super) space: S,
    /// What [`Callbacks`] hold weakly. It goes first, so that nothing is called back while the rest goes.
    _alive: Option<Arc<()>>,
    /// By module: those that the function has no part for have none.
    pub(super) executions: Vec<Option<Box<dyn Execution + 'a>>>,
    pub(super) stop: Stop,
    progress: Option<&'a AtomicU64>,
}

impl<'a, S: Space> Run<'a, S> {
    /// Begins an execution of a function with the modules that take part in it: `prepare` everywhere, then `initialize`. `depth` is how
    /// many calls back lead to it.
    pub(super) fn begin(
        executable: &'a Arc<Inner>,
        function: ComputationId,
        options: &'a ExecuteOptions,
        depth: usize,
        space: S,
    ) -> Result<Self> {
        let stop = Stop::new(&options.call);
        let call = CallOptions {
            deadline: stop.deadline.map(Deadline::At),
            ..options.call.clone()
        };
        let plan = executable.core.plan.computation(function);
        let alive = plan.calls_back.then(|| Arc::new(()));
        let functions = alive.as_ref().map(|alive| -> Arc<dyn Functions> {
            Arc::new(Callbacks {
                executable: Arc::downgrade(executable),
                execution: Arc::downgrade(alive),
                options: ExecuteOptions {
                    call: call.clone(),
                    progress: options.progress.clone(),
                },
                depth,
            })
        });
        let modules = &executable.modules;
        let mut executions: Vec<_> = std::iter::repeat_with(|| None)
            .take(modules.len())
            .collect();
        for (&module, sites) in &plan.sites {
            let execution = modules[module].begin(&call, functions.as_ref(), sites)?;
            executions[module] = Some(execution);
        }
        let mut space = space;
        for execution in executions.iter_mut().flatten() {
            space.initialize(execution.as_mut())?;
        }
        Ok(Self {
            core: &executable.core,
            space,
            _alive: alive,
            executions,
            stop,
            progress: options.progress.as_deref(),
        })
    }

    /// For computations that have no custom calls, in which nothing takes part.
    pub(super) fn alone(core: &'a Arc<Core>, space: S, stop: Stop) -> Self {
        Self {
            core,
            space,
            _alive: None,
            executions: Vec::new(),
            stop,
            progress: None,
        }
    }

    /// Runs a computation.
    pub(super) fn computation(
        &mut self,
        id: ComputationId,
        arguments: &[S::Value],
    ) -> Result<S::Value> {
        let core = self.core;
        let plan = core.plan.computation(id);
        let computation = &core.program.computations[id.index()];
        let mut values: Vec<Option<S::Value>> = vec![None; computation.instructions.len()];
        for step in &plan.steps {
            self.stop.check()?;
            let instruction = &computation.instructions[step.instruction.index()];
            let operands = instruction
                .operands
                .iter()
                .map(|operand| value(&values, operand.index()).cloned())
                .collect::<Result<Vec<_>>>()?;
            for dead in &step.last_uses {
                values[dead.index()] = None;
            }
            let result = self.step(instruction, step, operands, arguments)?;
            // A callee's result may have other layouts, which `bitcast` would read.
            let result = S::with_compatible_shape(result, &instruction.shape);
            values[step.instruction.index()] = Some(result);
            if let Some(progress) = self.progress {
                progress.fetch_add(1, Ordering::Relaxed);
            }
        }
        value(&values, computation.root.index()).cloned()
    }

    fn step(
        &mut self,
        instruction: &Instruction,
        step: &Step,
        operands: Vec<S::Value>,
        arguments: &[S::Value],
    ) -> Result<S::Value> {
        match &instruction.opcode {
            Opcode::Parameter(number) => match arguments.get(*number) {
                Some(argument) => Ok(argument.clone()),
                None => Err(Status::internal(format!(
                    "parameter {number} has no argument"
                ))),
            },
            Opcode::Call(callee) | Opcode::Fusion(_, callee) => {
                self.computation(*callee, &operands)
            }
            Opcode::While { condition, body } => self.while_loop(*condition, *body, operands),
            Opcode::Conditional(branches) => self.conditional(branches, &operands),
            Opcode::CustomCall(_) => match &step.call {
                Some(call) => S::custom_call(self, call, instruction, &operands),
                None => Err(Status::internal(format!(
                    "%{} was not bound",
                    instruction.name
                ))),
            },
            _ => S::evaluate(self, instruction, &operands),
        }
    }

    fn while_loop(
        &mut self,
        condition: ComputationId,
        body: ComputationId,
        mut state: Vec<S::Value>,
    ) -> Result<S::Value> {
        loop {
            self.stop.check()?;
            let goes_on = self.computation(condition, &state)?;
            if !scalar::<bool>(&self.space.read(&goes_on)?)? {
                let end = state.pop();
                let end = end.ok_or_else(|| Status::internal("a loop without state"))?;
                return Ok(S::joined(end));
            }
            state = vec![self.computation(body, &state)?];
        }
    }

    fn conditional(
        &mut self,
        branches: &[ComputationId],
        operands: &[S::Value],
    ) -> Result<S::Value> {
        let (selector, inputs) = operands
            .split_first()
            .ok_or_else(|| Status::internal("a conditional without operands"))?;
        let selector = self.space.read(selector)?;
        let branch = match scalar::<bool>(&selector) {
            Ok(true) => 0,
            Ok(false) => 1,
            // XLA runs the last branch for an index that is out of range.
            Err(_) => usize::try_from(scalar::<i32>(&selector)?)
                .unwrap_or(usize::MAX)
                .min(branches.len() - 1),
        };
        let end = self.computation(branches[branch], &inputs[branch..=branch])?;
        Ok(S::joined(end))
    }
}

fn value<V>(values: &[Option<V>], index: usize) -> Result<&V> {
    values[index]
        .as_ref()
        .ok_or_else(|| Status::internal("an instruction was read before it ran"))
}

fn scalar<T: crate::values::NativeType>(literal: &Literal) -> Result<T> {
    match literal.to_vec::<T>()?.as_slice() {
        [value] => Ok(*value),
        values => Err(Status::internal(format!(
            "expected a scalar, found {} elements",
            values.len()
        ))),
    }
}

/// What stops an execution between instructions. The backends stop their own calls.
#[derive(Clone)]
pub(super) struct Stop {
    deadline: Option<Instant>,
    cancel: Option<CancelToken>,
}

impl Stop {
    fn new(options: &CallOptions) -> Self {
        let deadline = options.deadline.map(Deadline::instant);
        Self {
            deadline,
            cancel: options.cancel.clone(),
        }
    }

    /// Nothing.
    pub(super) fn never() -> Self {
        Self {
            deadline: None,
            cancel: None,
        }
    }

    fn check(&self) -> Result<()> {
        if self.cancel.as_ref().is_some_and(CancelToken::is_cancelled) {
            return Err(Status::new(
                StatusCode::Cancelled,
                Blame::Caller,
                "the execution was cancelled",
            ));
        }
        if self
            .deadline
            .is_some_and(|deadline| Instant::now() >= deadline)
        {
            return Err(Status::new(
                StatusCode::DeadlineExceeded,
                Blame::Caller,
                "the execution did not end before its deadline",
            ));
        }
        Ok(())
    }
}
