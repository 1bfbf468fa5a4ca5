//! The results of a suite run, as data. The summary, the JSON report and the HTML page present it.

pub mod html;
mod provenance;
mod summary;

use std::fmt;

use serde::Serialize;

pub use self::provenance::Provenance;
pub use self::summary::summary;
use crate::run::{Problem, Ran, Stressed, Verdict};

/// The version of the JSON report's format. It changes when a key is removed or changes its
/// meaning, not when a key is added.
pub const FORMAT: u32 = 1;

/// A run of the suite.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// [`FORMAT`].
    pub format: u32,
    /// The version of callbox.
    pub callbox: String,
    /// The time and place of the run.
    #[serde(flatten)]
    pub provenance: Provenance,
    /// The filter on case names. Empty if all cases were chosen.
    pub filter: String,
    /// The duration of the run.
    pub seconds: f64,
    /// The requested platforms.
    pub platforms: Vec<PlatformReport>,
    /// The cases, sorted by name.
    pub cases: Vec<CaseReport>,
}

/// A platform of a run.
#[derive(Clone, Debug, Serialize)]
pub struct PlatformReport {
    /// The platform's label.
    pub name: String,
    /// Why the platform is unavailable. Empty if it is available.
    pub unavailable: String,
    /// The numbers of cases by ending.
    pub counts: Counts,
}

/// A case of a run.
#[derive(Clone, Debug, Serialize)]
pub struct CaseReport {
    /// The path below `tests/cases`, or below `tests` for a hostile case, without `.json`.
    pub name: String,
    /// The origin of the case's expectation.
    pub origin: String,
    /// The program's HLO text, or the case's file for other subjects. Only the page shows it.
    #[serde(skip)]
    pub program: String,
    /// The results, one per platform, in the order of the report's platforms.
    pub results: Vec<ResultReport>,
}

/// The result of a case on a platform.
#[derive(Clone, Debug, Serialize)]
pub struct ResultReport {
    /// The platform's label.
    pub platform: String,
    /// How the case ended.
    pub ending: Ending,
    /// Why the case was not run, is unsupported, or is expected to fail. Empty otherwise.
    pub reason: String,
    /// Why the case failed, if it did.
    pub problem: Option<Problem>,
    /// The duration of the case, concurrent runs included.
    pub seconds: f64,
    /// The concurrent runs of the case, if there were any.
    pub stress: Option<Stressed>,
}

/// How a case ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Ending {
    /// The outcome was as expected.
    Passed,
    /// The outcome was not as expected.
    Failed,
    /// The platform reported UNIMPLEMENTED, as the case's mark says.
    Unsupported,
    /// The case failed, as its mark says.
    ExpectedFailure,
    /// The case was not run, for a reason.
    NotRun,
}

/// Returns `1 case`, `2 cases` and so on.
fn count_of(count: usize, noun: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {noun}{plural}")
}

/// The numbers of cases by ending.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    passed: usize,
    failed: usize,
    unsupported: usize,
    expected_failure: usize,
    not_run: usize,
}

impl Ending {
    /// All endings, in the order of reports.
    pub const ALL: [Self; 5] = [
        Self::Passed,
        Self::Failed,
        Self::Unsupported,
        Self::ExpectedFailure,
        Self::NotRun,
    ];

    /// Returns the name in summaries and pages.
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
    /// Counts one more case.
    pub fn add(&mut self, ending: Ending) {
        *match ending {
            Ending::Passed => &mut self.passed,
            Ending::Failed => &mut self.failed,
            Ending::Unsupported => &mut self.unsupported,
            Ending::ExpectedFailure => &mut self.expected_failure,
            Ending::NotRun => &mut self.not_run,
        } += 1;
    }

    /// Returns the number of cases with this ending.
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

    /// Returns the number of cases that were run.
    #[must_use]
    pub const fn run(&self) -> usize {
        self.passed + self.failed + self.unsupported + self.expected_failure
    }

    /// Returns the number of all cases.
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
    /// Makes the report of a case that ran on the platform of this label.
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
    /// Returns the folder of the case, below `tests/cases`.
    #[must_use]
    pub fn folder(&self) -> &str {
        self.name.rsplit_once('/').map_or("", |(folder, _)| folder)
    }
}

impl Report {
    /// Returns the results on a platform, each with its case.
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

    /// Returns whether a case failed.
    #[must_use]
    pub fn has_failures(&self) -> bool {
        let counts = self.platforms.iter().map(|platform| platform.counts);
        counts.into_iter().any(|counts| counts.failed > 0)
    }

    /// Returns the number of concurrent runs, on all platforms together.
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

    /// Makes a case with one result. `text` fills every field whose text may come from outside.
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
            program: text.to_owned(),
            results: vec![result],
        }
    }

    /// Makes a report of these cases.
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
            provenance: Provenance {
                date: "2026-11-21T20:15:00Z".to_owned(),
                commit: "0123456789ab".to_owned(),
                machine: "a machine".to_owned(),
            },
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
            "date": "2026-11-21T20:15:00Z",
            "commit": "0123456789ab",
            "machine": "a machine",
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
