//! Marks of cases that do not pass yet. Each has a reason, and a marked case that passes fails, so
//! that marks do not go stale.

use anyhow::{Context, Result, ensure};

use super::platforms::{self, Platforms};
use super::text::MarkText;
use crate::platform::PlatformName;

/// A case that does not pass as written, and why.
#[derive(Clone, Debug)]
pub struct Mark {
    /// The required outcome.
    pub kind: MarkKind,
    /// The reason.
    pub reason: String,
    platforms: Vec<PlatformName>,
}

/// The required outcome of a marked case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MarkKind {
    /// The platform does not support it: the case must end with UNIMPLEMENTED.
    Unsupported,
    /// The platform has a known defect: the case must fail.
    ExpectedFailure,
}

impl Mark {
    /// Returns whether the mark applies to this platform.
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

/// Reads one mark. It applies to Host and CUDA unless it lists platforms: defects of XLA are not
/// callbox's to fix.
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
