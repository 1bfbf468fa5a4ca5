//! Instructions on matrices, which all lanes of a warp run together.

use crate::ast::{Function, Instruction, Module};
use crate::types::Space;

use super::forms::roles;
use super::memory::{named_space, space_of};
use super::{Access, Action, Bytes, Form, Meeting, Modifier, Opcode, Refusal, Role};

/// Fills in the form of an instruction on matrices. Returns whether it is one.
pub(super) fn fill(
    module: &Module,
    function: &Function,
    instruction: &Instruction,
    form: &mut Form,
) -> Result<bool, Refusal> {
    let has = |name| instruction.has(name);
    let memory = |operand, access: &dyn Fn(Space) -> Access| {
        let space = space_of(
            module,
            function,
            instruction,
            operand,
            named_space(instruction),
        )?;
        Ok(Role::Memory(access(space)))
    };
    // Assemblers infer the space of a named variable for other instructions, and not for these.
    let in_named_space = |roles: &[Role]| {
        let mut spaces = roles.iter().filter_map(|role| match role {
            Role::Memory(access) => Some(access.space),
            _ => None,
        });
        spaces.all(|space| matches!(space, Space::Global | Space::Generic))
            || named_space(instruction).is_some()
    };
    let count = instruction.operands.len();
    form.roles = match instruction.opcode {
        Opcode::Mma if has("sp") => roles(instruction, "WRRRRC")?,
        Opcode::Mma => roles(instruction, "WRRR")?,
        Opcode::Movmatrix => roles(instruction, "WR")?,
        Opcode::Wmma if has("mma") => roles(instruction, "WRRR")?,
        // Each lane gives the address of a row of 16 bytes. A generic address would have to be one
        // of shared memory.
        Opcode::Ldmatrix | Opcode::Stmatrix if named_space(instruction) != Some(Space::Shared) => {
            return Err(Refusal::new("its address is not in `.shared`"));
        }
        Opcode::Ldmatrix if count == 2 => {
            vec![Role::Write, memory(1, &|space| row(space, Action::Load))?]
        }
        Opcode::Stmatrix if count == 2 => {
            vec![memory(0, &|space| row(space, Action::Store))?, Role::Read]
        }
        Opcode::Wmma if has("load") && matches!(count, 2 | 3) => {
            let bytes = rows(instruction, (count == 3).then_some(2))?;
            let access = memory(1, &|space| matrix(space, Action::Load, bytes))?;
            let mut roles = vec![Role::Write, access];
            roles.resize(count, Role::Read);
            roles
        }
        Opcode::Wmma if has("store") && matches!(count, 2 | 3) => {
            let bytes = rows(instruction, (count == 3).then_some(2))?;
            let access = memory(0, &|space| matrix(space, Action::Store, bytes))?;
            let mut roles = vec![access];
            roles.resize(count, Role::Read);
            roles
        }
        _ => return Ok(false),
    };
    if !in_named_space(&form.roles) {
        return Err(Refusal::new(
            "it names no state space, and its variable is not in `.global`",
        ));
    }
    form.meeting = Meeting::Warp;
    Ok(true)
}

fn row(space: Space, action: Action) -> Access {
    matrix(space, action, Bytes::Constant(16))
}

fn matrix(space: Space, action: Action, bytes: Bytes) -> Access {
    Access {
        space,
        action,
        bytes,
        align: match bytes {
            Bytes::Constant(bytes) => bytes,
            // Each row of `wmma` is aligned to 32 bytes.
            Bytes::Rows { .. } | Bytes::Operand(_) => 32,
        },
        is_collective: true,
    }
}

/// Returns the rows of a matrix of `wmma.load` or `wmma.store`.
fn rows(instruction: &Instruction, stride: Option<usize>) -> Result<Bytes, Refusal> {
    let mut modifiers = instruction.modifiers.iter();
    let shape = modifiers.find_map(|modifier| match modifier {
        Modifier::Shape(shape) => Some(shape.map(u32::from)),
        Modifier::Name(_) => None,
    });
    let (Some([m, n, k]), Some(element)) = (shape, instruction.kind()) else {
        return Err(Refusal::new("its shape or its type is missing"));
    };
    let (height, width) = if instruction.has("a") {
        (m, k)
    } else if instruction.has("b") {
        (k, n)
    } else {
        (m, n)
    };
    let (rows, length) = if instruction.has("col") {
        (width, height)
    } else {
        (height, width)
    };
    Ok(Bytes::Rows {
        rows,
        bytes: (length * element.bits()).div_ceil(8),
        element: element.bytes(),
        stride,
    })
}
