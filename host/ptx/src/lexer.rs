//! Splits text into tokens.

use std::fmt;

use crate::error::Found;
use crate::read::Limits;

/// A token and its place.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Token<'a> {
    pub(crate) kind: Kind<'a>,
    pub(crate) place: Place,
}

/// A place in the text: line and column, from 1. The column counts bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) line: u32,
    pub(crate) column: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind<'a> {
    /// A name, directive, register or mnemonic: letters, digits and `_$%.`, and inner `::`.
    Word(&'a str),
    /// A literal that begins with a digit, verbatim.
    Number(&'a str),
    /// A string literal, without its quotes.
    Text(&'a str),
    Mark(char),
    End,
}

/// The longest part of the author's text in a message.
const LONGEST_QUOTE: usize = 64;

impl fmt::Display for Kind<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Word(word) | Self::Number(word) => write!(f, "`{}`", quoted(word)),
            Self::Text(_) => f.write_str("a string"),
            Self::Mark(mark) => write!(f, "`{mark}`"),
            Self::End => f.write_str("the end of the text"),
        }
    }
}

/// The beginning of a word, for a message. Words are ASCII.
pub(crate) fn quoted(word: &str) -> &str {
    word.get(..LONGEST_QUOTE).unwrap_or(word)
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$' | b'%' | b'.')
}

struct Lexer<'a> {
    text: &'a str,
    at: usize,
    line: u32,
    line_start: usize,
}

/// Returns all tokens of a text without its comments, ending with [`Kind::End`].
pub(crate) fn tokens<'a>(text: &'a str, limits: &Limits) -> Result<Vec<Token<'a>>, Found> {
    // Text passed to a driver may end with a NUL.
    let text = text.strip_suffix('\0').unwrap_or(text);
    let mut lexer = Lexer {
        text,
        at: 0,
        line: 1,
        line_start: 0,
    };
    let mut tokens = Vec::with_capacity(text.len() / 5);
    loop {
        let token = lexer.token()?;
        tokens.push(token);
        if token.kind == Kind::End {
            return Ok(tokens);
        }
        if tokens.len() > limits.tokens {
            let message = format!("the text has more than {} tokens (`tokens`)", limits.tokens);
            return Err(Found::new(token.place, message));
        }
    }
}

impl<'a> Lexer<'a> {
    fn rest(&self) -> &'a [u8] {
        self.text.as_bytes().get(self.at..).unwrap_or_default()
    }

    fn slice(&self, from: usize) -> &'a str {
        self.text.get(from..self.at).unwrap_or_default()
    }

    fn skip_while(&mut self, accepts: impl Fn(u8) -> bool) {
        let rest = self.rest();
        self.at += rest
            .iter()
            .position(|&byte| !accepts(byte))
            .unwrap_or(rest.len());
    }

    /// The number of bytes before the next of these, if there is one.
    fn distance(&self, end: &str) -> Option<usize> {
        self.text.get(self.at..)?.find(end)
    }

    fn place(&self) -> Place {
        let column = u32::try_from(self.at - self.line_start).unwrap_or(u32::MAX);
        Place {
            line: self.line,
            column: column.saturating_add(1),
        }
    }

    fn skip_blanks_and_comments(&mut self) -> Result<(), Found> {
        loop {
            match self.rest() {
                [b'\n', ..] => {
                    self.at += 1;
                    self.line = self.line.saturating_add(1);
                    self.line_start = self.at;
                }
                [b' ' | b'\t' | b'\r' | 0x0c | 0x0b, ..] => self.at += 1,
                [b'/', b'/', ..] => self.skip_while(|byte| byte != b'\n'),
                [b'/', b'*', ..] => {
                    let place = self.place();
                    self.at += 2;
                    let Some(length) = self.distance("*/") else {
                        return Err(Found::new(place, "this comment has no end".into()));
                    };
                    let end = self.at + length + 2;
                    let comment = self.text.as_bytes().get(self.at..end).unwrap_or_default();
                    for (offset, _) in comment
                        .iter()
                        .enumerate()
                        .filter(|(_, byte)| **byte == b'\n')
                    {
                        self.line = self.line.saturating_add(1);
                        self.line_start = self.at + offset + 1;
                    }
                    self.at = end;
                }
                _ => return Ok(()),
            }
        }
    }

    fn token(&mut self) -> Result<Token<'a>, Found> {
        self.skip_blanks_and_comments()?;
        let place = self.place();
        let start = self.at;
        let Some(&byte) = self.rest().first() else {
            let kind = Kind::End;
            return Ok(Token { kind, place });
        };
        let kind = match byte {
            b'"' => {
                self.at += 1;
                self.skip_while(|byte| !matches!(byte, b'"' | b'\n' | b'\\'));
                let text = self.slice(start + 1);
                if self.rest().first() != Some(&b'"') {
                    let message = "this string has no end in its line, or a `\\`".into();
                    return Err(Found::new(place, message));
                }
                self.at += 1;
                Kind::Text(text)
            }
            b'0'..=b'9' => Kind::Number(self.number()),
            _ if is_word(byte) => Kind::Word(self.word()),
            b'{' | b'}' | b'[' | b']' | b'(' | b')' | b'<' | b'>' | b',' | b';' | b':' | b'+'
            | b'-' | b'!' | b'@' | b'|' | b'=' => {
                self.at += 1;
                Kind::Mark(char::from(byte))
            }
            _ => {
                let found = self.text.get(start..).and_then(|rest| rest.chars().next());
                let message = format!("{:?} is no character of PTX", found.unwrap_or('?'));
                return Err(Found::new(place, message));
            }
        };
        Ok(Token { kind, place })
    }

    fn word(&mut self) -> &'a str {
        let start = self.at;
        loop {
            self.skip_while(is_word);
            if !self.rest().starts_with(b"::") {
                return self.slice(start);
            }
            self.at += 2;
        }
    }

    fn number(&mut self) -> &'a str {
        let start = self.at;
        let is_alphanumeric = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'.';
        self.skip_while(is_alphanumeric);
        // The sign of an exponent: `1.0e-5`, which `0x1e-5` is not.
        let text = self.slice(start);
        let is_bits = text.len() > 1
            && matches!(
                text.as_bytes(),
                [b'0', b'x' | b'X' | b'f' | b'F' | b'd' | b'D', ..]
            );
        if !is_bits && text.ends_with(['e', 'E']) && matches!(self.rest(), [b'+' | b'-', ..]) {
            self.at += 1;
            self.skip_while(is_alphanumeric);
        }
        self.slice(start)
    }
}
