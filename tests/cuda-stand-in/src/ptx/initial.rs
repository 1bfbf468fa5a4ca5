//! Initial contents of variables.

use callbox_ptx::ast::{self, Immediate, Initial};

use super::module::{ParseError, Relocation};
use super::outline::error;
use super::types::Type;

/// A variable's initial bytes, and the addresses among them.
#[derive(Default)]
pub(super) struct Content {
    pub(super) bytes: Vec<u8>,
    pub(super) addresses: Vec<Relocation>,
}

pub(super) fn content(
    tree: &ast::Module,
    variable: &ast::Variable,
    initial: &Initial,
) -> Result<Content, ParseError> {
    let Some(kind) = Type::from_name(variable.element.name()) else {
        let message = format!(
            "variables of `.{}` are not supported",
            variable.element.name()
        );
        return error(variable.line, message);
    };
    let mut content = Content::default();
    match content.add(tree, kind, initial) {
        Ok(()) => Ok(content),
        Err(message) => error(variable.line, message.to_owned()),
    }
}

impl Content {
    fn add(
        &mut self,
        tree: &ast::Module,
        kind: Type,
        initial: &Initial,
    ) -> Result<(), &'static str> {
        match initial {
            Initial::Number(number) => {
                let bits = immediate_bits(*number, kind);
                self.bytes.extend(&bits.to_le_bytes()[..kind.bytes()]);
            }
            Initial::Address {
                variable, addend, ..
            } => {
                if kind.bytes() != 8 {
                    return Err("an address has eight bytes, and the elements here have fewer");
                }
                self.addresses.push(Relocation {
                    offset: self.bytes.len(),
                    name: tree.variables[*variable].name.clone(),
                    addend: *addend,
                });
                self.bytes.extend([0; 8]);
            }
            Initial::List(values) => {
                for value in values {
                    self.add(tree, kind, value)?;
                }
            }
        }
        Ok(())
    }
}

/// Returns the bits of a number for this type.
pub(super) fn immediate_bits(number: Immediate, kind: Type) -> u64 {
    match (number, kind) {
        (Immediate::Integer(value), _) => value,
        (Immediate::Single(bits), Type::F64) => f64::from(f32::from_bits(bits)).to_bits(),
        (Immediate::Double(bits), Type::F32) => u64::from((f64::from_bits(bits) as f32).to_bits()),
        (Immediate::Single(bits), _) => u64::from(bits),
        (Immediate::Double(bits), _) => bits,
    }
}
