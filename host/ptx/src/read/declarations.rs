//! Declarations of variables and registers.

use crate::ast::{Line, Linkage, Pointer, Variable};
use crate::error::Found;
use crate::lexer::Kind;
use crate::types::{Space, Type};

use super::cursor::Cursor;

/// The most dimensions of an array.
const MOST_DIMENSIONS: usize = 8;
/// The largest alignment.
const LARGEST_ALIGNMENT: u64 = 1 << 16;

/// The part of a declaration before its names.
#[derive(Clone, Copy)]
pub(super) struct DeclaredType {
    pub(super) element: Type,
    vector: u8,
    align: Option<u32>,
    pointer: Option<Pointer>,
}

/// A name with its dimensions.
pub(super) struct Declared<'a> {
    pub(super) name: &'a str,
    /// For `name<count>`: the number of registers.
    pub(super) count: Option<u32>,
    dimensions: Vec<Option<u64>>,
    line: Line,
}

impl Declared<'_> {
    /// Makes the variable of a declaration. It has no name yet.
    pub(super) fn variable(self, declared: DeclaredType, space: Space) -> Variable {
        Variable {
            name: String::new(),
            space,
            linkage: Linkage::Internal,
            element: declared.element,
            vector: declared.vector,
            align: declared.align,
            dimensions: self.dimensions,
            pointer: declared.pointer,
            initial: None,
            line: self.line,
        }
    }
}

impl Cursor<'_, '_> {
    /// Reads alignment, vector, type, and what a parameter points to.
    pub(super) fn declared_type(&mut self) -> Result<DeclaredType, Found> {
        let (mut align, mut vector, mut element, mut pointer) = (None, 1, None, None);
        while let Kind::Word(word) = self.peek()
            && let Some(word) = word.strip_prefix('.')
        {
            if word == "align" {
                self.advance();
                align = Some(self.alignment()?);
                continue;
            }
            if word == "ptr" {
                self.advance();
                pointer = Some(self.pointer()?);
                continue;
            }
            match (word, Type::from_name(word)) {
                ("v2", _) => vector = 2,
                ("v4", _) => vector = 4,
                (_, Some(known)) if element.is_none() => element = Some(known),
                _ => return self.expected("a type"),
            }
            self.advance();
        }
        let Some(element) = element else {
            return self.expected("a type");
        };
        Ok(DeclaredType {
            element,
            vector,
            align,
            pointer,
        })
    }

    fn alignment(&mut self) -> Result<u32, Found> {
        let place = self.place();
        let value = self.count("an alignment", LARGEST_ALIGNMENT)?;
        if !value.is_power_of_two() {
            let message = format!("{value} is not a power of two, which an alignment must be");
            return Err(Found::new(place, message));
        }
        Ok(u32::try_from(value).unwrap_or(1))
    }

    /// Reads what follows `.ptr`: `.global .align 16`.
    fn pointer(&mut self) -> Result<Pointer, Found> {
        let mut pointer = Pointer {
            space: Space::Generic,
            align: None,
        };
        if let Kind::Word(word) = self.peek()
            && let Some(space) = word.strip_prefix('.').and_then(Space::from_name)
        {
            self.advance();
            pointer.space = space;
        }
        if self.takes_word(".align") {
            pointer.align = Some(self.alignment()?);
        }
        Ok(pointer)
    }
}

impl<'a> Cursor<'_, 'a> {
    /// Reads a name with its dimensions.
    pub(super) fn declared(&mut self) -> Result<Declared<'a>, Found> {
        let line = self.line();
        let name = self.word("a name")?;
        if name.starts_with('.') {
            return Err(Found::new(
                self.place(),
                format!(
                    "a name was expected before this, and `{}` found",
                    crate::lexer::quoted(name)
                ),
            ));
        }
        let mut declared = Declared {
            name,
            count: None,
            dimensions: Vec::new(),
            line,
        };
        if self.takes('<') {
            declared.count = Some(self.count32("how many registers")?);
            self.expect('>')?;
        }
        while self.takes('[') {
            if declared.dimensions.len() == MOST_DIMENSIONS {
                return self.expected(&format!("at most {MOST_DIMENSIONS} dimensions"));
            }
            let has_length = self.peek() != Kind::Mark(']');
            let length = has_length
                .then(|| self.count("a length", 1 << 40))
                .transpose()?;
            if length.is_none() && !declared.dimensions.is_empty() {
                return self.expected("a length");
            }
            declared.dimensions.push(length);
            self.expect(']')?;
        }
        Ok(declared)
    }
}
