//! What can be decided of a program before it runs: which instructions run, when values are let go, and which call site is
//! whose.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use super::super::Program;
use super::super::instruction::{
    Computation, ComputationId, CustomCall, Instruction, InstructionId, Opcode,
};
use crate::call::{CallSite, Platform, PreparedCalls, TargetModule};
use crate::registry::Registry;
use crate::values::{Blame, Result, Shape, Status, StatusCode};

/// How deep computations may call computations: the executor calls itself for each.
const MAX_CALL_DEPTH: usize = 128;

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
    /// The modules that take part in running it, in itself and in what it calls.
    pub(super) modules: BTreeSet<usize>,
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
    /// The result's shape as it is handed over.
    pub(super) result: Shape,
}

impl Plan {
    /// Plans a program and prepares its custom calls, module by module.
    pub(super) fn new(
        program: &Program,
        registry: &Registry,
        platform: Platform,
    ) -> Result<(Self, Vec<Box<dyn PreparedCalls>>)> {
        let order = callees_first(program)?;
        let effects = side_effects(program, &order);
        let live = reachable(program, &order, &effects);
        let mut binder = Binder {
            registry,
            platform,
            modules: Vec::new(),
        };
        let mut computations = Vec::with_capacity(program.computations.len());
        for (computation, live) in std::iter::zip(&program.computations, &live) {
            computations.push(ComputationPlan {
                steps: steps(computation, live, &mut binder)?,
                modules: BTreeSet::new(),
            });
        }
        for id in order {
            computations[id.index()].modules = modules_of(program, id, &computations);
        }
        let modules = binder.modules.into_iter();
        let prepared = modules
            .map(|(module, sites)| module.prepare(sites))
            .collect::<Result<_>>()?;
        Ok((Self { computations }, prepared))
    }

    pub(super) fn computation(&self, id: ComputationId) -> &ComputationPlan {
        &self.computations[id.index()]
    }
}

/// Collects call sites by module.
struct Binder<'a> {
    registry: &'a Registry,
    platform: Platform,
    modules: Vec<(Arc<dyn TargetModule>, Vec<CallSite>)>,
}

impl Binder<'_> {
    fn bind(
        &mut self,
        computation: &Computation,
        instruction: &Instruction,
        call: &CustomCall,
    ) -> Result<BoundCall> {
        let name = format!("custom call %{} of {:?}", instruction.name, call.target);
        let target = self
            .registry
            .lookup(&call.target, self.platform)
            .map_err(|status| status.context(&name))?;
        let site = call_site(
            name,
            &target.signature().name,
            computation,
            instruction,
            call,
        )?;
        let (operands, result) = (site.operands.clone(), site.result.clone());
        let identity = target.module().identity();
        let module = match self
            .modules
            .iter()
            .position(|(m, _)| m.identity() == identity)
        {
            Some(module) => module,
            None => {
                self.modules.push((Arc::clone(target.module()), Vec::new()));
                self.modules.len() - 1
            }
        };
        let sites = &mut self.modules[module].1;
        sites.push(site);
        Ok(BoundCall {
            module,
            site: sites.len() - 1,
            operands,
            result,
        })
    }
}

/// What a custom-call instruction says of a call. Without layout constraints, data is handed over row-major.
fn call_site(
    name: String,
    target: &str,
    computation: &Computation,
    instruction: &Instruction,
    call: &CustomCall,
) -> Result<CallSite> {
    if let Some(callee) = call.called_computations.first() {
        return Err(Status::unimplemented(format!(
            "{name}: called computations of a custom call are not supported (computation {})",
            callee.index()
        )));
    }
    let shape_of =
        |id: &InstructionId| without_layouts(&computation.instructions[id.index()].shape);
    let (operands, result) = match &call.operand_layouts {
        Some(shapes) => (shapes.clone(), instruction.shape.clone()),
        None => (
            instruction
                .operands
                .iter()
                .map(shape_of)
                .collect::<Result<_>>()?,
            without_layouts(&instruction.shape)?,
        ),
    };
    Ok(CallSite {
        name,
        target: target.to_owned(),
        api_version: call.api_version,
        operands,
        result,
        attributes: call.attributes.clone(),
        opaque: call.opaque.clone(),
        aliasing: call.aliasing.clone(),
    })
}

fn without_layouts(shape: &Shape) -> Result<Shape> {
    match shape {
        Shape::Array(array) => Ok(array.clone().without_layout().into()),
        Shape::Tuple(tuple) => Shape::tuple(
            tuple
                .elements()
                .iter()
                .map(without_layouts)
                .collect::<Result<_>>()?,
        ),
    }
}

/// The steps of a computation, and what each lets go.
fn steps(computation: &Computation, live: &[bool], binder: &mut Binder<'_>) -> Result<Vec<Step>> {
    let mut last_reader: HashMap<InstructionId, usize> = HashMap::new();
    let mut steps = Vec::new();
    for (index, instruction) in computation.instructions.iter().enumerate() {
        if !live[index] {
            continue;
        }
        for &operand in &instruction.operands {
            last_reader.insert(operand, steps.len());
        }
        let call = match &instruction.opcode {
            Opcode::CustomCall(call) => Some(binder.bind(computation, instruction, call)?),
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

/// The modules that take part in running a computation whose callees' are known.
fn modules_of(program: &Program, id: ComputationId, plans: &[ComputationPlan]) -> BTreeSet<usize> {
    let computation = &program.computations[id.index()];
    let mut modules = BTreeSet::new();
    for step in &plans[id.index()].steps {
        modules.extend(step.call.as_ref().map(|call| call.module));
        let opcode = &computation.instructions[step.instruction.index()].opcode;
        for callee in opcode.called_computations() {
            modules.extend(&plans[callee.index()].modules);
        }
    }
    modules
}

/// The computations in an order in which callees come before callers.
fn callees_first(program: &Program) -> Result<Vec<ComputationId>> {
    let count = program.computations.len();
    let callees = |id: usize| -> Vec<usize> {
        let instructions = program.computations[id].instructions.iter();
        let called = instructions.flat_map(|i| i.opcode.called_computations());
        called.map(ComputationId::index).collect()
    };
    let mut depth: Vec<Option<usize>> = vec![None; count];
    let mut order = Vec::with_capacity(count);
    for start in 0..count {
        let mut pending = vec![start];
        while let Some(&id) = pending.last() {
            if depth[id].is_some() {
                pending.pop();
                continue;
            }
            let called = callees(id);
            let unknown: Vec<_> = called
                .iter()
                .copied()
                .filter(|&c| depth[c].is_none())
                .collect();
            if unknown.is_empty() {
                depth[id] = Some(1 + called.iter().filter_map(|&c| depth[c]).max().unwrap_or(0));
                order.push(ComputationId(id as u32));
                pending.pop();
            } else {
                pending.extend(unknown);
            }
        }
    }
    match depth.iter().flatten().max() {
        Some(&deepest) if deepest > MAX_CALL_DEPTH => Err(Status::new(
            StatusCode::ResourceExhausted,
            Blame::Caller,
            format!(
                "expected computations that call each other at most {MAX_CALL_DEPTH} deep, found {deepest}"
            ),
        )),
        _ => Ok(order),
    }
}

/// For each computation, whether running it has an effect besides its result.
fn side_effects(program: &Program, callees_first: &[ComputationId]) -> Vec<bool> {
    let mut effects = vec![false; program.computations.len()];
    for &id in callees_first {
        let instructions = &program.computations[id.index()].instructions;
        effects[id.index()] = instructions.iter().any(|i| has_effect(i, &effects));
    }
    effects
}

fn has_effect(instruction: &Instruction, effects: &[bool]) -> bool {
    let own = match &instruction.opcode {
        Opcode::CustomCall(call) => call.has_side_effect,
        // A loop that does not end is an effect: it is not dropped.
        Opcode::While { .. } => true,
        _ => false,
    };
    own || instruction
        .opcode
        .called_computations()
        .iter()
        .any(|c| effects[c.index()])
}

/// For each computation, which of its instructions run: those that the result needs and those that have an effect, in computations
/// that an exported function reaches.
fn reachable(
    program: &Program,
    callees_first: &[ComputationId],
    effects: &[bool],
) -> Vec<Vec<bool>> {
    let mut called = vec![false; program.computations.len()];
    for export in &program.exports {
        called[export.index()] = true;
    }
    let mut live: Vec<_> = program
        .computations
        .iter()
        .map(|c| vec![false; c.instructions.len()])
        .collect();
    for &id in callees_first
        .iter()
        .rev()
        .filter(|id| !program.computations[id.index()].instructions.is_empty())
    {
        if !called[id.index()] {
            continue;
        }
        let computation = &program.computations[id.index()];
        let live = &mut live[id.index()];
        live[computation.root.index()] = true;
        // Operands have smaller numbers, so one pass backwards sees every reader first.
        for (index, instruction) in computation.instructions.iter().enumerate().rev() {
            live[index] |= has_effect(instruction, effects);
            if !live[index] {
                continue;
            }
            for id in instruction
                .operands
                .iter()
                .chain(&instruction.control_predecessors)
            {
                live[id.index()] = true;
            }
            for callee in instruction.opcode.called_computations() {
                called[callee.index()] = true;
            }
        }
    }
    live
}
