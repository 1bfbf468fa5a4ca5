//! What a run found, as data.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The number of the report's format. It changes when a key goes or changes its meaning, not when one is added.
pub(crate) const FORMAT: u32 = 1;

/// A run.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Report {
    /// [`FORMAT`].
    pub(crate) format: u32,
    /// callbox's version.
    pub(crate) callbox: &'static str,
    /// The commit that this program was built from, as `cargo xtask gpu-check` says. Empty if it was built without.
    pub(crate) commit: &'static str,
    /// When it began, in UTC.
    pub(crate) date: String,
    /// Whether less was measured.
    pub(crate) quick: bool,
    /// What it ran on. Nothing on a machine without a GPU.
    pub(crate) device: Option<Device>,
    /// Why there is no device. Empty if there is one.
    pub(crate) why_no_device: String,
    /// How long it took, in seconds.
    pub(crate) seconds: f64,
    /// What was done, in this order.
    pub(crate) sections: Vec<Section>,
}

/// A device, or what stands in for one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Device {
    /// The driver's name for it.
    pub(crate) name: String,
    /// Whether it is no GPU but the stand-in driver, whose times mean nothing.
    pub(crate) is_stand_in: bool,
    /// Major and minor number.
    pub(crate) compute_capability: [u32; 2],
    /// All of its memory, in bytes.
    pub(crate) memory_bytes: usize,
}

/// One thing that was done.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Section {
    /// Its name.
    pub(crate) name: String,
    /// How it ended.
    pub(crate) outcome: Outcome,
    /// Why it failed or was skipped, or what is to be known of the numbers. May be empty.
    pub(crate) why: String,
    /// What it found. Nothing where it found nothing, and in place of times that were taken on the stand-in.
    pub(crate) numbers: Value,
}

/// How a section ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Outcome {
    /// It did what it should.
    Ok,
    /// It did not.
    Failed,
    /// It was not run.
    Skipped,
}

/// Something that a measurement is hoped to reach. One that is missed is no failure.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Goal {
    goal: String,
    limit: f64,
    found: f64,
    reached: bool,
}

impl Goal {
    /// That something is at most so much.
    pub(crate) fn at_most(goal: impl Into<String>, limit: f64, found: f64) -> Self {
        Self {
            goal: goal.into(),
            limit,
            found,
            reached: found <= limit,
        }
    }

    /// That something is at least so much.
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
    /// One that did what it should.
    pub(crate) fn ok(name: &str, numbers: Value) -> Self {
        Self::new(name, Outcome::Ok, "", numbers)
    }

    /// One that did not, with what it found on the way.
    pub(crate) fn failed(name: &str, why: impl Into<String>, numbers: Value) -> Self {
        Self::new(name, Outcome::Failed, why, numbers)
    }

    /// One that was not run.
    pub(crate) fn skipped(name: &str, why: impl Into<String>) -> Self {
        Self::new(name, Outcome::Skipped, why, Value::Null)
    }

    /// One with times. Those of the stand-in are left out.
    pub(crate) fn timed(name: &str, numbers: Value, is_stand_in: bool) -> Self {
        match is_stand_in {
            false => Self::ok(name, numbers),
            true => Self::new(
                name,
                Outcome::Ok,
                "it ran; times of the stand-in mean nothing and are left out",
                Value::Null,
            ),
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
    /// Whether a section failed.
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
