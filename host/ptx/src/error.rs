//! Why a text was refused.

use std::fmt;

use crate::lexer::Place;

/// Why a text was refused: where, and what was expected and found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// The name of the file, as the caller gave it.
    pub file: String,
    /// The line, from 1.
    pub line: u32,
    /// The column in bytes, from 1.
    pub column: u32,
    /// The reason.
    pub message: String,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            file,
            line,
            column,
            message,
        } = self;
        write!(f, "{file}:{line}:{column}: {message}")
    }
}

impl std::error::Error for Error {}

/// An error whose file is not known yet.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) place: Place,
    pub(crate) message: String,
}

impl Found {
    pub(crate) fn new(place: Place, message: String) -> Self {
        Self { place, message }
    }

    pub(crate) fn in_file(self, file: &str) -> Error {
        Error {
            file: file.to_owned(),
            line: self.place.line,
            column: self.place.column,
            message: self.message,
        }
    }
}
