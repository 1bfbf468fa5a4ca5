//! The order in which instructions run: that of the text, except for custom calls with a schedule.

use std::collections::BinaryHeap;

use crate::instruction::{Computation, Instruction, InstructionId, Opcode, Schedule};

/// The numbers of the instructions that run, in order. Predecessors always come first.
///
/// - SCHEDULE_EARLIEST: the call and its predecessors come before all other instructions. A call
///   that an early one depends on is early, whatever its own schedule.
/// - SCHEDULE_LATEST: the call and its successors come after all other instructions, and within
///   these the call comes as late as its successors allow.
///
/// Otherwise instructions keep the order of the text.
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
            predecessors(&instructions[index]).for_each(|before| is_early[before] = true);
        }
    }
    let mut is_late = vec![false; instructions.len()];
    for index in running.clone().filter(|&index| !is_early[index]) {
        let follows_late = predecessors(&instructions[index]).any(|before| is_late[before]);
        is_late[index] = follows_late || is(index, Schedule::Latest);
    }
    let (mut order, rest): (Vec<_>, Vec<_>) = running.partition(|&index| is_early[index]);
    order.extend(rest.into_iter().filter(|&index| !is_late[index]));
    order.extend(latest_last(instructions, &is_late));
    order
}

/// The chosen instructions, ordered from the end.
///
/// The last free place goes to a late call whose successors all have places, or else to the last
/// such instruction of the text.
fn latest_last(instructions: &[Instruction], chosen: &[bool]) -> Vec<usize> {
    let numbers = (0..instructions.len()).filter(|&index| chosen[index]);
    // For each instruction, the number of its successors without a place.
    let mut waiting = vec![0_usize; instructions.len()];
    for index in numbers.clone() {
        predecessors(&instructions[index]).for_each(|before| waiting[before] += 1);
    }
    let candidate = |index: usize| (schedule(&instructions[index]) == Schedule::Latest, index);
    let free = numbers.filter(|&index| waiting[index] == 0).map(candidate);
    let mut free = BinaryHeap::from_iter(free);
    let mut order = Vec::new();
    while let Some((_, index)) = free.pop() {
        order.push(index);
        for before in predecessors(&instructions[index]) {
            waiting[before] -= 1;
            if chosen[before] && waiting[before] == 0 {
                free.push(candidate(before));
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

fn predecessors(instruction: &Instruction) -> impl Iterator<Item = usize> {
    instruction.predecessors().map(InstructionId::index)
}
