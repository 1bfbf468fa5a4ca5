//! Which computations and instructions run at all, and what running them brings in.

use std::collections::{BTreeMap, BTreeSet};

use super::ComputationPlan;
use super::references::{References, run_by};
use crate::program::Program;
use crate::program::instruction::{Computation, ComputationId, Instruction, Opcode};
use crate::values::{Blame, Result, Status, StatusCode};

/// How deep computations may run computations: the executor calls itself for each.
const MAX_CALL_DEPTH: usize = 128;

/// What is needed of a program.
pub(super) struct Reach {
    /// For each computation, which of its instructions run.
    pub(super) live: Vec<Vec<bool>>,
    /// For each computation, whether it is a function: exported, or called back by a target.
    pub(super) is_function: Vec<bool>,
}

/// Finds what exported functions lead to. An instruction runs if the result needs it or if it has an effect.
pub(super) fn reach(program: &Program, references: &References<'_>) -> Reach {
    let effects = effects(program, references);
    let computations = &program.computations;
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

/// Which instructions of a computation run, if it does.
fn live(computation: &Computation, effects: &[bool], references: &References<'_>) -> Vec<bool> {
    let mut live = vec![false; computation.instructions.len()];
    live[computation.root.index()] = true;
    // What is needed has smaller numbers, so one pass backwards sees every reader first.
    for (index, instruction) in computation.instructions.iter().enumerate().rev() {
        live[index] |= has_effect(instruction, effects, references);
        if live[index] {
            let needs = instruction.operands.iter();
            needs
                .chain(&instruction.control_predecessors)
                .for_each(|id| live[id.index()] = true);
        }
    }
    live
}

/// For each computation, whether running it has an effect besides its result. Functions may lead back to those that call them.
fn effects(program: &Program, references: &References<'_>) -> Vec<bool> {
    let computations = &program.computations;
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
        // A loop that does not end is an effect: it is not dropped.
        Opcode::While { .. } => true,
        _ => false,
    }
}

/// What running a computation brings in, for one whose callees' plans are known.
pub(super) fn bring_in(program: &Program, id: ComputationId, plans: &mut [ComputationPlan]) {
    let computation = &program.computations[id.index()];
    let mut sites: BTreeMap<usize, BTreeSet<usize>> = BTreeMap::new();
    let mut calls_back = false;
    for step in &plans[id.index()].steps {
        if let Some(call) = &step.call {
            sites.entry(call.module).or_default().insert(call.site);
            calls_back |= call.calls_back;
        }
        let opcode = &computation.instructions[step.instruction.index()].opcode;
        for callee in run_by(opcode) {
            for (&module, of_callee) in &plans[callee.index()].sites {
                sites.entry(module).or_default().extend(of_callee);
            }
            calls_back |= plans[callee.index()].calls_back;
        }
    }
    let plan = &mut plans[id.index()];
    let in_order = |(module, sites): (usize, BTreeSet<usize>)| (module, Vec::from_iter(sites));
    plan.sites = sites.into_iter().map(in_order).collect();
    plan.calls_back = calls_back;
}

/// The computations in an order in which those that are run come before those that run them.
///
/// # Errors
/// RESOURCE_EXHAUSTED if one runs another too deep.
pub(super) fn callees_first(program: &Program) -> Result<Vec<ComputationId>> {
    let count = program.computations.len();
    let callees = |id: usize| -> Vec<usize> {
        let instructions = program.computations[id].instructions.iter();
        let called = instructions.flat_map(|i| run_by(&i.opcode));
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
            let before = pending.len();
            pending.extend(called.iter().copied().filter(|&c| depth[c].is_none()));
            if pending.len() == before {
                depth[id] = Some(1 + called.iter().filter_map(|&c| depth[c]).max().unwrap_or(0));
                order.push(ComputationId(id as u32));
                pending.pop();
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
