//! Summaries of outcomes. Inputs with new outcomes are worth mutating further.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};

use callbox::Status;

/// The outcome of an input. Inputs with equal outcomes took much the same path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Outcome(u64);

impl Outcome {
    /// Hashes the values that distinguish outcomes.
    #[must_use]
    pub fn of(what: impl Hash) -> Self {
        let mut hasher = DefaultHasher::new();
        what.hash(&mut hasher);
        Self(hasher.finish())
    }

    /// Summarises a failure, without the numbers and quotations in its message.
    #[must_use]
    pub fn failure(status: &Status) -> Self {
        Self::of((status.code().number(), said(status.message())))
    }
}

/// Returns the start of a message, without numbers and quotations.
fn said(message: &str) -> String {
    let mut quote = None;
    let mut said = String::new();
    // Further lines quote the text.
    for c in message.lines().next().unwrap_or_default().chars() {
        match quote {
            Some(q) if c == q => quote = None,
            Some(_) => {}
            None if matches!(c, '"' | '\'') => quote = Some(c),
            None if c.is_ascii_alphabetic() || c == ' ' => said.push(c),
            None => {}
        }
        if said.len() > 160 {
            break;
        }
    }
    said
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_told_by_what_they_say() {
        let failure = |message: &str| Outcome::failure(&Status::invalid_argument(message));
        let one = failure("line 4, column 21: expected an operand, found \"add\"\nx");
        assert_eq!(
            one,
            failure("line 1, column 2: expected an operand, found \"b\"\ny")
        );
        assert_ne!(
            one,
            failure("line 4, column 21: expected a name, found \"add\"")
        );
        assert_ne!(one, Outcome::of("expected an operand, found"));
    }
}
