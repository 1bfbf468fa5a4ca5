//! How a case is run concurrently.

use anyhow::{Result, ensure};

use super::text::StressText;

/// What the concurrent runs of a case share.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Stress {
    /// One executable or one prepared call. All runs must give the same result.
    #[default]
    Shared,
    /// Only the engine: each run prepares its own subject, for this reason.
    Separate(String),
    /// One executable or one prepared call. Each run is judged by the case's expectation and may
    /// differ from the others, for this reason.
    Judged(String),
    /// Nothing: the case is not run concurrently, for this reason.
    Skip(String),
}

impl Stress {
    /// Returns why the case is not run like the others, or an empty text.
    #[must_use]
    pub fn reason(&self) -> &str {
        match self {
            Self::Shared => "",
            Self::Separate(reason) | Self::Judged(reason) | Self::Skip(reason) => reason,
        }
    }
}

pub(super) fn read(text: Option<StressText>) -> Result<Stress> {
    let stress = match text {
        None => return Ok(Stress::Shared),
        Some(StressText::Separate(reason)) => Stress::Separate(reason),
        Some(StressText::Judged(reason)) => Stress::Judged(reason),
        Some(StressText::Skip(reason)) => Stress::Skip(reason),
    };
    ensure!(!stress.reason().trim().is_empty(), "expected a reason");
    Ok(stress)
}
