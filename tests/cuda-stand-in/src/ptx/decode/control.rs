//! Moves, selections, branches and calls.

use super::{Decoded, Mnemonic, Operand, all_ones, exactly, many, ternary};
use crate::ptx::body::Body;
use crate::ptx::code::{Call, Copied, Operation};
use crate::ptx::cursor::Cursor;
use crate::ptx::module::ParseError;
use crate::ptx::types::{Space, Type, low_bits};

pub(super) fn decode<'a>(
    body: &mut Body<'a, '_>,
    op: &mut Mnemonic<'a>,
    operands: &[Operand<'a>],
) -> Decoded {
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
                    // -0 counts as 0, and flushed numbers too. A NaN chooses the second.
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
                // Without a debugger it goes on.
                _ => Operation::Nothing,
            })
        }
        // Threads see one another's stores at once, in order, and time passes by itself.
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

fn moved<'a>(body: &mut Body<'a, '_>, op: &mut Mnemonic<'a>, operands: &[Operand<'a>]) -> Decoded {
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
        (_, Operand::Name(name)) if body.outline.signatures.contains_key(name) => Err(format!(
            "addresses of functions, such as `{name}`'s, are not supported"
        )),
        _ => {
            let (from, to) = (body.value(from, kind)?, body.target(to)?);
            // A special register may be wider than what is wanted of it.
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

/// `bra` and `brx.idx`, whose labels are no operands.
pub(super) fn branch<'a>(
    body: &mut Body<'a, '_>,
    cursor: &mut Cursor<'a>,
    op: &mut Mnemonic<'a>,
) -> Result<(), ParseError> {
    op.takes("uni");
    if op.name == "brx" {
        op.takes("idx");
        let name = cursor.word("a register")?;
        let Some((index, _)) = body.register(name) else {
            return body.fail(format!("`{name}` is no register that is declared"));
        };
        cursor.expect(',')?;
        let name = cursor.word("the name of a `.branchtargets`")?;
        let Some(labels) = body.table(name) else {
            return body.fail(format!(
                "there is no `.branchtargets` of the name `{name}` before this"
            ));
        };
        body.emit_branch(
            Operation::BranchTable {
                index,
                targets: Box::default(),
            },
            labels,
        );
    } else {
        let label = cursor.word("a label")?;
        body.emit_branch(Operation::Branch { target: 0 }, vec![label]);
    }
    if let Some(part) = op.parts.first() {
        return body.fail(format!("`{}`: `.{part}` is not supported here", op.text));
    }
    cursor.expect(';')
}

/// Names of parameters in brackets.
fn names<'a>(cursor: &mut Cursor<'a>) -> Result<Vec<&'a str>, ParseError> {
    let mut names = Vec::new();
    cursor.expect('(')?;
    while !cursor.takes(')') {
        names.push(cursor.word("the name of a parameter")?);
        if !cursor.takes(',') {
            cursor.expect(')')?;
            break;
        }
    }
    Ok(names)
}

/// `call (result), function, (arguments);`
pub(super) fn call<'a>(
    body: &mut Body<'a, '_>,
    cursor: &mut Cursor<'a>,
    op: &mut Mnemonic<'a>,
) -> Result<(), ParseError> {
    op.takes("uni");
    if let Some(part) = op.parts.first() {
        return body.fail(format!("`{}`: `.{part}` is not supported here", op.text));
    }
    let has_results = cursor.peek() == crate::ptx::lexer::Kind::Mark('(');
    let results = if has_results {
        names(cursor)?
    } else {
        Vec::new()
    };
    if has_results {
        cursor.expect(',')?;
    }
    let function = cursor.word("the name of a function")?;
    let arguments = if cursor.takes(',') {
        names(cursor)?
    } else {
        Vec::new()
    };
    if !cursor.takes(';') {
        return cursor.error("`;` (calls through a pointer are not supported)");
    }
    let Some(signature) = body.outline.signatures.get(function).cloned() else {
        return body.fail(format!(
            "`{function}` is called, and no function of that name is declared before"
        ));
    };
    let arguments = copies(body, &arguments, &signature.parameters, function)?;
    let results = copies(body, &results, &signature.results, function)?;
    body.emit(match function {
        "vprintf" => Operation::Print {
            result: results.first().map(|result| result.caller),
        },
        "__assertfail" => Operation::AssertFail {
            arguments: arguments.iter().map(|one| one.caller).collect(),
        },
        _ => Operation::Call(Box::new(Call {
            function: signature.function,
            arguments,
            results,
        })),
    });
    Ok(())
}

/// Where arguments or results lie in the caller's parameter memory and in the callee's.
fn copies(
    body: &Body<'_, '_>,
    names: &[&str],
    places: &[(usize, usize)],
    function: &str,
) -> Result<Vec<Copied>, ParseError> {
    if names.len() != places.len() {
        let message = format!(
            "`{function}` has {} parameters or results here, and {} are given",
            places.len(),
            names.len()
        );
        return body.fail(message);
    }
    names
        .iter()
        .zip(places)
        .map(|(name, &(callee, size))| match body.local(name) {
            Some(local) if local.space == Space::Param && local.size == size => Ok(Copied {
                caller: local.place as u64,
                callee: callee as u64,
                size,
            }),
            _ => body.fail(format!(
                "`{name}` is no `.param` of {size} bytes that is declared here"
            )),
        })
        .collect()
}
