//! Collectives of one device.
//!
//! JAX prints them for `shard_map` over a mesh of one device. Each device's result is then its own
//! operand, and the device's number is 0. A collective of several devices is UNIMPLEMENTED.

use super::attributes::numbers;
use super::syntax::Instruction;
use crate::instruction::Opcode;
use callbox_core::text::{Cursor, Diagnostic, Parsed, Placed};
use callbox_core::values::{Literal, Shape};

/// The opcode of a collective: a copy, or a constant for the device's number. `None` for other
/// instructions.
pub(super) fn collective(
    instruction: &mut Instruction<'_>,
    operands: &[&Shape],
) -> Parsed<Option<Opcode>> {
    let opcode = instruction.opcode;
    let attributes = &mut instruction.attributes;
    let groups = match opcode.text {
        "partition-id" | "replica-id" => return Ok(Some(Opcode::Constant(Literal::scalar(0u32)))),
        "all-gather" | "all-reduce" | "all-to-all" | "collective-broadcast" | "reduce-scatter" => {
            attributes.take("replica_groups", groups)?
        }
        "collective-permute" => Some(attributes.require("source_target_pairs", groups)?),
        _ => return Ok(None),
    };
    let is_one_device = match &groups {
        None => true,
        Some(Placed { value, .. }) if opcode.text == "collective-permute" => *value == [vec![0, 0]],
        Some(Placed { value, .. }) => value.is_empty() || *value == [vec![0]],
    };
    if !is_one_device {
        let at = groups.map_or(opcode.at, |groups| groups.at);
        let message = format!(
            "{} between several devices is not supported; trace the program for one device",
            opcode.text
        );
        return Err(Diagnostic::unimplemented(at, message));
    }
    Ok(Some(match operands {
        [_] if instruction.shape.as_tuple().is_none() => Opcode::Copy,
        _ => Opcode::Tuple,
    }))
}

/// Reads groups of devices: `{{0,1},{2,3}}`.
fn groups(cursor: &mut Cursor<'_>) -> Parsed<Vec<Vec<usize>>> {
    cursor.list(numbers)
}
