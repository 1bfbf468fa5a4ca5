//! Collective instructions: barriers, shuffles, votes.

use super::{Decoded, Mnemonic, Operand};
use crate::ptx::body::Body;
use crate::ptx::code::{Barrier, LaneReduction, Operation, Reduction, WarpKind, WarpOperation};
use crate::ptx::types::Type;

pub(super) fn decode(body: &mut Body<'_, '_>, op: &mut Mnemonic, operands: &[Operand]) -> Decoded {
    if matches!(op.name, "bar" | "barrier") {
        return if op.takes("warp") {
            warp_barrier(body, op, operands)
        } else {
            barrier(body, op, operands)
        };
    }
    if op.name == "activemask" {
        op.kind()?;
        let [to] = operands else {
            return Err(format!(
                "one operand was expected, and {} found",
                operands.len()
            ));
        };
        let nothing = body.constant(0);
        let to = body.target(to)?;
        return Ok(warp(WarpKind::ActiveMask, nothing, to, None, [nothing; 3]));
    }
    if !op.takes("sync") {
        return Err("only the form with `.sync` is supported".to_owned());
    }
    let kind = kind(op)?;
    let is_vote = op.name == "vote";
    let value_type = if is_vote { Type::Pred } else { Type::B64 };
    let expected = if op.name == "shfl" { 5 } else { 3 };
    if operands.len() != expected {
        return Err(format!(
            "{expected} operands were expected, and {} found",
            operands.len()
        ));
    }
    let (to, predicate) = match &operands[0] {
        Operand::Pair(to, predicate) if matches!(kind, WarpKind::MatchAll) || op.name == "shfl" => {
            (body.target(to)?, Some(body.target(predicate)?))
        }
        to => (body.target(to)?, None),
    };
    let first = body.value(&operands[1], value_type)?;
    let (second, third, mask) = if op.name == "shfl" {
        (
            body.value(&operands[2], Type::U32)?,
            body.value(&operands[3], Type::U32)?,
            &operands[4],
        )
    } else {
        (first, first, &operands[2])
    };
    let mask = body.value(mask, Type::U32)?;
    Ok(warp(kind, mask, to, predicate, [first, second, third]))
}

fn warp(kind: WarpKind, mask: u32, to: u32, predicate: Option<u32>, from: [u32; 3]) -> Operation {
    Operation::Warp(Box::new(WarpOperation {
        kind,
        mask,
        to,
        predicate,
        from,
    }))
}

fn kind(op: &mut Mnemonic) -> Result<WarpKind, String> {
    let name = op.name;
    let kind = op.take(|part| match (name, part) {
        ("shfl", "up") => Some(WarpKind::ShuffleUp),
        ("shfl", "down") => Some(WarpKind::ShuffleDown),
        ("shfl", "bfly") => Some(WarpKind::ShuffleXor),
        ("shfl", "idx") => Some(WarpKind::ShuffleIndex),
        ("vote", "all") => Some(WarpKind::VoteAll),
        ("vote", "any") => Some(WarpKind::VoteAny),
        ("vote", "uni") => Some(WarpKind::VoteUniform),
        ("vote", "ballot") => Some(WarpKind::Ballot),
        ("match", "any") => Some(WarpKind::MatchAny),
        ("match", "all") => Some(WarpKind::MatchAll),
        ("redux", "add") => Some(WarpKind::Reduce(LaneReduction::Add, Type::U32)),
        ("redux", "min") => Some(WarpKind::Reduce(LaneReduction::Min, Type::U32)),
        ("redux", "max") => Some(WarpKind::Reduce(LaneReduction::Max, Type::U32)),
        ("redux", "and") => Some(WarpKind::Reduce(LaneReduction::And, Type::U32)),
        ("redux", "or") => Some(WarpKind::Reduce(LaneReduction::Or, Type::U32)),
        ("redux", "xor") => Some(WarpKind::Reduce(LaneReduction::Xor, Type::U32)),
        _ => None,
    });
    let declared = op.kind()?;
    match kind {
        Some(WarpKind::Reduce(reduction, _))
            if matches!(declared, Type::U32 | Type::S32 | Type::B32) =>
        {
            Ok(WarpKind::Reduce(reduction, declared))
        }
        Some(WarpKind::Reduce(..)) | None => Err("this form is not supported".to_owned()),
        Some(kind) => Ok(kind),
    }
}

fn warp_barrier(body: &mut Body<'_, '_>, op: &mut Mnemonic, operands: &[Operand]) -> Decoded {
    op.takes("sync");
    let [mask] = operands else {
        return Err(format!(
            "one operand was expected, and {} found",
            operands.len()
        ));
    };
    let mask = body.value(mask, Type::U32)?;
    let sink = body.sink();
    Ok(warp(WarpKind::Sync, mask, sink, None, [mask; 3]))
}

fn barrier(body: &mut Body<'_, '_>, op: &mut Mnemonic, operands: &[Operand]) -> Decoded {
    op.takes("cta");
    let is_aligned = op.takes("aligned") || op.name == "bar";
    let only_arrives = op.takes("arrive");
    if op.takes("red") {
        let reduction = op.take(|part| match part {
            "popc" => Some(Reduction::Popc),
            "and" => Some(Reduction::And),
            "or" => Some(Reduction::Or),
            _ => None,
        });
        op.kind()?;
        op.takes("sync");
        let Some(reduction) = reduction else {
            return Err("`.popc`, `.and` or `.or` is missing".to_owned());
        };
        let (to, id, count, predicate) = match operands {
            [to, id, predicate] => (to, id, None, predicate),
            [to, id, count, predicate] => (to, id, Some(count), predicate),
            _ => {
                return Err(format!(
                    "three or four operands were expected, and {} found",
                    operands.len()
                ));
            }
        };
        let reduction = Some((
            reduction,
            body.target(to)?,
            body.value(predicate, Type::Pred)?,
        ));
        let id = body.value(id, Type::U32)?;
        let count = count
            .map(|count| body.value(count, Type::U32))
            .transpose()?;
        return Ok(Operation::Barrier(Box::new(Barrier {
            id,
            count,
            only_arrives,
            is_aligned,
            reduction,
        })));
    }
    if !only_arrives && !op.takes("sync") {
        return Err("`.sync`, `.arrive` or `.red` is missing".to_owned());
    }
    let (id, count) = match operands {
        [id] if !only_arrives => (id, None),
        [id, count] => (id, Some(count)),
        _ => {
            return Err(format!(
                "a barrier and a count were expected, and {} operands found",
                operands.len()
            ));
        }
    };
    let id = body.value(id, Type::U32)?;
    let count = count
        .map(|count| body.value(count, Type::U32))
        .transpose()?;
    Ok(Operation::Barrier(Box::new(Barrier {
        id,
        count,
        only_arrives,
        is_aligned,
        reduction: None,
    })))
}
