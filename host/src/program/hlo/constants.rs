//! Literals in the text: `{ { 1, 2 }, { 3, 4 } }`, `(1, {true})`.

use super::cursor::Cursor;
use super::elements::{component_type, push_element};
use super::source::{Diagnostic, Parsed};
use crate::values::{ArrayShape, ElementType, Literal, Shape};

/// How deep literals that say their own shape may nest: as deep as shapes.
const MAX_DEPTH: usize = 64;

/// What an array is written between.
#[derive(Clone, Copy)]
pub(super) enum Brackets {
    /// `{1, 2}`, as in HLO.
    Braces,
    /// `[1, 2]`, as in MLIR.
    Square,
}

/// Reads a literal of this shape. Tuples nest no deeper than [`Shape::tuple`] lets them.
pub(super) fn literal(cursor: &mut Cursor<'_>, shape: &Shape) -> Parsed<Literal> {
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
        elements.push(literal(cursor, element)?);
    }
    cursor.expect(")", "')' of a tuple")?;
    Literal::tuple(elements).map_err(|status| Diagnostic::of_status(at, &status))
}

/// Reads a literal that says its shape: `f32[2] {1, 2}`, `(s32[] 1, pred[] true)`.
pub(super) fn literal_with_shape(cursor: &mut Cursor<'_>) -> Parsed<Literal> {
    nested_literal(cursor, MAX_DEPTH)
}

/// Reads an array of these dimensions, an element at a time.
pub(super) fn array(
    cursor: &mut Cursor<'_>,
    dimensions: &[usize],
    brackets: Brackets,
    mut element: impl FnMut(&mut Cursor<'_>) -> Parsed<()>,
) -> Parsed<()> {
    let (open, close) = brackets.open_and_close();
    if dimensions.is_empty() {
        return element(cursor);
    }
    expect_open(cursor, open)?;
    // An array without elements may be written as the one that it is, and not as the many that are in it.
    if dimensions.contains(&0) && cursor.take(close) {
        return Ok(());
    }
    // How many there are so far of each level that is open, the outermost first.
    let mut counts = vec![0_usize];
    while let Some(count) = counts.last().copied() {
        let level = counts.len();
        if cursor.sees("...") {
            let message = "expected the elements of a literal, found {...}: \
                           print the program with print_large_constants=True";
            return Err(Diagnostic::invalid(cursor.at(), message));
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
        match level == dimensions.len() {
            true => element(cursor)?,
            false => {
                expect_open(cursor, open)?;
                counts.push(0);
            }
        }
    }
    Ok(())
}

/// Reads an element and appends its bytes.
pub(super) fn element(
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
        return Err(Diagnostic::invalid(
            at,
            format!("expected a literal of an array, found one of {shape}"),
        ));
    }
    let mut bytes = Vec::new();
    array(cursor, shape.dimensions(), Brackets::Braces, |cursor| {
        element(cursor, element_type, &mut bytes, push_element)
    })?;
    Literal::from_bytes(shape.clone(), bytes).map_err(|status| Diagnostic::of_status(at, &status))
}

fn nested_literal(cursor: &mut Cursor<'_>, depth: usize) -> Parsed<Literal> {
    let at = cursor.at();
    if !cursor.sees("(") {
        let shape = cursor.shape()?;
        return literal(cursor, &shape);
    }
    let Some(depth) = depth.checked_sub(1) else {
        let message = format!("expected literals that nest at most {MAX_DEPTH} deep, found more");
        return Err(Diagnostic::exhausted(at, message));
    };
    cursor.take("(");
    let mut elements = Vec::new();
    while !cursor.take(")") {
        if !elements.is_empty() {
            cursor.expect(",", "',' or ')' in a tuple")?;
        }
        elements.push(nested_literal(cursor, depth)?);
    }
    Literal::tuple(elements).map_err(|status| Diagnostic::of_status(at, &status))
}

fn expect_open(cursor: &mut Cursor<'_>, open: &str) -> Parsed<()> {
    match cursor.take(open) {
        true => Ok(()),
        false => Err(cursor.expected(&format!("'{open}' of an array"))),
    }
}

/// How many there are of what at this level of an array.
fn items(dimensions: &[usize], level: usize) -> String {
    let size = dimensions[level - 1];
    match level == dimensions.len() {
        true => format!("{size} elements"),
        false => format!("{size} arrays in dimension {}", level - 1),
    }
}

impl Brackets {
    fn open_and_close(self) -> (&'static str, &'static str) {
        match self {
            Self::Braces => ("{", "}"),
            Self::Square => ("[", "]"),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;
    use num_complex::Complex;

    fn read(shape: &str, text: &str) -> Literal {
        let mut cursor = Cursor::new(text);
        let read = literal(&mut cursor, &shape.parse().unwrap());
        let read = read
            .map_err(|diagnostic| diagnostic.into_status(text))
            .unwrap();
        assert!(cursor.is_at_end());
        read
    }

    fn refuse(shape: &str, text: &str) -> String {
        let mut cursor = Cursor::new(text);
        let read = literal(&mut cursor, &shape.parse().unwrap());
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
        let literal = literal_with_shape(&mut Cursor::new(text)).unwrap();
        assert_eq!(literal.shape().to_string(), "(s32[2], (), (f32[]))");
        let deep = "(".repeat(100_000);
        let status = literal_with_shape(&mut Cursor::new(&deep))
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
                "column 2: expected the elements of a literal, found {...}: print the program with print_large_constants=True",
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
