//! What came of a run of the suite, as data: the summary, the JSON report and the HTML page are three ways to show it.

pub mod html;
mod summary;

use std::fmt;

use serde::Serialize;

pub use self::summary::summary;
use crate::run::{Problem, Ran, Stressed, Verdict};

/// The number of the JSON report's format. It changes when a key goes or changes its meaning, not when one is added.
pub const FORMAT: u32 = 1;

/// A run of the suite.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// [`FORMAT`].
    pub format: u32,
    /// callbox's version.
    pub callbox: String,
    /// The text that the names of the cases contain. Empty if all cases were run.
    pub filter: String,
    /// How long it took.
    pub seconds: f64,
    /// The platforms that were asked for.
    pub platforms: Vec<PlatformReport>,
    /// The cases, in the order of their names.
    pub cases: Vec<CaseReport>,
}

/// A platform of a run.
#[derive(Clone, Debug, Serialize)]
pub struct PlatformReport {
    /// Its name.
    pub name: String,
    /// Why it is not there. Empty if it is.
    pub unavailable: String,
    /// What came of its cases.
    pub counts: Counts,
}

/// A case of a run.
#[derive(Clone, Debug, Serialize)]
pub struct CaseReport {
    /// Its path below `tests/cases`, without `.json`; of a hostile guest its path below `tests`.
    pub name: String,
    /// Where its expectation comes from.
    pub origin: String,
    /// What came of it, for each platform in the order of the report's.
    pub results: Vec<ResultReport>,
}

/// What came of a case on a platform.
#[derive(Clone, Debug, Serialize)]
pub struct ResultReport {
    /// The platform's name.
    pub platform: String,
    /// How it ended.
    pub ending: Ending,
    /// Why it was not run, is not supported, or is expected to fail. Empty otherwise.
    pub reason: String,
    /// Why it failed, if it did.
    pub problem: Option<Problem>,
    /// How long it took.
    pub seconds: f64,
    /// What was done to it in many threads at once, if it came to that.
    pub stress: Option<Stressed>,
}

/// How a case ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Ending {
    /// It did what it expects.
    Passed,
    /// It did not.
    Failed,
    /// The platform said that it does not do this, and the case says why.
    Unsupported,
    /// It failed, and the case says why.
    ExpectedFailure,
    /// It was not run, and there is a reason.
    NotRun,
}

/// How many cases ended how.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    passed: usize,
    failed: usize,
    unsupported: usize,
    expected_failure: usize,
    not_run: usize,
}

impl Ending {
    /// All of them, in the order of reports.
    pub const ALL: [Self; 5] = [
        Self::Passed,
        Self::Failed,
        Self::Unsupported,
        Self::ExpectedFailure,
        Self::NotRun,
    ];

    /// What a person calls it.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Passed => "passed",
            Self::Failed => "failed",
            Self::Unsupported => "unsupported",
            Self::ExpectedFailure => "expected failure",
            Self::NotRun => "not run",
        }
    }
}

impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.label())
    }
}

impl Counts {
    /// Counts one more.
    pub fn add(&mut self, ending: Ending) {
        *match ending {
            Ending::Passed => &mut self.passed,
            Ending::Failed => &mut self.failed,
            Ending::Unsupported => &mut self.unsupported,
            Ending::ExpectedFailure => &mut self.expected_failure,
            Ending::NotRun => &mut self.not_run,
        } += 1;
    }

    /// How many ended so.
    #[must_use]
    pub const fn of(&self, ending: Ending) -> usize {
        match ending {
            Ending::Passed => self.passed,
            Ending::Failed => self.failed,
            Ending::Unsupported => self.unsupported,
            Ending::ExpectedFailure => self.expected_failure,
            Ending::NotRun => self.not_run,
        }
    }

    /// How many were run.
    #[must_use]
    pub const fn run(&self) -> usize {
        self.passed + self.failed + self.unsupported + self.expected_failure
    }

    /// How many there are.
    #[must_use]
    pub const fn all(&self) -> usize {
        self.run() + self.not_run
    }
}

impl FromIterator<Ending> for Counts {
    fn from_iter<I: IntoIterator<Item = Ending>>(endings: I) -> Self {
        let mut counts = Self::default();
        endings.into_iter().for_each(|ending| counts.add(ending));
        counts
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = |ending: Ending| format!("{} {ending}", self.of(ending));
        let counts: Vec<String> = Ending::ALL.into_iter().map(count).collect();
        f.write_str(&counts.join(", "))
    }
}

impl ResultReport {
    /// The report of what came of a case on a platform, by its label.
    #[must_use]
    pub fn new(platform: impl fmt::Display, ran: Ran) -> Self {
        let (ending, reason, problem) = match ran.verdict {
            Verdict::Passed => (Ending::Passed, String::new(), None),
            Verdict::Failed(problem) => (Ending::Failed, String::new(), Some(problem)),
            Verdict::Unsupported(reason) => (Ending::Unsupported, reason, None),
            Verdict::FailedAsExpected(reason) => (Ending::ExpectedFailure, reason, None),
            Verdict::NotRun(reason) => (Ending::NotRun, reason, None),
        };
        Self {
            platform: platform.to_string(),
            ending,
            reason,
            problem,
            seconds: ran.time.as_secs_f64(),
            stress: ran.stressed,
        }
    }
}

impl CaseReport {
    /// The folder that the case is in, below `tests/cases`.
    #[must_use]
    pub fn folder(&self) -> &str {
        self.name.rsplit_once('/').map_or("", |(folder, _)| folder)
    }
}

impl Report {
    /// The results on a platform, each with its case.
    pub fn results<'r>(
        &'r self,
        platform: &'r str,
    ) -> impl Iterator<Item = (&'r CaseReport, &'r ResultReport)> {
        self.cases.iter().flat_map(move |case| {
            let results = case.results.iter();
            results
                .filter(move |result| result.platform == platform)
                .map(move |result| (case, result))
        })
    }

    /// Whether a case failed.
    #[must_use]
    pub fn has_failures(&self) -> bool {
        let counts = self.platforms.iter().map(|platform| platform.counts);
        counts.into_iter().any(|counts| counts.failed > 0)
    }

    /// Runs of cases in many threads at once, of all platforms together.
    #[must_use]
    pub fn stress_runs(&self) -> usize {
        let results = self.cases.iter().flat_map(|case| &case.results);
        let runs = results.filter_map(|result| Some(result.stress.as_ref()?.runs));
        runs.sum()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::run::Difference;

    /// A case on one platform that ended so, with this text wherever text may come from outside.
    pub(crate) fn case(name: &str, ending: Ending, text: &str) -> CaseReport {
        let difference = Difference::new(text, text, text).with_note(text);
        let problem = Problem {
            message: text.to_owned(),
            differences: vec![difference],
        };
        let result = ResultReport {
            platform: "Host".to_owned(),
            ending,
            reason: text.to_owned(),
            problem: (ending == Ending::Failed).then_some(problem),
            seconds: 0.25,
            stress: Some(Stressed {
                runs: 100,
                reason: text.to_owned(),
            }),
        };
        CaseReport {
            name: name.to_owned(),
            origin: text.to_owned(),
            results: vec![result],
        }
    }

    /// A report of these cases.
    pub(crate) fn report(cases: Vec<CaseReport>) -> Report {
        let endings = cases.iter().map(|case| case.results[0].ending);
        let platform = PlatformReport {
            name: "Host".to_owned(),
            unavailable: String::new(),
            counts: endings.collect(),
        };
        Report {
            format: FORMAT,
            callbox: "0.0.0".to_owned(),
            filter: String::new(),
            seconds: 1.5,
            platforms: vec![platform],
            cases,
        }
    }

    #[test]
    fn the_json_report_is_as_the_readme_says() {
        let report = report(vec![case("a/b", Ending::Failed, "x")]);
        let difference =
            serde_json::json!({"place": "x", "expected": "x", "found": "x", "note": "x"});
        let expected = serde_json::json!({
            "format": 1,
            "callbox": "0.0.0",
            "filter": "",
            "seconds": 1.5,
            "platforms": [{
                "name": "Host",
                "unavailable": "",
                "counts": {"passed": 0, "failed": 1, "unsupported": 0, "expected_failure": 0, "not_run": 0},
            }],
            "cases": [{
                "name": "a/b",
                "origin": "x",
                "results": [{
                    "platform": "Host",
                    "ending": "failed",
                    "reason": "x",
                    "problem": {"message": "x", "differences": [difference]},
                    "seconds": 0.25,
                    "stress": {"runs": 100, "reason": "x"},
                }],
            }],
        });
        assert_eq!(serde_json::to_value(report).unwrap(), expected);
    }

    #[test]
    fn verdicts_become_endings_with_their_reasons() {
        let ending = |verdict: Verdict| {
            let ran = Ran {
                verdict,
                ..Ran::not_run("")
            };
            let result = ResultReport::new("Host", ran);
            (result.ending, result.reason, result.problem.is_some())
        };
        let reason = || "why".to_owned();
        for (verdict, expected) in [
            (Verdict::Passed, (Ending::Passed, String::new(), false)),
            (
                Verdict::Failed(Problem::new("x")),
                (Ending::Failed, String::new(), true),
            ),
            (
                Verdict::Unsupported(reason()),
                (Ending::Unsupported, reason(), false),
            ),
            (
                Verdict::FailedAsExpected(reason()),
                (Ending::ExpectedFailure, reason(), false),
            ),
            (Verdict::NotRun(reason()), (Ending::NotRun, reason(), false)),
        ] {
            assert_eq!(ending(verdict), expected);
        }
    }

    #[test]
    fn counts_add_up() {
        let counts: Counts = Ending::ALL.into_iter().chain([Ending::Passed]).collect();
        assert_eq!((counts.run(), counts.all()), (5, 6));
        assert_eq!(
            counts.to_string(),
            "2 passed, 1 failed, 1 unsupported, 1 expected failure, 1 not run"
        );
    }
}
