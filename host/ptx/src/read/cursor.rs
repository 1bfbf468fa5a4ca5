//! A position in the tokens.

use crate::ast::{Immediate, Line};
use crate::error::Found;
use crate::lexer::{Kind, Place, Token};

pub(super) struct Cursor<'t, 'a> {
    tokens: &'t [Token<'a>],
    at: usize,
}

const END: Token<'_> = Token {
    kind: Kind::End,
    place: Place { line: 0, column: 0 },
};

impl<'t, 'a> Cursor<'t, 'a> {
    pub(super) fn new(tokens: &'t [Token<'a>]) -> Self {
        Self { tokens, at: 0 }
    }

    fn token(&self) -> Token<'a> {
        let token = self.tokens.get(self.at);
        *token.or(self.tokens.last()).unwrap_or(&END)
    }

    pub(super) fn peek(&self) -> Kind<'a> {
        self.token().kind
    }

    pub(super) fn place(&self) -> Place {
        self.token().place
    }

    pub(super) fn line(&self) -> Line {
        Line(self.place().line)
    }

    pub(super) fn advance(&mut self) {
        self.at += 1;
    }

    /// Makes an error at the next token.
    pub(super) fn expected<T>(&self, expected: &str) -> Result<T, Found> {
        let message = format!("{expected} was expected, and {} found", self.peek());
        Err(Found::new(self.place(), message))
    }

    pub(super) fn takes(&mut self, mark: char) -> bool {
        let is_next = self.peek() == Kind::Mark(mark);
        self.at += usize::from(is_next);
        is_next
    }

    pub(super) fn takes_word(&mut self, word: &str) -> bool {
        let is_next = self.peek() == Kind::Word(word);
        self.at += usize::from(is_next);
        is_next
    }

    pub(super) fn expect(&mut self, mark: char) -> Result<(), Found> {
        if self.takes(mark) {
            Ok(())
        } else {
            self.expected(&format!("`{mark}`"))
        }
    }

    pub(super) fn word(&mut self, expected: &str) -> Result<&'a str, Found> {
        match self.peek() {
            Kind::Word(word) => {
                self.at += 1;
                Ok(word)
            }
            _ => self.expected(expected),
        }
    }

    /// Reads an unsigned integer up to `most`.
    pub(super) fn count(&mut self, expected: &str, most: u64) -> Result<u64, Found> {
        if let Kind::Number(number) = self.peek()
            && let Some(value) = integer(number)
            && value <= most
        {
            self.at += 1;
            return Ok(value);
        }
        self.expected(&format!("{expected}, at most {most},"))
    }

    pub(super) fn count32(&mut self, expected: &str) -> Result<u32, Found> {
        let value = self.count(expected, u32::MAX.into())?;
        Ok(u32::try_from(value).unwrap_or(u32::MAX))
    }

    /// Reads `+4`, `+-4`, `-4`, or nothing, and sums of them.
    pub(super) fn offset(&mut self) -> Result<i64, Found> {
        let mut offset = 0_i64;
        while matches!(self.peek(), Kind::Mark('+' | '-')) {
            self.takes('+');
            match self.number()? {
                Immediate::Integer(value) => offset = offset.wrapping_add(value.cast_signed()),
                _ => return self.expected("an integer before this"),
            }
        }
        Ok(offset)
    }

    /// Reads a number with its sign.
    pub(super) fn number(&mut self) -> Result<Immediate, Found> {
        let is_negative = self.takes('-');
        let Kind::Number(text) = self.peek() else {
            return self.expected("a number");
        };
        let Some(number) = floating(text).or_else(|| integer(text).map(Immediate::Integer)) else {
            return self.expected("an integer of 64 bits or a floating-point number");
        };
        self.at += 1;
        Ok(match number {
            number if !is_negative => number,
            Immediate::Integer(value) => Immediate::Integer(value.wrapping_neg()),
            Immediate::Single(bits) => Immediate::Single(bits ^ (1 << 31)),
            Immediate::Double(bits) => Immediate::Double(bits ^ (1 << 63)),
        })
    }

    pub(super) fn text(&mut self) -> Result<(), Found> {
        match self.peek() {
            Kind::Text(_) => {
                self.at += 1;
                Ok(())
            }
            _ => self.expected("a string"),
        }
    }

    /// Skips past the next mark of this kind.
    pub(super) fn skip_behind(&mut self, mark: char) -> Result<(), Found> {
        while !self.takes(mark) {
            if self.peek() == Kind::End {
                return self.expected(&format!("`{mark}`"));
            }
            self.at += 1;
        }
        Ok(())
    }

    /// Skips a debug directive, whose word has been read. Returns whether the word is one.
    pub(super) fn skips_debug(&mut self, word: &str) -> Result<bool, Found> {
        match word {
            // .file 1 "name", 0, 0
            ".file" => {
                self.count("the number of a file", u64::MAX)?;
                self.text()?;
                while self.takes(',') {
                    self.number()?;
                }
            }
            // .loc 1 20 3, function_name $label+4, inlined_at 1 10 5
            ".loc" => {
                self.numbers(3)?;
                while self.takes(',') {
                    self.word("`function_name` or `inlined_at`")?;
                    if matches!(self.peek(), Kind::Word(_)) {
                        self.advance();
                        self.offset()?;
                    } else {
                        self.numbers(3)?;
                    }
                }
            }
            ".pragma" => self.skip_behind(';')?,
            ".section" => {
                self.skip_behind('{')?;
                self.skip_behind('}')?;
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn numbers(&mut self, count: usize) -> Result<(), Found> {
        (0..count).try_for_each(|_| self.number().map(drop))
    }
}

/// Parses an integer literal to 64 bits.
fn integer(number: &str) -> Option<u64> {
    let digits = number.strip_suffix(['U', 'u']).unwrap_or(number);
    let (digits, radix) = match digits.as_bytes() {
        [b'0', b'x' | b'X', ..] => (digits.get(2..)?, 16),
        [b'0', b'b' | b'B', ..] => (digits.get(2..)?, 2),
        [b'0', _, ..] => (digits.get(1..)?, 8),
        _ => (digits, 10),
    };
    u64::from_str_radix(digits, radix).ok()
}

fn floating(number: &str) -> Option<Immediate> {
    let digits = number.get(2..).unwrap_or_default();
    let is_hex = |length| digits.len() == length && digits.bytes().all(|c| c.is_ascii_hexdigit());
    match number.as_bytes() {
        [b'0', b'f' | b'F', ..] if is_hex(8) => {
            u32::from_str_radix(digits, 16).ok().map(Immediate::Single)
        }
        [b'0', b'd' | b'D', ..] if is_hex(16) => {
            u64::from_str_radix(digits, 16).ok().map(Immediate::Double)
        }
        [b'0', b'x' | b'X' | b'f' | b'F' | b'd' | b'D', ..] => None,
        _ if number.contains(['.', 'e', 'E']) => {
            let value: f64 = number.parse().ok()?;
            Some(Immediate::Double(value.to_bits()))
        }
        _ => None,
    }
}
