//! Reads shapes from XLA's notation: `f32[8,128]{1,0}`, `(f32[], (s32[3], pred[]))`.

use std::str::FromStr;

use super::{ArrayShape, ElementType, Layout, Result, Shape, Status};

impl FromStr for Shape {
    type Err = Status;

    /// Reads a shape as XLA prints it. A layout may be left out, and may name the default memory space (`S(0)`) and the
    /// element type's own width (`E(4)`).
    ///
    /// # Errors
    /// INVALID_ARGUMENT for text that is no shape; UNIMPLEMENTED for dynamic dimensions, tiles and other memory spaces.
    fn from_str(text: &str) -> Result<Self> {
        let mut reader = Reader { text, at: 0 };
        let shape = reader.shape()?;
        reader.spaces();
        match reader.rest() {
            "" => Ok(shape),
            _ => Err(reader.expected("the end of the shape")),
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
            Shape::Tuple(_) => Err(Status::invalid_argument(format!(
                "expected the shape of an array, found the tuple {}",
                shown(text)
            ))),
        }
    }
}

impl Shape {
    /// Reads a shape at the start of `text` and says how many bytes of it the shape took: for readers of texts that
    /// have shapes in them.
    ///
    /// # Errors
    /// As for [`Shape::from_str`].
    pub fn parse_prefix(text: &str) -> Result<(Self, usize)> {
        let mut reader = Reader { text, at: 0 };
        let shape = reader.shape()?;
        Ok((shape, reader.at))
    }
}

/// A text for a message: the beginning of its first line, in characters that a terminal only prints. It may be that of a whole program.
fn shown(text: &str) -> String {
    const MOST: usize = 60;
    let line = text.trim().lines().next().unwrap_or_default();
    let shown: String = line
        .chars()
        .take(MOST)
        .flat_map(char::escape_debug)
        .collect();
    match line.chars().nth(MOST) {
        Some(_) => shown + "...",
        None => shown,
    }
}

/// A position in a text.
struct Reader<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Reader<'a> {
    /// Reads shapes until the outermost is whole. Tuples under way are on a stack of our own, so that the depth of the text
    /// is bounded by [`Shape::tuple`] and not by the thread's stack.
    fn shape(&mut self) -> Result<Shape> {
        let mut open: Vec<Vec<Shape>> = Vec::new();
        loop {
            self.spaces();
            let mut shape = if self.take("(") {
                self.spaces();
                if self.take(")") {
                    Shape::tuple(Vec::new())?
                } else {
                    open.push(Vec::new());
                    continue;
                }
            } else {
                Shape::Array(self.array()?)
            };
            loop {
                let Some(elements) = open.last_mut() else {
                    return Ok(shape);
                };
                elements.push(shape);
                self.spaces();
                if self.take(",") {
                    break;
                }
                if !self.take(")") {
                    return Err(self.expected("',' or ')' in a tuple's shape"));
                }
                shape = Shape::tuple(open.pop().unwrap_or_default())?;
            }
        }
    }

    fn array(&mut self) -> Result<ArrayShape> {
        let name = self.word();
        let Ok(element_type) = name.parse::<ElementType>() else {
            self.at -= name.len();
            return Err(self.expected("an element type such as f32"));
        };
        if !self.take("[") {
            return Err(self.expected(&format!("'[' after {element_type}")));
        }
        let dimensions = self.numbers("]", |reader| reader.dimension())?;
        let shape = ArrayShape::new(element_type, &dimensions)?;
        match self.take("{") {
            true => self.layout(shape),
            false => Ok(shape),
        }
    }

    fn dimension(&mut self) -> Result<usize> {
        if self.rest().starts_with("<=") || self.rest().starts_with('?') {
            return Err(Status::unimplemented(format!(
                "dynamic dimensions are not supported: {}",
                shown(self.text)
            )));
        }
        self.number()
    }

    /// The rest of a layout, past its opening brace.
    fn layout(&mut self, shape: ArrayShape) -> Result<ArrayShape> {
        let order = match self.rest().starts_with(':') {
            true => Vec::new(),
            false => self.numbers_until(|reader| reader.rest().starts_with([':', '}']))?,
        };
        if self.take(":") {
            self.layout_properties(&shape)?;
        }
        if !self.take("}") {
            return Err(self.expected("'}' at the end of a layout"));
        }
        match order.is_empty() && shape.rank() > 0 {
            // `{:S(0)}` and `{}` leave the order to the default.
            true => Ok(shape),
            false => shape.with_layout(Layout::new(&order)?),
        }
    }

    /// What may stand behind a layout's order, as far as it changes nothing here.
    fn layout_properties(&mut self, shape: &ArrayShape) -> Result<()> {
        while !self.rest().starts_with('}') {
            let start = self.at;
            let name = self.word();
            let value = match self.take("(") {
                true => {
                    let value = self.numbers(")", Self::number)?;
                    value.first().copied()
                }
                false => return Err(self.expected("a layout property such as S(0)")),
            };
            let width = shape.element_type().bit_width() as usize;
            match (name, value) {
                ("S", Some(0)) => {}
                ("E", Some(bits)) if bits == width => {}
                _ => {
                    return Err(Status::unimplemented(format!(
                        "the layout property {} is not supported",
                        shown(&self.text[start..self.at])
                    )));
                }
            }
        }
        Ok(())
    }

    /// Numbers with commas between them, and what closes them.
    fn numbers(
        &mut self,
        close: &str,
        mut number: impl FnMut(&mut Self) -> Result<usize>,
    ) -> Result<Vec<usize>> {
        let mut numbers = Vec::new();
        self.spaces();
        if self.take(close) {
            return Ok(numbers);
        }
        loop {
            numbers.push(number(self)?);
            self.spaces();
            if self.take(close) {
                return Ok(numbers);
            }
            if !self.take(",") {
                return Err(self.expected(&format!("',' or '{close}'")));
            }
            self.spaces();
        }
    }

    fn numbers_until(&mut self, end: impl Fn(&Self) -> bool) -> Result<Vec<usize>> {
        let mut numbers = Vec::new();
        self.spaces();
        while !end(self) {
            if !numbers.is_empty() && !self.take(",") {
                return Err(self.expected("',' or '}' in a layout"));
            }
            self.spaces();
            numbers.push(self.number()?);
            self.spaces();
        }
        Ok(numbers)
    }

    fn number(&mut self) -> Result<usize> {
        let digits = self.prefix(|c| c.is_ascii_digit());
        match digits.parse() {
            Ok(number) => Ok(number),
            Err(_) if digits.is_empty() => Err(self.expected("a number")),
            Err(_) => Err(Status::invalid_argument(format!(
                "expected a number below 2^64, found {}",
                shown(digits)
            ))),
        }
    }

    fn word(&mut self) -> &'a str {
        self.prefix(|c| c.is_ascii_alphanumeric())
    }

    fn spaces(&mut self) {
        self.prefix(char::is_whitespace);
        // XLA numbers the elements of long tuples in comments: `/*index=5*/`.
        while let Some(comment) = self.rest().strip_prefix("/*") {
            let Some(length) = comment.find("*/") else {
                return;
            };
            self.at += length + 4;
            self.prefix(char::is_whitespace);
        }
    }

    fn prefix(&mut self, belongs: impl Fn(char) -> bool) -> &'a str {
        let rest = self.rest();
        let end = rest.find(|c| !belongs(c)).unwrap_or(rest.len());
        self.at += end;
        &rest[..end]
    }

    fn take(&mut self, token: &str) -> bool {
        let found = self.rest().starts_with(token);
        if found {
            self.at += token.len();
        }
        found
    }

    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn expected(&self, what: &str) -> Status {
        let found: String = self.rest().chars().take(20).collect();
        let found = match found.is_empty() {
            true => "the end".to_owned(),
            false => format!("{found:?}"),
        };
        Status::invalid_argument(format!(
            "expected {what} at column {}, found {found}",
            self.at + 1
        ))
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
    fn a_prefix_ends_where_the_shape_ends() {
        let (shape, length) = Shape::parse_prefix("f32[2]{0} add(x, y)").unwrap();
        assert_eq!((shape.to_string().as_str(), length), ("f32[2]{0}", 9));
    }

    #[test]
    fn what_is_no_shape_is_refused() {
        for (text, message) in [
            (
                "",
                "expected an element type such as f32 at column 1, found the end",
            ),
            (
                "f31[2]",
                "expected an element type such as f32 at column 1, found \"f31[2]\"",
            ),
            ("f32", "expected '[' after f32 at column 4, found the end"),
            ("f32[-1]", "expected a number at column 5, found \"-1]\""),
            ("f32[2", "expected ',' or ']' at column 6, found the end"),
            (
                "f32[2]]",
                "expected the end of the shape at column 7, found \"]\"",
            ),
            (
                "(f32[2]",
                "expected ',' or ')' in a tuple's shape at column 8, found the end",
            ),
            (
                "f32[2,2]{0}",
                "expected a layout of 2 dimensions for f32[2,2], found {0}",
            ),
            (
                "f32[99999999999999999999]",
                "expected a number below 2^64, found 99999999999999999999",
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
            "f32[2]{0:S(/*\u{1b}[31m*/1)}",
            "(f32[?], /*\n\u{0}*/)",
        ] {
            let message = text.parse::<Shape>().unwrap_err();
            let plain = |c: char| (' '..='~').contains(&c);
            assert!(message.message().chars().all(plain), "{message:?}");
        }
        let long = format!("f32[{}]", "9".repeat(1000));
        let message = long.parse::<Shape>().unwrap_err();
        assert!(message.message().len() < 120, "{message}");
        let program = format!("f32[?] {}", "add ".repeat(1000));
        let message = Shape::parse_prefix(&program).unwrap_err();
        assert!(message.message().len() < 120, "{message}");
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
