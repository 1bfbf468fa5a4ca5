//! Shapes in XLA's notation: `f32[8,128]{1,0}`, `(f32[], (s32[3], pred[]))`.

use callbox_abi::UnknownName;
use std::str::FromStr;

use super::cursor::Cursor;
use super::diagnostic::{Diagnostic, Parsed};
use crate::values::{ArrayShape, ElementType, Layout, MAX_TUPLE_DEPTH, Result, Shape, Status};

impl FromStr for Shape {
    type Err = Status;

    /// Reads a shape as XLA prints it. A layout may be left out, and may name the default memory
    /// space (`S(0)`) and the element type's own width (`E(4)`).
    ///
    /// # Errors
    /// INVALID_ARGUMENT for text that is no shape; UNIMPLEMENTED for dynamic dimensions, tiles and
    /// other memory spaces.
    fn from_str(text: &str) -> Result<Self> {
        let mut cursor = Cursor::new(text);
        let shape = cursor
            .shape()
            .map_err(|diagnostic| diagnostic.into_line(text))?;
        if cursor.is_at_end() {
            Ok(shape)
        } else {
            Err(cursor.expected("the end of the shape").into_line(text))
        }
    }
}

impl FromStr for ArrayShape {
    type Err = Status;

    /// Reads an array's shape as XLA prints it.
    ///
    /// # Errors
    /// As for [`Shape`], and INVALID_ARGUMENT for a tuple.
    fn from_str(text: &str) -> Result<Self> {
        match text.parse()? {
            Shape::Array(shape) => Ok(shape),
            Shape::Tuple(_) => Err(Status::invalid_argument(
                "expected the shape of an array, found a tuple's",
            )),
        }
    }
}

impl Cursor<'_> {
    /// Whether a shape comes next: an element type with `[` behind it, or a tuple.
    pub fn sees_shape(&mut self) -> bool {
        self.sees("(") || self.sees_array_shape()
    }

    fn sees_array_shape(&mut self) -> bool {
        let mut ahead = self.clone();
        let element_type = ahead
            .word()
            .and_then(|word| word.parse::<ElementType>().ok());
        element_type.is_some() && ahead.take_adjacent("[")
    }

    /// Reads a shape. A layout has no space before its brace: a brace behind a space starts a
    /// literal or a computation.
    ///
    /// Tuples that are still open are on a stack in the heap.
    pub fn shape(&mut self) -> Parsed<Shape> {
        let mut open: Vec<Vec<Shape>> = Vec::new();
        loop {
            let at = self.at();
            let tuple = |elements| {
                Shape::tuple(elements).map_err(|status| Diagnostic::of_status(at, &status))
            };
            let mut shape = if !self.take("(") {
                Shape::Array(self.array_shape()?)
            } else if self.take(")") {
                tuple(Vec::new())?
            } else {
                if open.len() >= MAX_TUPLE_DEPTH {
                    let message = format!(
                        "expected tuples that nest at most {MAX_TUPLE_DEPTH} deep, found more"
                    );
                    return Err(Diagnostic::exhausted(at, message));
                }
                open.push(Vec::new());
                continue;
            };
            loop {
                let Some(elements) = open.last_mut() else {
                    return Ok(shape);
                };
                elements.push(shape);
                if self.take(",") {
                    break;
                }
                self.expect(")", "',' or ')' in a tuple's shape")?;
                shape = tuple(open.pop().unwrap_or_default())?;
            }
        }
    }

    fn array_shape(&mut self) -> Parsed<ArrayShape> {
        let at = self.at();
        if !self.sees_array_shape() {
            return Err(self.expected("a shape such as f32[2,3]"));
        }
        let wrong = |status: Status| Diagnostic::of_status(at, &status);
        let element_type = self.word().unwrap_or_default();
        let element_type = element_type
            .parse()
            .map_err(|error: UnknownName| wrong(error.into()))?;
        self.take("[");
        let dimensions = self.items("]", |cursor| {
            if cursor.sees("<=") || cursor.sees("?") {
                let message = "dynamic dimensions are not supported";
                return Err(Diagnostic::unimplemented(cursor.at(), message));
            }
            cursor.number()
        })?;
        let shape = ArrayShape::new(element_type, &dimensions).map_err(wrong)?;
        if !self.take_adjacent("{") {
            return Ok(shape);
        }
        let mut order = Vec::new();
        while !self.sees(":") && !self.sees("}") {
            if !order.is_empty() {
                self.expect(",", "',' or '}' in a layout")?;
            }
            order.push(self.number()?);
        }
        if self.take(":") {
            self.layout_properties(element_type)?;
        }
        self.expect("}", "'}' at the end of a layout")?;
        // `{:S(0)}` and `{}` leave the order to the default.
        if order.is_empty() && shape.rank() > 0 {
            return Ok(shape);
        }
        let layout = Layout::new(&order).map_err(wrong)?;
        shape.with_layout(layout).map_err(wrong)
    }

    /// Reads the properties behind a layout's order, and refuses those that have a meaning.
    fn layout_properties(&mut self, element_type: ElementType) -> Parsed<()> {
        while !self.sees("}") {
            let at = self.at();
            let name = self.word();
            self.expect("(", "a layout property such as S(0)")?;
            let values = self.items(")", Self::number)?;
            match (name, values.first()) {
                (Some("S"), Some(0)) => {}
                (Some("E"), Some(&bits)) if bits == element_type.bit_width() as usize => {}
                _ => {
                    let message = "only the layout properties S(0) and E(the type's own width) \
                                   are supported";
                    return Err(Diagnostic::unimplemented(at, message));
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;
    use crate::StatusCode;

    #[test]
    fn what_xla_prints_reads_back() {
        for text in [
            "f32[]",
            "f32[8,128]{1,0}",
            "f32[8,128]{0,1}",
            "bf16[0,3]",
            "token[]",
            "()",
            "(f32[], (s32[3], pred[]))",
            "((()), f8e4m3b11fnuz[2]{0})",
        ] {
            assert_eq!(text.parse::<Shape>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn properties_that_change_nothing_are_dropped() {
        for (text, read) in [
            ("s4[8]{0:E(4)}", "s4[8]{0}"),
            ("f32[2,3]{1,0:S(0)}", "f32[2,3]{1,0}"),
            ("f32[]{:S(0)}", "f32[]"),
            ("( f32[ 2 , 3 ] , /*index=1*/ s32[] )", "(f32[2,3], s32[])"),
        ] {
            assert_eq!(text.parse::<Shape>().unwrap().to_string(), read);
        }
    }

    #[test]
    fn a_shape_ends_before_other_text() {
        let mut cursor = Cursor::new("f32[2]{0} add(x, y)");
        assert_eq!(cursor.shape().unwrap().to_string(), "f32[2]{0}");
        assert_eq!(cursor.rest(), " add(x, y)");
        let mut cursor = Cursor::new("f32[2] {0}");
        assert_eq!(cursor.shape().unwrap().to_string(), "f32[2]");
    }

    #[test]
    fn what_is_no_shape_is_refused() {
        for (text, message) in [
            (
                "",
                "column 1: expected a shape such as f32[2,3], found the end of the text",
            ),
            (
                "f31[2]",
                "column 1: expected a shape such as f32[2,3], found \"f31\"",
            ),
            (
                "(f32)",
                "column 2: expected a shape such as f32[2,3], found \"f32\"",
            ),
            (
                "f32[-1]",
                "column 5: expected a number that is not negative, found \"-1\"",
            ),
            (
                "f32[2",
                "column 6: expected ',' or ']', found the end of the text",
            ),
            (
                "f32[2]]",
                "column 7: expected the end of the shape, found ']'",
            ),
            (
                "(f32[2]",
                "column 8: expected ',' or ')' in a tuple's shape, found the end of the text",
            ),
            (
                "f32[2,2]{0}",
                "column 1: expected a layout of 2 dimensions for f32[2,2], found {0}",
            ),
            (
                "f32[99999999999999999999]",
                "column 5: expected a number below 2^64, found 99999999999999999999",
            ),
        ] {
            let err = text.parse::<Shape>().unwrap_err();
            assert_eq!(err.message(), message);
            assert_eq!(err.code(), StatusCode::InvalidArgument);
        }
        for text in [
            "f32[<=5]",
            "f32[?]",
            "f32[8,128]{1,0:T(8,128)}",
            "f32[2]{0:S(1)}",
        ] {
            let err = text.parse::<Shape>().unwrap_err();
            assert_eq!(err.code(), StatusCode::Unimplemented, "{text}");
        }
    }

    #[test]
    fn messages_show_a_little_of_the_text() {
        for text in [
            "f32[?\u{1b}[31m\u{202e}]",
            "f32[\u{1b}[31m\u{202e}]",
            "f32[2]{0:S(/*\u{1b}[31m*/1)}",
            "(f32[?], /*\n\u{0}*/)",
        ] {
            let message = text.parse::<Shape>().unwrap_err();
            let plain = |c: char| (' '..='~').contains(&c);
            assert!(message.message().chars().all(plain), "{message:?}");
        }
        let long = format!("f32[{}]", "9".repeat(1000));
        let message = long.parse::<Shape>().unwrap_err();
        assert!(message.message().len() < 140, "{message}");
    }

    #[test]
    fn depth_is_bounded_without_recursion() {
        let text = "(".repeat(1_000_000);
        assert!(text.parse::<Shape>().is_err());
        let closed = format!("{}f32[]{}", "(".repeat(100), ")".repeat(100));
        let err = closed.parse::<Shape>().unwrap_err();
        assert_eq!(err.code(), StatusCode::ResourceExhausted);
    }
}
