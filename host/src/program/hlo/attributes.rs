//! Attributes of instructions: how they are written.

mod table;

use self::table::{Syntax, syntax};
use super::constants::literal_with_shape;
use super::cursor::{Cursor, Name};
use super::source::{Diagnostic, Parsed, shortened};
use crate::call::Alias;
use crate::program::instruction::{PaddingDimension, SliceDimension};
use crate::values::{Literal, Shape, ShapeIndex};

/// An attribute's value.
#[derive(Debug)]
pub(super) enum Value<'a> {
    Aliasing(Vec<Alias>),
    Computation(Name<'a>),
    Computations(Vec<Name<'a>>),
    Config(Config<'a>),
    Flag(bool),
    Instructions(Vec<Name<'a>>),
    Literal(Literal),
    Number(usize),
    Numbers(Vec<usize>),
    Padding(Vec<PaddingDimension>),
    Shapes(Vec<Shape>),
    Slices(Vec<SliceDimension>),
    Text(Vec<u8>),
    Word(&'a str),
}

/// What a `backend_config` is written as.
#[derive(Clone, Debug)]
pub(super) enum Config<'a> {
    /// What stands between braces, both included, as it stands.
    Braces(&'a str),
    /// A string.
    Text(Vec<u8>),
}

/// The attributes of one instruction: those that mean something here.
#[derive(Debug, Default)]
pub(super) struct Attributes<'a>(Vec<Attribute<'a>>);

/// An attribute's name, and where its value is.
#[derive(Debug)]
struct Attribute<'a> {
    name: &'a str,
    at: usize,
    value: Value<'a>,
}

/// A value and where it stands.
#[derive(Debug)]
pub(super) struct Placed<T> {
    pub(super) value: T,
    pub(super) at: usize,
}

impl<'a> Attributes<'a> {
    /// Reads what follows the parentheses of an instruction.
    pub(super) fn read(cursor: &mut Cursor<'a>, opcode: &str) -> Parsed<Self> {
        let mut attributes = Self::default();
        let mut ignored = Vec::new();
        while cursor.take(",") {
            let name = cursor.attribute_name()?;
            let mut seen = attributes
                .0
                .iter()
                .map(|a| a.name)
                .chain(ignored.iter().copied());
            if seen.any(|seen| seen == name.text) {
                let message = format!(
                    "expected each attribute once, found another {:?}",
                    name.text
                );
                return Err(Diagnostic::invalid(name.at, message));
            }
            match syntax(name, opcode)? {
                Some(syntax) => {
                    let (name, at) = (name.text, cursor.at());
                    let value = value(cursor, syntax)?;
                    attributes.0.push(Attribute { name, at, value });
                }
                None => {
                    skip_value(cursor)?;
                    ignored.push(name.text);
                }
            }
        }
        Ok(attributes)
    }

    fn take(&mut self, name: &str) -> Option<Attribute<'a>> {
        let index = self.0.iter().position(|attribute| attribute.name == name)?;
        Some(self.0.swap_remove(index))
    }
}

/// Declares a method for each kind of value, which takes the attribute of a name, if it is there. That an attribute has the kind that
/// the method asks for is up to [`table`].
macro_rules! take {
    ($($method:ident: $variant:ident($value:ty),)*) => {
        impl<'a> Attributes<'a> {$(
            pub(super) fn $method(&mut self, name: &str) -> Option<Placed<$value>> {
                match self.take(name)? {
                    Attribute { value: Value::$variant(value), at, .. } => Some(Placed { value, at }),
                    _ => None,
                }
            }
        )*}
    };
}

take! {
    aliasing: Aliasing(Vec<Alias>),
    computation: Computation(Name<'a>),
    computations: Computations(Vec<Name<'a>>),
    config: Config(Config<'a>),
    flag: Flag(bool),
    instructions: Instructions(Vec<Name<'a>>),
    literal: Literal(Literal),
    number: Number(usize),
    numbers: Numbers(Vec<usize>),
    padding: Padding(Vec<PaddingDimension>),
    shapes: Shapes(Vec<Shape>),
    slices: Slices(Vec<SliceDimension>),
    text: Text(Vec<u8>),
    word: Word(&'a str),
}

/// Reads and drops an attribute's value.
pub(super) fn skip_value(cursor: &mut Cursor<'_>) -> Parsed<()> {
    if cursor.sees("{") {
        return cursor.braces().map(drop);
    }
    if cursor.sees("\"") {
        return cursor.raw_string().map(drop);
    }
    match cursor.value().text {
        "" => Err(cursor.expected("the attribute's value")),
        _ => Ok(()),
    }
}

/// Reads things with commas between them in braces.
pub(super) fn list<'a, T>(
    cursor: &mut Cursor<'a>,
    mut item: impl FnMut(&mut Cursor<'a>) -> Parsed<T>,
) -> Parsed<Vec<T>> {
    cursor.expect("{", "'{'")?;
    let mut items = Vec::new();
    while !cursor.take("}") {
        if !items.is_empty() {
            cursor.expect(",", "',' or '}'")?;
        }
        items.push(item(cursor)?);
    }
    Ok(items)
}

/// Reads `true` or `false`.
pub(super) fn flag(cursor: &mut Cursor<'_>) -> Parsed<bool> {
    match (cursor.keyword("true"), cursor.keyword("false")) {
        (true, _) => Ok(true),
        (_, true) => Ok(false),
        _ => Err(cursor.expected("true or false")),
    }
}

fn value<'a>(cursor: &mut Cursor<'a>, syntax: Syntax) -> Parsed<Value<'a>> {
    Ok(match syntax {
        Syntax::Aliasing => Value::Aliasing(list(cursor, alias)?),
        Syntax::Computation => Value::Computation(computation(cursor)?),
        Syntax::Computations => Value::Computations(list(cursor, computation)?),
        Syntax::Config => Value::Config(match cursor.sees("{") {
            true => Config::Braces(cursor.braces()?),
            false => Config::Text(cursor.string()?),
        }),
        Syntax::Flag => Value::Flag(flag(cursor)?),
        Syntax::Instructions => Value::Instructions(list(cursor, |cursor| {
            cursor.name("the name of an instruction")
        })?),
        Syntax::Literal => Value::Literal(literal_with_shape(cursor)?),
        Syntax::Number => Value::Number(cursor.number()?),
        Syntax::Numbers => Value::Numbers(list(cursor, Cursor::number)?),
        Syntax::Padding => Value::Padding(padding(cursor)?),
        Syntax::Shapes => Value::Shapes(list(cursor, Cursor::shape)?),
        Syntax::Slices => Value::Slices(list(cursor, slice)?),
        Syntax::Text => Value::Text(cursor.string()?),
        Syntax::Word => match cursor.word() {
            Some(word) => Value::Word(word),
            None => return Err(cursor.expected("a word")),
        },
    })
}

fn computation<'a>(cursor: &mut Cursor<'a>) -> Parsed<Name<'a>> {
    cursor.name("the name of a computation")
}

/// `{0}: (1, {2})`.
fn alias(cursor: &mut Cursor<'_>) -> Parsed<Alias> {
    let result_index: ShapeIndex = list(cursor, Cursor::number)?;
    cursor.expect(":", "':' between result and operand")?;
    cursor.expect("(", "'(' before the number of an operand")?;
    let operand = cursor.number()?;
    cursor.expect(",", "',' behind the number of an operand")?;
    let operand_index = list(cursor, Cursor::number)?;
    cursor.expect(")", "')' behind an operand")?;
    Ok(Alias {
        result_index,
        operand,
        operand_index,
    })
}

/// `[0:8]`, `[0:8:2]`.
fn slice(cursor: &mut Cursor<'_>) -> Parsed<SliceDimension> {
    cursor.expect("[", "'[' of a slice")?;
    let start = cursor.number()?;
    cursor.expect(":", "':' and the limit of a slice")?;
    let limit = cursor.number()?;
    let stride = match cursor.take(":") {
        true => cursor.number()?,
        false => 1,
    };
    cursor.expect("]", "']' of a slice")?;
    Ok(SliceDimension {
        start,
        limit,
        stride,
    })
}

/// `0_1x2_1_3`: low, high and, if it is not 0, interior, for each dimension.
fn padding(cursor: &mut Cursor<'_>) -> Parsed<Vec<PaddingDimension>> {
    let value = cursor.value();
    let dimension = |text: &str| {
        let mut numbers = text.split('_').map(|number| number.parse().ok());
        let dimension = PaddingDimension {
            low: numbers.next()??,
            high: numbers.next()??,
            interior: numbers.next().unwrap_or(Some(0))?,
        };
        numbers.next().is_none().then_some(dimension)
    };
    let dimensions = value.text.split('x').map(dimension).collect::<Option<_>>();
    dimensions.ok_or_else(|| {
        let found = shortened(value.text);
        Diagnostic::invalid(
            value.at,
            format!("expected a padding such as 0_1x2_3_1, found {found:?}"),
        )
    })
}

#[cfg(test)]
mod tests;
