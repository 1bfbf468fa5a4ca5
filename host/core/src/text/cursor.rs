//! Tokens of HLO text and of MLIR attributes, as XLA's lexer (xla/hlo/parser/hlo_lexer.cc) has
//! them.
//!
//! The meaning of a character depends on its context: `0_1x2` is a name in one place and a padding
//! in another. The reader therefore asks for the token that it expects.

use super::diagnostic::{Diagnostic, Parsed, shortened};
use super::escapes::unescape_c;

/// A name or another word in the text, without the `%` that may precede it.
#[derive(Clone, Copy, Debug)]
pub struct Name<'a> {
    /// The word.
    pub text: &'a str,
    /// Its offset in the text, in bytes.
    pub at: usize,
}

/// A position in a text. Methods skip spaces and comments before the token that they read.
#[derive(Clone, Debug)]
pub struct Cursor<'a> {
    text: &'a str,
    at: usize,
    /// The name of the text's end in messages.
    end: &'static str,
}

impl<'a> Cursor<'a> {
    /// The start of a text. A byte order mark is skipped.
    #[must_use]
    pub fn new(text: &'a str) -> Self {
        let at = if text.starts_with('\u{feff}') { 3 } else { 0 };
        Self {
            text,
            at,
            end: "the end of the text",
        }
    }

    /// The start of a text that is part of another. Messages call its end `end`.
    #[must_use]
    pub fn inside(text: &'a str, end: &'static str) -> Self {
        Self { text, at: 0, end }
    }

    /// The text from this position to another one in the same text. Messages call its end `end`.
    #[must_use]
    pub fn up_to(&self, other: &Self, end: &'static str) -> Self {
        Self {
            text: &self.text[..other.at],
            at: self.at,
            end,
        }
    }

    /// The offset of the next token.
    pub fn at(&mut self) -> usize {
        self.skip();
        self.at
    }

    /// Whether the next token starts with this.
    pub fn sees(&mut self, start: &str) -> bool {
        self.skip();
        self.rest().starts_with(start)
    }

    /// Whether the next token starts with a digit.
    pub fn sees_digit(&mut self) -> bool {
        self.skip();
        self.rest().starts_with(|c: char| c.is_ascii_digit())
    }

    /// Whether nothing is left but spaces and comments.
    pub fn is_at_end(&mut self) -> bool {
        self.skip();
        self.rest().is_empty()
    }

    /// Reads this punctuation if it comes next.
    pub fn take(&mut self, punctuation: &str) -> bool {
        self.skip();
        self.take_adjacent(punctuation)
    }

    /// Reads this punctuation if it comes next, without a space before it.
    pub(super) fn take_adjacent(&mut self, punctuation: &str) -> bool {
        let found = self.rest().starts_with(punctuation);
        if found {
            self.at += punctuation.len();
        }
        found
    }

    /// Reads this punctuation. If something else comes next, the message says that `what` was
    /// expected.
    pub fn expect(&mut self, punctuation: &str, what: &str) -> Parsed<()> {
        if self.take(punctuation) {
            Ok(())
        } else {
            Err(self.expected(what))
        }
    }

    /// Reads items separated by commas, and the punctuation `close` after them.
    pub fn items<T>(
        &mut self,
        close: &str,
        mut item: impl FnMut(&mut Self) -> Parsed<T>,
    ) -> Parsed<Vec<T>> {
        let mut items = Vec::new();
        while !self.take(close) {
            if !items.is_empty() && !self.take(",") {
                return Err(self.expected(&format!("',' or '{close}'")));
            }
            items.push(item(self)?);
        }
        Ok(items)
    }

    /// Reads items separated by commas, in braces.
    pub fn list<T>(&mut self, item: impl FnMut(&mut Self) -> Parsed<T>) -> Parsed<Vec<T>> {
        self.expect("{", "'{'")?;
        self.items("}", item)
    }

    /// Reads this word if it comes next.
    pub fn keyword(&mut self, keyword: &str) -> bool {
        let start = self.clone();
        let found = self.word() == Some(keyword);
        if !found {
            *self = start;
        }
        found
    }

    /// Reads a word if one comes next: `[A-Za-z_][A-Za-z0-9_.-]*`.
    pub fn word(&mut self) -> Option<&'a str> {
        self.skip();
        self.word_here(is_in_name)
    }

    /// Reads the name of an attribute in MLIR if one comes next: `[A-Za-z_][A-Za-z0-9_$.]*`.
    pub(super) fn mlir_word(&mut self) -> Option<&'a str> {
        self.skip();
        self.word_here(|c| c.is_ascii_alphanumeric() || "_$.".contains(c))
    }

    /// Reads up to the next `>` outside strings, and returns the text before it.
    pub(super) fn up_to_angle(&mut self) -> Parsed<Self> {
        let at = self.at();
        let start = self.clone();
        let bytes = self.text.as_bytes();
        while let Some(byte) = bytes.get(self.at) {
            match byte {
                b'"' => match string_length(&bytes[self.at..]) {
                    Some(length) => self.at += length,
                    None => break,
                },
                b'>' => return Ok(start.up_to(self, "'>'")),
                _ => self.at += 1,
            }
        }
        let message = format!("expected '>' behind this, found {}", self.end);
        Err(Diagnostic::invalid(at, message))
    }

    /// Reads a name, with or without a `%` before it. `what` is for the message if there is none.
    pub fn name(&mut self, what: &str) -> Parsed<Name<'a>> {
        let at = self.at();
        self.take("%");
        match self.word_here(is_in_name) {
            Some(text) => Ok(Name { text, at }),
            None => {
                self.at = at;
                Err(self.expected(what))
            }
        }
    }

    /// Reads the name of an attribute and the `=` behind it.
    pub fn attribute_name(&mut self) -> Parsed<Name<'a>> {
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
    pub fn number(&mut self) -> Parsed<usize> {
        let at = self.at();
        let digits = self.run(|c| c.is_ascii_digit());
        match digits.parse() {
            Ok(number) => Ok(number),
            Err(_) if digits.is_empty() => Err(self.expected("a number that is not negative")),
            Err(_) => {
                let found = shortened(digits);
                let message = format!("expected a number below 2^64, found {found}");
                Err(Diagnostic::invalid(at, message))
            }
        }
    }

    /// Reads the characters that a number or another value in a literal can have. The result is
    /// empty if none comes next; whether it is a value depends on the element type.
    pub fn value(&mut self) -> Name<'a> {
        let at = self.at();
        let word = self.run(|c| c.is_ascii_alphanumeric() || "+-._".contains(c));
        if word.ends_with("nan") && self.rest().starts_with("(") {
            self.at += self.rest().find(')').map_or(0, |end| end + 1);
        }
        Name {
            text: &self.text[at..self.at],
            at,
        }
    }

    /// Reads a string in double quotes and replaces its escapes, as `absl::CUnescape` does.
    pub fn string(&mut self) -> Parsed<Vec<u8>> {
        let at = self.at();
        unescape_c(self.raw_string()?)
            .map_err(|(offset, message)| Diagnostic::invalid(at + 1 + offset, message))
    }

    /// Reads a string in double quotes and returns the text between them, escapes included.
    pub fn raw_string(&mut self) -> Parsed<&'a str> {
        let at = self.at();
        if !self.rest().starts_with('"') {
            return Err(self.expected("a string"));
        }
        let Some(length) = string_length(&self.text.as_bytes()[at..]) else {
            let end = self.end;
            let message = format!("expected '\"' at the end of this string, found {end}");
            return Err(Diagnostic::invalid(at, message));
        };
        self.at += length;
        Ok(&self.text[at + 1..self.at - 1])
    }

    /// Reads text in braces, whatever it means, and returns it with the braces.
    pub fn braces(&mut self) -> Parsed<&'a str> {
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

    /// The diagnostic that `what` was expected and something else comes next.
    pub fn expected(&mut self, what: &str) -> Diagnostic {
        let at = self.at();
        Diagnostic::invalid(at, format!("expected {what}, found {}", self.found()))
    }

    /// Describes the next token for a message.
    #[must_use]
    pub fn found(&self) -> String {
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

    fn word_here(&mut self, belongs: impl Fn(char) -> bool) -> Option<&'a str> {
        let starts = |c: char| c.is_ascii_alphabetic() || c == '_';
        self.rest().starts_with(starts).then(|| self.run(belongs))
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

    /// The text from this position on, spaces included.
    pub(super) fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }
}

fn is_in_name(character: char) -> bool {
    character.is_ascii_alphanumeric() || "_.-".contains(character)
}

fn length_of(text: &str, belongs: impl Fn(char) -> bool) -> usize {
    text.find(|c| !belongs(c)).unwrap_or(text.len())
}

/// The length of the string that starts here, with its quotes, if it ends.
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
