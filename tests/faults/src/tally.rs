//! Counts of runs and their outcomes.

use std::collections::BTreeMap;
use std::fmt;

use callbox::wasm::faults::{Kind, Record};
use callbox_tests::platform::Outcome;

/// The counts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Cases with values to alter.
    pub cases: u64,
    /// Runs in which a value was altered.
    pub runs: u64,
    /// Altered values.
    pub injected: u64,
    /// Altered values by their source.
    pub kinds: BTreeMap<Kind, u64>,
    /// The outcomes of altered steps by status code, `OK` for results.
    pub outcomes: BTreeMap<&'static str, u64>,
}

impl Tally {
    /// Counts a run in which a value was altered.
    pub fn add_run(&mut self, outcomes: &[Outcome], record: &Record) {
        self.runs += 1;
        self.injected += record.altered.len() as u64;
        for altered in &record.altered {
            *self.kinds.entry(altered.seen.kind).or_default() += 1;
        }
        for outcome in outcomes {
            let code = match outcome {
                Ok(_) => "OK",
                Err(failure) => failure.status.code().name(),
            };
            *self.outcomes.entry(code).or_default() += 1;
        }
    }

    /// Adds another tally.
    pub fn add(&mut self, other: &Self) {
        self.cases += other.cases;
        self.runs += other.runs;
        self.injected += other.injected;
        for (kind, count) in &other.kinds {
            *self.kinds.entry(*kind).or_default() += count;
        }
        for (code, count) in &other.outcomes {
            *self.outcomes.entry(code).or_default() += count;
        }
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            cases,
            runs,
            injected,
            kinds,
            outcomes,
        } = self;
        write!(f, "{injected} faults in {runs} runs of {cases} cases:")?;
        for (kind, count) in kinds {
            write!(f, " {kind:?} {count}")?;
        }
        f.write_str("; steps ended in:")?;
        for (code, count) in outcomes {
            write!(f, " {code} {count}")?;
        }
        Ok(())
    }
}
