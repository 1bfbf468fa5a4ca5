//! Runs a planned program, instruction by instruction.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use super::super::instruction::{ComputationId, Instruction, InstructionId, Opcode};
use super::functions::Callbacks;
use super::plan::{BoundCall, Step};
use super::space::Space;
use super::{Core, ExecuteOptions, Inner};
use crate::evaluate::{Check, available_threads};
use callbox_core::call::{CallOptions, CancelToken, Deadline, Execution, Functions};
use callbox_core::values::{Blame, Literal, Result, Status, StatusCode};

/// One execution of a program, whose values are in the memory `S`.
pub(super) struct Run<'a, S: Space> {
    pub(super) core: &'a Arc<Core>,
    pub(super) space: S,
    /// Held weakly by [`Callbacks`]. It is dropped first, so that no target calls back while the
    /// executions are dropped.
    _alive: Option<Arc<()>>,
    /// By module. `None` for modules that the function does not use.
    pub(super) executions: Vec<Option<Box<dyn Execution + 'a>>>,
    pub(super) stop: Stop,
    /// The most threads of a long operation.
    pub(super) threads: usize,
    progress: Option<&'a AtomicU64>,
}

impl<'a, S: Space> Run<'a, S> {
    /// Begins an execution of a function: the modules' `prepare` stages run, then all `initialize`
    /// stages. `depth` is the number of calls back that lead to it.
    pub(super) fn begin(
        executable: &'a Arc<Inner>,
        function: ComputationId,
        options: &'a ExecuteOptions,
        depth: usize,
        mut space: S,
    ) -> Result<Self> {
        let stop = Stop::new(&options.call);
        let call = CallOptions {
            deadline: stop.deadline,
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
        let mut executions = Vec::from_iter(modules.iter().map(|_| None));
        for (&module, sites) in executable.core.sites(function)? {
            let execution = modules[module].begin(&call, functions.as_ref(), sites)?;
            executions[module] = Some(execution);
        }
        for execution in executions.iter_mut().flatten() {
            space.initialize(execution.as_mut())?;
        }
        Ok(Self {
            core: &executable.core,
            space,
            _alive: alive,
            executions,
            stop,
            threads: options
                .call
                .threads
                .map_or_else(available_threads, |most| most.max(1)),
            progress: options.progress.as_deref(),
        })
    }

    /// An execution of computations without custom calls.
    pub(super) fn alone(core: &'a Arc<Core>, space: S, stop: Stop) -> Self {
        Self {
            core,
            space,
            _alive: None,
            executions: Vec::new(),
            stop,
            threads: 1,
            progress: None,
        }
    }

    /// Runs a computation. An argument is dropped after its last use, so that results can take its
    /// memory.
    pub(super) fn computation(
        &mut self,
        id: ComputationId,
        arguments: Vec<S::Value>,
    ) -> Result<S::Value> {
        let mut arguments = Vec::from_iter(arguments.into_iter().map(Some));
        let core = self.core;
        let plan = core.plan.computation(id);
        let computation = &core.program.computations[id.index()];
        let mut values: Vec<Option<S::Value>> = Vec::new();
        let place = |id: &InstructionId| plan.place(*id);
        for step in &plan.steps {
            self.stop.check()?;
            let instruction = &computation.instructions[step.instruction.index()];
            let inputs = step.pass.as_ref().map(|pass| &pass.inputs);
            let operands = inputs.unwrap_or(&instruction.operands).iter();
            let operands = operands.map(|id| value(&values, place(id)).cloned());
            let operands = operands.collect::<Result<Vec<_>>>()?;
            for dead in &step.last_uses {
                if let Some(value) = values.get_mut(place(dead)) {
                    *value = None;
                }
            }
            let mut count = 1;
            if let Some(pass) = &step.pass {
                let results = S::pass(self, pass, computation, operands)?;
                values.extend(results.into_iter().map(Some));
                count = pass.members.len() as u64;
            } else {
                let result = self.step(instruction, step, operands, &mut arguments)?;
                // A callee's result may have other layouts, which would change what `bitcast`
                // reads.
                let result = S::with_compatible_shape(result, &instruction.shape);
                values.push(Some(result));
            }
            if let Some(progress) = self.progress {
                progress.fetch_add(count, Ordering::Relaxed);
            }
        }
        value(&values, place(&computation.root)).cloned()
    }

    fn step(
        &mut self,
        instruction: &Instruction,
        step: &Step,
        operands: Vec<S::Value>,
        arguments: &mut [Option<S::Value>],
    ) -> Result<S::Value> {
        match &instruction.opcode {
            Opcode::Parameter(number) => arguments
                .get_mut(*number)
                .and_then(Option::take)
                .ok_or_else(|| Status::internal(format!("parameter {number} has no argument"))),
            Opcode::Call(callee) | Opcode::Fusion(_, callee) => self.computation(*callee, operands),
            Opcode::While { condition, body } => self.while_loop(*condition, *body, operands),
            Opcode::Conditional(branches) => self.conditional(branches, &operands),
            _ => match &step.call {
                Some(call) => S::custom_call(self, call, instruction, &operands),
                None => S::evaluate(self, instruction, &operands),
            },
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
            let goes_on = self.computation(condition, state.clone())?;
            if !scalar::<bool>(&self.space.read(&goes_on)?)? {
                let end = state.pop();
                let end = end.ok_or_else(|| Status::internal("a loop without state"))?;
                return Ok(S::joined(end));
            }
            state = vec![self.computation(body, state)?];
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
        let end = self.computation(branches[branch], inputs[branch..=branch].to_vec())?;
        Ok(S::joined(end))
    }
}

/// The execution of the module that serves a call.
pub(super) fn serving<'e, 'a>(
    executions: &'e mut [Option<Box<dyn Execution + 'a>>],
    call: &BoundCall,
) -> Result<&'e mut Box<dyn Execution + 'a>> {
    let execution = executions.get_mut(call.module).and_then(Option::as_mut);
    execution.ok_or_else(|| Status::internal("a module has no execution for its own call"))
}

fn value<V>(values: &[Option<V>], place: usize) -> Result<&V> {
    let value = values.get(place).and_then(Option::as_ref);
    value.ok_or_else(|| Status::internal("an instruction was read before it ran"))
}

fn scalar<T: callbox_core::values::NativeType>(literal: &Literal) -> Result<T> {
    match literal.to_vec::<T>()?.as_slice() {
        [value] => Ok(*value),
        values => Err(Status::internal(format!(
            "expected a scalar, found {} elements",
            values.len()
        ))),
    }
}

/// The deadline and cancellation of an execution, checked between instructions. Backends stop
/// their own calls.
#[derive(Clone, Default)]
pub(super) struct Stop {
    deadline: Option<Deadline>,
    cancel: Option<CancelToken>,
}

impl Stop {
    pub(super) fn new(options: &CallOptions) -> Self {
        Self {
            deadline: options.deadline.map(Deadline::begin),
            cancel: options.cancel.clone(),
        }
    }

    /// No deadline and no cancellation.
    pub(super) fn never() -> Self {
        Self::default()
    }
}

impl Check for Stop {
    fn check(&self) -> Result<()> {
        let (code, message) = if self.cancel.as_ref().is_some_and(CancelToken::is_cancelled) {
            (StatusCode::Cancelled, "the execution was cancelled")
        } else if self
            .deadline
            .is_some_and(|at| Instant::now() >= at.instant())
        {
            let message = "the execution did not end before its deadline";
            (StatusCode::DeadlineExceeded, message)
        } else {
            return Ok(());
        };
        Err(Status::new(code, Blame::Caller, message))
    }
}
