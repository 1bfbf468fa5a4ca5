//! Verifies kernels for launches that are not known yet, for reports.

use super::rules::{BLOCK, GRID};
use super::{
    AccessReport, Budget, Launch, Limits, LoopReport, Param, Proof, Refusal, examine, parameter,
    variable_bytes,
};
use crate::ast::{Base, Function, Instruction, Module, Operand, RegisterId, Statement};
use crate::table::Opcode;

/// The fields of a [`Launch`] that are not known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Open {
    /// The grid is not known: `grid` is the most blocks in each direction.
    pub grid: bool,
    /// The block is not known: `block` is the most threads in each direction.
    pub block: bool,
    /// `shared_bytes` may be any number.
    pub shared_bytes: bool,
    /// Buffers may have any length, and scalars any value.
    pub params: bool,
}

impl Open {
    /// Nothing is known.
    pub const ALL: Self = Self {
        grid: true,
        block: true,
        shared_bytes: true,
        params: true,
    };
}

/// What the verifier finds out about a kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Survey {
    /// All accesses, in the order of the text. What is proved holds for every launch.
    pub accesses: Vec<AccessReport>,
    /// All loops, in the order of the text.
    pub loops: Vec<LoopReport>,
    /// Whether each block looks at the stop word as it begins, because the grid may run for long.
    pub blocks_look: bool,
    /// Barriers of the block.
    pub barriers: usize,
    /// Bytes of shared memory, without dynamic ones of an unknown number.
    pub shared_bytes: u64,
}

/// Why a kernel does not pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unproved {
    /// The refusals, in the order of the text.
    pub refusals: Vec<Refusal>,
    /// Whether the kernel may pass for a launch that is known.
    pub depends_on_launch: bool,
}

/// Verifies the kernel of this name for every launch that fits what is known, within the steps that
/// are left of a budget for several kernels.
///
/// No kernel can be fenced from a survey: [`verify`](super::verify) knows its launch.
///
/// # Errors
/// Everything that is refused; a refusal of the rule `size` once the budget is spent.
pub fn survey_within(
    module: &Module,
    entry: &str,
    launch: &Launch,
    open: Open,
    limits: &Limits,
    budget: &Budget,
) -> Result<Survey, Unproved> {
    let (launch, open) = declared(module, entry, launch, open);
    Ok(examine(module, entry, &launch, open, limits, budget)?.survey())
}

impl Proof {
    /// What the proof says, without what the fence needs.
    pub fn survey(&self) -> Survey {
        Survey {
            accesses: self.accesses.clone(),
            loops: self.loops.clone(),
            blocks_look: self.blocks_look,
            barriers: self.barriers,
            shared_bytes: self.shared_bytes,
        }
    }
}

/// Adds what the kernel itself says of its blocks.
fn declared(module: &Module, entry: &str, launch: &Launch, mut open: Open) -> (Launch, Open) {
    let mut launch = launch.clone();
    let mut functions = module.functions.iter();
    let found = functions.find(|one| one.is_entry && one.name == entry);
    let limits = found.filter(|_| open.block).map(|found| &found.limits);
    if let Some(required) = limits.and_then(|limits| limits.reqntid) {
        launch.block = required;
        open.block = false;
    } else if let Some(most) = limits.and_then(|limits| limits.maxntid) {
        let threads = most
            .iter()
            .fold(1_u32, |all, &one| all.saturating_mul(one.max(1)));
        launch.block = launch.block.map(|one| one.min(threads));
    }
    (launch, open)
}

/// A launch of a kernel of which nothing is known but its own text. All of it is open.
///
/// A parameter of 8 bytes is a buffer that the kernel may write if the text declares it with
/// `.ptr`, or computes addresses from it. This guess decides nothing: a launch names its buffers.
pub fn unknown_launch(function: &Function) -> Launch {
    let params = function.variables.iter().take(function.parameters);
    let params = params.zip(pointers(function));
    let params = params.map(|(variable, is_pointer)| {
        let size = variable_bytes(variable).unwrap_or(0).min(1 << 16);
        if is_pointer && size == 8 && variable.dimensions.is_empty() {
            Param::Buffer {
                bytes: 0,
                writable: true,
                align: 16,
            }
        } else {
            Param::Value(vec![0; usize::try_from(size).unwrap_or(0)])
        }
    });
    Launch {
        grid: GRID.map(|one| u32::try_from(one).unwrap_or(u32::MAX)),
        block: BLOCK,
        shared_bytes: 0,
        params: params.collect(),
        has_clock: false,
    }
}

/// Passes over a body, each of which follows values through a loop once more.
const PASSES: usize = 4;

/// The most parameters whose sum a register is taken for.
const MOST_PARTS: usize = 16;

/// The operands that an address may be computed from.
fn sources(instruction: &Instruction) -> &[Operand] {
    let operands = &instruction.operands;
    let sources = match instruction.opcode {
        Opcode::Ld | Opcode::Mov | Opcode::Cvta | Opcode::Add | Opcode::Sub => operands.get(1..),
        Opcode::Mad => operands.get(3..),
        Opcode::Selp => operands.get(1..3),
        _ => None,
    };
    sources.unwrap_or_default()
}

/// The parameters that are declared as pointers, or that global addresses are computed from.
fn pointers(function: &Function) -> Vec<bool> {
    let declared = function.variables.iter().take(function.parameters);
    let mut found: Vec<bool> = declared.map(|one| one.pointer.is_some()).collect();
    // The parameters whose sum each register may be.
    let mut parts: Vec<Vec<usize>> = vec![Vec::new(); function.registers.len()];
    for _ in 0..PASSES {
        for statement in function.body.iter().flatten() {
            let Statement::Instruction(instruction) = statement else {
                continue;
            };
            let Some(Operand::Register(target)) = instruction.operands.first() else {
                continue;
            };
            let mut all = Vec::new();
            for source in sources(instruction) {
                match source {
                    Operand::Register(register) => all.extend(of(&parts, *register)),
                    Operand::Address(address) => {
                        all.extend(parameter(function, address).map(|(index, _)| index));
                    }
                    _ => {}
                }
            }
            if instruction.opcode == Opcode::Cvta && instruction.has("global") {
                mark(&mut found, &all);
            }
            if let Some(known) = parts.get_mut(target.0 as usize) {
                known.extend(all);
                known.sort_unstable();
                known.dedup();
                known.truncate(MOST_PARTS);
            }
        }
    }
    for statement in function.body.iter().flatten() {
        let Statement::Instruction(instruction) = statement else {
            continue;
        };
        let is_global = instruction.has("global")
            || !["shared", "shared::cta", "local", "param", "const"]
                .iter()
                .any(|space| instruction.has(space));
        for operand in instruction.operands.iter().filter(|_| is_global) {
            if let Operand::Address(address) = operand
                && let Base::Register(register) = address.base
            {
                mark(&mut found, of(&parts, register));
            }
        }
    }
    found
}

fn of(parts: &[Vec<usize>], register: RegisterId) -> &[usize] {
    parts
        .get(register.0 as usize)
        .map_or(&[], |known| known.as_slice())
}

/// Marks the parameters of an address as pointers, unless one of them is known to be the pointer.
fn mark(found: &mut [bool], parts: &[usize]) {
    if parts
        .iter()
        .any(|&index| found.get(index).copied().unwrap_or(false))
    {
        return;
    }
    for &index in parts {
        if let Some(is_pointer) = found.get_mut(index) {
            *is_pointer = true;
        }
    }
}
