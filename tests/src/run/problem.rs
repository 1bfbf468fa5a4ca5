//! The reasons for a case's failure, as a report shows them.

use std::fmt;

use serde::Serialize;

use crate::compare::Mismatch;

/// Why a case failed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// Information besides the differences. Often empty.
    pub message: String,
    /// The differences from the expectation.
    pub differences: Vec<Difference>,
}

/// A difference from the expectation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// The place, such as `step 1, result 0` or `message`.
    pub place: String,
    /// The expected value.
    pub expected: String,
    /// The actual value.
    pub found: String,
    /// Additional information. Often empty.
    pub note: String,
}

impl Problem {
    /// Makes a problem from a message.
    #[must_use]
    pub fn new(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            differences: Vec::new(),
        }
    }

    /// Prefixes the places of all differences.
    #[must_use]
    pub fn within(mut self, place: &str) -> Self {
        for difference in &mut self.differences {
            difference.place = format!("{place}, {}", difference.place);
        }
        self
    }

    /// Returns `Ok` if there are no differences.
    ///
    /// # Errors
    /// The problem, if there are differences.
    pub fn of(differences: Vec<Difference>) -> Result<(), Self> {
        if differences.is_empty() {
            Ok(())
        } else {
            Err(Self {
                message: String::new(),
                differences,
            })
        }
    }
}

impl Difference {
    /// Makes a difference without a note.
    #[must_use]
    pub fn new(
        place: impl Into<String>,
        expected: impl Into<String>,
        found: impl Into<String>,
    ) -> Self {
        Self {
            place: place.into(),
            expected: expected.into(),
            found: found.into(),
            note: String::new(),
        }
    }

    /// Sets the note.
    #[must_use]
    pub fn with_note(mut self, note: impl Into<String>) -> Self {
        self.note = note.into();
        self
    }

    /// Describes how an array differs: as a whole, and its first differing elements.
    #[must_use]
    pub fn of_array(place: &str, mismatch: Mismatch) -> Vec<Self> {
        let (shape, ulps, count, first, farthest) = match mismatch {
            Mismatch::Shape { expected, found } => {
                let place = format!("{place}, shape");
                return vec![Self::new(place, expected.to_string(), found.to_string())];
            }
            Mismatch::Size { expected, found } => {
                let place = format!("{place}, bytes");
                return vec![Self::new(place, expected.to_string(), found.to_string())];
            }
            Mismatch::Elements {
                shape,
                ulps,
                count,
                first,
                farthest,
            } => (shape, ulps, count, first, farthest),
        };
        let total = shape.element_count();
        let whole = Self::new(
            place,
            format!("{shape} within {ulps} ULPs"),
            format!("{count} of {total} elements outside"),
        );
        let mut differences = vec![whole.with_note(format!("the farthest is {farthest}"))];
        differences.extend(first.into_iter().map(|element| {
            let place = format!("{place} at {}", element.index);
            Self::new(place, element.expected, element.found).with_note(element.distance)
        }));
        differences
    }
}

impl From<anyhow::Error> for Problem {
    fn from(error: anyhow::Error) -> Self {
        Self::new(format!("{error:#}"))
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        for (i, difference) in self.differences.iter().enumerate() {
            let separator = if i == 0 && self.message.is_empty() {
                ""
            } else {
                "\n"
            };
            write!(f, "{separator}{difference}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            place,
            expected,
            found,
            note,
        } = self;
        write!(f, "{place}: expected {expected}, found {found}")?;
        match note.as_str() {
            "" => Ok(()),
            note => write!(f, "; {note}"),
        }
    }
}
