//! The report, as data.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The version of the report's format. It changes when a key is removed or changes its meaning, not
/// when a key is added.
pub(crate) const FORMAT: u32 = 1;

/// A run.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Report {
    /// [`FORMAT`].
    pub(crate) format: u32,
    /// The version of callbox.
    pub(crate) callbox: &'static str,
    /// The commit that `cargo xtask gpu-check` built from. Empty for other builds.
    pub(crate) commit: &'static str,
    /// The start of the run, in UTC.
    pub(crate) date: String,
    /// Whether less was measured.
    pub(crate) quick: bool,
    /// The device. `None` on a machine without a GPU.
    pub(crate) device: Option<Device>,
    /// Why there is no device. Empty if there is one.
    pub(crate) why_no_device: String,
    /// The duration in seconds.
    pub(crate) seconds: f64,
    /// The sections, in the order of the run.
    pub(crate) sections: Vec<Section>,
}

/// A device, or the stand-in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Device {
    /// The name that the driver reports.
    pub(crate) name: String,
    /// Whether it is the stand-in driver, whose times are meaningless.
    pub(crate) is_stand_in: bool,
    /// Major and minor number.
    pub(crate) compute_capability: [u32; 2],
    /// The total memory in bytes.
    pub(crate) memory_bytes: usize,
}

/// A section of the run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Section {
    /// Its name.
    pub(crate) name: String,
    /// How it ended.
    pub(crate) outcome: Outcome,
    /// Why it failed or was skipped, or a note on the numbers. May be empty.
    pub(crate) why: String,
    /// The findings. Null if there are none, or if they are times on the stand-in.
    pub(crate) numbers: Value,
}

/// How a section ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Outcome {
    /// It succeeded.
    Ok,
    /// It failed.
    Failed,
    /// It was not run.
    Skipped,
}

/// A goal of a measurement. Missing it is not a failure.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Goal {
    goal: String,
    limit: f64,
    found: f64,
    reached: bool,
}

impl Goal {
    /// Makes a goal with an upper limit.
    pub(crate) fn at_most(goal: impl Into<String>, limit: f64, found: f64) -> Self {
        Self {
            goal: goal.into(),
            limit,
            found,
            reached: found <= limit,
        }
    }

    /// Makes a goal with a lower limit.
    pub(crate) fn at_least(goal: impl Into<String>, limit: f64, found: f64) -> Self {
        Self {
            goal: goal.into(),
            limit,
            found,
            reached: found >= limit,
        }
    }
}

impl Section {
    /// Makes a section that succeeded.
    pub(crate) fn ok(name: &str, numbers: Value) -> Self {
        Self::new(name, Outcome::Ok, "", numbers)
    }

    /// Makes a section that failed, with its findings so far.
    pub(crate) fn failed(name: &str, why: impl Into<String>, numbers: Value) -> Self {
        Self::new(name, Outcome::Failed, why, numbers)
    }

    /// Makes a section that was not run.
    pub(crate) fn skipped(name: &str, why: impl Into<String>) -> Self {
        Self::new(name, Outcome::Skipped, why, Value::Null)
    }

    /// Makes a section with times, which are left out on the stand-in.
    pub(crate) fn timed(name: &str, numbers: Value, is_stand_in: bool) -> Self {
        if is_stand_in {
            Self::new(
                name,
                Outcome::Ok,
                "it ran; times of the stand-in mean nothing and are left out",
                Value::Null,
            )
        } else {
            Self::ok(name, numbers)
        }
    }

    fn new(name: &str, outcome: Outcome, why: impl Into<String>, numbers: Value) -> Self {
        Self {
            name: name.to_owned(),
            outcome,
            why: why.into(),
            numbers,
        }
    }
}

impl Report {
    /// Returns whether a section failed.
    pub(crate) fn has_failures(&self) -> bool {
        let mut sections = self.sections.iter();
        sections.any(|section| section.outcome == Outcome::Failed)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use serde_json::json;

    use super::*;

    #[test]
    fn sections_are_read_back() {
        for section in [
            Section::ok("a", json!({"x": 1})),
            Section::failed("b", "why", Value::Null),
            Section::skipped("c", "why"),
        ] {
            let text = serde_json::to_string(&section).unwrap();
            assert_eq!(serde_json::from_str::<Section>(&text).unwrap(), section);
        }
    }

    #[test]
    fn times_of_the_stand_in_are_left_out() {
        let numbers = json!({"ns": 3});
        assert_eq!(Section::timed("a", numbers.clone(), false).numbers, numbers);
        let section = Section::timed("a", numbers, true);
        assert_eq!(
            (section.outcome, section.numbers),
            (Outcome::Ok, Value::Null)
        );
    }

    #[test]
    fn goals_have_a_side() {
        assert!(Goal::at_most("a", 2.0, 2.0).reached && !Goal::at_most("a", 2.0, 2.1).reached);
        assert!(Goal::at_least("a", 2.0, 2.0).reached && !Goal::at_least("a", 2.0, 1.9).reached);
        assert!(!Goal::at_least("a", 2.0, f64::NAN).reached);
    }
}
