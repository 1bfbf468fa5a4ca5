//! Reads a text.

mod body;
mod cursor;
mod declarations;
mod functions;
mod initial;
mod module;
mod operands;
mod scope;

use crate::ast::Module;
use crate::error::{Error, Found};
use crate::lexer::{self, Place};

/// Limits on a text. What they bound is memory and time: both grow in proportion to the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of the text.
    pub text_bytes: usize,
    /// Tokens: words, numbers and marks.
    pub tokens: usize,
    /// Scopes in braces, one inside the other.
    pub scopes: usize,
    /// Elements of a vector, and operands of an instruction.
    pub operands: usize,
    /// Functions, kernels among them.
    pub functions: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            text_bytes: 4 << 20,
            tokens: 1 << 20,
            scopes: 32,
            operands: 256,
            functions: 4096,
        }
    }
}

/// Reads a text. `file` is its name in errors.
///
/// # Errors
/// The first place that is malformed, exceeds a limit, or has what the table of instructions does
/// not have.
pub fn read(text: &str, file: &str, limits: &Limits) -> Result<Module, Error> {
    let mut limits = *limits;
    read_one_of(text, file, &mut limits)
}

/// Reads one of several texts, whose tokens are limited together: those of this one are taken off
/// the limit.
///
/// # Errors
/// As of [`read`].
pub fn read_one_of(text: &str, file: &str, limits: &mut Limits) -> Result<Module, Error> {
    let (module, tokens) = read_module(text, limits).map_err(|found| found.in_file(file))?;
    limits.tokens = limits.tokens.saturating_sub(tokens);
    Ok(module)
}

/// The module, and the number of tokens.
fn read_module(text: &str, limits: &Limits) -> Result<(Module, usize), Found> {
    let most = limits.text_bytes;
    if text.len() > most {
        let message = format!(
            "the text has {} bytes, the limit is {most} (`text_bytes`)",
            text.len()
        );
        return Err(Found::new(Place { line: 1, column: 1 }, message));
    }
    let tokens = lexer::tokens(text, limits)?;
    let module = module::Reader::new(&tokens, limits).module()?;
    Ok((module, tokens.len()))
}
