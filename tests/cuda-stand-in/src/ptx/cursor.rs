//! A place in a text's tokens, and what directives share.

use super::lexer::{self, Floating, Kind, Token};
use super::module::ParseError;
use super::types::Type;

pub(super) struct Cursor<'a> {
    tokens: Vec<Token<'a>>,
    at: usize,
}

/// A variable, parameter or range of registers, as it is declared.
#[derive(Debug)]
pub(super) struct Declaration<'a> {
    pub(super) name: &'a str,
    pub(super) kind: Type,
    pub(super) align: usize,
    /// In bytes. None for `name[]`.
    pub(super) size: Option<usize>,
    /// `name<count>`: so many registers, numbered.
    pub(super) count: Option<u32>,
    pub(super) line: usize,
}

/// What precedes the names of a declaration.
#[derive(Clone, Copy)]
pub(super) struct DeclaredType {
    kind: Type,
    elements: usize,
    align: Option<usize>,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(text: &'a str) -> Result<Self, ParseError> {
        Ok(Self {
            tokens: lexer::tokens(text)?,
            at: 0,
        })
    }

    pub(super) fn token(&self) -> Token<'a> {
        self.tokens[self.at.min(self.tokens.len() - 1)]
    }

    pub(super) fn peek(&self) -> Kind<'a> {
        self.token().kind
    }

    pub(super) fn peek_second(&self) -> Kind<'a> {
        self.tokens[(self.at + 1).min(self.tokens.len() - 1)].kind
    }

    pub(super) fn line(&self) -> usize {
        self.token().line
    }

    pub(super) fn next(&mut self) -> Kind<'a> {
        let kind = self.peek();
        self.at += 1;
        kind
    }

    /// An error at the next token.
    pub(super) fn error<T>(&self, expected: &str) -> Result<T, ParseError> {
        Err(ParseError {
            line: self.line(),
            message: format!("{expected} was expected, and {} found", self.peek()),
        })
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

    pub(super) fn expect(&mut self, mark: char) -> Result<(), ParseError> {
        if self.takes(mark) {
            Ok(())
        } else {
            self.error(&format!("`{mark}`"))
        }
    }

    pub(super) fn word(&mut self, expected: &str) -> Result<&'a str, ParseError> {
        match self.peek() {
            Kind::Word(word) => {
                self.at += 1;
                Ok(word)
            }
            _ => self.error(expected),
        }
    }

    /// An integer that counts or measures something.
    pub(super) fn count(&mut self, expected: &str) -> Result<usize, ParseError> {
        if let Kind::Number(number) = self.peek()
            && let Some(value) = lexer::integer(number)
            // Far more than any module has, and so little that sums of them do not overflow.
            && value <= 1 << 32
        {
            self.at += 1;
            return Ok(value as usize);
        }
        self.error(expected)
    }

    /// An integer with its sign, as 64 bits.
    pub(super) fn integer(&mut self) -> Result<u64, ParseError> {
        let is_negative = self.takes('-');
        let Kind::Number(number) = self.peek() else {
            return self.error("an integer");
        };
        let Some(value) = lexer::integer(number) else {
            return self.error("an integer of 64 bits");
        };
        self.at += 1;
        Ok(if is_negative {
            value.wrapping_neg()
        } else {
            value
        })
    }

    /// `+4`, `+-4`, `-4`, or nothing.
    pub(super) fn offset(&mut self) -> Result<u64, ParseError> {
        let mut offset = 0_u64;
        while matches!(self.peek(), Kind::Mark('+' | '-')) {
            self.takes('+');
            offset = offset.wrapping_add(self.integer()?);
        }
        Ok(offset)
    }

    /// A floating-point number, if one is next.
    pub(super) fn floating(&mut self) -> Option<Floating> {
        let Kind::Number(number) = self.peek() else {
            return None;
        };
        let value = lexer::floating(number)?;
        self.at += 1;
        Some(value)
    }

    pub(super) fn skip_line(&mut self) {
        let line = self.line();
        while self.line() == line && self.peek() != Kind::End {
            self.at += 1;
        }
    }

    /// Skips to behind the next mark of this kind.
    pub(super) fn skip_behind(&mut self, mark: char) -> Result<(), ParseError> {
        while !self.takes(mark) {
            if self.next() == Kind::End {
                return self.error(&format!("`{mark}`"));
            }
        }
        Ok(())
    }

    /// What stands before the names of a declaration: alignment, vector, type.
    pub(super) fn declared_type(&mut self) -> Result<DeclaredType, ParseError> {
        let (mut align, mut elements, mut kind) = (None, 1, None);
        while let Kind::Word(word) = self.peek()
            && let Some(word) = word.strip_prefix('.')
        {
            match word {
                "align" => {
                    self.at += 1;
                    let Kind::Number(_) = self.peek() else {
                        return self.error("an alignment");
                    };
                    let value = self.count("an alignment")?;
                    if !value.is_power_of_two() || value > 1 << 16 {
                        return self.error(&format!(
                            "an alignment that is a power of two and not {value}, before this"
                        ));
                    }
                    align = Some(value);
                    continue;
                }
                // `.ptr .global .align 16` is about what a parameter points to.
                "ptr" => {
                    self.at += 1;
                    while let Kind::Word(".global" | ".const" | ".local" | ".shared") = self.peek()
                    {
                        self.at += 1;
                    }
                    if self.takes_word(".align") {
                        self.count("an alignment")?;
                    }
                    continue;
                }
                "attribute" => {
                    self.at += 1;
                    self.skip_behind(')')?;
                    continue;
                }
                "v2" => elements = 2,
                "v4" => elements = 4,
                _ => match Type::from_name(word) {
                    Some(known) => kind = Some(known),
                    None => return self.error("a type"),
                },
            }
            self.at += 1;
        }
        match kind {
            Some(kind) => Ok(DeclaredType {
                kind,
                elements,
                align,
            }),
            None => self.error("a type"),
        }
    }

    /// A name with its dimensions.
    pub(super) fn declaration(
        &mut self,
        declared: DeclaredType,
    ) -> Result<Declaration<'a>, ParseError> {
        let DeclaredType {
            kind,
            elements,
            align,
        } = declared;
        let line = self.line();
        let name = self.word("a name")?;
        let mut size = Some(kind.bytes() * elements);
        let mut count = None;
        if self.takes('<') {
            count = Some(self.count("how many registers")? as u32);
            self.expect('>')?;
        }
        while self.takes('[') {
            let length = if self.peek() == Kind::Mark(']') {
                None
            } else {
                Some(self.count("a length")?)
            };
            size = match (size, length) {
                (Some(size), Some(length)) => {
                    size.checked_mul(length).filter(|&size| size <= 1 << 40)
                }
                _ => None,
            };
            self.expect(']')?;
        }
        Ok(Declaration {
            name,
            kind,
            align: align.unwrap_or(kind.bytes() * elements),
            size,
            count,
            line,
        })
    }
}
