//! Operands: of the tree, and as slots.

use callbox_ptx::ast::{self, Base, Immediate};

use crate::ptx::body::Body;
use crate::ptx::code::{Address, Operation, Patch, Slot, Special};
use crate::ptx::initial::immediate_bits;
use crate::ptx::types::{Space, Type, low_bits};

/// An operand with its slots.
#[derive(Clone, Debug)]
pub(in crate::ptx) enum Operand {
    Register(Slot, Type),
    /// A special register.
    Special(Slot),
    /// `%clock`, of this width in bits.
    Clock(u32),
    /// The address of a variable plus an offset.
    Variable {
        slot: Slot,
        offset: u64,
    },
    Constant(Immediate),
    Vector(Vec<Operand>),
    /// An address in square brackets. For a variable, its space is known.
    Address {
        space: Option<Space>,
        base: Slot,
        offset: u64,
    },
    /// `p|q`
    Pair(Box<Operand>, Box<Operand>),
    /// `!p`
    Not(Slot),
    /// `_`
    Nothing,
    /// The name of a function, by its index.
    Function(usize),
}

/// Finds the slots of an instruction's operands.
pub(super) fn lower(
    body: &mut Body<'_, '_>,
    operands: &[ast::Operand],
) -> Result<Vec<Operand>, String> {
    operands.iter().map(|operand| one(body, operand)).collect()
}

fn one(body: &mut Body<'_, '_>, operand: &ast::Operand) -> Result<Operand, String> {
    Ok(match operand {
        ast::Operand::Register(register) => {
            let (slot, kind) = body.register(*register);
            Operand::Register(slot, kind)
        }
        ast::Operand::Not(register) => Operand::Not(body.register(*register).0),
        ast::Operand::Special(special) => self::special(body, *special)?,
        ast::Operand::Immediate(number) => Operand::Constant(*number),
        ast::Operand::Variable(variable, offset) => {
            let (_, slot) = body.variable(*variable);
            let offset = offset.cast_unsigned();
            Operand::Variable { slot, offset }
        }
        ast::Operand::Address(address) => self::address(body, address)?,
        ast::Operand::Vector(elements) => Operand::Vector(lower(body, elements)?),
        ast::Operand::Pair(parts) => {
            let [first, second] = &**parts;
            Operand::Pair(Box::new(one(body, first)?), Box::new(one(body, second)?))
        }
        ast::Operand::Discard => Operand::Nothing,
        ast::Operand::Function(index) => Operand::Function(*index),
        ast::Operand::Label(_) | ast::Operand::Labels(_) | ast::Operand::Parameters(_) => {
            return Err("only branches and calls have such operands".to_owned());
        }
    })
}

fn address(body: &mut Body<'_, '_>, address: &ast::Address) -> Result<Operand, String> {
    if !address.coordinates.is_empty() {
        return Err("tensors are not supported".to_owned());
    }
    let (space, base) = match address.base {
        Base::Register(register) => (None, body.register(register).0),
        Base::Variable(variable) => {
            let (space, slot) = body.variable(variable);
            (Some(space), slot)
        }
        Base::Nothing => (None, body.constant(0)),
    };
    let offset = address.offset.cast_unsigned();
    Ok(Operand::Address {
        space,
        base,
        offset,
    })
}

fn special(body: &mut Body<'_, '_>, register: ast::Special) -> Result<Operand, String> {
    use ast::Special as Name;
    let special = match register {
        Name::Clock | Name::ClockHigh => return Ok(Operand::Clock(32)),
        Name::Clock64 | Name::Globaltimer => return Ok(Operand::Clock(64)),
        Name::WarpSize => return Ok(Operand::Constant(Immediate::Integer(32))),
        Name::TidX => Special::Thread(0),
        Name::TidY => Special::Thread(1),
        Name::TidZ => Special::Thread(2),
        Name::NtidX => Special::BlockSize(0),
        Name::NtidY => Special::BlockSize(1),
        Name::NtidZ => Special::BlockSize(2),
        Name::CtaidX => Special::Block(0),
        Name::CtaidY => Special::Block(1),
        Name::CtaidZ => Special::Block(2),
        Name::NctaidX => Special::GridSize(0),
        Name::NctaidY => Special::GridSize(1),
        Name::NctaidZ => Special::GridSize(2),
        Name::Laneid => Special::Lane,
        Name::Warpid => Special::Warp,
        Name::Nwarpid => Special::Warps,
        Name::LanemaskEq => Special::LanesEqual,
        Name::LanemaskLt => Special::LanesBelow,
        Name::LanemaskLe => Special::LanesUpTo,
        Name::LanemaskGt => Special::LanesAbove,
        Name::LanemaskGe => Special::LanesFrom,
        Name::DynamicSharedSize => Special::DynamicShared,
        Name::TotalSharedSize => Special::TotalShared,
        // There is one multiprocessor, and one grid runs.
        Name::Smid | Name::Gridid => Special::Zero,
        Name::Nsmid => Special::One,
        other => return Err(format!("`{}` is not supported", other.name())),
    };
    Ok(Operand::Special(
        body.special(register, Patch::Special(special)),
    ))
}

impl Body<'_, '_> {
    /// Returns the slot of a source operand of this type.
    pub(super) fn value(&mut self, operand: &Operand, kind: Type) -> Result<Slot, String> {
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
            Operand::Variable { slot, offset: 0 } => Ok(*slot),
            Operand::Variable { slot, offset } => {
                let (to, offset) = (self.temporary(), *offset);
                let function = Box::new(move |address: u64| address.wrapping_add(offset));
                self.emit(Operation::Unary {
                    to,
                    from: *slot,
                    function,
                });
                Ok(to)
            }
            Operand::Constant(Immediate::Integer(value)) if kind.is_float() && *value != 0 => Err(
                format!("a floating-point number was expected, and the integer {value} found"),
            ),
            Operand::Constant(number) => {
                Ok(self.constant(low_bits(immediate_bits(*number, kind), kind.bits())))
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
            Operand::Function(index) => Err(format!(
                "addresses of functions, such as `{}`'s, are not supported",
                self.outline.tree.functions[*index].name
            )),
            Operand::Vector(_) | Operand::Address { .. } | Operand::Pair(..) | Operand::Nothing => {
                Err("a register or number was expected".to_owned())
            }
        }
    }

    /// Returns the slot of a destination.
    pub(super) fn target(&mut self, operand: &Operand) -> Result<Slot, String> {
        self.target_type(operand).map(|(slot, _)| slot)
    }

    /// Returns the slot of a destination, and its type unless it is `_`.
    pub(super) fn target_type(
        &mut self,
        operand: &Operand,
    ) -> Result<(Slot, Option<Type>), String> {
        match operand {
            Operand::Register(slot, kind) => Ok((*slot, Some(*kind))),
            Operand::Nothing => Ok((self.sink(), None)),
            _ => Err("a register was expected as the destination".to_owned()),
        }
    }

    /// Returns an operand's address in brackets. If the instruction names no space, it is the
    /// variable's, or generic.
    pub(super) fn address(
        &mut self,
        operand: &Operand,
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
