//! Problems: why a case failed, as a report shows it.

use std::fmt;

use serde::Serialize;

use crate::compare::Mismatch;

/// Why a case failed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// What is to be said besides the differences. Often nothing.
    pub message: String,
    /// What is not as expected.
    pub differences: Vec<Difference>,
}

/// Something that is not as expected.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// Where: `step 1, result 0`, `message`.
    pub place: String,
    /// What was expected.
    pub expected: String,
    /// What was found.
    pub found: String,
    /// What else is to be known of it. Often nothing.
    pub note: String,
}

impl Problem {
    /// A problem that a sentence says.
    #[must_use]
    pub fn new(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            differences: Vec::new(),
        }
    }

    /// The same, its differences being in this place.
    #[must_use]
    pub fn within(mut self, place: &str) -> Self {
        for difference in &mut self.differences {
            difference.place = format!("{place}, {}", difference.place);
        }
        self
    }

    /// `Ok` if there is none.
    ///
    /// # Errors
    /// The problem, if there are differences.
    pub fn of(differences: Vec<Difference>) -> Result<(), Self> {
        match differences.is_empty() {
            true => Ok(()),
            false => Err(Self {
                message: String::new(),
                differences,
            }),
        }
    }
}

impl Difference {
    /// A difference without a note.
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

    /// The same with a note.
    #[must_use]
    pub fn with_note(mut self, note: impl Into<String>) -> Self {
        self.note = note.into();
        self
    }

    /// How an array differs: as a whole, and its first elements.
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
            format!("{count} of {total} elements that are not"),
        );
        let mut differences = vec![whole.with_note(format!("the farthest {farthest}"))];
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
