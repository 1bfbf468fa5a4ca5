//! The PTX version that a module needs.
//!
//! Compilers stamp the newest version that they know, and a driver refuses one that is newer than
//! itself, whatever the text uses. The numbers are those of the release notes in the PTX ISA.

use crate::ast::{Features, Instruction, Modifier, Module, Opcode, Statement, Target};
use crate::types::Type;

/// Returns the lowest version that has the target and all instructions of a module.
pub fn needed_version(module: &Module) -> (u32, u32) {
    let bodies = module
        .functions
        .iter()
        .filter_map(|function| function.body.as_ref());
    let instructions = bodies.flatten().filter_map(|statement| match statement {
        Statement::Instruction(instruction) => Some(instruction),
        Statement::Label(_) => None,
    });
    instructions
        .map(of_instruction)
        .fold(of_target(module.target), Ord::max)
}

fn of_target(target: Target) -> (u32, u32) {
    if target.features == Some(Features::Family) {
        return (8, 8);
    }
    match (target.architecture, target.features) {
        (..=75, _) => (6, 3),
        (76..=80, _) => (7, 0),
        (81..=86, _) => (7, 1),
        (87, _) => (7, 4),
        (88..=90, None) => (7, 8),
        (88..=90, Some(_)) => (8, 0),
        (91..=100, _) => (8, 6),
        (101..=109, _) => (8, 8),
        (120, _) => (8, 7),
        (121, _) => (8, 8),
        _ => (9, 0),
    }
}

fn of_instruction(instruction: &Instruction) -> (u32, u32) {
    let modifiers = instruction
        .modifiers
        .iter()
        .map(|modifier| of_modifier(instruction, *modifier));
    modifiers.fold(of_opcode(instruction), Ord::max)
}

fn of_opcode(instruction: &Instruction) -> (u32, u32) {
    use Opcode as O;
    let has = |name| instruction.has(name);
    let kind = instruction.kind();
    let is_brain = matches!(kind, Some(Type::Bf16 | Type::Bf16x2));
    let is_half = is_brain || matches!(kind, Some(Type::F16 | Type::F16x2));
    match instruction.opcode {
        O::Min | O::Max if instruction.operands.len() > 3 => (8, 8),
        O::Min | O::Max if has("NaN") || has("xorsign") || is_half => (7, 2),
        O::Min | O::Max if matches!(kind, Some(Type::U16x2 | Type::S16x2)) || has("relu") => (8, 0),
        O::Add | O::Sub if matches!(kind, Some(Type::U16x2 | Type::S16x2)) => (8, 0),
        O::Add | O::Sub | O::Mul if is_brain => (7, 8),
        O::Add | O::Sub if instruction.kinds().count() > 1 => (8, 6),
        O::Fma if instruction.kinds().count() > 1 => (8, 6),
        O::Fma if has("oob") => (8, 1),
        O::Fma | O::Abs | O::Neg if is_half => (7, 0),
        O::Ex2 if is_brain => (7, 8),
        O::Ex2 | O::Tanh if is_half => (7, 8),
        O::Redux if kind == Some(Type::F32) => (8, 6),
        O::Tanh | O::Createpolicy | O::Redux | O::Ldmatrix => (7, 0),
        O::Setp | O::Set if is_brain => (7, 8),
        O::Cvt => of_conversion(instruction),
        O::Mma | O::Wmma => of_matrix(instruction),
        O::Cp if has("bulk") => (8, 6),
        O::Mbarrier if has("try_wait") || has("expect_tx") => (8, 0),
        O::Cp | O::Mbarrier => (7, 0),
        O::Bmsk | O::Szext => (7, 6),
        O::Discard | O::Applypriority => (7, 4),
        O::Fence if has("proxy") || has("mbarrier_init") => (8, 0),
        O::Fence if has("acquire") || has("release") => (8, 6),
        O::Lop3 if instruction.names().count() > 1 => (8, 2),
        O::Movmatrix | O::Stmatrix | O::Griddepcontrol | O::Mapa | O::Getctarank => (7, 8),
        O::Elect | O::Wgmma | O::Setmaxnreg => (8, 0),
        O::Bar | O::Barrier if has("cta") || has("cluster") => (7, 8),
        O::Atom | O::Red if instruction.vector() > 1 => (8, 1),
        O::Atom | O::Red if is_brain => (7, 8),
        O::Ld | O::St if instruction.vector() == 8 => (8, 8),
        O::Ld | O::St
            if instruction.vector() == 4 && kind.is_some_and(|kind| kind.bits() == 64) =>
        {
            (8, 8)
        }
        O::Activemask | O::Fns => (6, 2),
        _ => (6, 0),
    }
}

fn of_conversion(instruction: &Instruction) -> (u32, u32) {
    let has = |name| instruction.has(name);
    let kinds: Vec<Type> = instruction.kinds().collect();
    let packs = kinds
        .iter()
        .any(|kind| matches!(kind, Type::F16x2 | Type::Bf16x2 | Type::Tf32));
    let from_brain = matches!(kinds.as_slice(), [_, Type::Bf16]);
    let to_brain = matches!(kinds.as_slice(), [Type::Bf16, ..]);
    let is_wide = |kind: &Type| matches!(kind, Type::F32 | Type::Bf16);
    let is_eight_bits = |kind: &Type| matches!(kind, Type::E4m3x2 | Type::E5m2x2);
    if has("rs") {
        (8, 7)
    } else if kinds.iter().any(is_eight_bits) || (packs && has("satfinite")) {
        (8, 1)
    } else if to_brain && !kinds.iter().all(is_wide) {
        (7, 8)
    } else if from_brain {
        (7, 1)
    } else if packs || to_brain || has("rna") {
        (7, 0)
    } else {
        (6, 0)
    }
}

fn of_matrix(instruction: &Instruction) -> (u32, u32) {
    if instruction
        .kinds()
        .any(|kind| matches!(kind, Type::E4m3 | Type::E5m2))
    {
        return (8, 7);
    }
    if instruction.has("ordered_metadata") {
        return (8, 5);
    }
    if instruction.has("sp") || instruction.has("xor") || instruction.has("and") {
        return (7, 1);
    }
    (7, 0)
}

fn of_modifier(instruction: &Instruction, modifier: Modifier) -> (u32, u32) {
    let Modifier::Name(name) = modifier else {
        return (6, 3);
    };
    match name {
        "param::entry" | "param::func" | "b128" => (8, 3),
        "shared::cta" | "shared::cluster" | "cluster" => (7, 8),
        "mmio" => (8, 2),
        "f32x2" => (8, 6),
        "sc" if instruction.opcode == Opcode::Fence => (6, 0),
        _ if name.starts_with("L1::") || name.starts_with("L2::") => (7, 4),
        _ => (6, 0),
    }
}
