//! Runs a planned program, one instruction after the other.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use super::super::Program;
use super::super::evaluate::{Callee, evaluate, from_layout, to_layout, zeroed};
use super::super::instruction::{ComputationId, Instruction, Opcode};
use super::functions::Callbacks;
use super::plan::{BoundCall, Step};
use super::{ExecuteOptions, Inner};
use crate::call::{CallOptions, CancelToken, Deadline, Execution, Functions};
use crate::values::{Blame, Literal, Result, Status, StatusCode};

/// One execution of a program.
pub(super) struct Run<'a> {
    executable: &'a Inner,
    /// What [`Callbacks`] hold weakly. It goes first, so that nothing is called back while the rest goes.
    _alive: Option<Arc<()>>,
    /// By module: those that the function has no part for have none.
    executions: Vec<Option<Box<dyn Execution + 'a>>>,
    stop: Stop,
    options: &'a ExecuteOptions,
}

impl<'a> Run<'a> {
    /// Begins an execution of a function with the modules that take part in it: `prepare` everywhere, then `initialize`. `depth` is how
    /// many calls back lead to it.
    pub(super) fn begin(
        executable: &'a Arc<Inner>,
        function: ComputationId,
        options: &'a ExecuteOptions,
        depth: usize,
    ) -> Result<Self> {
        let stop = Stop::new(&options.call);
        let call = CallOptions {
            deadline: stop.deadline.map(Deadline::At),
            ..options.call.clone()
        };
        let plan = executable.plan.computation(function);
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
        for execution in executions.iter_mut().flatten() {
            execution.initialize()?;
        }
        Ok(Self {
            executable,
            _alive: alive,
            executions,
            stop,
            options,
        })
    }

    /// Runs the function.
    pub(super) fn function(&mut self, id: ComputationId, arguments: &[Literal]) -> Result<Literal> {
        self.computation(id, arguments)
    }

    fn computation(&mut self, id: ComputationId, arguments: &[Literal]) -> Result<Literal> {
        let executable = self.executable;
        let plan = executable.plan.computation(id);
        let computation = &executable.program.computations[id.index()];
        let mut values: Vec<Option<Literal>> = vec![None; computation.instructions.len()];
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
            let result = result.with_compatible_shape(&instruction.shape);
            values[step.instruction.index()] = Some(result);
            if let Some(progress) = &self.options.progress {
                progress.fetch_add(1, Ordering::Relaxed);
            }
        }
        value(&values, computation.root.index()).cloned()
    }

    fn step(
        &mut self,
        instruction: &Instruction,
        step: &Step,
        operands: Vec<Literal>,
        arguments: &[Literal],
    ) -> Result<Literal> {
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
                Some(call) => self.custom_call(call, instruction, &operands),
                None => Err(Status::internal(format!(
                    "%{} was not bound",
                    instruction.name
                ))),
            },
            _ => evaluate(instruction, &operands, self),
        }
    }

    fn while_loop(
        &mut self,
        condition: ComputationId,
        body: ComputationId,
        mut state: Vec<Literal>,
    ) -> Result<Literal> {
        loop {
            self.stop.check()?;
            let goes_on = self.computation(condition, &state)?;
            if !scalar::<bool>(&goes_on)? {
                return state
                    .pop()
                    .ok_or_else(|| Status::internal("a loop without state"));
            }
            state = vec![self.computation(body, &state)?];
        }
    }

    fn conditional(&mut self, branches: &[ComputationId], operands: &[Literal]) -> Result<Literal> {
        let (selector, inputs) = operands
            .split_first()
            .ok_or_else(|| Status::internal("a conditional without operands"))?;
        let branch = match scalar::<bool>(selector) {
            Ok(true) => 0,
            Ok(false) => 1,
            // XLA runs the last branch for an index that is out of range.
            Err(_) => usize::try_from(scalar::<i32>(selector)?)
                .unwrap_or(usize::MAX)
                .min(branches.len() - 1),
        };
        self.computation(branches[branch], &inputs[branch..=branch])
    }

    fn custom_call(
        &mut self,
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
        let execution = self.executions[call.module]
            .as_mut()
            .ok_or_else(|| Status::internal("a module has no part in its own call"))?;
        execution
            .call(call.site, &bytes, &mut results)
            .map_err(|status| status.context(format_args!("custom call %{}", instruction.name)))?;
        from_layout(
            Literal::from_leaves(call.result.clone(), leaves)?,
            &instruction.shape,
        )
    }
}

impl Callee for Run<'_> {
    fn program(&self) -> &Program {
        &self.executable.program
    }

    fn run(&mut self, id: ComputationId, arguments: &[Literal]) -> Result<Literal> {
        self.computation(id, arguments)
    }
}

fn value(values: &[Option<Literal>], index: usize) -> Result<&Literal> {
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

/// What stops an execution between instructions. The backends stop their own calls.
struct Stop {
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
