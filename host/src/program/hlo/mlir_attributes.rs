//! Attributes in MLIR's notation: what a typed-FFI custom call has in `backend_config`.
//!
//! Kinds and types are those that JAX's `ffi_call` lowers: numbers of all widths, booleans, strings, arrays (`dense<...>`), dictionaries. XLA takes
//! fewer (xla/ffi/attribute_map.cc): no arrays of booleans, of complex numbers or of types narrower than a byte, and no shapes of arrays. MLIR's
//! own arrays of numbers of one type (`[1, 2]`), which JAX makes of a tuple, are arrays here; XLA refuses them.

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
            let name = attribute_name(cursor)?;
            if dictionary.contains_key(&name.value) {
                let message = format!(
                    "expected each attribute once, found another {:?}",
                    shortened(&name.value)
                );
                return Err(Diagnostic::invalid(name.at, message));
            }
            if cursor.sees(",") || cursor.sees("}") {
                let message = format!(
                    "the attribute {:?} without a value is not supported",
                    shortened(&name.value)
                );
                return Err(Diagnostic::unimplemented(name.at, message));
            }
            cursor.expect("=", "'=' behind the attribute's name")?;
            let value = self.value(cursor, depth)?;
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
        // A type, a reference, `unit`, `affine_map`, ...
        let is_word = cursor
            .clone()
            .word()
            .is_some_and(|word| !matches!(word, "true" | "false"));
        if is_word || ["@", "#", "!"].iter().any(|start| cursor.sees(start)) {
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
        let read = |cursor: &mut Cursor<'_>, bytes: &mut Vec<u8>| {
            element(
                cursor,
                number_type.element_type,
                bytes,
                |part, text, bytes| {
                    push_number(
                        NumberType {
                            element_type: part,
                            ..number_type
                        },
                        text,
                        bytes,
                    )
                },
            )
        };
        if cursor.is_at_end() && shape.element_count() == 0 {
            return Ok(());
        }
        if cursor.sees("[") {
            return array(cursor, shape.dimensions(), Brackets::Square, |cursor| {
                read(cursor, bytes)
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
            false => read(cursor, bytes)?,
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

/// A word, or a string.
fn attribute_name(cursor: &mut Cursor<'_>) -> Parsed<Placed<String>> {
    if cursor.sees("\"") {
        let Placed { value, at } = string(cursor)?;
        return match String::from_utf8(value) {
            Ok(value) => Ok(Placed { value, at }),
            Err(_) => Err(Diagnostic::invalid(
                at,
                "expected the name of an attribute, found what is not UTF-8",
            )),
        };
    }
    let Name { text, at } = cursor.mlir_word();
    match text {
        "" => Err(cursor.expected("the name of an attribute")),
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
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;
    use crate::StatusCode;
    use half::{bf16, f16};
    use num_complex::Complex;

    fn read(text: &str) -> Dictionary {
        let mut cursor = Cursor::new(text);
        let dictionary = dictionary(&mut cursor, &mut 1000);
        let dictionary = dictionary
            .map_err(|diagnostic| diagnostic.into_status(text))
            .unwrap();
        assert!(cursor.is_at_end());
        dictionary
    }

    fn refuse(text: &str) -> (StatusCode, String) {
        let status = dictionary(&mut Cursor::new(text), &mut 1000)
            .unwrap_err()
            .into_status(text);
        (
            status.code(),
            status.message().lines().next().unwrap().to_owned(),
        )
    }

    /// The texts in these tests are those that JAX 0.10.2 prints for the values beside them.
    #[test]
    fn scalars_have_the_type_that_stands_behind_them() {
        let read = read(concat!(
            "{a = 1 : i64, b = 2.500000e+00 : f64, c = true, d = 255 : ui8, e = -128 : i8, f = 0x7FC00000 : f32, ",
            "g = 0xFFF0000000000000 : f64, h = -0.000000e+00 : f64, i = 1.000000e-01 : f32, j = 0.33333333333333331 : f64, ",
            "k = 9223372036854775807 : ui64, l = 0x7E00 : f16, m = 1.000000e+00 : bf16, n = 4, o = 1.000000e+300}",
        ));
        for (name, value) in [
            ("a", Attribute::scalar(1_i64)),
            ("b", Attribute::scalar(2.5)),
            ("c", Attribute::scalar(true)),
            ("d", Attribute::scalar(255_u8)),
            ("e", Attribute::scalar(-128_i8)),
            ("f", Attribute::scalar(f32::NAN)),
            ("g", Attribute::scalar(f64::NEG_INFINITY)),
            ("h", Attribute::scalar(-0.0)),
            ("i", Attribute::scalar(0.1_f32)),
            ("j", Attribute::scalar(1.0 / 3.0)),
            ("k", Attribute::scalar(i64::MAX as u64)),
            ("l", Attribute::scalar(f16::NAN)),
            ("m", Attribute::scalar(bf16::ONE)),
            ("n", Attribute::scalar(4_i64)),
            ("o", Attribute::scalar(1e300)),
        ] {
            assert_eq!(read[name], value, "{name}");
        }
    }

    #[test]
    fn names_and_strings_have_mlirs_escapes() {
        let read = read(concat!(
            r#"{"" = 8 : i64, "1x" = "he said \22hi\22\0A\09\\ \00 \C3\A9 \7F", true = 4 : i64, x$y = "}{", "#,
            r#""x-y" = "\FF\00ab", x.y = "", "\C3\A9" = "\22}"}"#,
        ));
        let names: Vec<_> = read.keys().map(String::as_str).collect();
        assert_eq!(names, ["", "1x", "true", "x$y", "x-y", "x.y", "é"]);
        assert_eq!(
            read["1x"],
            Attribute::from("he said \"hi\"\n\t\\ \0 é \x7f")
        );
        assert_eq!(read["x-y"], Attribute::String(b"\xff\0ab".to_vec()));
        assert_eq!(read["é"], Attribute::from("\"}"));
    }

    #[test]
    fn arrays_keep_their_shape_and_their_type() {
        let read = read(concat!(
            "{a = dense<[[1, 0], [0, 1]]> : tensor<2x2xi32>, b = dense<1.000000e+00> : tensor<3xf32>, ",
            "c = dense<> : tensor<2x0xf64>, d = dense<1> : tensor<ui8>, e = dense<\"0x0000803F00000040\"> : tensor<2xf32>, ",
            "f = dense<[(0x7FC00000,0x7F800000), (-0.000000e+00,0.000000e+00)]> : tensor<2xcomplex<f32>>, ",
            "g = dense<[true, false, true]> : tensor<3xi1>, h = dense<(1.000000e+00,0.000000e+00)> : tensor<2xcomplex<f64>>, ",
            "i = array<i64: 1, -2>, j = array<i1: true>, k = array<f32>, l = [1.000000e+00, 2.000000e+00], m = [1, 2], ",
            "n = dense<[-8, 7]> : tensor<2xi4>, o = dense<[18446744073709551615, 1]> : tensor<2xui64>, ",
            "p = dense<\"0x07\"> : tensor<4xui4>}",
        ));
        let float_bits = [f32::NAN, f32::INFINITY].map(f32::to_bits);
        let Attribute::Array(complex) = &read["f"] else {
            unreachable!("{:?}", read["f"])
        };
        let complex = complex.to_vec::<Complex<f32>>().unwrap();
        assert_eq!([complex[0].re, complex[0].im].map(f32::to_bits), float_bits);
        assert!(complex[1].re.is_sign_negative());
        let bytes = |shape: &str, bytes: &[u8]| {
            Literal::from_bytes(shape.parse().unwrap(), bytes.to_vec()).unwrap()
        };
        for (name, value) in [
            ("a", Literal::array(&[2, 2], &[1, 0, 0, 1]).unwrap()),
            ("b", Literal::array(&[3], &[1.0_f32; 3]).unwrap()),
            ("c", Literal::array::<f64>(&[2, 0], &[]).unwrap()),
            ("d", Literal::scalar(1_u8)),
            ("e", Literal::array(&[2], &[1.0_f32, 2.0]).unwrap()),
            ("g", Literal::array(&[3], &[true, false, true]).unwrap()),
            (
                "h",
                Literal::array(&[2], &[Complex::new(1.0, 0.0); 2]).unwrap(),
            ),
            ("i", Literal::array(&[2], &[1_i64, -2]).unwrap()),
            ("j", Literal::array(&[1], &[true]).unwrap()),
            ("k", Literal::array::<f32>(&[0], &[]).unwrap()),
            ("l", Literal::array(&[2], &[1.0, 2.0]).unwrap()),
            ("m", Literal::array(&[2], &[1_i64, 2]).unwrap()),
            ("n", bytes("s4[2]", &[0xf8, 7])),
            ("o", Literal::array(&[2], &[u64::MAX, 1]).unwrap()),
            ("p", bytes("u4[4]", &[7; 4])),
        ] {
            assert_eq!(read[name], Attribute::Array(value), "{name}");
        }
    }

    #[test]
    fn dictionaries_nest() {
        let read = read("{a = {x = 1 : i64, y = {z = \"}\"}}, b = {}}");
        let Attribute::Dictionary(a) = &read["a"] else {
            unreachable!("{:?}", read["a"])
        };
        assert_eq!(a["x"], Attribute::scalar(1_i64));
        assert_eq!(a["y"].kind(), "dictionary");
        assert_eq!(read["b"], Attribute::Dictionary(Dictionary::new()));
        let deep = "{a = ".repeat(100_000);
        assert_eq!(refuse(&deep).0, StatusCode::ResourceExhausted);
    }

    #[test]
    fn other_kinds_are_refused_by_name() {
        for (text, message) in [
            (
                "{a = f8E5M2}",
                "6: attributes such as \"f8E5M2\" are not supported",
            ),
            (
                "{a = unit}",
                "6: attributes such as \"unit\" are not supported",
            ),
            (
                "{a = affine_map<(d0) -> (d0)>}",
                "6: attributes such as \"affine_map\" are not supported",
            ),
            ("{a = @f}", "6: attributes such as '@' are not supported"),
            (
                "{a = #x.y<1>}",
                "6: attributes such as '#' are not supported",
            ),
            (
                "{flag, b = 1}",
                "2: the attribute \"flag\" without a value is not supported",
            ),
            (
                "{a = [1, \"x\", true]}",
                "10: a list other than of numbers of one type is not supported",
            ),
            (
                "{a = [1, 2.0]}",
                "10: a list other than of numbers of one type is not supported",
            ),
            (
                "{a = [[1]]}",
                "7: a list other than of numbers of one type is not supported",
            ),
            (
                "{a = []}",
                "6: an empty list, which has no type, is not supported",
            ),
            (
                "{a = 4 : index}",
                "10: attributes of type index are not supported",
            ),
            (
                "{a = 4 : i128}",
                "10: attributes of type i128 are not supported",
            ),
            (
                "{a = dense<1> : vector<2xi32>}",
                "17: elements of a type other than tensor are not supported",
            ),
        ] {
            let message = format!("line 1, column {message}");
            assert_eq!(refuse(text), (StatusCode::Unimplemented, message));
        }
    }

    #[test]
    fn wrong_texts_are_refused_with_their_place() {
        for (text, message) in [
            (
                "a = 1",
                "1: expected '{' and attributes such as n = 4 : i32, found \"a\"",
            ),
            (
                "{a = 1",
                "7: expected ',' or '}', found the end of the text",
            ),
            ("{a = 1 b = 2}", "8: expected ',' or '}', found \"b\""),
            (
                "{a = 1, a = 2}",
                "9: expected each attribute once, found another \"a\"",
            ),
            (
                "{1 = 1}",
                "2: expected the name of an attribute, found \"1\"",
            ),
            (
                "{a : 1}",
                "4: expected '=' behind the attribute's name, found ':'",
            ),
            (
                "{a = }",
                "6: expected an attribute such as 4 : i32 or \"text\", found '}'",
            ),
            (
                "{a = -}",
                "6: expected an attribute such as 4 : i32 or \"text\", found \"-\"",
            ),
            (
                "{a = 300 : ui8}",
                "6: expected a value of u8 from 0 to 255, found \"300\"",
            ),
            (
                "{a = \"\\x\"}",
                "7: expected an escape such as \\n or \\C3, found \"\\\\x\"",
            ),
            (
                "{\"\\FF\" = 1}",
                "2: expected the name of an attribute, found what is not UTF-8",
            ),
            (
                "{a = dense<[1, 2> : tensor<2xi32>}",
                "17: expected ']' behind 2 elements, found '>'",
            ),
            (
                "{a = dense<[1, 2, 3]> : tensor<2xi32>}",
                "17: expected ']' behind 2 elements, found ','",
            ),
            (
                "{a = dense<[1], 2> : tensor<1xi32>}",
                "15: expected '>' of dense elements, found ','",
            ),
            (
                "{a = dense<1>}",
                "14: expected ':' and the type of dense elements, found '}'",
            ),
            (
                "{a = dense<[1, x]> : tensor<2xi32>}",
                "16: expected a value of s32 from -2147483648 to 4294967295, found \"x\"",
            ),
            (
                "{a = dense<\"0x0102\"> : tensor<3xi8>}",
                "12: expected 3 elements for s8[3], found 2",
            ),
            (
                "{a = dense<\"01\"> : tensor<1xi8>}",
                "12: expected pairs of hexadecimal digits behind 0x, found \"01\"",
            ),
            (
                "{a = dense<> : tensor<1xi8>}",
                "12: expected a value of s8, found '>'",
            ),
            (
                "{a = array<i64: 1 2>}",
                "19: expected ',' or '>', found \"2\"",
            ),
            (
                "{a = array<i64: >}",
                "17: expected a value of s64 from -9223372036854775808 to 18446744073709551615, found \"\"",
            ),
        ] {
            let message = format!("line 1, column {message}");
            assert_eq!(refuse(text), (StatusCode::InvalidArgument, message));
        }
    }

    #[test]
    fn one_element_for_many_has_a_bound() {
        let (code, message) =
            refuse("{a = dense<1> : tensor<900xi8>, b = dense<1> : tensor<101xi8>}");
        assert_eq!(code, StatusCode::ResourceExhausted);
        assert_eq!(
            message,
            "line 1, column 43: expected arrays that fit into memory, found s8[101] of one value"
        );
        assert_eq!(
            refuse("{a = dense<1> : tensor<9223372036854775807xi8>}").0,
            StatusCode::ResourceExhausted
        );
    }
}
