//! The report of a soak, as data and as a table.

use std::fmt::Write;

use serde::{Serialize, Serializer};

use super::Options;
use super::flat::{Allowance, Flatness, flatness};
use super::usage::Usage;
use super::watch::{OUTCOMES, Outcome, Sample};

/// The kind of soak.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// A random mix.
    Mix,
    /// Traps, each followed by healthy calls, on one call site.
    TrapCycles,
}

/// The report of a soak.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The version of the format. It changes when a key is removed or changes its meaning.
    pub format: u32,
    /// The version of callbox.
    pub callbox: &'static str,
    /// The kind of soak.
    pub kind: Kind,
    /// The seed of the threads' random choices.
    pub seed: u64,
    /// The number of calling threads.
    pub threads: usize,
    /// The duration.
    pub seconds: f64,
    /// The number of times each outcome occurred.
    pub outcomes: Vec<OutcomeCount>,
    /// The verdicts on the curves.
    pub measures: Vec<Measure>,
    /// The first problems.
    pub problems: Vec<String>,
    /// Additional notes.
    pub notes: Vec<String>,
    /// The samples.
    pub samples: Vec<Sample>,
}

/// The number of times an outcome occurred.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct OutcomeCount {
    /// The outcome's name.
    pub name: &'static str,
    /// The number of occurrences.
    pub count: u64,
}

/// The verdict on a curve.
#[derive(Clone, Debug, Serialize)]
pub struct Measure {
    /// The name of the measure.
    pub name: &'static str,
    /// The unit. Empty for counts.
    pub unit: &'static str,
    /// Whether the measure grows.
    pub verdict: Verdict,
    /// The figures behind the verdict.
    pub flatness: Option<Flatness>,
}

/// Whether a curve grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It does not grow.
    Flat,
    /// It grows.
    Grows,
    /// The system does not report it, or the run was too short.
    NotAvailable,
}

/// A gauge: its name, its unit, its allowed growth, and how to read it.
pub(super) type Gauge = (&'static str, &'static str, Allowance, fn(&Usage) -> f64);

/// The gauges. In the mix, engines, modules and threads come and go at random, so each gauge has
/// some allowance.
pub(super) const GAUGES: [Gauge; 4] = [
    (
        "resident memory",
        "MiB",
        Allowance {
            share: 0.05,
            least: 16.0,
        },
        |usage| usage.resident as f64 / f64::from(1 << 20),
    ),
    (
        "threads",
        "",
        Allowance {
            share: 0.0,
            least: 2.0,
        },
        |usage| usage.threads as f64,
    ),
    (
        "descriptors",
        "",
        Allowance {
            share: 0.0,
            least: 8.0,
        },
        |usage| usage.descriptors as f64,
    ),
    (
        "mappings",
        "",
        Allowance {
            share: 0.1,
            least: 100.0,
        },
        |usage| usage.mappings as f64,
    ),
];

impl Report {
    pub(super) fn new(
        kind: Kind,
        options: &Options,
        samples: Vec<Sample>,
        problems: Vec<String>,
        notes: Vec<String>,
    ) -> Self {
        let counts = samples
            .last()
            .map(|sample| sample.counts)
            .unwrap_or_default();
        let outcomes = std::iter::zip(OUTCOMES, counts);
        Self {
            format: 1,
            callbox: env!("CARGO_PKG_VERSION"),
            kind,
            seed: options.seed,
            threads: options.threads,
            seconds: samples.last().map_or(0.0, |sample| sample.at),
            outcomes: outcomes
                .map(|((_, name), count)| OutcomeCount { name, count })
                .collect(),
            measures: GAUGES
                .iter()
                .map(|gauge| Measure::new(kind, gauge, &samples))
                .collect(),
            problems,
            notes,
            samples,
        }
    }

    /// Returns whether there was no problem and nothing grows. Unavailable measures count as good.
    #[must_use]
    pub fn is_good(&self) -> bool {
        self.problems.is_empty()
            && self
                .measures
                .iter()
                .all(|measure| measure.verdict != Verdict::Grows)
    }

    /// Returns how often this outcome occurred.
    #[must_use]
    pub fn count(&self, outcome: Outcome) -> u64 {
        self.outcomes[outcome as usize].count
    }

    /// Describes the number of calling threads.
    pub(super) fn said_threads(&self) -> String {
        match self.threads {
            1 => "1 thread".to_owned(),
            threads => format!("{threads} threads"),
        }
    }

    /// Renders the report as Markdown: what was done, which measures are flat, and the problems.
    #[must_use]
    pub fn table(&self) -> String {
        let mut text = format!(
            "{} for {:.0} s, {}, seed {}.\n\n| outcome | times | each second |\n| --- | ---: | ---: |\n",
            match self.kind {
                Kind::Mix => "A random mix",
                Kind::TrapCycles => "Traps, each followed by healthy calls of the same call site,",
            },
            self.seconds,
            self.said_threads(),
            self.seed
        );
        for outcome in self.outcomes.iter().filter(|outcome| outcome.count > 0) {
            let rate = outcome.count as f64 / self.seconds.max(f64::MIN_POSITIVE);
            // Writing to a `String` cannot fail.
            let _ = writeln!(text, "| {} | {} | {rate:.1} |", outcome.name, outcome.count);
        }
        text.push_str("\n| | second quarter | last quarter | rise of the fitted line | allowed | |\n| --- | ---: | ---: | ---: | ---: | --- |\n");
        for measure in &self.measures {
            text.push_str(&measure.row());
        }
        for note in &self.notes {
            let _ = write!(text, "\n{note}.\n");
        }
        for problem in &self.problems {
            let _ = write!(text, "\nPROBLEM: {problem}\n");
        }
        text
    }
}

impl Measure {
    fn new(kind: Kind, &(name, unit, play, value): &Gauge, samples: &[Sample]) -> Self {
        let allowance = match kind {
            Kind::Mix => play,
            // One thread that repeats the same calls causes hardly any variation.
            Kind::TrapCycles => Allowance {
                share: 0.0,
                least: play.least / 8.0,
            },
        };
        let usages = samples
            .iter()
            .map(|sample| Some((sample.at, value(&sample.usage?))));
        let curve: Option<Vec<(f64, f64)>> = usages.collect();
        let flatness = curve.and_then(|curve| flatness(&curve, allowance));
        Self {
            name,
            unit,
            verdict: match flatness {
                None => Verdict::NotAvailable,
                Some(flatness) if flatness.is_flat() => Verdict::Flat,
                Some(_) => Verdict::Grows,
            },
            flatness,
        }
    }

    fn row(&self) -> String {
        let name = match self.unit {
            "" => self.name.to_owned(),
            unit => format!("{}, {unit}", self.name),
        };
        match self.flatness {
            None => format!("| {name} | | | | | {} |\n", self.verdict.name()),
            Some(Flatness {
                second,
                last,
                rise,
                allowed,
            }) => format!(
                "| {name} | {second:.1} | {last:.1} | {rise:+.1} | {allowed:.1} | {} |\n",
                self.verdict.name()
            ),
        }
    }
}

impl Verdict {
    /// Returns the name in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Flat => "flat",
            Self::Grows => "GROWS",
            Self::NotAvailable => "not available",
        }
    }
}

impl Serialize for Verdict {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.name().to_lowercase())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn report(usage: impl Fn(u64) -> Option<Usage>, problems: Vec<String>) -> Report {
        let samples = (0..100).map(|second| Sample {
            at: second as f64,
            usage: usage(second),
            counts: std::array::from_fn(|_| second),
        });
        let options = Options::new(7, 2, Duration::from_secs(100));
        Report::new(Kind::Mix, &options, samples.collect(), problems, Vec::new())
    }

    fn usage(descriptors: u64) -> Usage {
        Usage {
            resident: 100 << 20,
            threads: 5,
            descriptors,
            mappings: 1000,
        }
    }

    fn verdicts(report: &Report) -> Vec<Verdict> {
        report
            .measures
            .iter()
            .map(|measure| measure.verdict)
            .collect()
    }

    #[test]
    fn only_what_grows_is_said_to() {
        let flat = report(|_| Some(usage(10)), Vec::new());
        assert_eq!(verdicts(&flat), [Verdict::Flat; 4]);
        assert!(flat.is_good());
        assert_eq!(flat.count(Outcome::Trapped), 99);
        // One leaked descriptor per second.
        let leaking = report(|second| Some(usage(second)), Vec::new());
        let expected = [Verdict::Flat, Verdict::Flat, Verdict::Grows, Verdict::Flat];
        assert_eq!(verdicts(&leaking), expected);
        assert!(!leaking.is_good());
        assert!(
            leaking
                .table()
                .contains("| descriptors | 37.0 | 87.0 | +74.2 | 8.0 | GROWS |"),
            "{}",
            leaking.table()
        );
    }

    #[test]
    fn what_the_system_does_not_tell_is_not_available() {
        let silent = report(|_| None, Vec::new());
        assert_eq!(verdicts(&silent), [Verdict::NotAvailable; 4]);
        assert!(silent.is_good());
        assert!(
            silent
                .table()
                .contains("| threads | | | | | not available |")
        );
    }

    #[test]
    fn a_problem_is_told() {
        let wrong = report(|_| Some(usage(1)), vec!["expected 1, found 2".to_owned()]);
        assert!(!wrong.is_good());
        assert!(wrong.table().contains("PROBLEM: expected 1, found 2"));
    }
}
