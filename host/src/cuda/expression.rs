//! Expressions over the shapes and attributes of a call site: how a manifest says how many threads a kernel gets.
//!
//! They are small and total: no loop, no name but those of the call site, integers of 128 bits whose overflow is an error. An expression
//! is read once, against what its target declares, and evaluated once for each call site. The grammar, with `?` for what may be missing:
//!
//! ```text
//! or         = and ("||" and)*
//! and        = comparison ("&&" comparison)*
//! comparison = sum (("==" | "!=" | "<" | "<=" | ">" | ">=") sum)?
//! sum        = product (("+" | "-") product)*
//! product    = unary (("*" | "/" | "%") unary)*
//! unary      = ("-" | "!") unary | primary
//! primary    = number | 'text' | "true" | "false" | "(" or ")" | name "(" or ("," or)* ")" | reference
//! reference  = ("operands" | "results") "[" index "]" "." fact | ("operands" | "results") ".count"
//!            | "attributes" ("." name | "[" 'text' "]" | "[" or "]")+
//!            | "opaque.bytes" | "opaque" "[" or "]"
//! fact       = "elements" | "bytes" | "rank" | "element_size" | "element_type" | "dims" "[" or "]"
//! ```
//!
//! `guests/MANIFEST.md` says what each of them means.

mod ast;
mod check;
mod evaluate;
mod integer;
mod lexer;
mod parser;
mod value;

use std::fmt;

pub(crate) use self::evaluate::Facts;
pub(crate) use self::value::{PARAMETER_TYPES, Value, kinds};
use crate::call::Signature;
use crate::values::{Result, Status};

/// The longest expression, in bytes.
const MAX_LENGTH: usize = 4096;

/// How deep an expression may nest: parentheses, arguments, indices and signs.
const MAX_DEPTH: usize = 32;

/// How much of an expression a message shows, in characters.
const MAX_SHOWN: usize = 200;

/// What kind of value an expression has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// An integer.
    Integer,
    /// A floating-point number.
    Float,
    /// A truth value.
    Boolean,
    /// Text: an element type's name, or a string of the call site.
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

/// What is wrong with an expression, and where.
#[derive(Debug, PartialEq, Eq)]
struct Problem {
    /// In characters, from 1.
    column: usize,
    /// What was expected and what was found.
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

/// An expression that was read, with its text for messages.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Expression {
    text: String,
    root: ast::Node,
}

impl Expression {
    /// Reads an expression whose value is one of `kinds`. What it refers to must be there, as far as `signature` declares it.
    ///
    /// # Errors
    /// INVALID_ARGUMENT with the expression, the column, what was expected and what was found.
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
    /// INVALID_ARGUMENT for what the call site lacks, for values of the wrong kind, for an overflow and for a division by zero.
    pub(crate) fn evaluate<'a>(&'a self, facts: &Facts<'a>) -> Result<Value<'a>> {
        evaluate::evaluate(&self.root, facts).map_err(|problem| report(&self.text, &problem))
    }

    /// The value of a condition.
    ///
    /// # Errors
    /// As for [`Expression::evaluate`], and if it is something else.
    pub(crate) fn truth(&self, facts: &Facts<'_>) -> Result<bool> {
        match self.evaluate(facts)? {
            Value::Boolean(value) => Ok(value),
            other => Err(self.wrong(format!("expected a truth value, found {other}"))),
        }
    }

    /// The value of a size: `what`, from `least` to `most`.
    ///
    /// # Errors
    /// As for [`Expression::evaluate`], and if it is something else or out of range.
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

    /// A failure that is this expression's as a whole.
    pub(crate) fn wrong(&self, message: String) -> Status {
        report(&self.text, &Problem::new(self.root.column, message))
    }
}

impl fmt::Display for Expression {
    /// Its text, as it was written.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

fn report(text: &str, problem: &Problem) -> Status {
    let shown: String = text.chars().take(MAX_SHOWN).collect();
    let more = match shown.len() < text.len() {
        true => format!("... ({} bytes)", text.len()),
        false => String::new(),
    };
    Status::invalid_argument(format!(
        "expression {shown:?}{more}, column {}: {}",
        problem.column, problem.message
    ))
}

/// Asks whether the nearest of the names that are known was meant, if one is near.
pub(crate) fn nearest<'a>(found: &str, known: impl Iterator<Item = &'a str>) -> String {
    // The distance takes as many steps as both lengths multiplied.
    const LONGEST: usize = 64;
    let is_short = |name: &str| name.len() <= LONGEST;
    let nearest = known
        .filter(|name| is_short(name) && is_short(found))
        .map(|name| (strsim::damerau_levenshtein(found, name), name))
        .filter(|(distance, name)| distance * 2 <= name.len().max(found.len()))
        .min();
    match nearest {
        Some((_, name)) => format!("; did you mean {name:?}?"),
        None => String::new(),
    }
}

#[cfg(test)]
mod tests;
