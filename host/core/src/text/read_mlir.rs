//! Reads attributes in MLIR's notation: the `backend_config` of a typed-FFI custom call.
//!
//! The kinds and types of attributes are those that JAX's `ffi_call` lowers: numbers of all widths,
//! booleans, strings, arrays (`dense<...>`) and dictionaries. XLA supports fewer
//! (xla/ffi/attribute_map.cc): no arrays of booleans, of complex numbers or of types narrower than
//! a byte, and no shapes of arrays.
//!
//! Three more kinds are read here that XLA refuses: lists of numbers of one type (`[1, 2]`), which
//! JAX makes of a tuple and which become arrays; complex scalars
//! (`#complex.number<:f32 1.0, 2.0>`); and functions of the program (`@name`), which XLA's former
//! runtime had.

use super::attribute_room::AttributeRoom;
use super::cursor::{Cursor, Name};
use super::diagnostic::{Diagnostic, Parsed, Placed, shortened};
use super::escapes::unescape_mlir;
use super::read_literal::{read_array, read_element};
use super::read_mlir_number::{hexadecimal_elements, push_number};
use super::read_mlir_type::{NumberType, number_type, tensor_type};
use crate::values::{ArrayShape, Attribute, Dictionary, ElementType, Literal};

/// The depth to which dictionaries may nest.
const MAX_DEPTH: usize = 64;

/// Reads a text that is one dictionary. An empty text is an empty dictionary.
///
/// An array whose text is a single element, repeated (a splat), may be much larger than its text,
/// and attributes take more than theirs. Reading takes what they need from `room`.
///
/// # Errors
/// INVALID_ARGUMENT for text that is no such dictionary or has attributes that are not supported,
/// RESOURCE_EXHAUSTED for attributes and splats that `room` does not have, and for dictionaries
/// nested more than 64 deep.
pub fn read_attributes(text: &str, room: &mut AttributeRoom) -> Parsed<Dictionary> {
    let mut cursor = Cursor::inside(text, "the end of the attributes");
    if cursor.is_at_end() {
        return Ok(Dictionary::new());
    }
    let mut reader = Reader { room };
    let dictionary = reader.dictionary(&mut cursor, MAX_DEPTH)?;
    if cursor.is_at_end() {
        Ok(dictionary)
    } else {
        Err(cursor.expected("the end of the attributes"))
    }
}

struct Reader<'a> {
    room: &'a mut AttributeRoom,
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
        cursor.items("}", |cursor| {
            let name = name(cursor, "the name of an attribute")?;
            let has_room = self.room.take_attribute();
            has_room.map_err(|message| Diagnostic::exhausted(name.at, message))?;
            if dictionary.contains_key(&name.value) {
                let found = shortened(&name.value);
                let message = format!("expected each attribute once, found another {found:?}");
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
            Ok(())
        })?;
        Ok(dictionary)
    }

    fn value(&mut self, cursor: &mut Cursor<'_>, depth: usize) -> Parsed<Attribute> {
        let at = cursor.at();
        if cursor.sees("{") {
            let dictionary = self.dictionary(cursor, depth)?;
            // An empty one takes no memory of its own.
            if !dictionary.is_empty() {
                let has_room = self.room.take_dictionary();
                has_room.map_err(|message| Diagnostic::exhausted(at, message))?;
            }
            return Ok(Attribute::Dictionary(dictionary));
        }
        if cursor.sees("\"") {
            return string(cursor).map(Attribute::String);
        }
        if cursor.take("[") {
            return list(cursor, at).map(Attribute::Array);
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
        // A type, `unit`, `affine_map` and other kinds of MLIR's.
        let word = cursor.clone().word();
        let is_word = word.is_some_and(|word| !matches!(word, "true" | "false"));
        if is_word || cursor.sees("#") || cursor.sees("!") {
            let message = format!("attributes such as {} are not supported", cursor.found());
            return Err(Diagnostic::unimplemented(at, message));
        }
        let (number, number_type) = number(cursor)?;
        let mut bytes = Vec::new();
        push(number_type, number, &mut bytes)?;
        let shape = ArrayShape::scalar(number_type.element_type);
        literal(at, shape, bytes).map(Attribute::Scalar)
    }

    /// Reads the rest of `dense<[1, 2]> : tensor<2xi32>`. The type is read first: it determines how
    /// to read the elements.
    fn dense(&mut self, cursor: &mut Cursor<'_>) -> Parsed<Literal> {
        let at = cursor.at();
        cursor.expect("<", "'<' of dense elements")?;
        let mut elements = cursor.up_to_angle()?;
        cursor.expect(">", "'>' of dense elements")?;
        cursor.expect(":", "':' and the type of dense elements")?;
        let (shape, number_type) = tensor_type(cursor)?;
        let bytes = self.elements(&mut elements, &shape, number_type)?;
        if elements.is_at_end() {
            literal(at, shape, bytes)
        } else {
            Err(elements.expected("'>' of dense elements"))
        }
    }

    fn elements(
        &mut self,
        cursor: &mut Cursor<'_>,
        shape: &ArrayShape,
        number_type: NumberType,
    ) -> Parsed<Vec<u8>> {
        let at = cursor.at();
        let mut bytes = Vec::new();
        if cursor.is_at_end() && shape.element_count() == 0 {
            return Ok(bytes);
        }
        if cursor.sees("[") {
            read_array(cursor, shape.dimensions(), ["[", "]"], |cursor| {
                dense_element(cursor, number_type, &mut bytes)
            })?;
            return Ok(bytes);
        }
        if cursor.sees("\"") {
            bytes = hexadecimal_elements(shape.element_type(), cursor.raw_string()?)
                .map_err(|message| Diagnostic::invalid(at, message))?;
            if bytes.len() == shape.byte_size() {
                return Ok(bytes);
            }
        } else {
            dense_element(cursor, number_type, &mut bytes)?;
        }
        self.splat(shape, at, &bytes)
    }

    /// Repeats a single element for all elements of the array.
    fn splat(&mut self, shape: &ArrayShape, at: usize, element: &[u8]) -> Parsed<Vec<u8>> {
        let (count, width) = (shape.element_count(), shape.element_type().byte_width());
        if element.len() != width {
            let found = element.len() / width;
            let message = format!("expected {count} elements for {shape}, found {found}");
            return Err(Diagnostic::invalid(at, message));
        }
        self.room.take_splat(shape, at)?;
        Ok(element.repeat(count))
    }
}

/// Reads an element of `dense<...>`.
fn dense_element(
    cursor: &mut Cursor<'_>,
    number_type: NumberType,
    bytes: &mut Vec<u8>,
) -> Parsed<()> {
    read_element(
        cursor,
        number_type.element_type,
        bytes,
        |part, text, bytes| {
            let part = NumberType {
                element_type: part,
                ..number_type
            };
            push_number(part, text, bytes)
        },
    )
}

/// Reads the name of `what`: a word or a string.
fn name(cursor: &mut Cursor<'_>, what: &str) -> Parsed<Placed<String>> {
    let at = cursor.at();
    let value = if cursor.sees("\"") {
        String::from_utf8(string(cursor)?).map_err(|_| {
            Diagnostic::invalid(at, format!("expected {what}, found what is not UTF-8"))
        })?
    } else {
        let word = cursor.mlir_word();
        word.ok_or_else(|| cursor.expected(what))?.to_owned()
    };
    Ok(Placed { value, at })
}

fn string(cursor: &mut Cursor<'_>) -> Parsed<Vec<u8>> {
    let at = cursor.at();
    unescape_mlir(cursor.raw_string()?)
        .map_err(|(offset, message)| Diagnostic::invalid(at + 1 + offset, message))
}

/// Reads the name of a function, behind its `@`.
fn function(cursor: &mut Cursor<'_>) -> Parsed<String> {
    let name = name(cursor, "the name of a function")?;
    if cursor.sees("::") {
        let message = "a reference to a part of a symbol is not supported";
        return Err(Diagnostic::unimplemented(name.at, message));
    }
    Ok(name.value)
}

/// Reads the rest of `#complex.number<:f32 1.0, 2.0>`.
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
    let mut bytes = Vec::new();
    push(part, cursor.value(), &mut bytes)?;
    cursor.expect(",", "',' and an imaginary part")?;
    push(part, cursor.value(), &mut bytes)?;
    cursor.expect(">", "'>' of a complex number")?;
    literal(at, ArrayShape::scalar(element_type), bytes)
}

/// Reads a number and the type behind it. Without a type it has the one that MLIR gives it.
fn number<'a>(cursor: &mut Cursor<'a>) -> Parsed<(Name<'a>, NumberType)> {
    let mut start = cursor.clone();
    let value = cursor.value();
    if matches!(value.text, "true" | "false") {
        return Ok((value, NumberType::new(ElementType::Pred)));
    }
    let digits = value.text.strip_prefix('-').unwrap_or(value.text);
    if !digits.starts_with(|c: char| c.is_ascii_digit()) {
        return Err(start.expected("an attribute such as 4 : i32 or \"text\""));
    }
    let number_type = if cursor.take(":") {
        number_type(cursor)?
    } else if value.text.contains('.') {
        NumberType::new(ElementType::F64)
    } else {
        NumberType::new(ElementType::S64)
    };
    Ok((value, number_type))
}

/// Reads the rest of a list of numbers of one type, as an array of rank 1.
fn list(cursor: &mut Cursor<'_>, at: usize) -> Parsed<Literal> {
    let (mut element_type, mut bytes) = (None, Vec::new());
    let items = cursor.items("]", |cursor| {
        let at = cursor.at();
        let number = number(cursor).ok().filter(|(_, number_type)| {
            *element_type.get_or_insert(number_type.element_type) == number_type.element_type
        });
        let Some((text, number_type)) = number else {
            let message = "a list other than of numbers of one type is not supported";
            return Err(Diagnostic::unimplemented(at, message));
        };
        push(number_type, text, &mut bytes)
    })?;
    let Some(element_type) = element_type else {
        let message = "an empty list, which has no type, is not supported";
        return Err(Diagnostic::unimplemented(at, message));
    };
    vector(at, element_type, items.len(), bytes)
}

/// Reads the rest of `array<i64: 1, 2>`.
fn dense_array(cursor: &mut Cursor<'_>) -> Parsed<Literal> {
    let at = cursor.at();
    cursor.expect("<", "'<' of an array")?;
    let number_type = number_type(cursor)?;
    let (mut bytes, mut count) = (Vec::new(), 0);
    if cursor.take(":") {
        while count == 0 || cursor.take(",") {
            push(number_type, cursor.value(), &mut bytes)?;
            count += 1;
        }
    }
    cursor.expect(">", "',' or '>'")?;
    vector(at, number_type.element_type, count, bytes)
}

fn push(number_type: NumberType, number: Name<'_>, bytes: &mut Vec<u8>) -> Parsed<()> {
    push_number(number_type, number.text, bytes)
        .map_err(|message| Diagnostic::invalid(number.at, message))
}

fn vector(at: usize, element_type: ElementType, count: usize, bytes: Vec<u8>) -> Parsed<Literal> {
    let shape = ArrayShape::new(element_type, &[count]);
    literal(
        at,
        shape.map_err(|status| Diagnostic::of_status(at, &status))?,
        bytes,
    )
}

fn literal(at: usize, shape: ArrayShape, bytes: Vec<u8>) -> Parsed<Literal> {
    Literal::from_bytes(shape, bytes).map_err(|status| Diagnostic::of_status(at, &status))
}

#[cfg(test)]
mod tests;
