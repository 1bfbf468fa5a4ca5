//! Reads types in MLIR's notation: `i32`, `tensor<2x3xf32>`.

use super::cursor::Cursor;
use super::diagnostic::{Diagnostic, Parsed, shortened};
use crate::values::{ArrayShape, ElementType};

/// The type of a number in MLIR.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NumberType {
    /// The element type. XLA reads signless integers as signed ones.
    pub(super) element_type: ElementType,
    /// Whether it is a signless integer, whose text may be that of a signed or an unsigned one.
    pub(super) is_signless: bool,
}

impl NumberType {
    /// A type other than a signless integer.
    pub(super) fn new(element_type: ElementType) -> Self {
        Self {
            element_type,
            is_signless: false,
        }
    }
}

/// Reads the type of a number: `i1`, `ui8`, `f8E5M2`, `complex<f32>`.
pub(super) fn number_type(cursor: &mut Cursor<'_>) -> Parsed<NumberType> {
    let at = cursor.at();
    let Some(name) = cursor.word() else {
        return Err(cursor.expected("a type such as f32"));
    };
    if name != "complex" {
        return named(name).ok_or_else(|| unsupported(at, name));
    }
    cursor.expect("<", "'<' of a complex type")?;
    let element_type = match cursor.word() {
        Some("f32") => ElementType::C64,
        Some("f64") => ElementType::C128,
        Some(other) => return Err(unsupported(at, &format!("complex<{}>", shortened(other)))),
        None => return Err(cursor.expected("the type of a complex number's parts")),
    };
    cursor.expect(">", "'>' of a complex type")?;
    Ok(NumberType::new(element_type))
}

/// Reads `tensor<2x3xf32>`.
pub(super) fn tensor_type(cursor: &mut Cursor<'_>) -> Parsed<(ArrayShape, NumberType)> {
    let at = cursor.at();
    let unimplemented = |at, message: &str| Err(Diagnostic::unimplemented(at, message));
    if cursor.keyword("vector") || cursor.keyword("memref") {
        return unimplemented(at, "elements of a type other than tensor are not supported");
    }
    if !cursor.keyword("tensor") {
        return Err(cursor.expected("a type such as tensor<2xf32>"));
    }
    cursor.expect("<", "'<' of a tensor type")?;
    let mut dimensions = Vec::new();
    while cursor.sees_digit() {
        dimensions.push(cursor.number()?);
        cursor.expect("x", "'x' behind a dimension")?;
    }
    if cursor.sees("?") || cursor.sees("*") {
        return unimplemented(cursor.at(), "dynamic dimensions are not supported");
    }
    let element = number_type(cursor)?;
    if cursor.sees(",") {
        return unimplemented(cursor.at(), "encodings of tensors are not supported");
    }
    cursor.expect(">", "'>' of a tensor type")?;
    let shape = ArrayShape::new(element.element_type, &dimensions);
    Ok((
        shape.map_err(|status| Diagnostic::of_status(at, &status))?,
        element,
    ))
}

fn named(name: &str) -> Option<NumberType> {
    if name == "i1" {
        return Some(NumberType::new(ElementType::Pred));
    }
    // `i8`, `si8` and `ui8` are XLA's `s8`, `s8` and `u8`. Floating-point types differ from XLA's
    // names in case only.
    let (prefix, bits) = name.split_at(name.find(|c: char| c.is_ascii_digit())?);
    let xla = match prefix {
        "i" | "si" => format!("s{bits}"),
        "ui" => format!("u{bits}"),
        "f" | "bf" => name.to_ascii_lowercase(),
        _ => return None,
    };
    let is_same_case = !bits.contains(|c: char| c.is_ascii_lowercase());
    let element_type = xla.parse().ok().filter(|_| is_same_case)?;
    Some(NumberType {
        element_type,
        is_signless: prefix == "i",
    })
}

fn unsupported(at: usize, name: &str) -> Diagnostic {
    let name = shortened(name);
    Diagnostic::unimplemented(at, format!("attributes of type {name} are not supported"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;
    use crate::StatusCode;

    #[test]
    fn types_have_xlas_names() {
        for (text, element_type, is_signless) in [
            ("i1", "pred", false),
            ("i8", "s8", true),
            ("si64", "s64", false),
            ("ui16", "u16", false),
            ("i4", "s4", true),
            ("ui2", "u2", false),
            ("f16", "f16", false),
            ("bf16", "bf16", false),
            ("f64", "f64", false),
            ("f8E4M3B11FNUZ", "f8e4m3b11fnuz", false),
            ("f8E8M0FNU", "f8e8m0fnu", false),
            ("f4E2M1FN", "f4e2m1fn", false),
            ("complex<f32>", "c64", false),
            ("complex<f64>", "c128", false),
        ] {
            let expected = NumberType {
                element_type: element_type.parse().unwrap(),
                is_signless,
            };
            assert_eq!(
                number_type(&mut Cursor::new(text)).unwrap(),
                expected,
                "{text}"
            );
        }
        for (text, shape) in [
            ("tensor<f32>", "f32[]"),
            ("tensor<2x0x3xcomplex<f32>>", "c64[2,0,3]"),
            ("tensor<1xi1>", "pred[1]"),
        ] {
            assert_eq!(
                tensor_type(&mut Cursor::new(text)).unwrap().0.to_string(),
                shape
            );
        }
    }

    #[test]
    fn other_types_are_refused_by_name() {
        for (text, code, message) in [
            (
                "i3",
                StatusCode::Unimplemented,
                "1: attributes of type i3 are not supported",
            ),
            (
                "index",
                StatusCode::Unimplemented,
                "1: attributes of type index are not supported",
            ),
            (
                "f8e5m2",
                StatusCode::Unimplemented,
                "1: attributes of type f8e5m2 are not supported",
            ),
            (
                "complex<i32>",
                StatusCode::Unimplemented,
                "1: attributes of type complex<i32> are not supported",
            ),
            (
                "complex<complex<f32>>",
                StatusCode::Unimplemented,
                "1: attributes of type complex<complex> are not supported",
            ),
            (
                "<",
                StatusCode::InvalidArgument,
                "1: expected a type such as f32, found '<'",
            ),
        ] {
            let status = number_type(&mut Cursor::new(text))
                .unwrap_err()
                .into_status(text);
            assert_eq!(status.code(), code);
            assert_eq!(
                status.message().lines().next().unwrap(),
                format!("line 1, column {message}")
            );
        }
        for (text, code, message) in [
            (
                "tensor<?xf32>",
                StatusCode::Unimplemented,
                "8: dynamic dimensions are not supported",
            ),
            (
                "tensor<2xf32, 1>",
                StatusCode::Unimplemented,
                "13: encodings of tensors are not supported",
            ),
            (
                "vector<2xf32>",
                StatusCode::Unimplemented,
                "1: elements of a type other than tensor are not supported",
            ),
            (
                "tensor<2>",
                StatusCode::InvalidArgument,
                "9: expected 'x' behind a dimension, found '>'",
            ),
            (
                "f32",
                StatusCode::InvalidArgument,
                "1: expected a type such as tensor<2xf32>, found \"f32\"",
            ),
        ] {
            let status = tensor_type(&mut Cursor::new(text))
                .unwrap_err()
                .into_status(text);
            assert_eq!(status.code(), code);
            assert_eq!(
                status.message().lines().next().unwrap(),
                format!("line 1, column {message}")
            );
        }
    }
}
