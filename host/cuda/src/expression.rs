//! Expressions over the shapes and attributes of a call site, such as the number of threads of a
//! kernel.
//!
//! The language has no loops and no names but those of the call site, so that every expression
//! terminates. Integers have 128 bits, and an overflow is an error. An expression is parsed once,
//! checked against its target's declaration, and evaluated once for each call site. The grammar,
//! with `?` for an optional part:
//!
//! ```text
//! or         = and ("||" and)*
//! and        = comparison ("&&" comparison)*
//! comparison = sum (("==" | "!=" | "<" | "<=" | ">" | ">=") sum)?
//! sum        = product (("+" | "-") product)*
//! product    = unary (("*" | "/" | "%") unary)*
//! unary      = ("-" | "!") unary | primary
//! primary    = number | 'text' | "true" | "false" | "(" or ")" | function | reference
//! function   = ("min" | "max" | "ceil_div" | "if" | "opaque_u32") "(" or ("," or)* ")"
//!            | "has" "(" "attributes." name ")"
//! reference  = ("operands" | "results") "[" index "]" "." fact | ("operands" | "results") ".count"
//!            | "attributes." name (".count" | "[" or "]")? | "opaque.bytes"
//! fact       = "elements" | "bytes" | "rank" | "element_size" | "element_type" | "dims" "[" or "]"
//! ```
//!
//! `guests/MANIFEST.md` explains each of them.

mod ast;
mod check;
mod evaluate;
mod integer;
mod lexer;
mod parser;
mod value;

use std::fmt;

use callbox_core::call::Signature;
use callbox_core::text::suggestion;
use callbox_core::values::{Result, Status};

pub(crate) use self::evaluate::Facts;
pub(crate) use self::value::{PARAMETER_TYPES, Value, kinds};

/// The longest expression, in bytes.
const MAX_LENGTH: usize = 4096;

/// How deep parentheses, arguments, indices and signs may nest.
const MAX_DEPTH: usize = 32;

/// The most characters of an expression in a message.
const MAX_SHOWN: usize = 200;

/// The kind of an expression's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// An integer.
    Integer,
    /// A floating-point number.
    Float,
    /// A truth value.
    Boolean,
    /// A text: an element type's name, or a string attribute.
    Text,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Integer => "an integer",
            Self::Float => "a floating-point number",
            Self::Boolean => "a truth value",
            Self::Text => "a text",
        })
    }
}

/// An error in an expression.
#[derive(Debug, PartialEq, Eq)]
struct Problem {
    /// The column in characters, from 1.
    column: usize,
    message: String,
}

impl Problem {
    fn new(column: usize, message: impl Into<String>) -> Self {
        Self {
            column,
            message: message.into(),
        }
    }
}

/// A parsed expression, with its text for messages.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Expression {
    text: String,
    root: ast::Node,
}

impl Expression {
    /// Parses an expression whose value has one of `kinds`, and checks its references against
    /// `signature`.
    ///
    /// # Errors
    /// INVALID_ARGUMENT, with the expression and the column.
    pub(crate) fn parse(text: &str, signature: &Signature, kinds: &[Kind]) -> Result<Self> {
        let (kind, root) = parser::parse(text)
            .and_then(|root| Ok((check::kind(&root, signature)?, root)))
            .map_err(|problem| report(text, &problem))?;
        match kind {
            Some(found) if !kinds.contains(&found) => {
                let kinds: Vec<_> = kinds.iter().map(Kind::to_string).collect();
                let message = format!("expected {}, found {found}", kinds.join(" or "));
                Err(report(text, &Problem::new(root.column, message)))
            }
            _ => Ok(Self {
                text: text.to_owned(),
                root,
            }),
        }
    }

    /// The value for a call site.
    ///
    /// # Errors
    /// INVALID_ARGUMENT if the call site lacks what the expression refers to, a value has the wrong
    /// kind, arithmetic overflows, or a divisor is zero.
    pub(crate) fn evaluate<'a>(&'a self, facts: &Facts<'a>) -> Result<Value<'a>> {
        evaluate::evaluate(&self.root, facts).map_err(|problem| report(&self.text, &problem))
    }

    /// The value of a condition.
    ///
    /// # Errors
    /// As for [`Expression::evaluate`], and if the value is not a truth value.
    pub(crate) fn truth(&self, facts: &Facts<'_>) -> Result<bool> {
        match self.evaluate(facts)? {
            Value::Boolean(value) => Ok(value),
            other => Err(self.wrong(format!("expected a truth value, found {other}"))),
        }
    }

    /// The value of a size from `least` to `most`, which messages call `what`.
    ///
    /// # Errors
    /// As for [`Expression::evaluate`], and if the value is not an integer in that range.
    pub(crate) fn size(&self, facts: &Facts<'_>, what: &str, least: u64, most: u64) -> Result<u64> {
        let value = self.evaluate(facts)?;
        let size = match value {
            Value::Integer(value) => u64::try_from(value)
                .ok()
                .filter(|value| (least..=most).contains(value)),
            _ => None,
        };
        size.ok_or_else(|| {
            self.wrong(format!(
                "expected {what} from {least} to {most}, found {value}"
            ))
        })
    }

    /// A failure of the whole expression.
    pub(crate) fn wrong(&self, message: String) -> Status {
        report(&self.text, &Problem::new(self.root.column, message))
    }
}

impl fmt::Display for Expression {
    /// The text, as it was written.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

fn report(text: &str, problem: &Problem) -> Status {
    let shown: String = text.chars().take(MAX_SHOWN).collect();
    let more = if shown.len() < text.len() {
        format!("... ({} bytes)", text.len())
    } else {
        String::new()
    };
    Status::invalid_argument(format!(
        "expression {shown:?}{more}, column {}: {}",
        problem.column, problem.message
    ))
}

/// Suggests the known name that is nearest to an unknown one, or nothing if none is near.
pub(crate) fn nearest<'a>(found: &str, known: impl Iterator<Item = &'a str>) -> String {
    suggestion(found, known, |name| format!("{name:?}"))
}

#[cfg(test)]
mod tests;
