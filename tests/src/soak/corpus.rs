//! The cases of the conformance suite as part of the mix, including modules that fail to load, lie,
//! trap and access memory out of bounds.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use fastrand::Rng;

use super::watch::Outcome;
use crate::case::{Case, Expect, Step, Stress};
use crate::discover;
use crate::platform::PlatformName;
use crate::platform::host::Host;
use crate::run::{self, Verdict};

/// Cases that take longer are run only once, or they would dominate the mix.
const LONGEST: Duration = Duration::from_millis(250);

/// The cases, with their properties.
pub(super) struct Corpus {
    entries: Vec<Entry>,
}

struct Entry {
    name: String,
    case: Case,
    /// Whether a step of the case must fail.
    is_hostile: bool,
    is_slow: AtomicBool,
}

impl Corpus {
    /// Reads the cases that can run repeatedly on Host and whose names contain this text.
    pub(super) fn read(text: &str) -> Result<Self> {
        let mut entries = Vec::new();
        let mut found = discover::all()?;
        found.retain(|case| case.name.contains(text));
        for found in found {
            let case = Case::read(&found.path).with_context(|| found.name.clone())?;
            let is_left_out = matches!(case.stress, Stress::Skip(_))
                || case.platforms.reason_against(PlatformName::Host).is_some();
            if !is_left_out {
                entries.push(Entry {
                    name: found.name,
                    is_hostile: case.is_hostile || case.steps.iter().any(fails),
                    case,
                    is_slow: AtomicBool::new(false),
                });
            }
        }
        ensure!(
            entries.iter().any(|entry| entry.is_hostile),
            "expected cases that have to fail with {text:?} in their names, found none"
        );
        Ok(Self { entries })
    }

    /// Prepares a random case, runs it and judges it.
    pub(super) fn run(&self, random: &mut Rng) -> Result<Outcome, String> {
        let Some(entry) = self.pick(random) else {
            return Err("expected cases that take less than 250 ms, found none".to_owned());
        };
        let begun = Instant::now();
        let verdict = run::once(&entry.case, &Host::default());
        if begun.elapsed() > LONGEST {
            entry.is_slow.store(true, Ordering::Relaxed);
        }
        match verdict {
            Verdict::Failed(problem) => Err(format!("the case {}: {problem}", entry.name)),
            _ if entry.is_hostile => Ok(Outcome::Hostile),
            _ => Ok(Outcome::Case),
        }
    }

    /// Picks a random case, or the next one that is not slow.
    fn pick(&self, random: &mut Rng) -> Option<&Entry> {
        let (before, after) = self.entries.split_at(random.usize(..self.entries.len()));
        let mut entries = after.iter().chain(before);
        entries.find(|entry| !entry.is_slow.load(Ordering::Relaxed))
    }

    /// Returns the number of cases, and how many of them were too slow to repeat.
    pub(super) fn counts(&self) -> (usize, usize) {
        let slow = self
            .entries
            .iter()
            .filter(|e| e.is_slow.load(Ordering::Relaxed));
        (self.entries.len(), slow.count())
    }
}

fn fails(step: &Step) -> bool {
    matches!(step.expect, Expect::Status(_))
}
