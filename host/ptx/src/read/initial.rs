//! Initial contents of variables.

use crate::ast::Initial;
use crate::error::Found;
use crate::lexer::Kind;

use super::module::Reader;

/// How deep braces nest.
const DEEPEST: usize = 8;

impl Reader<'_, '_> {
    /// Reads `= ...`, if it is next.
    pub(super) fn initial(&mut self) -> Result<Option<Initial>, Found> {
        if self.cursor.takes('=') {
            self.initial_value(DEEPEST).map(Some)
        } else {
            Ok(None)
        }
    }

    fn initial_value(&mut self, depth: usize) -> Result<Initial, Found> {
        if self.cursor.peek() == Kind::Mark('{') && depth > 0 {
            self.cursor.advance();
            let mut values = Vec::new();
            while !self.cursor.takes('}') {
                values.push(self.initial_value(depth - 1)?);
                if !self.cursor.takes(',') && self.cursor.peek() != Kind::Mark('}') {
                    return self.cursor.expected("`,` or `}`");
                }
            }
            return Ok(Initial::List(values));
        }
        let Kind::Word(word) = self.cursor.peek() else {
            return Ok(Initial::Number(self.cursor.number()?));
        };
        self.cursor.advance();
        let is_generic = word == "generic" && self.cursor.takes('(');
        let place = self.cursor.place();
        let name = if is_generic {
            self.cursor.word("a variable")?
        } else {
            word
        };
        let Some(&variable) = self.variables.get(name) else {
            let message = format!(
                "`{}` is not a variable that is declared before",
                crate::lexer::quoted(name)
            );
            return Err(Found::new(place, message));
        };
        if is_generic {
            self.cursor.expect(')')?;
        }
        Ok(Initial::Address {
            variable,
            is_generic,
            addend: self.cursor.offset()?,
        })
    }
}
