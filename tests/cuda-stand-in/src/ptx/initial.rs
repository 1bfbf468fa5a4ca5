//! What variables hold at first.

use super::cursor::{Cursor, Declaration};
use super::lexer::{Floating, Kind};
use super::module::{ParseError, Relocation};
use super::types::Type;

/// The most braces inside one another.
const MOST_DIMENSIONS: usize = 16;

/// The bytes that a text gives a variable, and the addresses among them.
#[derive(Default)]
pub(super) struct Content {
    bytes: Vec<u8>,
    addresses: Vec<Relocation>,
}

impl Content {
    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }

    pub(super) fn into_parts(self) -> (Vec<u8>, Vec<Relocation>) {
        (self.bytes, self.addresses)
    }
}

/// Reads `= ...`, if it is next.
pub(super) fn read(
    cursor: &mut Cursor<'_>,
    variable: &Declaration<'_>,
) -> Result<Option<Content>, ParseError> {
    if !cursor.takes('=') {
        return Ok(None);
    }
    let mut content = Content::default();
    value(cursor, variable.kind, &mut content, MOST_DIMENSIONS)?;
    if variable.size.is_some_and(|size| content.len() > size) {
        let message = format!(
            "`{}` is given {} bytes, more than it has",
            variable.name,
            content.len()
        );
        return Err(ParseError {
            line: variable.line,
            message,
        });
    }
    Ok(Some(content))
}

fn value(
    cursor: &mut Cursor<'_>,
    kind: Type,
    content: &mut Content,
    depth: usize,
) -> Result<(), ParseError> {
    if cursor.takes('{') {
        if depth == 0 {
            return cursor.error("a number");
        }
        while !cursor.takes('}') {
            value(cursor, kind, content, depth - 1)?;
            if !cursor.takes(',') && cursor.peek() != Kind::Mark('}') {
                return cursor.error("`,` or `}`");
            }
        }
        return Ok(());
    }
    let bytes = kind.bytes();
    if let Kind::Word(word) = cursor.peek() {
        if bytes != 8 {
            return cursor.error("a number (an address has eight bytes)");
        }
        cursor.next();
        let name = if word == "generic" && cursor.takes('(') {
            let name = cursor.word("a variable")?;
            cursor.expect(')')?;
            name
        } else {
            word
        };
        let addend = cursor.offset()? as i64;
        let offset = content.len();
        content.addresses.push(Relocation {
            offset,
            name: name.to_owned(),
            addend,
        });
        content.bytes.extend([0; 8]);
        return Ok(());
    }
    let bits = match number(cursor)? {
        Constant::Integer(value) => value,
        Constant::Floating(value) => floating_bits(value, kind),
    };
    if cursor.peek() == Kind::Mark('(') {
        return cursor.error("`,` (parts of addresses are not supported)");
    }
    content.bytes.extend(&bits.to_le_bytes()[..bytes]);
    Ok(())
}

/// A number that stands in the text.
#[derive(Clone, Copy, Debug)]
pub(super) enum Constant {
    /// Of 64 bits, negative ones as their two's complement.
    Integer(u64),
    Floating(Floating),
}

pub(super) fn number(cursor: &mut Cursor<'_>) -> Result<Constant, ParseError> {
    if cursor.peek() == Kind::Mark('-')
        && let Kind::Number(text) = cursor.peek_second()
        && let Some(value) = super::lexer::floating(text)
    {
        cursor.next();
        cursor.next();
        return Ok(Constant::Floating(match value {
            Floating::Single(bits) => Floating::Single(bits ^ (1 << 31)),
            Floating::Double(bits) => Floating::Double(bits ^ (1 << 63)),
        }));
    }
    match cursor.floating() {
        Some(value) => Ok(Constant::Floating(value)),
        None => cursor.integer().map(Constant::Integer),
    }
}

/// The bits of a floating-point number where a type is wanted.
pub(super) fn floating_bits(value: Floating, kind: Type) -> u64 {
    match (value, kind) {
        (Floating::Single(bits), Type::F64) => f64::from(f32::from_bits(bits)).to_bits(),
        (Floating::Double(bits), Type::F32) => u64::from((f64::from_bits(bits) as f32).to_bits()),
        (Floating::Single(bits), _) => u64::from(bits),
        (Floating::Double(bits), _) => bits,
    }
}
