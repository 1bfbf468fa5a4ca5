//! The messages of checks: text with expressions in braces.

use callbox_core::call::Signature;
use callbox_core::values::{Result, Status};

use crate::expression::{Expression, Facts, Kind};

/// The longest message in bytes, before its expressions are replaced.
const MAX_LENGTH: usize = 4096;

/// A message. `{{` and `}}` are braces.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Message(Vec<Piece>);

#[derive(Clone, Debug, PartialEq)]
enum Piece {
    Text(String),
    Value(Expression),
}

impl Message {
    pub(super) fn parse(text: &str, signature: &Signature) -> Result<Self> {
        if text.len() > MAX_LENGTH {
            return Err(Status::invalid_argument(format!(
                "expected a message of at most {MAX_LENGTH} bytes, found {}",
                text.len()
            )));
        }
        let any = [Kind::Integer, Kind::Float, Kind::Boolean, Kind::Text];
        let mut pieces = Vec::new();
        let mut plain = String::new();
        let mut rest = text;
        while let Some(at) = rest.find(['{', '}']) {
            plain.push_str(&rest[..at]);
            rest = &rest[at..];
            if let Some(after) = rest.strip_prefix("{{") {
                plain.push('{');
                rest = after;
            } else if let Some(after) = rest.strip_prefix("}}") {
                plain.push('}');
                rest = after;
            } else {
                let inner = rest.strip_prefix('{').and_then(|rest| rest.split_once('}'));
                let Some((inner, after)) = inner else {
                    return Err(Status::invalid_argument(
                        "expected braces in pairs, and {{ and }} for a brace, found one alone",
                    ));
                };
                if !plain.is_empty() {
                    pieces.push(Piece::Text(std::mem::take(&mut plain)));
                }
                pieces.push(Piece::Value(Expression::parse(inner, signature, &any)?));
                rest = after;
            }
        }
        plain.push_str(rest);
        if !plain.is_empty() {
            pieces.push(Piece::Text(plain));
        }
        pieces.shrink_to_fit();
        Ok(Self(pieces))
    }

    /// The message for a call site.
    ///
    /// An expression without a value becomes a question mark, so that it does not hide the check's
    /// failure.
    pub(super) fn write(&self, facts: &Facts<'_>) -> String {
        let pieces = self.0.iter().map(|piece| match piece {
            Piece::Text(text) => text.clone(),
            Piece::Value(expression) => match expression.evaluate(facts) {
                Ok(value) => value.to_string(),
                Err(_) => "?".to_owned(),
            },
        });
        let text: String = pieces.collect();
        callbox_core::untrusted_text::sanitize(text.as_bytes(), text.len(), 4 * MAX_LENGTH)
    }
}
