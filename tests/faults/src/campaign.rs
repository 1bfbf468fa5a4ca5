//! Many runs of many cases.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use callbox::wasm::faults::{Kind, Mutation, Schedule};
use callbox_tests::discover::Found;
use callbox_tests::platform::host::Host;
use callbox_tests::run::shared_engine;

use crate::bystander::Bystander;
use crate::oracle;
use crate::subject::{Files, Trial};
use crate::tally::Tally;
use crate::watchdog::Watchdog;

/// Cases that take longer get a single random run.
const SLOW: Duration = Duration::from_millis(20);

/// Cases with more reads are never chosen as representatives.
const MOST_READS: usize = 40;

/// The result of a campaign.
#[derive(Debug, Default)]
pub struct Report {
    /// The counts.
    pub tally: Tally,
    /// The violations, each with the arguments that repeat it.
    pub failures: Vec<String>,
    /// The reads of each case.
    pub observed: Vec<Observed>,
}

/// The values that the host reads while a case runs.
#[derive(Clone, Debug)]
pub struct Observed {
    /// The case's name.
    pub name: String,
    /// The number of values.
    pub reads: usize,
    /// The duration of an unaltered run, compilation included.
    pub took: Duration,
    /// The sorts of values.
    pub sorts: BTreeSet<(Kind, String)>,
}

/// A treatment, applied to every case.
pub type Treatment<'t> = dyn Fn(&Trial<'_>, Duration, &mut Runner<'_>) + Sync + 't;

/// Runs a case under schedules, and counts the results.
#[derive(Debug)]
pub struct Runner<'r> {
    bystander: &'r Bystander,
    watchdog: &'r Watchdog,
    /// The counts.
    pub tally: Tally,
    /// The violations.
    pub failures: Vec<String>,
}

impl Runner<'_> {
    /// Runs a case once under a schedule and checks its outcome. `again` holds the arguments that
    /// repeat the run.
    pub fn run(&mut self, subject: &Trial<'_>, schedule: Schedule, again: &str) {
        self.watchdog
            .begin(format!("{} --case {again}", subject.name));
        if let Err(problem) = self.try_run(subject, schedule) {
            let name = subject.name;
            let failure = format!("{name}: {problem}\n    again: --case {name} {again}");
            eprintln!("{failure}");
            self.failures.push(failure);
        }
        self.watchdog.end();
    }

    fn try_run(&mut self, subject: &Trial<'_>, schedule: Schedule) -> Result<(), String> {
        let (outcomes, record) = subject.run(schedule)?;
        if record.altered.is_empty() {
            return Ok(());
        }
        self.tally.add_run(&outcomes, &record);
        oracle::check(subject, &outcomes, &record)
            .map_err(|problem| format!("{problem}\n    {:?}", record.altered))?;
        self.bystander.check().map_err(|status| {
            format!(
                "the bystander was affected: {status}\n    {:?}",
                record.altered
            )
        })?;
        subject
            .run_as_it_is()
            .map_err(|problem| format!("afterwards: {problem}\n    {:?}", record.altered))
    }
}

/// Returns every mutation of a value: bit flips, extremes, neighbours, random values, and earlier
/// reads.
#[must_use]
pub fn mutations() -> Vec<Mutation> {
    let mut mutations: Vec<Mutation> = (0..32).map(Mutation::Flip).collect();
    mutations.extend(Mutation::EXTREMES);
    mutations.extend(Mutation::NEIGHBOURS);
    mutations.extend([Mutation::Random(1), Mutation::Random(2), Mutation::Older]);
    mutations
}

/// Returns the schedule of a seed, which alters about two to four of a case's reads.
#[must_use]
pub fn seeded(subject: &Trial<'_>, seed: u64) -> Schedule {
    // Mix the case's name into the seed, so that similar cases get different schedules.
    let mix = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    let name = subject.name.bytes().fold(0xcbf2_9ce4_8422_2325, mix);
    Schedule::Random {
        seed: name ^ seed.wrapping_mul(0x9e37_79b9_7f4a_7c15),
        one_in: (subject.seen.len() as u64 / (2 + seed % 3)).max(1),
    }
}

/// Alters each read of a case in each way.
pub fn each_read(subject: &Trial<'_>, runner: &mut Runner<'_>) {
    for read in 0..subject.seen.len() as u64 {
        for (i, mutation) in mutations().into_iter().enumerate() {
            let schedule = Schedule::Only { read, mutation };
            runner.run(subject, schedule, &format!("--read {read} --mutation {i}"));
        }
    }
}

/// Runs a case under random schedules.
pub fn each_seed(subject: &Trial<'_>, took: Duration, seeds: &Range<u64>, runner: &mut Runner<'_>) {
    let most = if took > SLOW { 1 } else { usize::MAX };
    for seed in seeds.clone().take(most) {
        runner.run(subject, seeded(subject, seed), &format!("--seed {seed}"));
    }
}

/// Applies a treatment to all cases, one case per processor at a time.
#[must_use]
pub fn run(cases: &[Found], treatment: &Treatment<'_>) -> Report {
    let next = AtomicUsize::new(0);
    let report = Mutex::new(Report::default());
    let watchdog = Watchdog::start();
    let work = || {
        let bystander = Bystander::new(shared_engine()).expect("expected a bystander that works");
        while let Some(found) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
            let mut runner = Runner {
                bystander: &bystander,
                watchdog: &watchdog,
                tally: Tally::default(),
                failures: Vec::new(),
            };
            let observed = treat(found, treatment, &mut runner);
            let mut report = report.lock().expect("expected no panics");
            report.tally.add(&runner.tally);
            report.failures.append(&mut runner.failures);
            report.observed.extend(observed);
        }
    };
    let threads = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(work);
        }
    });
    report.into_inner().expect("expected no panics")
}

fn treat(found: &Found, treatment: &Treatment<'_>, runner: &mut Runner<'_>) -> Option<Observed> {
    runner.watchdog.begin(found.name.clone());
    let files = Files::read(found).map_err(|error| format!("{error:#}"));
    if matches!(&files, Ok(files) if !files.runs_guests()) {
        runner.watchdog.end();
        return None;
    }
    let host = Host::default();
    let subject = match &files {
        Ok(files) => Trial::open(files, &host),
        Err(problem) => Err(problem.clone()),
    };
    let subject = match subject {
        Ok(subject) => subject?,
        Err(problem) => {
            let failure = format!("{}, with nothing altered: {problem}", found.name);
            eprintln!("{failure}");
            runner.failures.push(failure);
            return None;
        }
    };
    runner.watchdog.end();
    let took = subject.took;
    if !subject.seen.is_empty() {
        runner.tally.cases += 1;
        treatment(&subject, took, runner);
    }
    Some(Observed {
        name: found.name.clone(),
        reads: subject.seen.len(),
        took,
        sorts: subject
            .seen
            .iter()
            .map(|seen| (seen.kind, sort(&seen.what)))
            .collect(),
    })
}

/// Returns a value's sort: its description without names that the guest chose.
fn sort(what: &str) -> String {
    what.split('"').next().unwrap_or(what).trim().to_owned()
}

/// Returns, for each set of sorts that some case reads, the quick case with the fewest reads.
#[must_use]
pub fn representatives(observed: &[Observed]) -> BTreeSet<String> {
    let mut observed: Vec<&Observed> = observed
        .iter()
        .filter(|case| (1..=MOST_READS).contains(&case.reads) && case.took <= SLOW)
        .collect();
    observed.sort_by_key(|case| (case.reads, &case.name));
    let mut known = BTreeSet::new();
    let of_its_sort = |case: &&&Observed| known.insert(case.sorts.clone());
    let representatives = observed.iter().filter(of_its_sort);
    representatives.map(|case| case.name.clone()).collect()
}
