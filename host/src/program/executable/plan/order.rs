//! The order in which instructions run: the text's, but for custom calls that say when they want to.

use std::collections::BinaryHeap;

use crate::program::instruction::{Computation, Instruction, Opcode, Schedule};

/// The numbers of the instructions that run, in the order in which they do. What is needed comes first, always.
///
/// - SCHEDULE_EARLIEST: the call, and what it needs, comes before all else.
/// - SCHEDULE_LATEST: the call, and what needs it, comes behind all else; and among those the call as late as what needs it allows. A call
///   that an early one needs is early.
///
/// What has no wish, or equal ones, stays in the order of the text.
pub(super) fn order(computation: &Computation, live: &[bool]) -> Vec<usize> {
    let instructions = &computation.instructions;
    let running = (0..instructions.len()).filter(|&index| live[index]);
    let is = |index: usize, wish| schedule(&instructions[index]) == wish;
    if running.clone().all(|index| is(index, Schedule::None)) {
        return running.collect();
    }
    let mut is_early = vec![false; instructions.len()];
    for index in running.clone().rev() {
        is_early[index] |= is(index, Schedule::Earliest);
        if is_early[index] {
            needs(&instructions[index]).for_each(|need| is_early[need] = true);
        }
    }
    let mut is_late = vec![false; instructions.len()];
    for index in running.clone().filter(|&index| !is_early[index]) {
        let needs_late = needs(&instructions[index]).any(|need| is_late[need]);
        is_late[index] = needs_late || is(index, Schedule::Latest);
    }
    let early = running.clone().filter(|&index| is_early[index]);
    let between = running
        .clone()
        .filter(|&index| !is_early[index] && !is_late[index]);
    let mut order: Vec<usize> = early.chain(between).collect();
    order.extend(latest_last(instructions, &is_late));
    order
}

/// These instructions, in an order that is made from its end: a call that wants to be late takes the last place that is free as soon as all
/// that need it have theirs; where there is none, the text's last takes it.
fn latest_last(instructions: &[Instruction], chosen: &[bool]) -> Vec<usize> {
    let count = chosen.iter().filter(|chosen| **chosen).count();
    let numbers = (0..instructions.len()).filter(|&index| chosen[index]);
    // How many that need an instruction have no place yet.
    let mut waiting = vec![0_usize; instructions.len()];
    for index in numbers.clone() {
        needs(&instructions[index]).for_each(|need| waiting[need] += 1);
    }
    let candidate = |index: usize| (schedule(&instructions[index]) == Schedule::Latest, index);
    let free = numbers.filter(|&index| waiting[index] == 0).map(candidate);
    let mut free: BinaryHeap<_> = free.collect();
    let mut order = Vec::with_capacity(count);
    while let Some((_, index)) = free.pop() {
        order.push(index);
        for need in needs(&instructions[index]) {
            waiting[need] -= 1;
            if chosen[need] && waiting[need] == 0 {
                free.push(candidate(need));
            }
        }
    }
    order.reverse();
    order
}

fn schedule(instruction: &Instruction) -> Schedule {
    match &instruction.opcode {
        Opcode::CustomCall(call) => call.schedule,
        _ => Schedule::None,
    }
}

/// What an instruction needs: operands and control predecessors, some perhaps twice.
fn needs(instruction: &Instruction) -> impl Iterator<Item = usize> {
    let operands = instruction.operands.iter();
    operands
        .chain(&instruction.control_predecessors)
        .map(|id| id.index())
}
