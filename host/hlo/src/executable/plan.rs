//! Plans: the decisions about a program that are made before it runs.
//!
//! A plan says which instructions run, in which order, when values are dropped, and which module
//! serves which call site.

mod bind;
mod order;
mod passes;
mod reach;
mod references;
mod scratch;

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, OnceLock};

use self::bind::Binder;
use self::passes::Unit;
use self::references::References;
use super::super::Program;
use super::super::instruction::{Computation, ComputationId, InstructionId, Opcode};
use crate::evaluate::Pass;
use callbox_core::Registry;
use callbox_core::call::{CallOptions, Platform, PreparedCalls};
use callbox_core::locks::locked;
use callbox_core::text::shortened;
use callbox_core::values::{Blame, Result, Shape, Status, StatusCode};

/// The call sites that lists of them may have together: many functions can use many call sites.
const MAX_SITES: usize = 1 << 21;

/// The plan of a program.
#[derive(Debug)]
pub(super) struct Plan {
    computations: Vec<ComputationPlan>,
    /// The call sites that further lists may have.
    sites_left: Mutex<usize>,
}

/// The plan of a computation.
#[derive(Debug)]
pub(super) struct ComputationPlan {
    /// The instructions that run, in order.
    pub(super) steps: Vec<Step>,
    /// The place of each instruction's value among those that the steps give, in their order.
    places: Vec<u32>,
    /// Whether the computation or one of its callees calls a target.
    has_custom_calls: bool,
    /// Whether one of these targets can call back.
    pub(super) calls_back: bool,
    /// Whether the computation is exported, or called back by a target.
    pub(super) is_function: bool,
    /// The call sites that the computation and its callees use, once they are needed.
    sites: OnceLock<Sites>,
}

/// Call sites in order, by module.
pub(super) type Sites = BTreeMap<usize, Vec<usize>>;

/// An instruction that runs.
#[derive(Debug)]
pub(super) struct Step {
    /// The instruction, or the last one of a pass.
    pub(super) instruction: InstructionId,
    /// The instructions of a pass, which run together, tile by tile.
    pub(super) pass: Option<Pass>,
    /// Values that no later step reads.
    pub(super) last_uses: Vec<InstructionId>,
    /// For a custom call, its call site. callbox itself runs a custom call without one.
    pub(super) call: Option<BoundCall>,
}

/// A custom call, bound to a call site of a module.
#[derive(Debug)]
pub(super) struct BoundCall {
    /// The module's number.
    pub(super) module: usize,
    /// The call site's number in the module.
    pub(super) site: usize,
    /// The operands' shapes, with the layouts in which the target gets them.
    pub(super) operands: Vec<Shape>,
    /// The result's shape, with the layouts in which the target gives it. Scratch leaves have no
    /// layout, because they are never converted.
    pub(super) result: Shape,
    /// The leaves of the result that nothing reads.
    pub(super) scratch: Vec<usize>,
    /// Whether the target can call back.
    pub(super) calls_back: bool,
}

impl Plan {
    /// Plans a program and has the modules prepare their call sites.
    pub(super) fn new(
        program: &Program,
        registry: &Registry,
        platform: Platform,
        options: &mut CallOptions,
    ) -> Result<(Self, Vec<Box<dyn PreparedCalls>>)> {
        let order = reach::callees_first(program)?;
        let references = References::new(program);
        let reached = reach::reach(program, &references);
        let mut binder = Binder::new(program, references, registry, platform);
        let mut computations = Vec::with_capacity(program.computations.len());
        for (index, computation) in program.computations.iter().enumerate() {
            let steps = steps(computation, &reached.live[index], &mut binder, options)?;
            computations.push(ComputationPlan {
                places: places(computation, &steps),
                steps,
                has_custom_calls: false,
                calls_back: false,
                is_function: reached.is_function[index],
                sites: OnceLock::new(),
            });
        }
        for number in order {
            reach::add_calls(program, number, &mut computations);
        }
        let plan = Self {
            computations,
            sites_left: Mutex::new(MAX_SITES),
        };
        Ok((plan, binder.prepare(options)?))
    }

    /// Checks that no computation that is applied to elements has custom calls.
    pub(super) fn check_for_devices(&self, program: &Program) -> Result<()> {
        for (plan, computation) in std::iter::zip(&self.computations, program.computations()) {
            for step in &plan.steps {
                let instruction = &computation.instructions[step.instruction.index()];
                let applies = matches!(
                    instruction.opcode,
                    Opcode::Map(_)
                        | Opcode::Reduce { .. }
                        | Opcode::ReduceWindow { .. }
                        | Opcode::Scatter { .. }
                        | Opcode::SelectAndScatter { .. }
                        | Opcode::Sort { .. }
                );
                let called = instruction.opcode.called_computations().into_iter();
                let mut called = called.filter(|_| applies);
                if let Some(applied) =
                    called.find(|applied| self.computation(*applied).has_custom_calls)
                {
                    return Err(Status::unimplemented(format!(
                        "%{}: {:?} has custom calls, which {} cannot apply to the elements of an \
                         array on a device",
                        shortened(&instruction.name),
                        shortened(&program.computations[applied.index()].name),
                        instruction.opcode.name()
                    )));
                }
            }
        }
        Ok(())
    }

    pub(super) fn computation(&self, id: ComputationId) -> &ComputationPlan {
        &self.computations[id.index()]
    }

    /// The call sites that a computation and its callees use. They are collected for each function
    /// that is executed: many computations may share many call sites.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED if the lists of the functions so far become too long.
    pub(super) fn sites(&self, program: &Program, id: ComputationId) -> Result<&Sites> {
        let kept = &self.computation(id).sites;
        if let Some(sites) = kept.get() {
            return Ok(sites);
        }
        let mut left = locked(&self.sites_left);
        if kept.get().is_none() {
            let sites = reach::sites(program, id, &self.computations);
            let count: usize = sites.values().map(Vec::len).sum();
            *left = left.checked_sub(count).ok_or_else(|| {
                let message = format!(
                    "expected functions that use at most {MAX_SITES} custom calls, counted for \
                     each function, found more"
                );
                Status::new(StatusCode::ResourceExhausted, Blame::Caller, message)
            })?;
            let _ = kept.set(sites);
        }
        let missing = || Status::internal("a list of custom calls is gone");
        kept.get().ok_or_else(missing)
    }
}

impl ComputationPlan {
    /// The place of an instruction's value among those of the steps.
    pub(super) fn place(&self, id: InstructionId) -> usize {
        self.places[id.index()] as usize
    }
}

/// The place of each value. Instructions that do not run have none.
fn places(computation: &Computation, steps: &[Step]) -> Vec<u32> {
    let mut places = vec![u32::MAX; computation.instructions.len()];
    let results = steps.iter().flat_map(Step::results);
    for (place, id) in (0..).zip(results) {
        places[id.index()] = place;
    }
    places
}

impl Step {
    /// The instructions whose values it gives, in order.
    fn results(&self) -> impl Iterator<Item = InstructionId> {
        let of_pass = self.pass.iter().flat_map(Pass::results);
        let alone = self.pass.is_none().then_some(self.instruction);
        of_pass.chain(alone)
    }
}

/// The steps of a computation.
fn steps(
    computation: &Computation,
    live: &[bool],
    binder: &mut Binder<'_>,
    options: &CallOptions,
) -> Result<Vec<Step>> {
    let mut last_reader: HashMap<InstructionId, usize> = HashMap::new();
    let mut steps = Vec::new();
    let mut scratch = scratch::unread(computation, live);
    let order = order::order(computation, live);
    let units = match binder.platform {
        Platform::Host => passes::units(computation, &order),
        _ => order.into_iter().map(Unit::Alone).collect(),
    };
    for unit in units {
        options.check()?;
        let (index, pass) = match unit {
            Unit::Alone(index) => (index, None),
            Unit::Pass(pass) => {
                let last = pass.members.last().map(|member| member.instruction);
                let last = last.ok_or_else(|| Status::internal("a pass without instructions"))?;
                (last.index(), Some(pass))
            }
        };
        let instruction = &computation.instructions[index];
        let operands = pass
            .as_ref()
            .map_or(&instruction.operands, |pass| &pass.inputs);
        for &operand in operands {
            last_reader.insert(operand, steps.len());
        }
        let call = match &instruction.opcode {
            Opcode::CustomCall(call) => {
                let scratch = std::mem::take(&mut scratch[index]);
                binder.bind(computation, instruction, call, scratch)?
            }
            _ => None,
        };
        steps.push(Step {
            instruction: InstructionId(index as u32),
            pass,
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
