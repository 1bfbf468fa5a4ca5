//! Marks: what a case says of its own failure. A mark has a reason and does not outlive it: a marked case that passes fails.

use anyhow::{Context, Result, ensure};

use super::platforms::{self, Platforms};
use super::text::MarkText;
use crate::platform::PlatformName;

/// A case that does not pass as it stands, and why.
#[derive(Clone, Debug)]
pub struct Mark {
    /// What must come of the case instead.
    pub kind: MarkKind,
    /// Why.
    pub reason: String,
    platforms: Vec<PlatformName>,
}

/// What must come of a marked case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MarkKind {
    /// The platform does not do this and says so: the case must end with UNIMPLEMENTED.
    Unsupported,
    /// The platform does this wrong: the case must fail.
    ExpectedFailure,
}

impl Mark {
    /// Whether it is for this platform.
    #[must_use]
    pub fn is_for(&self, platform: PlatformName) -> bool {
        self.platforms.contains(&platform)
    }
}

pub(super) fn read(
    unsupported: Option<MarkText>,
    expected_failure: Option<MarkText>,
    case: &Platforms,
) -> Result<Vec<Mark>> {
    let texts = [
        (MarkKind::Unsupported, "unsupported", unsupported),
        (
            MarkKind::ExpectedFailure,
            "expected_failure",
            expected_failure,
        ),
    ];
    let mut marks: Vec<Mark> = Vec::new();
    for (kind, key, text) in texts {
        let Some(text) = text else { continue };
        let mark = read_one(kind, text, case).context(key)?;
        let twice = mark
            .platforms
            .iter()
            .any(|&platform| marks.iter().any(|m| m.is_for(platform)));
        ensure!(
            !twice,
            "expected at most one of unsupported and expected_failure for a platform"
        );
        marks.push(mark);
    }
    Ok(marks)
}

/// Reads a mark. It is for callbox's own platforms, unless it names others: XLA is not ours to mend.
fn read_one(kind: MarkKind, text: MarkText, case: &Platforms) -> Result<Mark> {
    ensure!(!text.reason.trim().is_empty(), "expected a reason");
    let platforms = match &text.platforms {
        None => vec![PlatformName::Host, PlatformName::Cuda],
        Some(names) => platforms::names(names)?,
    };
    if text.platforms.is_some() {
        for &platform in &platforms {
            ensure!(
                case.reason_against(platform).is_none(),
                "expected platforms that the case is for, found {platform}"
            );
        }
    }
    Ok(Mark {
        kind,
        reason: text.reason,
        platforms,
    })
}
