//! Reachability: which computations and instructions run, and which call sites they use.

use std::collections::{BTreeMap, BTreeSet};

use super::references::{References, run_by};
use super::{ComputationPlan, Sites};
use crate::Program;
use crate::instruction::{Computation, ComputationId, Instruction, Opcode};
use crate::verify;
use callbox_core::values::{Blame, Result, Status, StatusCode};

/// The deepest nesting of calls: the executor recurses for each.
const MAX_CALL_DEPTH: usize = 128;

/// The parts of a program that run.
pub(super) struct Reach {
    /// For each computation, whether each instruction runs.
    pub(super) live: Vec<Vec<bool>>,
    /// For each computation, whether it is exported or called back by a target.
    pub(super) is_function: Vec<bool>,
}

/// Finds what the exported functions reach. An instruction runs if the result depends on it or if
/// it has an effect.
pub(super) fn reach(program: &Program, references: &References<'_>) -> Reach {
    let effects = effects(program, references);
    let computations = program.computations();
    let mut reach = Reach {
        live: vec![Vec::new(); computations.len()],
        is_function: vec![false; computations.len()],
    };
    let mut pending = program.exports.clone();
    for export in &program.exports {
        reach.is_function[export.index()] = true;
    }
    let mut is_seen = vec![false; computations.len()];
    while let Some(id) = pending.pop() {
        if std::mem::replace(&mut is_seen[id.index()], true) {
            continue;
        }
        let computation = &computations[id.index()];
        let live = live(computation, &effects, references);
        for (instruction, _) in
            std::iter::zip(&computation.instructions, &live).filter(|(_, live)| **live)
        {
            let reached = references.all(instruction);
            if matches!(instruction.opcode, Opcode::CustomCall(_)) {
                reached
                    .iter()
                    .for_each(|id| reach.is_function[id.index()] = true);
            }
            pending.extend(reached);
        }
        reach.live[id.index()] = live;
    }
    for (computation, live) in std::iter::zip(computations, &mut reach.live) {
        live.resize(computation.instructions.len(), false);
    }
    reach
}

/// For each instruction, whether it runs when the computation does.
fn live(computation: &Computation, effects: &[bool], references: &References<'_>) -> Vec<bool> {
    let mut live = vec![false; computation.instructions.len()];
    live[computation.root.index()] = true;
    // Predecessors have smaller numbers, so one backward pass sees every reader first.
    for (index, instruction) in computation.instructions.iter().enumerate().rev() {
        live[index] |= has_effect(instruction, effects, references);
        if live[index] {
            let predecessors = instruction.predecessors();
            predecessors.for_each(|id| live[id.index()] = true);
        }
    }
    live
}

/// For each computation, whether running it has an effect besides its result.
///
/// Calls back may be cyclic, so that effects propagate from callees to callers until nothing
/// changes.
fn effects(program: &Program, references: &References<'_>) -> Vec<bool> {
    let computations = program.computations();
    let mut callers: Vec<Vec<usize>> = vec![Vec::new(); computations.len()];
    let mut effects = vec![false; computations.len()];
    for (caller, computation) in computations.iter().enumerate() {
        for instruction in &computation.instructions {
            effects[caller] |= has_own_effect(&instruction.opcode);
            for callee in references.all(instruction) {
                callers[callee.index()].push(caller);
            }
        }
    }
    let mut pending: Vec<usize> = (0..effects.len()).filter(|&id| effects[id]).collect();
    while let Some(callee) = pending.pop() {
        for &caller in &callers[callee] {
            if !std::mem::replace(&mut effects[caller], true) {
                pending.push(caller);
            }
        }
    }
    effects
}

fn has_effect(instruction: &Instruction, effects: &[bool], references: &References<'_>) -> bool {
    let called = references.all(instruction);
    has_own_effect(&instruction.opcode) || called.iter().any(|id| effects[id.index()])
}

fn has_own_effect(opcode: &Opcode) -> bool {
    match opcode {
        Opcode::CustomCall(call) => call.has_side_effect,
        // Dropping a loop that does not end would change the program.
        Opcode::While { .. } => true,
        _ => false,
    }
}

/// Records whether a computation or its callees have custom calls. Its callees' plans are complete.
pub(super) fn add_calls(program: &Program, number: usize, plans: &mut [ComputationPlan]) {
    let instructions = &program.computations[number].instructions;
    let (mut has_custom_calls, mut calls_back) = (false, false);
    for step in &plans[number].steps {
        has_custom_calls |= step.call.is_some();
        calls_back |= step.call.as_ref().is_some_and(|call| call.calls_back);
        for callee in run_by(&instructions[step.instruction.index()].opcode) {
            has_custom_calls |= plans[callee.index()].has_custom_calls;
            calls_back |= plans[callee.index()].calls_back;
        }
    }
    plans[number].has_custom_calls = has_custom_calls;
    plans[number].calls_back = calls_back;
}

/// The call sites that a computation and its callees use.
pub(super) fn sites(program: &Program, id: ComputationId, plans: &[ComputationPlan]) -> Sites {
    let mut sites: BTreeMap<usize, BTreeSet<usize>> = BTreeMap::new();
    let mut pending = vec![id];
    let mut is_seen = vec![false; plans.len()];
    while let Some(id) = pending.pop() {
        let plan = &plans[id.index()];
        if std::mem::replace(&mut is_seen[id.index()], true) || !plan.has_custom_calls {
            continue;
        }
        let instructions = &program.computations[id.index()].instructions;
        for step in &plan.steps {
            if let Some(call) = &step.call {
                sites.entry(call.module).or_default().insert(call.site);
            }
            pending.extend(run_by(&instructions[step.instruction.index()].opcode));
        }
    }
    let in_order = |(module, sites): (usize, BTreeSet<usize>)| (module, Vec::from_iter(sites));
    sites.into_iter().map(in_order).collect()
}

/// The computations, each after those that it runs.
///
/// # Errors
/// RESOURCE_EXHAUSTED if calls nest too deep.
pub(super) fn callees_first(program: &Program) -> Result<Vec<usize>> {
    let order = verify::callees_first(&program.computations)?;
    let mut depths = vec![0; order.len()];
    for &number in &order {
        let instructions = program.computations[number].instructions.iter();
        let callees = instructions.flat_map(|i| run_by(&i.opcode));
        let deepest = callees.map(|callee| depths[callee.index()]).max();
        depths[number] = 1 + deepest.unwrap_or(0);
    }
    match depths.into_iter().max() {
        Some(deepest) if deepest > MAX_CALL_DEPTH => Err(Status::new(
            StatusCode::ResourceExhausted,
            Blame::Caller,
            format!(
                "expected computations that call each other at most {MAX_CALL_DEPTH} deep, found \
                 {deepest}"
            ),
        )),
        _ => Ok(order),
    }
}
