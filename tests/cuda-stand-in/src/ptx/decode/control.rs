//! Moves, selections, branches and calls.

use super::{Decoded, Mnemonic, Operand, all_ones, exactly, many, ternary};
use callbox_ptx::ast::{self, VariableId};

use crate::ptx::body::Body;
use crate::ptx::code::{Call, Copied, Operation};
use crate::ptx::module::ParseError;
use crate::ptx::types::{Space, Type, low_bits};

pub(super) fn decode(body: &mut Body<'_, '_>, op: &mut Mnemonic, operands: &[Operand]) -> Decoded {
    match op.name {
        "mov" => moved(body, op, operands),
        "selp" => {
            let kind = op.kind()?;
            ternary(
                body,
                operands,
                [kind, kind, Type::Pred],
                Box::new(|a, b, p| if p != 0 { a } else { b }),
            )
        }
        "slct" => {
            let flushes = op.takes("ftz");
            let (kind, by) = (op.kind()?, op.kind()?);
            match by {
                Type::S32 => ternary(
                    body,
                    operands,
                    [kind, kind, by],
                    Box::new(|a, b, c| if c as i32 >= 0 { a } else { b }),
                ),
                Type::F32 => {
                    // -0 and flushed numbers count as 0. NaN selects the second operand.
                    let chooses_first = move |c: u64| {
                        let c = f32::from_bits(c as u32);
                        c >= 0.0 || (flushes && c.is_subnormal())
                    };
                    let function = Box::new(move |a, b, c| if chooses_first(c) { a } else { b });
                    ternary(body, operands, [kind, kind, by], function)
                }
                other => op.no_type(other),
            }
        }
        "ret" | "exit" | "trap" | "brkpt" => {
            op.takes("uni");
            let [] = exactly(operands)?;
            Ok(match op.name {
                "ret" => Operation::Return,
                "exit" => Operation::Exit,
                "trap" => Operation::Trap,
                // Without a debugger, `brkpt` does nothing.
                _ => Operation::Nothing,
            })
        }
        // Stores are visible to all threads at once and in order, and time passes by itself.
        "membar" | "fence" | "nanosleep" => {
            let known = [
                "gl", "cta", "sys", "gpu", "cluster", "sc", "acq_rel", "acquire", "release", "u32",
            ];
            op.parts.retain(|part| !known.contains(part));
            Ok(Operation::Nothing)
        }
        _ => Err("this instruction is not supported".to_owned()),
    }
}

fn moved(body: &mut Body<'_, '_>, op: &mut Mnemonic, operands: &[Operand]) -> Decoded {
    let kind = op.kind()?;
    let [to, from] = exactly(operands)?;
    match (to, from) {
        (Operand::Vector(parts), whole) => {
            let bits = part_bits(kind, parts.len())?;
            let from = vec![body.value(whole, kind)?];
            let to = parts
                .iter()
                .map(|part| body.target(part))
                .collect::<Result<_, _>>()?;
            Ok(many(
                to,
                from,
                Box::new(move |from, to| {
                    for (at, to) in to.iter_mut().enumerate() {
                        *to = low_bits(from[0] >> (bits * at as u32), bits);
                    }
                }),
            ))
        }
        (whole, Operand::Vector(parts)) => {
            let bits = part_bits(kind, parts.len())?;
            let part = match bits {
                8 => Type::B8,
                16 => Type::B16,
                _ => Type::B32,
            };
            let from = parts
                .iter()
                .map(|value| body.value(value, part))
                .collect::<Result<_, _>>()?;
            let to = vec![body.target(whole)?];
            Ok(many(
                to,
                from,
                Box::new(move |from, to| {
                    to[0] = from
                        .iter()
                        .rev()
                        .fold(0, |word, &part| (word << bits) | low_bits(part, bits));
                }),
            ))
        }
        (_, Operand::Clock(bits)) => Ok(Operation::Clock {
            to: body.target(to)?,
            bits: (*bits).min(kind.bits()),
        }),
        _ => {
            let (from, to) = (body.value(from, kind)?, body.target(to)?);
            // A special register may be wider than the destination.
            let ones = all_ones(kind);
            if kind.bits() < 32 && kind != Type::Pred {
                return Ok(Operation::Unary {
                    to,
                    from,
                    function: Box::new(move |a| a & ones),
                });
            }
            Ok(Operation::Move { to, from })
        }
    }
}

fn part_bits(kind: Type, parts: usize) -> Result<u32, String> {
    match (kind.bits(), parts) {
        (bits @ (16 | 32 | 64), 2) => Ok(bits / 2),
        (bits @ (32 | 64), 4) => Ok(bits / 4),
        _ => Err(format!("{kind:?} has no {parts} parts")),
    }
}

/// Decodes `bra` and `brx.idx`, whose labels are resolved at the end of the body.
pub(super) fn branch(
    body: &mut Body<'_, '_>,
    op: &mut Mnemonic,
    operands: &[ast::Operand],
) -> Result<(), ParseError> {
    op.takes("uni");
    op.takes("idx");
    if let Some(part) = op.parts.first() {
        return body.fail(format!("`{}`: `.{part}` is not supported here", op.text));
    }
    match operands {
        [ast::Operand::Label(label)] => {
            body.emit_branch(Operation::Branch { target: 0 }, vec![*label]);
        }
        [ast::Operand::Register(index), ast::Operand::Labels(labels)] => {
            let (index, _) = body.register(*index);
            let targets = Box::default();
            body.emit_branch(Operation::BranchTable { index, targets }, labels.clone());
        }
        _ => {
            return body.fail(format!(
                "`{}`: a register and labels were expected",
                op.text
            ));
        }
    }
    Ok(())
}

/// Decodes `call (result), function, (arguments);`.
pub(super) fn call(
    body: &mut Body<'_, '_>,
    op: &mut Mnemonic,
    operands: &[ast::Operand],
) -> Result<(), ParseError> {
    op.takes("uni");
    let [
        ast::Operand::Parameters(results),
        ast::Operand::Function(function),
        ast::Operand::Parameters(arguments),
    ] = operands
    else {
        return body.fail(format!("`{}`: a function was expected", op.text));
    };
    let function = *function;
    let signature = body.outline.signatures[function].clone();
    let name = &body.outline.tree.functions[function].name;
    let arguments = copies(body, arguments, &signature.parameters, name)?;
    let results = copies(body, results, &signature.results, name)?;
    let operation = match name.as_str() {
        "vprintf" => Operation::Print {
            result: results.first().map(|result| result.caller),
        },
        "__assertfail" => Operation::AssertFail {
            arguments: arguments.iter().map(|one| one.caller).collect(),
        },
        _ => Operation::Call(Box::new(Call {
            function,
            arguments,
            results,
        })),
    };
    body.emit(operation);
    Ok(())
}

/// Maps arguments or results from the caller's parameter memory to the callee's.
fn copies(
    body: &Body<'_, '_>,
    variables: &[VariableId],
    places: &[(usize, usize)],
    function: &str,
) -> Result<Vec<Copied>, ParseError> {
    if variables.len() != places.len() {
        let message = format!(
            "`{function}` has {} parameters or results here, and {} are given",
            places.len(),
            variables.len()
        );
        return body.fail(message);
    }
    variables
        .iter()
        .zip(places)
        .map(|(variable, &(callee, size))| match body.local(*variable) {
            Some(local) if local.space == Space::Param && local.size == size => Ok(Copied {
                caller: local.place as u64,
                callee: callee as u64,
                size,
            }),
            _ => body.fail(format!(
                "`{function}` takes a `.param` of {size} bytes here, and another variable is given"
            )),
        })
        .collect()
}
