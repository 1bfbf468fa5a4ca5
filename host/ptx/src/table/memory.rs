//! Instructions that access memory by an address.

use crate::ast::{Address, Base, Function, Immediate, Instruction, Module, Operand};
use crate::types::Space;

use super::forms::roles;
use super::{Access, Action, Bytes, Form, Meeting, Opcode, Refusal, Role};

/// Fills in the form of loads, stores, atomic operations, copies and barriers in shared memory.
/// Returns whether the instruction is one of them.
pub(super) fn fill(
    module: &Module,
    function: &Function,
    instruction: &Instruction,
    form: &mut Form,
) -> Result<bool, Refusal> {
    let (pattern, action) = match instruction.opcode {
        Opcode::Ld | Opcode::Ldu if instruction.has("L2::cache_hint") => ("WMR", Action::Load),
        Opcode::Ld | Opcode::Ldu => ("WM", Action::Load),
        Opcode::St if instruction.has("L2::cache_hint") => ("MRR", Action::Store),
        Opcode::St => ("MR", Action::Store),
        Opcode::Atom => (atomic_pattern(instruction, true), Action::Update),
        Opcode::Red => (atomic_pattern(instruction, false), Action::Update),
        Opcode::Prefetch | Opcode::Prefetchu => ("M", Action::Prefetch),
        Opcode::Mbarrier => {
            return shared_barrier(module, function, instruction, form).map(|()| true);
        }
        Opcode::Cp => return copy(module, function, instruction, form).map(|()| true),
        _ => return Ok(false),
    };
    let bytes = match action {
        Action::Prefetch => 1,
        _ => moved_bytes(instruction)?,
    };
    let access = |space| Access {
        space,
        action,
        bytes: Bytes::Constant(bytes),
        align: bytes,
        is_collective: false,
    };
    form.roles = with_memory(module, function, instruction, pattern, access)?;
    if action == Action::Update {
        refuse_endless(instruction, &form.roles)?;
    }
    Ok(true)
}

/// Assemblers make a loop of compare-and-swap of an atomic operation on 16 bits in global memory.
/// Each round, one of all threads of the grid succeeds, and the others try again.
fn refuse_endless(instruction: &Instruction, roles: &[Role]) -> Result<(), Refusal> {
    let is_far = roles.iter().any(|role| match role {
        Role::Memory(access) => access.space != Space::Shared,
        _ => false,
    });
    let is_narrow = instruction.kind().is_some_and(|kind| kind.bits() == 16);
    if is_far && is_narrow && instruction.vector() == 1 {
        return Err(Refusal::new(
            "an atomic operation on 16 bits of global memory is a loop that nothing bounds; those \
             of two numbers (`f16x2`, `bf16x2`) and of 32 bits are none",
        ));
    }
    Ok(())
}

fn atomic_pattern(instruction: &Instruction, has_result: bool) -> &'static str {
    let operands =
        if instruction.has("cas") { 2 } else { 1 } + usize::from(instruction.has("L2::cache_hint"));
    match (has_result, operands) {
        (true, 1) => "WMR",
        (true, 2) => "WMRR",
        (true, _) => "WMRRR",
        (false, 1) => "MR",
        (false, _) => "MRR",
    }
}

/// The number of bytes that a load, a store or an atomic operation moves.
fn moved_bytes(instruction: &Instruction) -> Result<u32, Refusal> {
    let Some(kind) = instruction.kind() else {
        return Err(Refusal::new("its type is missing"));
    };
    Ok(kind.bytes() * instruction.vector())
}

/// Returns the roles of a pattern in which `M` is memory.
fn with_memory(
    module: &Module,
    function: &Function,
    instruction: &Instruction,
    pattern: &str,
    access: impl Fn(Space) -> Access,
) -> Result<Vec<Role>, Refusal> {
    let Some(at) = pattern.find('M') else {
        return roles(instruction, pattern);
    };
    let rest = Instruction {
        operands: instruction
            .operands
            .iter()
            .enumerate()
            .map(|(index, operand)| match operand {
                // Stands for the address, which the other roles do not allow.
                Operand::Address(_) if index == at => Operand::Discard,
                operand => operand.clone(),
            })
            .collect(),
        modifiers: Vec::new(),
        ..*instruction
    };
    let mut roles = roles(&rest, &pattern.replace('M', "W"))?;
    let space = space_of(module, function, instruction, at, named_space(instruction))?;
    if let Some(role) = roles.get_mut(at) {
        *role = Role::Memory(access(space));
    }
    Ok(roles)
}

pub(super) fn named_space(instruction: &Instruction) -> Option<Space> {
    instruction.names().find_map(Space::from_name)
}

/// Returns the space of an address: the named one, else the variable's, else generic.
pub(super) fn space_of(
    module: &Module,
    function: &Function,
    instruction: &Instruction,
    operand: usize,
    named: Option<Space>,
) -> Result<Space, Refusal> {
    let Some(Operand::Address(Address { base, .. })) = instruction.operands.get(operand) else {
        let reason = format!("operand {} must be an address in brackets", operand + 1);
        return Err(Refusal::new(&reason));
    };
    let variable = match *base {
        Base::Variable(variable) => variable.find(module, function),
        Base::Register(_) | Base::Nothing => None,
    };
    match (named, variable.map(|variable| variable.space)) {
        (Some(named), Some(own)) if named != own => Err(Refusal::new(&format!(
            "`{}` was expected, and a variable in `{}` found",
            named.directive(),
            own.directive()
        ))),
        (named, own) => Ok(named.or(own).unwrap_or(Space::Generic)),
    }
}

/// `mbarrier`: registers before the address are written, values behind it are read.
fn shared_barrier(
    module: &Module,
    function: &Function,
    instruction: &Instruction,
    form: &mut Form,
) -> Result<(), Refusal> {
    if instruction.has("pending_count") {
        form.roles = roles(instruction, "WR")?;
        return Ok(());
    }
    let is_address = |operand: &Operand| matches!(operand, Operand::Address(_));
    let pattern = match instruction.operands.iter().position(is_address) {
        Some(0) => "M|MR|MRR",
        _ => "WM|WMR|WMRR",
    };
    let count = instruction.operands.len();
    let pattern = pattern
        .split('|')
        .find(|one| one.len() == count)
        .unwrap_or("M");
    form.roles = with_memory(module, function, instruction, pattern, |space| Access {
        space,
        action: Action::Update,
        bytes: Bytes::Constant(8),
        align: 8,
        is_collective: false,
    })?;
    Ok(())
}

/// `cp.async`, without `.bulk`.
fn copy(
    module: &Module,
    function: &Function,
    instruction: &Instruction,
    form: &mut Form,
) -> Result<(), Refusal> {
    if instruction.has("commit_group") || instruction.has("wait_all") {
        form.roles = roles(instruction, "")?;
        form.meeting = Meeting::OwnWork;
        return Ok(());
    }
    if instruction.has("wait_group") {
        form.roles = roles(instruction, "C")?;
        form.meeting = Meeting::OwnWork;
        return Ok(());
    }
    if instruction.has("mbarrier") {
        form.roles = with_memory(module, function, instruction, "M", |space| Access {
            space,
            action: Action::Update,
            bytes: Bytes::Constant(8),
            align: 8,
            is_collective: false,
        })?;
        return Ok(());
    }
    let Some(Operand::Immediate(Immediate::Integer(size @ (4 | 8 | 16)))) =
        instruction.operands.get(2)
    else {
        return Err(Refusal::new(
            "its third operand must be the number of bytes: 4, 8 or 16",
        ));
    };
    let size = u32::try_from(*size).unwrap_or(16);
    let hint = instruction.has("L2::cache_hint");
    let rest = instruction
        .operands
        .len()
        .saturating_sub(3 + usize::from(hint));
    let from = match rest {
        0 => Bytes::Constant(size),
        1 => Bytes::Operand(3),
        _ => return Err(Refusal::new("it has too many operands")),
    };
    let access = |space, action, bytes| {
        Role::Memory(Access {
            space,
            action,
            bytes,
            align: size,
            is_collective: false,
        })
    };
    space_of(module, function, instruction, 0, Some(Space::Shared))?;
    space_of(module, function, instruction, 1, Some(Space::Global))?;
    form.roles = vec![
        access(Space::Shared, Action::Store, Bytes::Constant(size)),
        access(Space::Global, Action::Load, from),
        Role::Constant,
    ];
    form.roles.resize(instruction.operands.len(), Role::Read);
    Ok(())
}
