//! Attributes in MLIR's notation: what a typed-FFI custom call has in `backend_config`.
//!
//! Kinds and types are those that JAX's `ffi_call` lowers: numbers of all widths, booleans, strings, arrays (`dense<...>`), dictionaries. XLA takes
//! fewer (xla/ffi/attribute_map.cc): no arrays of booleans, of complex numbers or of types narrower than a byte, and no shapes of arrays. MLIR's
//! own arrays of numbers of one type (`[1, 2]`), which JAX makes of a tuple, are arrays here; XLA refuses them. So does it complex scalars
//! (`#complex.number<:f32 1.0, 2.0>`) and functions of the program (`@name`), which its former runtime had.

use super::attributes::Placed;
use super::constants::{Brackets, array, element};
use super::cursor::{Cursor, Name};
use super::escapes::unescape_mlir;
use super::mlir_numbers::{hexadecimal_elements, push_number};
use super::mlir_types::{NumberType, number_type, tensor_type};
use super::source::{Diagnostic, Parsed, shortened};
use crate::values::{ArrayShape, Attribute, Dictionary, ElementType, Literal};

/// How deep dictionaries may nest.
const MAX_DEPTH: usize = 64;

/// Reads a dictionary and nothing behind it. No text at all is an empty one. `splat_bytes` is as for [`dictionary`].
pub(super) fn attributes(text: &str, splat_bytes: &mut usize) -> Parsed<Dictionary> {
    let mut cursor = Cursor::inside(text, "the end of the attributes");
    if cursor.is_at_end() {
        return Ok(Dictionary::new());
    }
    let dictionary = dictionary(&mut cursor, splat_bytes)?;
    match cursor.is_at_end() {
        true => Ok(dictionary),
        false => Err(cursor.expected("the end of the attributes")),
    }
}

/// Reads a dictionary. `splat_bytes` is how many bytes arrays may take whose text says one element for all.
pub(super) fn dictionary(cursor: &mut Cursor<'_>, splat_bytes: &mut usize) -> Parsed<Dictionary> {
    Reader { splat_bytes }.dictionary(cursor, MAX_DEPTH)
}

struct Reader<'a> {
    splat_bytes: &'a mut usize,
}

impl Reader<'_> {
    fn dictionary(&mut self, cursor: &mut Cursor<'_>, depth: usize) -> Parsed<Dictionary> {
        let at = cursor.at();
        let Some(depth) = depth.checked_sub(1) else {
            let message =
                format!("expected attributes that nest at most {MAX_DEPTH} deep, found more");
            return Err(Diagnostic::exhausted(at, message));
        };
        let mut dictionary = Dictionary::new();
        cursor.expect("{", "'{' and attributes such as n = 4 : i32")?;
        while !cursor.take("}") {
            if !dictionary.is_empty() {
                cursor.expect(",", "',' or '}'")?;
            }
            let name = name(cursor, "the name of an attribute")?;
            if dictionary.contains_key(&name.value) {
                let message = format!(
                    "expected each attribute once, found another {:?}",
                    shortened(&name.value)
                );
                return Err(Diagnostic::invalid(name.at, message));
            }
            if cursor.sees(",") || cursor.sees("}") {
                let message = "an attribute without a value is not supported";
                return Err(Diagnostic::unimplemented(name.at, message).of_attribute(&name.value));
            }
            cursor.expect("=", "'=' behind the attribute's name")?;
            let value = self.value(cursor, depth);
            let value = value.map_err(|wrong| wrong.of_attribute(&name.value))?;
            dictionary.insert(name.value, value);
        }
        Ok(dictionary)
    }

    fn value(&mut self, cursor: &mut Cursor<'_>, depth: usize) -> Parsed<Attribute> {
        let at = cursor.at();
        if cursor.sees("{") {
            return Ok(Attribute::Dictionary(self.dictionary(cursor, depth)?));
        }
        if cursor.sees("\"") {
            return string(cursor).map(|text| Attribute::String(text.value));
        }
        if cursor.sees("[") {
            return list(cursor).map(Attribute::Array);
        }
        if cursor.keyword("dense") {
            return self.dense(cursor).map(Attribute::Array);
        }
        if cursor.keyword("array") {
            return dense_array(cursor).map(Attribute::Array);
        }
        if cursor.take("@") {
            return function(cursor).map(Attribute::Function);
        }
        if cursor.take("#complex.number") {
            return complex_number(cursor).map(Attribute::Scalar);
        }
        // A type, `unit`, `affine_map`, ...
        let is_word = cursor
            .clone()
            .word()
            .is_some_and(|word| !matches!(word, "true" | "false"));
        if is_word || ["#", "!"].iter().any(|start| cursor.sees(start)) {
            let message = format!("attributes such as {} are not supported", cursor.found());
            return Err(Diagnostic::unimplemented(at, message));
        }
        let (number, number_type) = number(cursor)?;
        let literal = literal(ArrayShape::scalar(number_type.element_type), at, |bytes| {
            push(number_type, number, bytes)
        })?;
        Ok(Attribute::Scalar(literal))
    }

    /// The rest of `dense<[1, 2]> : tensor<2xi32>`, of which the type comes last and says how to read what comes first.
    fn dense(&mut self, cursor: &mut Cursor<'_>) -> Parsed<Literal> {
        let at = cursor.at();
        cursor.expect("<", "'<' of dense elements")?;
        let mut elements = cursor.up_to_angle()?;
        cursor.expect(">", "'>' of dense elements")?;
        cursor.expect(":", "':' and the type of dense elements")?;
        let (shape, number_type) = tensor_type(cursor)?;
        let literal = literal(shape.clone(), at, |bytes| {
            self.elements(&mut elements, &shape, number_type, bytes)
        })?;
        match elements.is_at_end() {
            true => Ok(literal),
            false => Err(elements.expected("'>' of dense elements")),
        }
    }

    fn elements(
        &mut self,
        cursor: &mut Cursor<'_>,
        shape: &ArrayShape,
        number_type: NumberType,
        bytes: &mut Vec<u8>,
    ) -> Parsed<()> {
        let at = cursor.at();
        if cursor.is_at_end() && shape.element_count() == 0 {
            return Ok(());
        }
        if cursor.sees("[") {
            return array(cursor, shape.dimensions(), Brackets::Square, |cursor| {
                dense_element(cursor, number_type, bytes)
            });
        }
        match cursor.sees("\"") {
            true => {
                let text = cursor.raw_string()?;
                let elements = hexadecimal_elements(shape.element_type(), text);
                *bytes = elements.map_err(|message| Diagnostic::invalid(at, message))?;
                if bytes.len() == shape.byte_size() {
                    return Ok(());
                }
            }
            false => dense_element(cursor, number_type, bytes)?,
        }
        self.splat(shape, at, bytes)
    }

    /// Repeats the one element that there is.
    fn splat(&mut self, shape: &ArrayShape, at: usize, bytes: &mut Vec<u8>) -> Parsed<()> {
        let width = shape.element_type().byte_width();
        if bytes.len() != width {
            let message = format!(
                "expected {} elements for {shape}, found {}",
                shape.element_count(),
                bytes.len() / width
            );
            return Err(Diagnostic::invalid(at, message));
        }
        let Some(left) = self.splat_bytes.checked_sub(shape.byte_size()) else {
            let message =
                format!("expected arrays that fit into memory, found {shape} of one value");
            return Err(Diagnostic::exhausted(at, message));
        };
        *self.splat_bytes = left;
        *bytes = bytes.repeat(shape.element_count());
        Ok(())
    }
}

/// An element of `dense<...>`. The parts of a complex number have the type of parts.
fn dense_element(
    cursor: &mut Cursor<'_>,
    number_type: NumberType,
    bytes: &mut Vec<u8>,
) -> Parsed<()> {
    element(
        cursor,
        number_type.element_type,
        bytes,
        |element_type, text, bytes| {
            push_number(
                NumberType {
                    element_type,
                    ..number_type
                },
                text,
                bytes,
            )
        },
    )
}

/// The name of `what`: a word, or a string.
fn name(cursor: &mut Cursor<'_>, what: &str) -> Parsed<Placed<String>> {
    if cursor.sees("\"") {
        let Placed { value, at } = string(cursor)?;
        return match String::from_utf8(value) {
            Ok(value) => Ok(Placed { value, at }),
            Err(_) => Err(Diagnostic::invalid(
                at,
                format!("expected {what}, found what is not UTF-8"),
            )),
        };
    }
    let Name { text, at } = cursor.mlir_word();
    match text {
        "" => Err(cursor.expected(what)),
        text => Ok(Placed {
            value: text.to_owned(),
            at,
        }),
    }
}

fn string(cursor: &mut Cursor<'_>) -> Parsed<Placed<Vec<u8>>> {
    let at = cursor.at();
    let raw = cursor.raw_string()?;
    match unescape_mlir(raw) {
        Ok(value) => Ok(Placed { value, at }),
        Err((offset, message)) => Err(Diagnostic::invalid(at + 1 + offset, message)),
    }
}

/// The name of a function, behind its `@`: a word, or a string.
fn function(cursor: &mut Cursor<'_>) -> Parsed<String> {
    let name = name(cursor, "the name of a function")?;
    match cursor.sees("::") {
        true => Err(Diagnostic::unimplemented(
            name.at,
            "a reference to a part of a symbol is not supported",
        )),
        false => Ok(name.value),
    }
}

/// The rest of `#complex.number<:f32 1.0, 2.0>`.
fn complex_number(cursor: &mut Cursor<'_>) -> Parsed<Literal> {
    let at = cursor.at();
    cursor.expect("<", "'<' of a complex number")?;
    cursor.expect(":", "':' and the type of a complex number's parts")?;
    let part = number_type(cursor)?;
    let element_type = match part.element_type {
        ElementType::F32 => ElementType::C64,
        ElementType::F64 => ElementType::C128,
        other => {
            let message = format!("complex numbers of {other} are not supported");
            return Err(Diagnostic::unimplemented(at, message));
        }
    };
    let number = literal(ArrayShape::scalar(element_type), at, |bytes| {
        push(part, cursor.value(), bytes)?;
        cursor.expect(",", "',' and an imaginary part")?;
        push(part, cursor.value(), bytes)
    })?;
    cursor.expect(">", "'>' of a complex number")?;
    Ok(number)
}

/// A number's text and its type: the type that stands behind it, or else what MLIR takes it for.
fn number<'a>(cursor: &mut Cursor<'a>) -> Parsed<(Name<'a>, NumberType)> {
    let mut start = cursor.clone();
    let value = cursor.value();
    let of = |element_type| NumberType {
        element_type,
        is_signless: false,
    };
    if matches!(value.text, "true" | "false") {
        return Ok((value, of(ElementType::Pred)));
    }
    let digits = value.text.strip_prefix('-').unwrap_or(value.text);
    if !digits.starts_with(|c: char| c.is_ascii_digit()) {
        return Err(start.expected("an attribute such as 4 : i32 or \"text\""));
    }
    if cursor.take(":") {
        return Ok((value, number_type(cursor)?));
    }
    let is_float = value.text.contains('.');
    Ok((
        value,
        of(if is_float {
            ElementType::F64
        } else {
            ElementType::S64
        }),
    ))
}

/// A list of numbers of one type, as an array of rank 1. Others are refused.
fn list(cursor: &mut Cursor<'_>) -> Parsed<Literal> {
    let at = cursor.at();
    let unsupported = |cursor: &mut Cursor<'_>| {
        Diagnostic::unimplemented(
            cursor.at(),
            "a list other than of numbers of one type is not supported",
        )
    };
    cursor.take("[");
    let (mut element_type, mut bytes, mut count) = (None, Vec::new(), 0);
    while !cursor.take("]") {
        if count > 0 {
            cursor.expect(",", "',' or ']'")?;
        }
        let mut start = cursor.clone();
        let Ok((text, number_type)) = number(cursor) else {
            return Err(unsupported(&mut start));
        };
        if *element_type.get_or_insert(number_type.element_type) != number_type.element_type {
            return Err(unsupported(&mut start));
        }
        push(number_type, text, &mut bytes)?;
        count += 1;
    }
    let Some(element_type) = element_type else {
        return Err(Diagnostic::unimplemented(
            at,
            "an empty list, which has no type, is not supported",
        ));
    };
    let shape = ArrayShape::new(element_type, &[count]);
    let literal = shape.and_then(|shape| Literal::from_bytes(shape, bytes));
    literal.map_err(|status| Diagnostic::of_status(at, &status))
}

/// The rest of `array<i64: 1, 2>`.
fn dense_array(cursor: &mut Cursor<'_>) -> Parsed<Literal> {
    let at = cursor.at();
    cursor.expect("<", "'<' of an array")?;
    let number_type = number_type(cursor)?;
    let (mut bytes, mut count) = (Vec::new(), 0);
    if cursor.take(":") {
        while count == 0 || cursor.take(",") {
            let value = cursor.value();
            push(number_type, value, &mut bytes)?;
            count += 1;
        }
    }
    cursor.expect(">", "',' or '>'")?;
    let shape = ArrayShape::new(number_type.element_type, &[count]);
    let literal = shape.and_then(|shape| Literal::from_bytes(shape, bytes));
    literal.map_err(|status| Diagnostic::of_status(at, &status))
}

fn push(number_type: NumberType, number: Name<'_>, bytes: &mut Vec<u8>) -> Parsed<()> {
    push_number(number_type, number.text, bytes)
        .map_err(|message| Diagnostic::invalid(number.at, message))
}

fn literal(
    shape: ArrayShape,
    at: usize,
    read: impl FnOnce(&mut Vec<u8>) -> Parsed<()>,
) -> Parsed<Literal> {
    let mut bytes = Vec::new();
    read(&mut bytes)?;
    Literal::from_bytes(shape, bytes).map_err(|status| Diagnostic::of_status(at, &status))
}

#[cfg(test)]
mod tests;
