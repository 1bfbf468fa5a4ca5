//! Operands: as they are read, and as the slots that operations have.

use crate::ptx::body::Body;
use crate::ptx::code::{Address, Operation, Patch, Slot, Special};
use crate::ptx::cursor::Cursor;
use crate::ptx::initial::{self, Constant};
use crate::ptx::lexer::Kind;
use crate::ptx::module::ParseError;
use crate::ptx::types::{Space, Type, low_bits};

/// An operand, as it is written.
#[derive(Clone, Debug)]
pub(in crate::ptx) enum Operand<'a> {
    Register(Slot, Type),
    /// A special register.
    Special(Slot),
    /// `%clock`, of so many bits.
    Clock(u32),
    /// The address of a variable, with something added.
    Variable {
        space: Space,
        slot: Slot,
        offset: u64,
    },
    Constant(Constant),
    Vector(Vec<Operand<'a>>),
    /// In square brackets. A variable's has its space.
    Address {
        space: Option<Space>,
        base: Slot,
        offset: u64,
    },
    /// `p|q`
    Pair(Box<Operand<'a>>, Box<Operand<'a>>),
    /// `!p`
    Not(Slot),
    /// `_`
    Nothing,
    /// What is neither a register nor a variable.
    Name(&'a str),
}

/// Reads operands up to the semicolon and takes that too.
pub(super) fn read<'a>(
    body: &mut Body<'a, '_>,
    cursor: &mut Cursor<'a>,
) -> Result<Vec<Operand<'a>>, ParseError> {
    let mut operands = Vec::new();
    if cursor.takes(';') {
        return Ok(operands);
    }
    loop {
        let first = operand(body, cursor)?;
        if cursor.takes('|') {
            let second = operand(body, cursor)?;
            operands.push(Operand::Pair(Box::new(first), Box::new(second)));
        } else {
            operands.push(first);
        }
        if !cursor.takes(',') {
            cursor.expect(';')?;
            return Ok(operands);
        }
    }
}

fn operand<'a>(
    body: &mut Body<'a, '_>,
    cursor: &mut Cursor<'a>,
) -> Result<Operand<'a>, ParseError> {
    match cursor.peek() {
        // Neither has another one of them inside, and so texts of brackets alone go no deeper.
        Kind::Mark('{' | '[') if matches!(cursor.peek_second(), Kind::Mark('{' | '[')) => {
            cursor.next();
            cursor.error("a register, number or variable")
        }
        Kind::Mark('{') => {
            cursor.next();
            let mut elements = vec![operand(body, cursor)?];
            while cursor.takes(',') {
                if matches!(cursor.peek(), Kind::Mark('{' | '[')) {
                    return cursor.error("a register or number");
                }
                elements.push(operand(body, cursor)?);
            }
            cursor.expect('}')?;
            Ok(Operand::Vector(elements))
        }
        Kind::Mark('[') => {
            cursor.next();
            let inner = operand(body, cursor)?;
            let offset = cursor.offset()?;
            cursor.expect(']')?;
            match inner {
                Operand::Register(base, _) => Ok(Operand::Address {
                    space: None,
                    base,
                    offset,
                }),
                Operand::Variable {
                    space,
                    slot,
                    offset: first,
                } => Ok(Operand::Address {
                    space: Some(space),
                    base: slot,
                    offset: offset.wrapping_add(first),
                }),
                Operand::Constant(Constant::Integer(value)) => {
                    let base = body.constant(value);
                    Ok(Operand::Address {
                        space: None,
                        base,
                        offset,
                    })
                }
                Operand::Name(name) => body.fail(format!(
                    "`{name}` is no register and no variable that is declared"
                )),
                _ => body.fail("an address was expected in the brackets".to_owned()),
            }
        }
        Kind::Mark('!') => {
            cursor.next();
            let name = cursor.word("a predicate")?;
            match body.register(name) {
                Some((slot, Type::Pred)) => Ok(Operand::Not(slot)),
                _ => body.fail(format!("`{name}` is not a predicate that is declared")),
            }
        }
        Kind::Word(word) => {
            cursor.next();
            named(body, cursor, word)
        }
        Kind::Number(_) | Kind::Mark('-') => Ok(Operand::Constant(initial::number(cursor)?)),
        _ => cursor.error("an operand"),
    }
}

fn named<'a>(
    body: &mut Body<'a, '_>,
    cursor: &mut Cursor<'a>,
    word: &'a str,
) -> Result<Operand<'a>, ParseError> {
    if word == "_" {
        return Ok(Operand::Nothing);
    }
    if let Some((slot, kind)) = body.register(word) {
        return Ok(Operand::Register(slot, kind));
    }
    if let Some((space, slot)) = body.variable(word) {
        let offset = cursor.offset()?;
        return Ok(Operand::Variable {
            space,
            slot,
            offset,
        });
    }
    match word {
        "%clock" | "%clock_hi" => return Ok(Operand::Clock(32)),
        "%clock64" | "%globaltimer" => return Ok(Operand::Clock(64)),
        "WARP_SZ" => return Ok(Operand::Constant(Constant::Integer(32))),
        _ => {}
    }
    match special(word) {
        Some(special) => Ok(Operand::Special(
            body.special(word, || Patch::Special(special)),
        )),
        None if word.starts_with('%') => {
            body.fail(format!("`{word}` is no register that is declared or known"))
        }
        None => Ok(Operand::Name(word)),
    }
}

fn special(name: &str) -> Option<Special> {
    let dimension = |letter: &str| match letter {
        "x" => Some(0),
        "y" => Some(1),
        "z" => Some(2),
        _ => None,
    };
    if let Some((register, letter)) = name.split_once('.') {
        let dimension = dimension(letter)?;
        return match register {
            "%tid" => Some(Special::Thread(dimension)),
            "%ntid" => Some(Special::BlockSize(dimension)),
            "%ctaid" => Some(Special::Block(dimension)),
            "%nctaid" => Some(Special::GridSize(dimension)),
            _ => None,
        };
    }
    Some(match name {
        "%laneid" => Special::Lane,
        "%warpid" => Special::Warp,
        "%nwarpid" => Special::Warps,
        "%lanemask_eq" => Special::LanesEqual,
        "%lanemask_lt" => Special::LanesBelow,
        "%lanemask_le" => Special::LanesUpTo,
        "%lanemask_gt" => Special::LanesAbove,
        "%lanemask_ge" => Special::LanesFrom,
        "%dynamic_smem_size" => Special::DynamicShared,
        "%total_smem_size" => Special::TotalShared,
        // The one multiprocessor, and the one grid that runs.
        "%smid" | "%gridid" => Special::Zero,
        "%nsmid" => Special::One,
        _ => return None,
    })
}

impl<'a> Body<'a, '_> {
    /// The slot of a source operand of this type.
    pub(super) fn value(&mut self, operand: &Operand<'a>, kind: Type) -> Result<Slot, String> {
        match operand {
            Operand::Register(slot, declared) => {
                if (*declared == Type::Pred) != (kind == Type::Pred) {
                    return Err(format!(
                        "an operand of type {kind:?} was expected, and one of {declared:?} found"
                    ));
                }
                Ok(*slot)
            }
            Operand::Special(slot) => Ok(*slot),
            Operand::Variable {
                slot, offset: 0, ..
            } => Ok(*slot),
            Operand::Variable { slot, offset, .. } => {
                let (to, offset) = (self.temporary(), *offset);
                let function = Box::new(move |address: u64| address.wrapping_add(offset));
                self.emit(Operation::Unary {
                    to,
                    from: *slot,
                    function,
                });
                Ok(to)
            }
            Operand::Constant(Constant::Integer(value)) if kind.is_float() && *value != 0 => Err(
                format!("a floating-point number was expected, and the integer {value} found"),
            ),
            Operand::Constant(Constant::Integer(value)) => {
                Ok(self.constant(low_bits(*value, kind.bits())))
            }
            Operand::Constant(Constant::Floating(value)) => {
                let bits = low_bits(initial::floating_bits(*value, kind), kind.bits());
                Ok(self.constant(bits))
            }
            Operand::Not(slot) => {
                let to = self.temporary();
                self.emit(Operation::Unary {
                    to,
                    from: *slot,
                    function: Box::new(|p| p ^ 1),
                });
                Ok(to)
            }
            Operand::Clock(bits) => {
                let to = self.temporary();
                self.emit(Operation::Clock { to, bits: *bits });
                Ok(to)
            }
            Operand::Name(name) => Err(format!(
                "`{name}` is no register and no variable that is declared"
            )),
            Operand::Vector(_) | Operand::Address { .. } | Operand::Pair(..) | Operand::Nothing => {
                Err("a register or number was expected".to_owned())
            }
        }
    }

    /// The slot of a destination.
    pub(super) fn target(&mut self, operand: &Operand<'a>) -> Result<Slot, String> {
        self.target_type(operand).map(|(slot, _)| slot)
    }

    /// The slot of a destination, and its type if it is not `_`.
    pub(super) fn target_type(
        &mut self,
        operand: &Operand<'a>,
    ) -> Result<(Slot, Option<Type>), String> {
        match operand {
            Operand::Register(slot, kind) => Ok((*slot, Some(*kind))),
            Operand::Nothing => Ok((self.sink(), None)),
            Operand::Name(name) => Err(format!("`{name}` is no register that is declared")),
            _ => Err("a register was expected as the destination".to_owned()),
        }
    }

    /// The address of an operand in brackets. A space that the instruction does not name is the variable's, or generic.
    pub(super) fn address(
        &mut self,
        operand: &Operand<'a>,
        space: Option<Space>,
    ) -> Result<Address, String> {
        let Operand::Address {
            space: own,
            base,
            offset,
        } = operand
        else {
            return Err("an address in brackets was expected".to_owned());
        };
        if let (Some(wanted), Some(own)) = (space, own)
            && wanted != *own
        {
            return Err(format!(
                "a variable of {wanted:?} was expected, and one of {own:?} found"
            ));
        }
        Ok(Address {
            space: space.or(*own).unwrap_or(Space::Generic),
            base: *base,
            offset: *offset,
        })
    }
}
