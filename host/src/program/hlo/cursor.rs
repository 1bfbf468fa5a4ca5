//! Tokens: a position in the text from which names, numbers, strings and shapes are read.
//!
//! The tokens are those of XLA's lexer (xla/hlo/parser/hlo_lexer.cc). What a character begins depends on where it stands (`0_1x2` is a name
//! in one place and a padding in another), so that the reader asks for the token that it expects.

use super::source::{Diagnostic, Parsed, shortened};
use crate::values::{ElementType, Shape, Status};

/// A name, without the `%` that may stand before it, and where it stands.
#[derive(Clone, Copy, Debug)]
pub(super) struct Name<'a> {
    pub(super) text: &'a str,
    pub(super) at: usize,
}

/// A position in a text. Spaces and comments before a token are skipped.
#[derive(Clone, Debug)]
pub(super) struct Cursor<'a> {
    text: &'a str,
    at: usize,
    /// What an error finds at the end.
    end: &'static str,
}

impl<'a> Cursor<'a> {
    /// The start of a text.
    pub(super) fn new(text: &'a str) -> Self {
        // An editor may have put a byte order mark there.
        let at = if text.starts_with('\u{feff}') { 3 } else { 0 };
        Self {
            text,
            at,
            end: "the end of the text",
        }
    }

    /// The start of a text that stands in another, where it ends with `end`.
    pub(super) fn inside(text: &'a str, end: &'static str) -> Self {
        Self { text, at: 0, end }
    }

    /// The offset of the next token.
    pub(super) fn at(&mut self) -> usize {
        self.skip();
        self.at
    }

    /// Whether the next token starts with this.
    pub(super) fn sees(&mut self, start: &str) -> bool {
        self.skip();
        self.rest().starts_with(start)
    }

    /// Whether the next token starts with a digit.
    pub(super) fn sees_digit(&mut self) -> bool {
        self.skip();
        self.rest().starts_with(|c: char| c.is_ascii_digit())
    }

    /// Whether nothing is left.
    pub(super) fn is_at_end(&mut self) -> bool {
        self.skip();
        self.rest().is_empty()
    }

    /// Reads this punctuation, if it comes next.
    pub(super) fn take(&mut self, punctuation: &str) -> bool {
        let found = self.sees(punctuation);
        if found {
            self.at += punctuation.len();
        }
        found
    }

    /// Reads this punctuation, which is `what` was expected.
    pub(super) fn expect(&mut self, punctuation: &str, what: &str) -> Parsed<()> {
        match self.take(punctuation) {
            true => Ok(()),
            false => Err(self.expected(what)),
        }
    }

    /// Reads this word, if it comes next.
    pub(super) fn keyword(&mut self, keyword: &str) -> bool {
        let start = self.clone();
        let found = self.word() == Some(keyword);
        if !found {
            *self = start;
        }
        found
    }

    /// Reads a word, if one comes next: `[A-Za-z_][A-Za-z0-9_.-]*`.
    pub(super) fn word(&mut self) -> Option<&'a str> {
        self.skip();
        self.word_here()
    }

    /// Reads a name of an attribute in MLIR: `[A-Za-z_][A-Za-z0-9_$.]*`. It is empty if none comes next.
    pub(super) fn mlir_word(&mut self) -> Name<'a> {
        let at = self.at();
        let starts = self
            .rest()
            .starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
        let text = match starts {
            true => self.run(|c| c.is_ascii_alphanumeric() || "_$.".contains(c)),
            false => "",
        };
        Name { text, at }
    }

    /// Reads all before the next `>`, strings included, and gives it as a text of its own; offsets stay those of the whole.
    pub(super) fn up_to_angle(&mut self) -> Parsed<Self> {
        let start = self.at();
        let bytes = self.text.as_bytes();
        let mut at = start;
        while let Some(byte) = bytes.get(at) {
            match byte {
                b'"' => match string_length(&bytes[at..]) {
                    Some(length) => at += length,
                    None => break,
                },
                b'>' => {
                    self.at = at;
                    return Ok(Self {
                        text: &self.text[..at],
                        at: start,
                        end: "'>'",
                    });
                }
                _ => at += 1,
            }
        }
        Err(Diagnostic::invalid(
            start,
            format!("expected '>' behind this, found {}", self.end),
        ))
    }

    /// Reads the name of `what`, with or without a `%` before it.
    pub(super) fn name(&mut self, what: &str) -> Parsed<Name<'a>> {
        let at = self.at();
        if self.rest().starts_with('%') {
            self.at += 1;
        }
        match self.word_here() {
            Some(text) => Ok(Name { text, at }),
            None => {
                self.at = at;
                Err(self.expected(what))
            }
        }
    }

    /// Reads the name of an attribute: a word with `=` behind it.
    pub(super) fn attribute_name(&mut self) -> Parsed<Name<'a>> {
        let start = self.clone();
        let at = self.at();
        match self.word() {
            Some(text) if self.take("=") => Ok(Name { text, at }),
            _ => {
                *self = start;
                Err(self.expected("an attribute such as dimensions={0}"))
            }
        }
    }

    /// Reads a number that is not negative.
    pub(super) fn number(&mut self) -> Parsed<usize> {
        let at = self.at();
        let digits = self.run(|c| c.is_ascii_digit());
        match digits.parse() {
            Ok(number) => Ok(number),
            Err(_) if digits.is_empty() => Err(self.expected("a number that is not negative")),
            Err(_) => Err(Diagnostic::invalid(
                at,
                format!("expected a number below 2^64, found {}", shortened(digits)),
            )),
        }
    }

    /// Reads what may be a value in a literal, and says where it is. Whether it is one depends on the type. It is empty if nothing of the
    /// kind comes next.
    pub(super) fn value(&mut self) -> Name<'a> {
        let at = self.at();
        let word = self.run(|c| c.is_ascii_alphanumeric() || "+-._".contains(c));
        if word.ends_with("nan") && self.rest().starts_with("(") {
            let payload = self.rest().find(')').map_or(0, |end| end + 1);
            self.at += payload;
        }
        Name {
            text: &self.text[at..self.at],
            at,
        }
    }

    /// Reads a string in double quotes, with the escapes of C as `absl::CUnescape` has them.
    pub(super) fn string(&mut self) -> Parsed<Vec<u8>> {
        let at = self.at();
        let raw = self.raw_string()?;
        super::escapes::unescape_c(raw)
            .map_err(|(offset, message)| Diagnostic::invalid(at + 1 + offset, message))
    }

    /// Reads a string in double quotes, and gives what is between them as it stands.
    pub(super) fn raw_string(&mut self) -> Parsed<&'a str> {
        let at = self.at();
        if !self.rest().starts_with('"') {
            return Err(self.expected("a string"));
        }
        match string_length(&self.text.as_bytes()[at..]) {
            Some(length) => {
                self.at += length;
                Ok(&self.text[at + 1..self.at - 1])
            }
            None => {
                let message = format!(
                    "expected '\"' at the end of this string, found {}",
                    self.end
                );
                Err(Diagnostic::invalid(at, message))
            }
        }
    }

    /// Reads all up to the brace that closes the one that comes next, both included, whatever it means.
    pub(super) fn braces(&mut self) -> Parsed<&'a str> {
        let at = self.at();
        if !self.rest().starts_with('{') {
            return Err(self.expected("'{'"));
        }
        let bytes = self.text.as_bytes();
        let (mut end, mut depth) = (at, 0_usize);
        while let Some(byte) = bytes.get(end) {
            match byte {
                b'"' => match string_length(&bytes[end..]) {
                    Some(length) => end += length - 1,
                    None => break,
                },
                b'{' => depth += 1,
                b'}' => depth -= 1,
                _ => {}
            }
            end += 1;
            if depth == 0 {
                self.at = end;
                return Ok(&self.text[at..end]);
            }
        }
        let message = format!("expected '}}' that closes this '{{', found {}", self.end);
        Err(Diagnostic::invalid(at, message))
    }

    /// Whether a shape comes next: an element type with `[` behind it, or a tuple.
    pub(super) fn sees_shape(&mut self) -> bool {
        let mut ahead = self.clone();
        match ahead.word() {
            Some(word) => ahead.rest().starts_with('[') && word.parse::<ElementType>().is_ok(),
            None => ahead.rest().starts_with('('),
        }
    }

    /// Reads a shape.
    pub(super) fn shape(&mut self) -> Parsed<Shape> {
        if !self.sees_shape() {
            return Err(self.expected("a shape such as f32[2,3]"));
        }
        match Shape::parse_prefix(self.rest()) {
            Ok((shape, length)) => {
                self.at += length;
                Ok(shape)
            }
            Err(status) => Err(misshapen(self.at, &status)),
        }
    }

    /// That something else comes next than was expected.
    pub(super) fn expected(&mut self, what: &str) -> Diagnostic {
        let at = self.at();
        Diagnostic::invalid(at, format!("expected {what}, found {}", self.found()))
    }

    /// What comes next, for a message.
    pub(super) fn found(&self) -> String {
        let rest = self.rest();
        let word = &rest[..length_of(rest, |c| is_in_name(c) || c == '%')];
        match rest.chars().next() {
            None => self.end.into(),
            Some(_) if !word.is_empty() => format!("{:?}", shortened(word)),
            Some('"') => "a string".into(),
            Some('/') if rest.starts_with("/*") => "a comment that does not end".into(),
            Some(other) => format!("{other:?}"),
        }
    }

    fn word_here(&mut self) -> Option<&'a str> {
        let starts = self
            .rest()
            .starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
        starts.then(|| self.run(is_in_name))
    }

    fn run(&mut self, belongs: impl Fn(char) -> bool) -> &'a str {
        let rest = self.rest();
        let length = length_of(rest, belongs);
        self.at += length;
        &rest[..length]
    }

    fn skip(&mut self) {
        loop {
            self.run(|c| matches!(c, ' ' | '\t' | '\n' | '\r'));
            let rest = self.rest();
            let comment = match rest.get(..2) {
                Some("/*") => rest[2..].find("*/").map(|length| length + 4),
                Some("//") => Some(length_of(rest, |c| c != '\n')),
                _ => None,
            };
            match comment {
                Some(length) => self.at += length,
                None => return,
            }
        }
    }

    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }
}

/// What is wrong with a shape. The message of [`Shape::parse_prefix`] counts columns from the start of the shape; an error of ours shows
/// the place instead.
fn misshapen(start: usize, status: &Status) -> Diagnostic {
    let place = || {
        let (expected, rest) = status.message().split_once(" at column ")?;
        let (column, found) = rest.split_once(", found ")?;
        let offset = column.parse::<usize>().ok()?.checked_sub(1)?;
        Some((start + offset, format!("{expected}, found {found}")))
    };
    match place() {
        Some((at, message)) => Diagnostic::invalid(at, message),
        None => Diagnostic::of_status(start, status),
    }
}

fn is_in_name(character: char) -> bool {
    character.is_ascii_alphanumeric() || "_.-".contains(character)
}

fn length_of(text: &str, belongs: impl Fn(char) -> bool) -> usize {
    text.find(|c| !belongs(c)).unwrap_or(text.len())
}

/// How long the string is that starts here, with its quotes, if it ends.
fn string_length(bytes: &[u8]) -> Option<usize> {
    let mut at = 1;
    loop {
        match bytes.get(at)? {
            b'"' => return Some(at + 1),
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
}

#[cfg(test)]
mod tests;
