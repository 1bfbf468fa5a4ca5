//! The mix: each thread performs random acts and checks their outcomes.

use std::sync::{Arc, PoisonError, RwLock};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use callbox::policy::Isolation;
use callbox::{Blame, CallOptions, CancelToken, Deadline, Status, StatusCode};
use fastrand::Rng;

use super::cancel::Canceller;
use super::corpus::Corpus;
use super::subject::{self, Deed, Subject, Way};
use super::watch::{Outcome, Watch};
use super::world::World;
use super::{Kind, Options, Report};
use crate::platform::host::forget_shared;

/// The lifetime of an engine.
const WORLD: Duration = Duration::from_secs(1);

/// The number of acts after which a thread replaces its own executables.
const OWN: u64 = 200;

/// The acts and their weights, out of 1,000. Most time goes to the acts that take a millisecond or
/// more.
const WEIGHTS: [(Act, u32); 9] = [
    (Act::Deed(Deed::Add), 620),
    (Act::Deed(Deed::Grow), 60),
    (Act::Deed(Deed::Log), 40),
    (Act::Deed(Deed::Count), 30),
    (Act::Deed(Deed::Trap), 100),
    (Act::Deed(Deed::Fail), 60),
    (Act::Deadline, 20),
    (Act::Cancel, 20),
    (Act::Case, 50),
];

#[derive(Clone, Copy, Debug)]
enum Act {
    Deed(Deed),
    Deadline,
    Cancel,
    Case,
}

/// The state shared by all threads.
struct Mix {
    options: Options,
    watch: Arc<Watch>,
    corpus: Corpus,
    canceller: Canceller,
    world: RwLock<Arc<World>>,
}

/// One thread.
struct Worker<'m> {
    mix: &'m Mix,
    number: usize,
    random: Rng,
    world: Arc<World>,
    /// Executables that only this thread uses.
    own: Subject,
}

/// Runs the mix for the time in the options, or until a problem occurs.
///
/// # Errors
/// Cases that cannot be read, or an engine that cannot be created at the start.
pub fn run(options: &Options) -> Result<Report> {
    ensure!(options.threads > 0, "expected at least 1 thread, found 0");
    let world = World::new(&mut Rng::with_seed(options.seed), options.threads)
        .context("expected an engine to begin with")?;
    let mix = Arc::new(Mix {
        options: options.clone(),
        watch: Arc::default(),
        corpus: Corpus::read(&options.cases)?,
        canceller: Canceller::start(),
        world: RwLock::new(Arc::new(world)),
    });
    let worker = |number: usize| {
        let mix = Arc::clone(&mix);
        thread::spawn(move || {
            if let Err(problem) = mix.work(number) {
                mix.watch.problem(problem);
            }
        })
    };
    let threads = (0..options.threads).map(worker).collect();
    let samples = mix
        .watch
        .watch(threads, (options.interval, Some(options.time)));
    let (cases, slow) = mix.corpus.counts();
    let notes = vec![format!(
        "{cases} cases in the mix, {slow} of which took more than 250 ms and were run no more than once or twice"
    )];
    Ok(Report::new(
        Kind::Mix,
        options,
        samples,
        mix.watch.problems(),
        notes,
    ))
}

impl Mix {
    fn work(&self, number: usize) -> Result<(), String> {
        let mut random = Rng::with_seed(self.options.seed);
        // Each thread has a seed of its own, and so has the thread that replaces engines.
        let seed = (0..=number).fold(random.u64(..), |_, _| random.u64(..));
        let world = self.world();
        let mut worker = Worker {
            mix: self,
            number,
            random: Rng::with_seed(seed),
            own: Subject::new(&world.module).map_err(|status| said("an executable", &status))?,
            world,
        };
        let mut made = Instant::now();
        for act in 1_u64.. {
            if self.watch.has_ended() {
                break;
            }
            let outcome = worker.act();
            let outcome = outcome.map_err(|problem| {
                format!(
                    "seed {}, thread {number}, act {act}: {problem}",
                    self.options.seed
                )
            })?;
            self.watch.count(outcome);
            if act % OWN == 0 {
                worker.make_own()?;
            }
            if number == 0 && made.elapsed() >= WORLD {
                worker.replace_world()?;
                made = Instant::now();
            }
        }
        Ok(())
    }

    fn world(&self) -> Arc<World> {
        Arc::clone(&self.world.read().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Worker<'_> {
    /// Performs one act. Returns how it ended, or the problem.
    fn act(&mut self) -> Result<Outcome, String> {
        match self.choose() {
            Act::Case => self.mix.corpus.run(&mut self.random),
            Act::Deed(deed) => self.call(deed),
            Act::Deadline => self.run_past_deadline(),
            Act::Cancel => self.be_cancelled(),
        }
    }

    fn choose(&mut self) -> Act {
        let sum: u32 = WEIGHTS.iter().map(|(_, weight)| weight).sum();
        let mut left = self.random.u32(..sum);
        let chosen = WEIGHTS.iter().find(|(_, weight)| {
            let is_here = left < *weight;
            left = left.saturating_sub(*weight);
            is_here
        });
        chosen.map_or(Act::Case, |(act, _)| *act)
    }

    fn call(&mut self, deed: Deed) -> Result<Outcome, String> {
        let way = self.way();
        let number = self.random.i32(..);
        let outcome = self.run(way, (deed, number), &CallOptions::default())?;
        let place = || format!("{deed:?} of {number} by {way:?}");
        if let Some(expected) = subject::expected(way, deed, number) {
            return match outcome {
                Ok(found) if found == expected && way == Way::Callback => Ok(Outcome::CalledBack),
                Ok(found) if found == expected => Ok(Outcome::Healthy),
                other => Err(format!("{}: expected {expected}, found {other:?}", place())),
            };
        }
        match (deed, outcome) {
            (Deed::Trap, outcome) => {
                check(outcome, StatusCode::Aborted, &[Blame::Guest]).map(|()| Outcome::Trapped)
            }
            (Deed::Fail, outcome) => {
                check(outcome, StatusCode::FailedPrecondition, &[Blame::Guest])
                    .map(|()| Outcome::Failed)
            }
            // The loop calls ten times, each time on the result of the call before.
            (Deed::Count, Ok(_)) if self.world.isolation == Isolation::Executable => {
                Ok(Outcome::Healthy)
            }
            (Deed::Count, Ok(1)) => Ok(Outcome::Healthy),
            (_, other) => Err(format!(
                "expected 1 in an instance that is new, found {other:?}"
            )),
        }
        .map_err(|problem| format!("{}: {problem}", place()))
    }

    fn run_past_deadline(&mut self) -> Result<Outcome, String> {
        let options = CallOptions {
            deadline: Some(Deadline::After(Duration::from_micros(
                self.random.u64(..3000),
            ))),
            ..CallOptions::default()
        };
        let way = self.way();
        let outcome = self.run(way, (Deed::Loop, 0), &options)?;
        // A deadline that passed before the call began is blamed on the caller.
        check(
            outcome,
            StatusCode::DeadlineExceeded,
            &[Blame::Guest, Blame::Caller],
        )
        .map(|()| Outcome::Deadline)
        .map_err(|problem| format!("a loop by {way:?} with a deadline: {problem}"))
    }

    fn be_cancelled(&mut self) -> Result<Outcome, String> {
        let token = match self.random.u8(..8) {
            0 => {
                let token = CancelToken::new();
                token.cancel();
                token
            }
            _ => {
                let time = Duration::from_micros(self.random.u64(..3000));
                self.mix.canceller.after(time)
            }
        };
        let options = CallOptions {
            cancel: Some(token),
            ..CallOptions::default()
        };
        let way = self.way();
        let outcome = self.run(way, (Deed::Loop, 0), &options)?;
        check(outcome, StatusCode::Cancelled, &[Blame::Caller])
            .map(|()| Outcome::Cancelled)
            .map_err(|problem| format!("a loop by {way:?} that is cancelled: {problem}"))
    }

    fn run(
        &mut self,
        way: Way,
        what: (Deed, i32),
        options: &CallOptions,
    ) -> Result<Result<i32, Status>, String> {
        let subject = if self.random.bool() {
            &self.own
        } else {
            &self.world.shared
        };
        subject.run(way, what, options)
    }

    fn way(&mut self) -> Way {
        match self.random.u8(..4) {
            0 => Way::Loop,
            1 => Way::Callback,
            _ => Way::Call,
        }
    }

    /// Replaces this thread's executables by new ones of the current engine.
    fn make_own(&mut self) -> Result<(), String> {
        self.world = self.mix.world();
        let own = Subject::new(&self.world.module);
        self.own =
            own.map_err(|status| said(&format!("executables of thread {}", self.number), &status))?;
        self.mix.watch.count(Outcome::Executable);
        Ok(())
    }

    /// Replaces the engine, and drops the engines that cases share.
    fn replace_world(&mut self) -> Result<(), String> {
        let world = World::new(&mut self.random, self.mix.options.threads);
        let world = Arc::new(world.map_err(|status| said("an engine", &status))?);
        let place = &self.mix.world;
        let old = std::mem::replace(
            &mut *place.write().unwrap_or_else(PoisonError::into_inner),
            world,
        );
        // Dropped after the lock is released, because dropping an engine takes time.
        drop(old);
        forget_shared();
        self.mix.watch.count(Outcome::Engine);
        Ok(())
    }
}

fn check(outcome: Result<i32, Status>, code: StatusCode, blames: &[Blame]) -> Result<(), String> {
    match outcome {
        Err(status) if status.code() == code && blames.contains(&status.blame()) => Ok(()),
        Err(status) => Err(format!(
            "expected {code} ({blames:?}), found {status} ({:?})",
            status.blame()
        )),
        Ok(value) => Err(format!(
            "expected {code} ({blames:?}), found the result {value}"
        )),
    }
}

fn said(what: &str, status: &Status) -> String {
    format!("expected {what}, found {status}")
}
