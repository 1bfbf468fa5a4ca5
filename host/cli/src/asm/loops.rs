//! The innermost loops of a function's machine code.

use std::collections::BTreeSet;

use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, OpKind, Register};

/// The operations of vectors and of single numbers, by the beginnings of their names.
const FLOAT_OPERATIONS: [&str; 8] = ["add", "sub", "mul", "div", "sqrt", "max", "min", "fm"];
const INTEGER_OPERATIONS: [&str; 8] = [
    "padd", "psub", "pmul", "pmadd", "pmax", "pmin", "pavg", "psad",
];

/// What a loop computes with, in the order of how much one instruction computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Arithmetic {
    Other,
    Floats,
    IntegerVectors,
    FloatVectors,
}

/// A loop that contains neither another loop nor a call.
#[derive(Debug)]
pub(super) struct HotLoop {
    pub(super) arithmetic: Arithmetic,
    /// The instructions in the order of their addresses, which count from the function's start.
    pub(super) instructions: Vec<Instruction>,
    pub(super) stack_accesses: usize,
}

/// Calls `each` with the loops of a function that contain neither another loop nor a call.
pub(super) fn loops(code: &[u8], mut each: impl FnMut(HotLoop)) {
    let code: Vec<Instruction> = Decoder::new(64, code, DecoderOptions::NONE)
        .into_iter()
        .collect();
    innermost_loops(&code, |body| {
        let instructions = body.iter().filter_map(|&i| code.get(i)).copied();
        let instructions: Vec<_> = instructions.collect();
        if instructions.iter().any(calls) {
            return;
        }
        let arithmetic = instructions.iter().map(arithmetic).max();
        each(HotLoop {
            arithmetic: arithmetic.unwrap_or(Arithmetic::Other),
            stack_accesses: instructions.iter().filter(|i| accesses_stack(i)).count(),
            instructions,
        });
    });
}

fn calls(instruction: &Instruction) -> bool {
    matches!(
        instruction.flow_control(),
        FlowControl::Call | FlowControl::IndirectCall
    )
}

fn arithmetic(instruction: &Instruction) -> Arithmetic {
    let name = format!("{:?}", instruction.mnemonic()).to_lowercase();
    let name = name.trim_start_matches('v');
    let is_one_of = |operations: &[&str]| operations.iter().any(|one| name.starts_with(one));
    let ends_with = |endings: [&str; 2]| endings.iter().any(|ending| name.ends_with(ending));
    if is_one_of(&FLOAT_OPERATIONS) && ends_with(["ps", "pd"]) {
        Arithmetic::FloatVectors
    } else if is_one_of(&INTEGER_OPERATIONS) {
        Arithmetic::IntegerVectors
    } else if is_one_of(&FLOAT_OPERATIONS) && ends_with(["ss", "sd"]) {
        Arithmetic::Floats
    } else {
        Arithmetic::Other
    }
}

fn accesses_stack(instruction: &Instruction) -> bool {
    let has_memory = (0..instruction.op_count()).any(|i| instruction.op_kind(i) == OpKind::Memory);
    has_memory && matches!(instruction.memory_base(), Register::RSP | Register::RBP)
}

/// The steps for each instruction of a function that finding its loops takes at most. Those of a
/// compiler take a few.
const MOST_STEPS: usize = 64;

/// Calls `each` with the loops that contain no other loop, each as the indices of its instructions.
/// Not with the last ones, if they have so many instructions in common that finding them takes too
/// long.
fn innermost_loops(code: &[Instruction], mut each: impl FnMut(BTreeSet<usize>)) {
    let index = |address: u64| code.binary_search_by_key(&address, Instruction::ip).ok();
    let target = |(i, instruction): (usize, &Instruction)| {
        let jumps = matches!(
            instruction.flow_control(),
            FlowControl::ConditionalBranch | FlowControl::UnconditionalBranch
        );
        let target = jumps.then(|| index(instruction.near_branch_target()))??;
        Some((target, i))
    };
    // Each with its target first.
    let mut jumps: Vec<(usize, usize)> = code.iter().enumerate().filter_map(target).collect();
    jumps.sort_unstable();
    let jumps_to = |i: usize| {
        let first = jumps.partition_point(|&(target, _)| target < i);
        let to = jumps.get(first..).unwrap_or_default().iter();
        to.take_while(move |&&(target, _)| target == i)
            .map(|&(_, from)| from)
    };
    let falls = |instruction: &Instruction| {
        matches!(
            instruction.flow_control(),
            FlowControl::Next
                | FlowControl::Call
                | FlowControl::IndirectCall
                | FlowControl::ConditionalBranch
        )
    };
    let before = |i: usize| {
        let previous = i.checked_sub(1);
        let previous = previous.filter(|&previous| code.get(previous).is_some_and(falls));
        previous.into_iter().chain(jumps_to(i))
    };
    let is_back = |&&(target, from): &&(usize, usize)| target <= from;
    let mut heads: Vec<usize> = jumps.iter().filter(is_back).map(|jump| jump.0).collect();
    heads.dedup();
    let mut steps = MOST_STEPS.saturating_mul(code.len());
    for &head in &heads {
        let mut body = BTreeSet::from([head]);
        let mut reached: Vec<usize> = jumps_to(head).filter(|&latch| latch >= head).collect();
        let contains_another = loop {
            let Some(i) = reached.pop() else { break false };
            let Some(left) = steps.checked_sub(1) else {
                return;
            };
            steps = left;
            if body.insert(i) {
                if heads.binary_search(&i).is_ok() {
                    break true;
                }
                reached.extend(before(i));
            }
        };
        if !contains_another {
            each(body);
        }
    }
}
