//! What can be decided of a program before it runs: which instructions run, when values are let go, and which call site is
//! whose.

mod bind;
mod order;
mod reach;
mod references;
mod scratch;

use std::collections::{BTreeMap, HashMap};

use self::bind::Binder;
use self::references::References;
use super::super::Program;
use super::super::instruction::{Computation, ComputationId, InstructionId, Opcode};
use crate::call::{Platform, PreparedCalls};
use crate::registry::Registry;
use crate::values::{Result, Shape, Status};

/// The plan of a program.
#[derive(Debug)]
pub(super) struct Plan {
    computations: Vec<ComputationPlan>,
}

/// The plan of a computation.
#[derive(Debug)]
pub(super) struct ComputationPlan {
    /// The instructions that run, in order.
    pub(super) steps: Vec<Step>,
    /// The modules that take part in running it, in itself and in what it calls, each with those of its call sites that do.
    pub(super) sites: BTreeMap<usize, Vec<usize>>,
    /// Whether there is a target among theirs that can call back.
    pub(super) calls_back: bool,
    /// Whether it is exported, or called back by a target.
    pub(super) is_function: bool,
}

/// An instruction that runs.
#[derive(Debug)]
pub(super) struct Step {
    pub(super) instruction: InstructionId,
    /// Values that no later step reads.
    pub(super) last_uses: Vec<InstructionId>,
    /// For a custom call: who serves it.
    pub(super) call: Option<BoundCall>,
}

/// Who serves a custom call.
#[derive(Debug)]
pub(super) struct BoundCall {
    /// Which module.
    pub(super) module: usize,
    /// Which of its call sites.
    pub(super) site: usize,
    /// The operands' shapes as they are handed over.
    pub(super) operands: Vec<Shape>,
    /// The result's shape as it is handed over. Leaves that are scratch have no layout: nobody turns them back.
    pub(super) result: Shape,
    /// The leaves of the result that are scratch.
    pub(super) scratch: Vec<usize>,
    /// Whether the target can call back.
    pub(super) calls_back: bool,
}

impl Plan {
    /// Plans a program and prepares its custom calls, module by module.
    pub(super) fn new(
        program: &Program,
        registry: &Registry,
        platform: Platform,
    ) -> Result<(Self, Vec<Box<dyn PreparedCalls>>)> {
        let order = reach::callees_first(program)?;
        let references = References::new(program);
        let reached = reach::reach(program, &references);
        let mut binder = Binder::new(program, references, registry, platform);
        let mut computations = Vec::with_capacity(program.computations.len());
        for (index, computation) in program.computations.iter().enumerate() {
            computations.push(ComputationPlan {
                steps: steps(computation, &reached.live[index], &mut binder)?,
                sites: BTreeMap::new(),
                calls_back: false,
                is_function: reached.is_function[index],
            });
        }
        for id in order {
            reach::bring_in(program, id, &mut computations);
        }
        Ok((Self { computations }, binder.prepare()?))
    }

    /// Checks that no computation that `reduce` or `map` applies has custom calls.
    pub(super) fn check_for_devices(&self, program: &Program) -> Result<()> {
        for (plan, computation) in std::iter::zip(&self.computations, &program.computations) {
            for step in &plan.steps {
                let instruction = &computation.instructions[step.instruction.index()];
                let (Opcode::Reduce {
                    computation: applied,
                    ..
                }
                | Opcode::Map(applied)) = instruction.opcode
                else {
                    continue;
                };
                if !self.computation(applied).sites.is_empty() {
                    return Err(Status::unimplemented(format!(
                        "%{}: expected a computation without custom calls, which is all that can be applied to elements on a device, found {:?}",
                        instruction.name,
                        program.computations[applied.index()].name
                    )));
                }
            }
        }
        Ok(())
    }

    pub(super) fn computation(&self, id: ComputationId) -> &ComputationPlan {
        &self.computations[id.index()]
    }
}

/// The steps of a computation, and what each lets go.
fn steps(computation: &Computation, live: &[bool], binder: &mut Binder<'_>) -> Result<Vec<Step>> {
    let mut last_reader: HashMap<InstructionId, usize> = HashMap::new();
    let mut steps = Vec::new();
    let mut scratch = scratch::unread(computation, live);
    for index in order::order(computation, live) {
        let instruction = &computation.instructions[index];
        for &operand in &instruction.operands {
            last_reader.insert(operand, steps.len());
        }
        let call = match &instruction.opcode {
            Opcode::CustomCall(call) => {
                let scratch = std::mem::take(&mut scratch[index]);
                Some(binder.bind(computation, instruction, call, scratch)?)
            }
            _ => None,
        };
        steps.push(Step {
            instruction: InstructionId(index as u32),
            last_uses: Vec::new(),
            call,
        });
    }
    for (value, reader) in last_reader {
        if value != computation.root {
            steps[reader].last_uses.push(value);
        }
    }
    Ok(steps)
}
