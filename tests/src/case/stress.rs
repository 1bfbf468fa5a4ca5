//! How a case is run many times at once.

use anyhow::{Result, ensure};

use super::text::StressText;

/// What the runs of a case that go on at once have in common.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Stress {
    /// One executable, or one prepared call.
    #[default]
    Shared,
    /// The engine only: each run prepares anew, and this is why.
    Separate(String),
    /// One executable or prepared call, and runs need not be the same: each is judged by what the case expects. This is why.
    Judged(String),
    /// The case is not run so, and this is why.
    Skip(String),
}

impl Stress {
    /// Why the case is not run as others are. Empty if it is.
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
