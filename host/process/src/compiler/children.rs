//! Children without a job, and jobs that wait for a child.
//!
//! A job gets an idle child, or else the first that another job gives back or that has started. For
//! each job that waits, one child starts. Jobs wait in order, so that those of short jobs need few
//! children: the same ones serve them all.

use std::collections::VecDeque;
use std::io;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::thread;
use std::time::Instant;

use callbox_core::call::processors;
use callbox_core::locks::locked;
use callbox_core::values::{Blame, Status, StatusCode};

use super::child::{Settings, StartFailure};

/// The most idle children. Their jobs leave them warm, and starting one takes longer than most
/// jobs.
pub(super) const MOST_IDLE: usize = 8;

/// The most bytes of memory that idle children hold together.
const MEMORY_OF_IDLE: u64 = 256 << 20;

/// What is kept here.
pub(super) trait Kept: Send + 'static {
    /// The settings of all its jobs.
    fn settings(&self) -> &Settings;

    /// The bytes of memory that it held after its last job.
    fn memory_bytes(&self) -> u64;
}

/// Starts a child.
type Starter<C> = dyn Fn(&Settings) -> Result<C, StartFailure> + Send + Sync;

/// The children of one compiler. Those that start when this is dropped end once they have started.
pub(super) struct Children<C>(Arc<Shared<C>>);

struct Shared<C> {
    start: Arc<Starter<C>>,
    state: Mutex<State<C>>,
}

struct State<C> {
    /// The longest idle first. None has the settings of a job that waits.
    idle: Vec<C>,
    /// In order. The rest of the jobs have their outcome.
    waiting: VecDeque<Waiting<C>>,
    /// Settings for which a child is to be idle.
    refills: VecDeque<Settings>,
    /// The settings of the children that start.
    starting: Vec<Settings>,
    /// Threads that start children.
    threads: usize,
    jobs: u64,
}

/// A job that waits for a child.
struct Waiting<C> {
    number: u64,
    settings: Settings,
    outcome: Sender<Result<C, StartFailure>>,
}

impl<C: Kept> Children<C> {
    pub(super) fn new(
        start: impl Fn(&Settings) -> Result<C, StartFailure> + Send + Sync + 'static,
    ) -> Self {
        Self(Arc::new(Shared {
            start: Arc::new(start),
            state: Mutex::default(),
        }))
    }

    /// A child for a job. `None` if there is none at `until`: what starts then is for later jobs.
    ///
    /// # Errors
    /// How a child failed to start, also for lack of a thread.
    pub(super) fn take(
        &self,
        settings: &Settings,
        until: Instant,
    ) -> Option<Result<C, StartFailure>> {
        let (number, outcome) = {
            let mut state = self.0.locked();
            if let Some(child) = state.take_idle(settings) {
                return Some(Ok(child));
            }
            let (sender, outcome) = mpsc::channel();
            let number = state.wait(settings, sender);
            if let Err(error) = self.0.start_threads(&mut state) {
                state.leave(number);
                return Some(Err(StartFailure::NotStarted(no_thread(&error))));
            }
            (number, outcome)
        };
        match outcome.recv_timeout(until.saturating_duration_since(Instant::now())) {
            Ok(outcome) => Some(outcome),
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                self.0.locked().leave(number);
                // It may have come in between.
                outcome.try_recv().ok()
            }
        }
    }

    /// Gives a child to the first job that waits for one, or keeps it.
    pub(super) fn give_back(&self, child: C) {
        let evicted = self.0.locked().add(child);
        // The lock is released before children are dropped.
        drop(evicted);
    }

    /// Starts a child in the background, unless there is one that is idle or will be.
    pub(super) fn refill(&self, settings: &Settings) {
        let mut state = self.0.locked();
        if state.has_spare(settings) || state.refills.contains(settings) {
            return;
        }
        state.refills.push_back(settings.clone());
        // Without a thread, the next job tries again.
        let _ = self.0.start_threads(&mut state);
    }
}

impl<C: Kept> Shared<C> {
    fn locked(&self) -> MutexGuard<'_, State<C>> {
        locked(&self.state)
    }

    /// Starts a thread if another child is to start: as many at one time as there are processors.
    /// Starting takes some processor time, at the priority of this process.
    fn start_threads(self: &Arc<Self>, state: &mut State<C>) -> io::Result<()> {
        if state.threads >= processors() || !state.wants_start() {
            return Ok(());
        }
        let (shared, start) = (Arc::downgrade(self), Arc::clone(&self.start));
        let started = thread::Builder::new()
            .name("callbox-refill".to_owned())
            .spawn(move || run(&shared, &*start));
        match started {
            Ok(_) => state.threads += 1,
            // The others go on for as long as a child is wanted.
            Err(_) if state.threads > 0 => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }
}

fn no_thread(error: &io::Error) -> Status {
    Status::new(
        StatusCode::Unavailable,
        Blame::Host,
        format!("expected a thread to start a compiler: {error}"),
    )
}

/// Starts children for as long as some are wanted. It keeps nothing alive while one starts.
fn run<C: Kept>(shared: &Weak<Shared<C>>, start: &Starter<C>) {
    while let Some(settings) = begin(shared) {
        let outcome = start(&settings);
        let Some(shared) = shared.upgrade() else {
            return;
        };
        let evicted = shared.locked().end_start(&settings, outcome);
        // The lock is released before children are dropped.
        drop(evicted);
    }
}

/// The settings of the next child to start, which counts as starting. `None` ends the thread.
fn begin<C: Kept>(shared: &Weak<Shared<C>>) -> Option<Settings> {
    let shared = shared.upgrade()?;
    let mut state = shared.locked();
    let next = state.next_start();
    match &next {
        Some(settings) => state.starting.push(settings.clone()),
        None => state.threads -= 1,
    }
    next
}

impl<C> Default for State<C> {
    fn default() -> Self {
        Self {
            idle: Vec::new(),
            waiting: VecDeque::new(),
            refills: VecDeque::new(),
            starting: Vec::new(),
            threads: 0,
            jobs: 0,
        }
    }
}

impl<C: Kept> State<C> {
    /// The child that was used last.
    fn take_idle(&mut self, settings: &Settings) -> Option<C> {
        let found = self
            .idle
            .iter()
            .rposition(|child| child.settings() == settings)?;
        Some(self.idle.remove(found))
    }

    /// Has a job wait, and returns its number. What was to start without a job starts for it.
    fn wait(&mut self, settings: &Settings, outcome: Sender<Result<C, StartFailure>>) -> u64 {
        self.refills.retain(|refill| refill != settings);
        self.jobs += 1;
        self.waiting.push_back(Waiting {
            number: self.jobs,
            settings: settings.clone(),
            outcome,
        });
        self.jobs
    }

    /// Takes a job out of those that wait, if it is one.
    fn leave(&mut self, number: u64) {
        self.waiting.retain(|waiting| waiting.number != number);
    }

    /// The first job that waits for a child with these settings.
    fn first_waiting(&mut self, settings: &Settings) -> Option<Waiting<C>> {
        let mut waiting = self.waiting.iter();
        let first = waiting.position(|waiting| waiting.settings == *settings)?;
        self.waiting.remove(first)
    }

    /// Gives a child to the first job that waits for one, or keeps it. Returns those that are then
    /// too many.
    fn add(&mut self, child: C) -> Vec<C> {
        match self.first_waiting(child.settings()) {
            // Fails if the thread that waits panicked.
            Some(waiting) => drop(waiting.outcome.send(Ok(child))),
            None => self.idle.push(child),
        }
        self.evict()
    }

    /// Takes out children that are too many, the longest idle first: they may have settings that no
    /// engine has any more.
    fn evict(&mut self) -> Vec<C> {
        let mut memory = 0_u64;
        let kept = self.idle.iter().rev().take(MOST_IDLE).take_while(|child| {
            memory = memory.saturating_add(child.memory_bytes());
            memory <= MEMORY_OF_IDLE
        });
        let first = self.idle.len() - kept.count();
        self.idle.drain(..first).collect()
    }

    /// Ends a start. Returns the children that are then too many.
    fn end_start(&mut self, settings: &Settings, outcome: Result<C, StartFailure>) -> Vec<C> {
        if let Some(own) = self.starting.iter().position(|other| other == settings) {
            self.starting.swap_remove(own);
        }
        match outcome {
            Ok(child) => self.add(child),
            Err(failure) => {
                self.fail(settings, failure);
                Vec::new()
            }
        }
    }

    /// Fails the first job that waits for this child, unless others that start suffice.
    fn fail(&mut self, settings: &Settings, failure: StartFailure) {
        if self.waiting(settings) > self.starting(settings)
            && let Some(waiting) = self.first_waiting(settings)
        {
            // Fails if the thread that waits panicked.
            let _ = waiting.outcome.send(Err(failure));
        }
    }

    /// Whether another child is to start.
    fn wants_start(&self) -> bool {
        self.first_without_start().is_some() || !self.refills.is_empty()
    }

    /// The settings of the first job for which no child starts.
    fn first_without_start(&self) -> Option<&Settings> {
        let mut starting = Vec::from_iter(&self.starting);
        let mut waiting = self.waiting.iter().map(|waiting| &waiting.settings);
        waiting.find(|settings| {
            let own = starting.iter().position(|starting| starting == settings);
            own.map(|own| starting.swap_remove(own)).is_none()
        })
    }

    /// Whether a child is idle, or will be.
    fn has_spare(&self, settings: &Settings) -> bool {
        let is_idle = self.idle.iter().any(|child| child.settings() == settings);
        is_idle || self.starting(settings) > self.waiting(settings)
    }

    fn starting(&self, settings: &Settings) -> usize {
        let starting = self.starting.iter();
        starting.filter(|starting| *starting == settings).count()
    }

    fn waiting(&self, settings: &Settings) -> usize {
        let waiting = self.waiting.iter();
        waiting
            .filter(|waiting| waiting.settings == *settings)
            .count()
    }

    /// The settings of the next child to start. Jobs come before refills.
    fn next_start(&mut self) -> Option<Settings> {
        if let Some(settings) = self.first_without_start() {
            return Some(settings.clone());
        }
        while let Some(settings) = self.refills.pop_front() {
            if !self.has_spare(&settings) {
                return Some(settings);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests;
