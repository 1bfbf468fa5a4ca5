//! Reads literals: `{ { 1, 2 }, { 3, 4 } }`, `(1, {true})`.

use super::cursor::Cursor;
use super::diagnostic::{Diagnostic, Parsed};
use super::read_element::{component_type, push_element};
use crate::values::{ArrayShape, ElementType, Literal, Shape};

/// The depth to which literals with shapes of their own may nest: that of shapes.
const MAX_DEPTH: usize = 64;

/// The brackets of an array.
pub(super) type Brackets = [&'static str; 2];

/// Reads a literal of this shape. [`Shape::tuple`] bounds the depth of the recursion.
///
/// # Errors
/// INVALID_ARGUMENT for text that is no such literal.
pub fn read_literal(cursor: &mut Cursor<'_>, shape: &Shape) -> Parsed<Literal> {
    let at = cursor.at();
    let shape = match shape {
        Shape::Array(array) => return array_literal(cursor, array),
        Shape::Tuple(tuple) => tuple,
    };
    cursor.expect("(", "'(' of a tuple")?;
    let mut elements = Vec::new();
    for (index, element) in shape.elements().iter().enumerate() {
        if index > 0 {
            cursor.expect(",", "',' and the tuple's next element")?;
        }
        elements.push(read_literal(cursor, element)?);
    }
    cursor.expect(")", "')' of a tuple")?;
    Literal::tuple(elements).map_err(|status| Diagnostic::of_status(at, &status))
}

/// Reads a literal that is preceded by its shape: `f32[2] {1, 2}`, `(s32[] 1, pred[] true)`.
///
/// # Errors
/// INVALID_ARGUMENT for text that is no such literal, RESOURCE_EXHAUSTED for tuples nested too
/// deep.
pub fn read_literal_with_shape(cursor: &mut Cursor<'_>) -> Parsed<Literal> {
    nested_literal(cursor, MAX_DEPTH)
}

/// Reads an array of these dimensions with a call of `element` for each element.
pub(super) fn read_array(
    cursor: &mut Cursor<'_>,
    dimensions: &[usize],
    [open, close]: Brackets,
    mut element: impl FnMut(&mut Cursor<'_>) -> Parsed<()>,
) -> Parsed<()> {
    if dimensions.is_empty() {
        return element(cursor);
    }
    let expect_open =
        |cursor: &mut Cursor<'_>| cursor.expect(open, &format!("'{open}' of an array"));
    expect_open(cursor)?;
    // An array without elements may be written `{}`, whatever its other dimensions.
    if dimensions.contains(&0) && cursor.take(close) {
        return Ok(());
    }
    // The number of items read so far in each open level, the outermost first.
    let mut counts = vec![0_usize];
    while let Some(count) = counts.last().copied() {
        let level = counts.len();
        if cursor.sees("...") {
            return Err(elided(cursor));
        }
        if count == dimensions[level - 1] {
            if !cursor.take(close) {
                let items = items(dimensions, level);
                return Err(cursor.expected(&format!("'{close}' behind {items}")));
            }
            counts.pop();
            continue;
        }
        if cursor.sees(close) {
            return Err(cursor.expected(&items(dimensions, level)));
        }
        if count > 0 && !cursor.take(",") {
            return Err(cursor.expected(&format!("',' or '{close}'")));
        }
        counts[level - 1] += 1;
        if level == dimensions.len() {
            element(cursor)?;
        } else {
            expect_open(cursor)?;
            counts.push(0);
        }
    }
    Ok(())
}

/// The diagnostic for `{...}`, which XLA prints instead of a large constant.
fn elided(cursor: &mut Cursor<'_>) -> Diagnostic {
    let message = "the elements of this constant were left out when the program was printed; \
                   print it with as_hlo_text(print_large_constants=True)";
    Diagnostic::invalid(cursor.at(), message)
}

/// Reads an element and appends its bytes. `part` does so for one number: a complex number has two.
pub(super) fn read_element(
    cursor: &mut Cursor<'_>,
    element_type: ElementType,
    bytes: &mut Vec<u8>,
    part: impl Fn(ElementType, &str, &mut Vec<u8>) -> Result<(), String>,
) -> Parsed<()> {
    let mut read = |cursor: &mut Cursor<'_>| {
        let value = cursor.value();
        if value.text.is_empty() {
            return Err(cursor.expected(&format!("a value of {element_type}")));
        }
        part(component_type(element_type), value.text, bytes)
            .map_err(|message| Diagnostic::invalid(value.at, message))
    };
    if !element_type.is_complex() {
        return read(cursor);
    }
    cursor.expect("(", "'(' of a complex number")?;
    read(cursor)?;
    cursor.expect(",", "',' and an imaginary part")?;
    read(cursor)?;
    cursor.expect(")", "')' of a complex number")
}

fn array_literal(cursor: &mut Cursor<'_>, shape: &ArrayShape) -> Parsed<Literal> {
    let at = cursor.at();
    let element_type = shape.element_type();
    if element_type == ElementType::Token {
        let message = format!("expected a literal of an array, found one of {shape}");
        return Err(Diagnostic::invalid(at, message));
    }
    let mut bytes = Vec::new();
    read_array(cursor, shape.dimensions(), ["{", "}"], |cursor| {
        read_element(cursor, element_type, &mut bytes, push_element)
    })?;
    Literal::from_bytes(shape.clone(), bytes).map_err(|status| Diagnostic::of_status(at, &status))
}

fn nested_literal(cursor: &mut Cursor<'_>, depth: usize) -> Parsed<Literal> {
    let at = cursor.at();
    if !cursor.take("(") {
        let shape = cursor.shape()?;
        return read_literal(cursor, &shape);
    }
    let Some(depth) = depth.checked_sub(1) else {
        let message = format!("expected literals that nest at most {MAX_DEPTH} deep, found more");
        return Err(Diagnostic::exhausted(at, message));
    };
    let elements = cursor.items(")", |cursor| nested_literal(cursor, depth))?;
    Literal::tuple(elements).map_err(|status| Diagnostic::of_status(at, &status))
}

/// The items at this level of an array, for a message.
fn items(dimensions: &[usize], level: usize) -> String {
    let size = dimensions[level - 1];
    if level == dimensions.len() {
        format!("{size} elements")
    } else {
        format!("{size} arrays in dimension {}", level - 1)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;
    use num_complex::Complex;

    fn read(shape: &str, text: &str) -> Literal {
        let mut cursor = Cursor::new(text);
        let read = read_literal(&mut cursor, &shape.parse().unwrap());
        let read = read
            .map_err(|diagnostic| diagnostic.into_status(text))
            .unwrap();
        assert!(cursor.is_at_end());
        read
    }

    fn refuse(shape: &str, text: &str) -> String {
        let mut cursor = Cursor::new(text);
        let read = read_literal(&mut cursor, &shape.parse().unwrap());
        let status = read.unwrap_err().into_status(text);
        status.message().lines().next().unwrap().to_owned()
    }

    #[test]
    fn arrays_nest_as_their_shape_says() {
        let matrix = read("s32[2,3]{0,1}", "{ { 1, -2, 3 }, { 4, 5, -6 } }");
        assert_eq!(matrix.to_vec::<i32>().unwrap(), [1, -2, 3, 4, 5, -6]);
        assert_eq!(matrix.shape().to_string(), "s32[2,3]{0,1}");
        assert_eq!(read("f32[]", "-1.5").to_vec::<f32>().unwrap(), [-1.5]);
        assert_eq!(
            read("u8[2,1,2]", "{ { { 1, 2 } }, { { 3, 4 } } }")
                .to_vec::<u8>()
                .unwrap(),
            [1, 2, 3, 4]
        );
        let commented = read("s8[2,2]", "{ /*i0=0*/\n{1,2}, /*i0=1*/ {3,4}}");
        assert_eq!(commented.to_vec::<i8>().unwrap(), [1, 2, 3, 4]);
        for (shape, text) in [
            ("f32[0]", "{}"),
            ("f32[0,2]", "{  }"),
            ("f32[3,0]", "{ {}, {}, {} }"),
            ("f32[2,0,3]", "{ {  }, {  } }"),
        ] {
            assert_eq!(read(shape, text).bytes().unwrap(), [0; 0], "{shape}");
        }
    }

    #[test]
    fn complex_numbers_and_tuples_are_in_parentheses() {
        let complex = read("c64[2]", "{(1, 2), (-0, -inf)}")
            .to_vec::<Complex<f32>>()
            .unwrap();
        assert_eq!(
            complex,
            [
                Complex::new(1.0, 2.0),
                Complex::new(-0.0, f32::NEG_INFINITY)
            ]
        );
        assert!(complex[1].re.is_sign_negative());
        let tuple = read(
            "(c128[], (pred[2], ()), /*index=2*/s4[])",
            "( (1, nan), ( {1, 0}, () ), -8 )",
        );
        assert_eq!(tuple.shape().to_string(), "(c128[], (pred[2], ()), s4[])");
        assert_eq!(tuple.leaves().nth(1).unwrap().1, [1, 0]);
    }

    #[test]
    fn literals_may_say_their_shape() {
        let text = "(s32[2] {1, 2}, (), (f32[] -0))";
        let literal = read_literal_with_shape(&mut Cursor::new(text)).unwrap();
        assert_eq!(literal.shape().to_string(), "(s32[2], (), (f32[]))");
        let deep = "(".repeat(100_000);
        let status = read_literal_with_shape(&mut Cursor::new(&deep))
            .unwrap_err()
            .into_status(&deep);
        assert_eq!(status.code(), crate::StatusCode::ResourceExhausted);
    }

    #[test]
    fn literals_that_are_not_of_their_shape_are_refused() {
        for (shape, text, message) in [
            ("f32[2]", "{1}", "column 3: expected 2 elements, found '}'"),
            (
                "f32[2]",
                "{1, 2, 3}",
                "column 6: expected '}' behind 2 elements, found ','",
            ),
            (
                "f32[2,1]",
                "{{1}}",
                "column 5: expected 2 arrays in dimension 0, found '}'",
            ),
            (
                "f32[1,1]",
                "{1}",
                "column 2: expected '{' of an array, found \"1\"",
            ),
            (
                "f32[2]",
                "{1 2}",
                "column 4: expected ',' or '}', found \"2\"",
            ),
            (
                "f32[2]",
                "{1,}",
                "column 4: expected a value of f32, found '}'",
            ),
            (
                "f32[1]",
                "1",
                "column 1: expected '{' of an array, found \"1\"",
            ),
            (
                "f32[]",
                "{1}",
                "column 1: expected a value of f32, found '{'",
            ),
            (
                "f32[0]",
                "{1}",
                "column 2: expected '}' behind 0 elements, found \"1\"",
            ),
            (
                "f32[1000000000]",
                "{0, 0",
                "column 6: expected ',' or '}', found the end of the text",
            ),
            (
                "c64[]",
                "1",
                "column 1: expected '(' of a complex number, found \"1\"",
            ),
            (
                "c64[]",
                "(1)",
                "column 3: expected ',' and an imaginary part, found ')'",
            ),
            (
                "c64[]",
                "(1, i)",
                "column 5: expected a value of f32, found \"i\"",
            ),
            (
                "s8[2]",
                "{1, 300}",
                "column 5: expected a value of s8 from -128 to 127, found 300",
            ),
            (
                "(f32[], f32[])",
                "(1)",
                "column 3: expected ',' and the tuple's next element, found ')'",
            ),
            (
                "(f32[])",
                "(1, 2)",
                "column 3: expected ')' of a tuple, found ','",
            ),
            (
                "token[]",
                "1",
                "column 1: expected a literal of an array, found one of token[]",
            ),
            (
                "f32[100]",
                "{...}",
                "column 2: the elements of this constant were left out when the program was printed; print it with as_hlo_text(print_large_constants=True)",
            ),
        ] {
            assert_eq!(
                refuse(shape, text),
                format!("line 1, {message}"),
                "{shape} {text}"
            );
        }
    }
}
