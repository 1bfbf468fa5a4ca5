//! A case on its engine, run under schedules.

use std::time::{Duration, Instant};

use anyhow::Result;
use callbox::wasm::faults::{self, Record, Schedule, Seen};
use callbox_tests::case::{Case, Step, Subject};
use callbox_tests::discover::Found;
use callbox_tests::platform::{Bench, Outcome, Platform};
use callbox_tests::run::{self, Verdict};

use crate::panics;

/// How long an altered step may take: a guest that was told something else may loop.
const DEADLINE: Duration = Duration::from_millis(200);

/// A case that is about to run many times.
pub struct Trial<'c> {
    /// Its name.
    pub name: &'c str,
    /// The case.
    pub case: &'c Case,
    platform: &'c dyn Platform,
    bench: Box<dyn Bench + 'c>,
    hurried: &'c [Step],
    /// What comes of it when nothing is altered.
    pub baseline: Vec<Outcome>,
    /// What the host reads then.
    pub seen: Vec<Seen>,
    /// How long that takes.
    pub took: Duration,
}

/// A case as it is, and with steps that end soon.
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
    /// What is wrong with its file.
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

    /// Whether something of a guest's runs: what is only loaded gives the host nothing to read.
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
    /// Makes a case ready, and runs it once as it is. `None` if it is not for this platform.
    ///
    /// # Errors
    /// A case that does not do what it expects when nothing is altered.
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

    /// Runs it once under a schedule.
    ///
    /// # Errors
    /// What panicked, or why the platform gave up.
    pub fn run(&self, schedule: Schedule) -> Result<(Vec<Outcome>, Record), String> {
        self.run_steps(self.hurried, schedule)
    }

    /// Runs it as it is, which must give what it expects.
    ///
    /// # Errors
    /// What it gives instead.
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

    /// Prepares it, runs these steps, and lets it go: all of it under the schedule.
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
        let outcomes = outcomes.map_err(|error| format!("the platform gave up: {error:#}"))?;
        Ok((outcomes, record))
    }
}
