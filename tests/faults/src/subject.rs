//! A case on its engine, run under schedules.

use std::time::{Duration, Instant};

use anyhow::Result;
use callbox::wasm::faults::{self, Record, Schedule, Seen};
use callbox_tests::case::{Case, Step, Subject};
use callbox_tests::discover::Found;
use callbox_tests::platform::{Bench, Outcome, Platform};
use callbox_tests::run::{self, Verdict};

use crate::panics;

/// The deadline of an altered step, because an altered guest may loop.
const DEADLINE: Duration = Duration::from_millis(200);

/// A case prepared for many runs.
pub struct Trial<'c> {
    /// The case's name.
    pub name: &'c str,
    /// The case.
    pub case: &'c Case,
    platform: &'c dyn Platform,
    bench: Box<dyn Bench + 'c>,
    hurried: &'c [Step],
    /// The outcomes of an unaltered run.
    pub baseline: Vec<Outcome>,
    /// The values that the host reads in an unaltered run.
    pub seen: Vec<Seen>,
    /// The duration of an unaltered run.
    pub took: Duration,
}

/// A case as written, and with short deadlines.
#[derive(Debug)]
pub struct Files {
    name: String,
    case: Case,
    hurried: Case,
}

impl Files {
    /// Reads a case.
    ///
    /// # Errors
    /// A malformed case.
    pub fn read(found: &Found) -> Result<Self> {
        let mut hurried = Case::read(&found.path)?;
        for step in &mut hurried.steps {
            step.deadline = Some(step.deadline.unwrap_or(DEADLINE).min(DEADLINE));
        }
        Ok(Self {
            name: found.name.clone(),
            case: Case::read(&found.path)?,
            hurried,
        })
    }

    /// Returns whether the case runs guest code. Loading alone reads nothing from a guest.
    #[must_use]
    pub fn runs_guests(&self) -> bool {
        match &self.case.subject {
            Subject::Load { .. } => false,
            Subject::Program { targets, .. } => !targets.is_empty(),
            Subject::Call { .. } | Subject::FfiCall(_) => true,
        }
    }
}

impl<'c> Trial<'c> {
    /// Sets up a case and runs it once, unaltered. Returns `None` if it does not run on this
    /// platform.
    ///
    /// # Errors
    /// A case that fails when nothing is altered.
    pub fn open(files: &'c Files, platform: &'c dyn Platform) -> Result<Option<Self>, String> {
        let case = &files.case;
        if case.platforms.reason_against(platform.name()).is_some() {
            return Ok(None);
        }
        let bench = platform.open(case).map_err(|error| format!("{error:#}"))?;
        let mut subject = Self {
            name: &files.name,
            case,
            platform,
            bench,
            hurried: &files.hurried.steps,
            baseline: Vec::new(),
            seen: Vec::new(),
            took: Duration::ZERO,
        };
        let begun = Instant::now();
        let (outcomes, record) = subject.run_steps(&case.steps, Schedule::Observe)?;
        subject.took = begun.elapsed();
        subject.judge(&outcomes)?;
        subject.baseline = outcomes;
        subject.seen = record.seen;
        Ok(Some(subject))
    }

    /// Runs the case once under a schedule.
    ///
    /// # Errors
    /// A panic, or the platform's own failure.
    pub fn run(&self, schedule: Schedule) -> Result<(Vec<Outcome>, Record), String> {
        self.run_steps(self.hurried, schedule)
    }

    /// Runs the case unaltered, which must pass.
    ///
    /// # Errors
    /// The case's failure.
    pub fn run_as_it_is(&self) -> Result<(), String> {
        let (outcomes, _) = self.run_steps(&self.case.steps, Schedule::Observe)?;
        self.judge(&outcomes)
    }

    fn judge(&self, outcomes: &[Outcome]) -> Result<(), String> {
        match run::judge(self.case, self.platform, outcomes) {
            Ok(Verdict::Failed(problem)) | Err(problem) => Err(problem.to_string()),
            Ok(_) => Ok(()),
        }
    }

    /// Prepares the case, runs these steps and drops it, all under the schedule.
    fn run_steps(
        &self,
        steps: &[Step],
        schedule: Schedule,
    ) -> Result<(Vec<Outcome>, Record), String> {
        let run = || match self.bench.prepare()? {
            Ok(prepared) => steps.iter().map(|step| prepared.run(step)).collect(),
            Err(failure) => Ok(vec![Err(failure)]),
        };
        let (outcomes, record) = panics::watch(|| faults::with(schedule, run))
            .map_err(|panic| format!("the host panicked: {panic}"))?;
        let outcomes: Result<_> = outcomes;
        let outcomes = outcomes.map_err(|error| format!("the platform failed: {error:#}"))?;
        Ok((outcomes, record))
    }
}
