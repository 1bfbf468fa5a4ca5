//! The attributes of instructions.

mod table;
pub(super) mod windows;

pub(super) use self::table::CONTROL_PREDECESSORS;
use self::table::{Use, usage};
use crate::instruction::{PaddingDimension, SliceDimension};
use callbox_core::call::Alias;
use callbox_core::text::{
    Cursor, Diagnostic, Name, Parsed, Placed, read_literal_with_shape, shortened,
};
use callbox_core::values::ShapeIndex;

/// The value of a `backend_config` or of `frontend_attributes`.
#[derive(Clone, Debug)]
pub(super) enum Config<'a> {
    /// The text in braces, with the braces.
    Braces(&'a str),
    /// A string.
    Text(Vec<u8>),
}

/// The attributes of one instruction that have a meaning in callbox. Values are read when they are
/// taken, because their syntax depends on the opcode.
#[derive(Debug)]
pub(super) struct Attributes<'a> {
    opcode: Name<'a>,
    unread: Vec<(&'a str, Cursor<'a>)>,
}

impl<'a> Attributes<'a> {
    /// Reads the attributes that follow the parentheses of an instruction.
    pub(super) fn read(cursor: &mut Cursor<'a>, opcode: Name<'a>) -> Parsed<Self> {
        let mut unread = Vec::new();
        let mut seen = Vec::new();
        while cursor.take(",") {
            let name = cursor.attribute_name()?;
            refuse_repetition(&mut seen, name)?;
            let usage = usage(name, opcode.text)?;
            let value = cursor.clone();
            if name.text == "literal" && usage == Use::Meaningful {
                read_literal_with_shape(cursor)?;
            } else if name.text == "dim_labels" {
                windows::skip_labels(cursor);
            } else {
                skip_value(cursor)?;
            }
            if usage == Use::Meaningful {
                unread.push((name.text, value.up_to(cursor, "the end of the attribute")));
            }
        }
        Ok(Self { opcode, unread })
    }

    /// Takes an attribute and reads its value with `read`, if the instruction has it.
    pub(super) fn take<T>(
        &mut self,
        name: &str,
        read: impl FnOnce(&mut Cursor<'a>) -> Parsed<T>,
    ) -> Parsed<Option<Placed<T>>> {
        let Some(index) = self.unread.iter().position(|(other, _)| *other == name) else {
            return Ok(None);
        };
        let (_, mut cursor) = self.unread.swap_remove(index);
        let at = cursor.at();
        let value = read(&mut cursor)?;
        if cursor.is_at_end() {
            Ok(Some(Placed { value, at }))
        } else {
            Err(cursor.expected("the end of the attribute"))
        }
    }

    /// Takes an attribute that the instruction must have.
    pub(super) fn require<T>(
        &mut self,
        name: &str,
        read: impl FnOnce(&mut Cursor<'a>) -> Parsed<T>,
    ) -> Parsed<Placed<T>> {
        let Name { text, at } = self.opcode;
        self.take(name, read)?.ok_or_else(|| {
            let message = format!("expected the attribute {name} of {text:?}, found none");
            Diagnostic::invalid(at, message)
        })
    }

    /// Takes an attribute that is a list of numbers in braces. It is empty if it is left out.
    pub(super) fn numbers(&mut self, name: &str) -> Parsed<Vec<usize>> {
        let numbers = self.take(name, numbers)?;
        Ok(numbers.map_or_else(Vec::new, |numbers| numbers.value))
    }

    /// Whether the instruction has this attribute, and it has not been taken.
    pub(super) fn contains(&self, name: &str) -> bool {
        self.unread.iter().any(|(other, _)| *other == name)
    }

    /// The instruction's opcode, for messages.
    pub(super) fn opcode(&self) -> Name<'a> {
        self.opcode
    }
}

/// Adds a name to those seen before, among which it must not be.
pub(super) fn refuse_repetition<'a>(seen: &mut Vec<&'a str>, name: Name<'a>) -> Parsed<()> {
    if seen.contains(&name.text) {
        let message = format!(
            "expected each attribute once, found another {:?}",
            name.text
        );
        return Err(Diagnostic::invalid(name.at, message));
    }
    seen.push(name.text);
    Ok(())
}

/// Reads an attribute's value and discards it.
pub(super) fn skip_value(cursor: &mut Cursor<'_>) -> Parsed<()> {
    if cursor.sees("{") {
        cursor.braces().map(drop)
    } else if cursor.sees("\"") {
        cursor.raw_string().map(drop)
    } else {
        let is_name = cursor.take("%");
        if cursor.value().text.is_empty() && !is_name {
            return Err(cursor.expected("the attribute's value"));
        }
        Ok(())
    }
}

/// Reads `true` or `false`.
pub(super) fn flag(cursor: &mut Cursor<'_>) -> Parsed<bool> {
    if cursor.keyword("true") {
        Ok(true)
    } else if cursor.keyword("false") {
        Ok(false)
    } else {
        Err(cursor.expected("true or false"))
    }
}

/// Reads numbers in braces.
pub(super) fn numbers(cursor: &mut Cursor<'_>) -> Parsed<Vec<usize>> {
    cursor.list(Cursor::number)
}

/// Reads a word that stands for a value of `T`. `what` is for the message if it does not.
pub(super) fn word<T>(
    cursor: &mut Cursor<'_>,
    from_name: impl Fn(&str) -> Option<T>,
    what: &str,
) -> Parsed<T> {
    let at = cursor.at();
    let Some(word) = cursor.word() else {
        return Err(cursor.expected("a word"));
    };
    from_name(word).ok_or_else(|| {
        let found = shortened(word);
        Diagnostic::invalid(at, format!("expected {what}, found {found:?}"))
    })
}

/// Reads the name of a computation.
pub(super) fn computation<'a>(cursor: &mut Cursor<'a>) -> Parsed<Name<'a>> {
    cursor.name("the name of a computation")
}

/// Reads a `backend_config` or `frontend_attributes`.
pub(super) fn config<'a>(cursor: &mut Cursor<'a>) -> Parsed<Config<'a>> {
    if cursor.sees("{") {
        cursor.braces().map(Config::Braces)
    } else {
        cursor.string().map(Config::Text)
    }
}

/// Reads a string of UTF-8. `what` is for the message if it is none.
pub(super) fn utf8(cursor: &mut Cursor<'_>, what: &str) -> Parsed<String> {
    let at = cursor.at();
    String::from_utf8(cursor.string()?)
        .map_err(|_| Diagnostic::invalid(at, format!("expected {what}, found what is not UTF-8")))
}

/// Reads an alias of a result and an operand: `{0}: (1, {2})`.
pub(super) fn alias(cursor: &mut Cursor<'_>) -> Parsed<Alias> {
    let result_index: ShapeIndex = numbers(cursor)?;
    cursor.expect(":", "':' between result and operand")?;
    cursor.expect("(", "'(' before the number of an operand")?;
    let operand = cursor.number()?;
    cursor.expect(",", "',' behind the number of an operand")?;
    let operand_index = numbers(cursor)?;
    cursor.expect(")", "')' behind an operand")?;
    Ok(Alias {
        result_index,
        operand,
        operand_index,
    })
}

/// Reads one dimension of a slice: `[0:8]`, `[0:8:2]`.
pub(super) fn slice(cursor: &mut Cursor<'_>) -> Parsed<SliceDimension> {
    cursor.expect("[", "'[' of a slice")?;
    let start = cursor.number()?;
    cursor.expect(":", "':' and the limit of a slice")?;
    let limit = cursor.number()?;
    let stride = if cursor.take(":") {
        cursor.number()?
    } else {
        1
    };
    cursor.expect("]", "']' of a slice")?;
    Ok(SliceDimension {
        start,
        limit,
        stride,
    })
}

/// Reads a padding: for each dimension the low, the high and, unless 0, the interior padding, as
/// in `0_1x2_1_3`.
pub(super) fn padding(cursor: &mut Cursor<'_>) -> Parsed<Vec<PaddingDimension>> {
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
        let message = format!("expected a padding such as 0_1x2_3_1, found {found:?}");
        Diagnostic::invalid(value.at, message)
    })
}

#[cfg(test)]
mod tests;
