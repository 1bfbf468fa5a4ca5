//! The summary that ends `cargo xtask test`: the steps that ran, and why others did not.

use std::fmt;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Result;

use crate::process::say;

/// A step of `cargo xtask test`.
pub(crate) struct Step {
    pub(crate) name: &'static str,
    pub(crate) run: fn(&mut Counts) -> Result<Outcome>,
}

/// How a step ended that found no failure.
pub(crate) enum Outcome {
    Ran,
    /// Something optional is missing: what, and how to get it.
    NotRun(String),
}

/// Failed tests that the summary names for each step.
const MAX_NAMES: usize = 50;

/// Numbers of tests, and the names of those that failed.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    passed: usize,
    failed: usize,
    /// Tests that were ignored, skipped, or expected to fail.
    other: usize,
    names: Vec<String>,
}

impl Counts {
    /// Adds the numbers in a line of a test runner's output, if it is the line that sums up:
    /// - cargo's `test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; ...`,
    /// - pytest's `3 passed, 1 skipped in 0.12s`,
    /// - the conformance runner's row `all`: passed, failed, and three kinds of others,
    ///
    /// or the name of a failed test:
    /// - cargo's `test NAME ... FAILED`,
    /// - pytest's `FAILED NAME - reason`, and `ERROR` likewise.
    pub(crate) fn add_line(&mut self, line: &str) {
        if let Some(name) = failed(line) {
            self.names.push(name.to_owned());
        }
        let words: Vec<&str> = line.split_whitespace().collect();
        let time = line.rsplit_once(" in ").map_or("", |(_, time)| time);
        let is_pytest = time.starts_with(|first: char| first.is_ascii_digit());
        if let ["all", numbers @ ..] = &words[..]
            && numbers.len() == 5
        {
            let number = |at: usize| numbers[at].parse().unwrap_or(0);
            self.passed += number(0);
            self.failed += number(1);
            self.other += number(2) + number(3);
        } else if line.starts_with("test result: ") || is_pytest {
            for pair in words.windows(2) {
                let Ok(number) = pair[0].parse::<usize>() else {
                    continue;
                };
                match pair[1].trim_end_matches([',', ';']) {
                    "passed" => self.passed += number,
                    "failed" | "error" | "errors" => self.failed += number,
                    "ignored" | "skipped" | "xfailed" => self.other += number,
                    _ => {}
                }
            }
        }
    }

    fn add(&mut self, more: &Self) {
        self.passed += more.passed;
        self.failed += more.failed;
        self.other += more.other;
    }

    /// The number of tests that were counted.
    pub(crate) fn total(&self) -> usize {
        self.passed + self.failed + self.other
    }
}

/// The name of the test of which a line says that it failed.
fn failed(line: &str) -> Option<&str> {
    if let Some(rest) = line.strip_prefix("test ") {
        let (name, end) = rest.rsplit_once(" ... ")?;
        return end.starts_with("FAILED").then(|| name.trim_end());
    }
    let rest = line.strip_prefix("FAILED ");
    let rest = rest.or_else(|| line.strip_prefix("ERROR "))?;
    let name = rest.split_once(" - ").map_or(rest, |(name, _)| name);
    name.contains(".py").then_some(name)
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} passed, {} failed", self.passed, self.failed)?;
        if self.other > 0 {
            write!(f, ", {} skipped", self.other)?;
        }
        Ok(())
    }
}

/// Runs the steps and prints the summary. A failure exits with 1. A step that fails before it
/// counts a test ends the run, because later steps use what it builds.
pub(crate) fn run(steps: &[Step]) -> ExitCode {
    let begin = Instant::now();
    let mut lines = Vec::new();
    let mut all = Counts::default();
    let mut any_failed = false;
    let mut ended_by = None;
    let mut not_run = 0;
    for step in steps {
        if let Some(failed) = ended_by {
            lines.push(format!("not run   {}: `{failed}` failed before", step.name));
            not_run += 1;
            continue;
        }
        say(step.name);
        let start = Instant::now();
        let mut counts = Counts::default();
        let outcome = (step.run)(&mut counts);
        all.add(&counts);
        let time = minutes(start.elapsed());
        lines.push(match outcome {
            Ok(Outcome::Ran) if counts.total() == 0 => format!("ran       {} ({time})", step.name),
            Ok(Outcome::Ran) => format!("ran       {}: {counts} ({time})", step.name),
            Ok(Outcome::NotRun(reason)) => {
                not_run += 1;
                format!("not run   {}: {reason}", step.name)
            }
            Err(error) => {
                any_failed = true;
                if counts.total() == 0 {
                    ended_by = Some(step.name);
                }
                format!("FAILED    {}: {error:#} ({time})", step.name)
            }
        });
        let names = counts.names.iter().take(MAX_NAMES);
        lines.extend(names.map(|name| format!("          {name}")));
    }
    say("Summary");
    for line in &lines {
        println!("   {line}");
    }
    // A step can fail without a test that does, as when something does not compile.
    if any_failed && all.failed == 0 {
        all.failed = 1;
    }
    let steps_not_run = match not_run {
        0 => String::new(),
        1 => ", 1 step not run".to_owned(),
        steps => format!(", {steps} steps not run"),
    };
    let time = minutes(begin.elapsed());
    println!("{all}{steps_not_run} ({time})");
    ExitCode::from(u8::from(any_failed))
}

fn minutes(duration: Duration) -> String {
    let seconds = duration.as_secs();
    format!("{} min {} s", seconds / 60, seconds % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(line: &str) -> Counts {
        let mut counts = Counts::default();
        counts.add_line(line);
        counts
    }

    #[test]
    fn summaries_of_test_runners_are_counted() {
        let counts = |passed, failed, other| Counts {
            passed,
            failed,
            other,
            names: Vec::new(),
        };
        for (line, expected) in [
            (
                "test result: FAILED. 3 passed; 1 failed; 2 ignored; 0 measured; finished in 0.00s",
                counts(3, 1, 2),
            ),
            (
                "4 passed, 1 skipped, 2 xfailed, 1 error in 12.34s",
                counts(4, 1, 3),
            ),
            ("2 passed, 1 warning in 65.43s (0:01:05)", counts(2, 0, 0)),
            (
                "  all                 1718       ·            2                 1        9",
                counts(1718, 0, 3),
            ),
            ("test passed ... ok", counts(0, 0, 0)),
            ("3 passed", counts(0, 0, 0)),
        ] {
            assert_eq!(counted(line), expected, "{line}");
        }
    }

    #[test]
    fn failed_tests_are_named() {
        for (line, expected) in [
            ("test a::b ... FAILED", &["a::b"][..]),
            ("test lazy/c       ... FAILED", &["lazy/c"]),
            (
                "test a::b - should panic ... FAILED",
                &["a::b - should panic"],
            ),
            (
                "FAILED tests/test_a.py::b[1] - assert 1 == 2",
                &["tests/test_a.py::b[1]"],
            ),
            (
                "ERROR tests/test_a.py::b - Boom: no - such",
                &["tests/test_a.py::b"],
            ),
            ("ERROR tests/test_a.py", &["tests/test_a.py"]),
            ("test a::b ... ok", &[]),
            ("FAILED (failures=1)", &[]),
            (
                "test result: FAILED. 0 passed; 1 failed; finished in 0.00s",
                &[],
            ),
        ] {
            assert_eq!(counted(line).names, expected, "{line}");
        }
    }
}
