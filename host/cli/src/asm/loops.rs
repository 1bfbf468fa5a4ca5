//! The innermost loops of a function's machine code.

use std::collections::{BTreeMap, BTreeSet};

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

/// The loops of a function that contain neither another loop nor a call.
pub(super) fn loops(code: &[u8]) -> Vec<HotLoop> {
    let code: Vec<Instruction> = Decoder::new(64, code, DecoderOptions::NONE)
        .into_iter()
        .collect();
    let loops = innermost_loops(&code).into_iter().map(|body| {
        let instructions = body.iter().filter_map(|&i| code.get(i));
        instructions.copied().collect::<Vec<_>>()
    });
    let hot = loops.filter(|body| !body.iter().any(calls));
    hot.map(|instructions| {
        let arithmetic = instructions.iter().map(arithmetic).max();
        HotLoop {
            arithmetic: arithmetic.unwrap_or(Arithmetic::Other),
            stack_accesses: instructions.iter().filter(|i| accesses_stack(i)).count(),
            instructions,
        }
    })
    .collect()
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

/// The loops that contain no other loop, each as the indices of its instructions.
fn innermost_loops(code: &[Instruction]) -> Vec<BTreeSet<usize>> {
    let index: BTreeMap<u64, usize> = code.iter().map(Instruction::ip).zip(0..).collect();
    let mut before: Vec<Vec<usize>> = vec![Vec::new(); code.len()];
    let mut back_edges = Vec::new();
    for (i, instruction) in code.iter().enumerate() {
        let target = index.get(&instruction.near_branch_target());
        let (jumps, falls) = match instruction.flow_control() {
            FlowControl::Next | FlowControl::Call | FlowControl::IndirectCall => (false, true),
            FlowControl::ConditionalBranch => (true, true),
            FlowControl::UnconditionalBranch => (true, false),
            _ => (false, false),
        };
        if jumps && let Some(&target) = target {
            before.get_mut(target).into_iter().for_each(|b| b.push(i));
            if target <= i {
                back_edges.push((target, i));
            }
        }
        if falls {
            before.get_mut(i + 1).into_iter().for_each(|b| b.push(i));
        }
    }
    let mut loops: BTreeMap<usize, BTreeSet<usize>> = BTreeMap::new();
    for (head, latch) in back_edges {
        let body = loops.entry(head).or_default();
        body.insert(head);
        let mut reached = vec![latch];
        while let Some(i) = reached.pop() {
            if body.insert(i) {
                reached.extend(before.get(i).into_iter().flatten());
            }
        }
    }
    let contains_another = |head: &usize, body: &BTreeSet<usize>| {
        let inner = |other: &usize| other != head && body.contains(other);
        loops.keys().any(inner)
    };
    loops
        .iter()
        .filter(|(head, body)| !contains_another(head, body))
        .map(|(_, body)| body.clone())
        .collect()
}
