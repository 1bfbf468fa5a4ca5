//! Compiles modules in child processes that can be limited and killed.
//!
//! A [`CompilerProcess`] keeps idle [`children`], which are warm: they have made their compiler and
//! given up all other privileges. A job goes to the first child that is idle or has started. A
//! child compiles one module at a time, within the policy's limits on time and memory, and is
//! killed past them.
//!
//! Jobs share the processors fairly. Each begins at the priority of this process, and falls a
//! little behind as it uses processor time. If many have used much, they take [`turns`], so that
//! they slow others down little. A child cannot get its priority back, and is dropped after such a
//! job. If there are too many or they hold too much memory, one of the [`jobs`] gives way to a new
//! one and begins anew later, so that the number of such modules does not matter.
//!
//! A job that runs out of time does not tell by itself what its module costs: other work may have
//! taken the processors. The module is to blame if compiling it would take a quarter of the limit
//! with the machine to itself, as far as the processor time shows that it used. A module that takes
//! less is never blamed, however busy the machine. One that takes all of the limit always is on a
//! machine that is otherwise idle. In between, and on a busy machine, an innocent module may be
//! loaded again. Each time it goes on with the age that it had, so that repetition gains a costly
//! module neither priority nor places.
#![allow(
    unsafe_code,
    reason = "engines run what a compiler returns, and only its implementation can vouch for it"
)]

mod child;
mod children;
mod failures;
mod jobs;
mod memory;
mod places;
mod times;
mod turns;

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use callbox_core::locks::locked;
use callbox_core::values::{Blame, Result, Status, StatusCode};
use callbox_wasm::{Code, CompileJob, Compiler, CompilerSettings, NotCompiled, too_slow};

use self::child::{CompilerChild, Settings, StartFailure};
use self::children::{Children, Kept as _, MOST_IDLE};
use self::failures::unavailable;
use self::jobs::Candidate;
use self::places::{Place, Places};
use crate::config::Worker;
use crate::exchange::Loss;
use crate::spawner::{End, Spawner};

/// The pause before another child is started after one that could not be used.
const PAUSE: Duration = Duration::from_secs(10);

/// The time in which a child that was killed ends. One that does not answer takes longer.
const SOON: Duration = Duration::from_secs(1);

/// The most time for which a job waits for a child to start.
const MOST_TIME_TO_START: Duration = Duration::from_secs(60);

/// Compiles modules in child processes. One is enough for all engines of a process.
///
/// It is configured as the compiler of an engine:
///
/// ```no_run
/// use std::sync::Arc;
///
/// use callbox_process::{CompilerProcess, Worker};
/// use callbox_wasm::{Config, Engine};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// // With this argument, the program calls `worker_main` before anything else.
/// let compiler = CompilerProcess::new(Worker::this_program(["worker"]))?;
/// let engine = Engine::with_config(Config {
///     compiler: Some(Arc::new(compiler)),
///     ..Config::default()
/// })?;
/// # drop(engine);
/// # Ok(())
/// # }
/// ```
///
/// An engine without a cache has a child started when it is made, other engines when they first
/// compile a module. Children end with this process, or when the `CompilerProcess` is dropped. In a
/// forked child of this process it has no children, and engines compile as if there were no
/// compiler.
pub struct CompilerProcess(Shared);

struct Shared {
    source: Arc<Source>,
    children: Children<CompilerChild>,
    places: Places,
}

/// Where children are from.
struct Source {
    spawner: Arc<Spawner>,
    /// The status for the last child that could not be used, and the time at which that was found.
    unusable: Mutex<Option<(Status, Instant)>>,
    /// Whether a child has ended before any worked.
    has_lost: AtomicBool,
    /// Whether a child could ever be used.
    has_worked: AtomicBool,
}

impl fmt::Debug for CompilerProcess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CompilerProcess").finish_non_exhaustive()
    }
}

impl CompilerProcess {
    /// A compiler whose children run this program. No child is started yet.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED if the thread that starts children cannot be started.
    pub fn new(worker: Worker) -> Result<Self> {
        let spawner = Spawner::start(worker, End::AllKilled).map_err(|error| {
            Status::new(
                StatusCode::ResourceExhausted,
                Blame::Host,
                format!("expected to start the thread that starts compilers: {error}"),
            )
        })?;
        let source = Arc::new(Source {
            spawner: Arc::new(spawner),
            unusable: Mutex::default(),
            has_lost: AtomicBool::new(false),
            has_worked: AtomicBool::new(false),
        });
        Ok(Self(Shared {
            source: Arc::clone(&source),
            children: Children::new(move |settings| source.start(settings)),
            places: Places::default(),
        }))
    }
}

// SAFETY: the code comes from `CodeCompiler::compile` in a child of this process. The child runs
// the program that the embedder named, and its fingerprint is the job's: it is callbox's worker,
// with the same versions and settings. The socket between them has no other user, so that nothing
// alters the bytes on their way.
unsafe impl Compiler for CompilerProcess {
    fn compile(&self, job: &CompileJob<'_>) -> Result<Code, NotCompiled> {
        let shared = &self.0;
        if !shared.source.spawner.is_here() {
            return Err(NotCompiled::NoProcess(before_fork()));
        }
        let mut task = Task {
            job: CompileJob { ..*job },
            begun: Instant::now(),
            used: job.earlier,
            held: 0,
            starts: Duration::ZERO,
        };
        loop {
            let candidate = Candidate {
                file_bytes: job.wasm.len(),
                code_bytes: job.code_bytes,
                before: task.used,
                lost: task.used.saturating_sub(job.earlier),
                held: task.held,
            };
            let Some(place) = shared.places.take(candidate, task.job.until) else {
                let status = waited_too_long(job, task.begun.elapsed());
                let used = task.used;
                return Err(NotCompiled::Crowded { status, used });
            };
            match shared.attempt(&mut task, &place) {
                Attempt::Ended(outcome) => return outcome,
                Attempt::LostPlace { used, held } => {
                    (task.used, task.held) = (task.used + used, held);
                }
            }
        }
    }

    fn prepare(&self, settings: &CompilerSettings, memory_bytes: u64) {
        if self.0.source.spawner.is_here() {
            self.0.children.refill(&Settings {
                compiler: settings.clone(),
                memory_bytes,
            });
        }
    }
}

/// A job with the times of all its attempts.
struct Task<'a> {
    /// The job. Its time is over later than the caller's by the time in which children started.
    job: CompileJob<'a>,
    /// When the job began to wait, later by the same time.
    begun: Instant,
    /// The processor time that earlier attempts used, and the bytes of memory that the last one
    /// held.
    used: Duration,
    held: u64,
    /// The time in which children started.
    starts: Duration,
}

impl Task<'_> {
    /// Leaves out the time in which a child started, which is not the module's. All attempts
    /// together have no more than one may take.
    fn leave_out(&mut self, start: Duration) {
        let start = start.min(MOST_TIME_TO_START.saturating_sub(self.starts));
        self.starts += start;
        self.begun += start;
        self.job.until = self.job.until.and_then(|until| until.checked_add(start));
    }
}

/// How an attempt to compile a module ended.
enum Attempt {
    Ended(Result<Code, NotCompiled>),
    /// Another job takes the place. The attempt used this much processor time, and held this many
    /// bytes of memory.
    LostPlace {
        used: Duration,
        held: u64,
    },
}

impl Shared {
    /// Compiles a module in a child.
    fn attempt(&self, task: &mut Task<'_>, place: &Place) -> Attempt {
        let starting = Instant::now();
        let mut child = match self.child_for(&task.job) {
            Ok(child) => child,
            Err(failure) => return Attempt::Ended(Err(failure)),
        };
        task.leave_out(starting.elapsed());
        place.set_closer(child.closer());
        let (job, used) = (&task.job, task.used);
        let waited = task.begun.elapsed();
        let settings = child.settings().clone();
        let outcome = match child.compile(job, used, place, || {
            self.children.refill(&settings);
        }) {
            Ok(outcome) => outcome,
            Err(_) if place.is_lost() => {
                return Attempt::LostPlace {
                    used: child.time_used(),
                    held: place.held(),
                };
            }
            Err(loss) => {
                let failure = match loss {
                    Loss::Deadline => out_of_time(&child, task, waited),
                    loss => NotCompiled::Failed(child.status(loss, job)),
                };
                drop(child);
                self.children.refill(&settings);
                return Attempt::Ended(Err(failure));
            }
        };
        // A compiler that panicked ends its process.
        let failed = outcome.as_ref().err().map(Status::code);
        let is_usable = place.release() && failed != Some(StatusCode::Internal);
        if is_usable && child.end_job() {
            self.children.give_back(child);
        } else {
            drop(child);
            self.children.refill(&settings);
        }
        Attempt::Ended(outcome.map_err(NotCompiled::Failed))
    }

    /// A child whose code fits the job's engine.
    fn child_for(&self, job: &CompileJob<'_>) -> Result<CompilerChild, NotCompiled> {
        let child = self.child(&Settings::of(job));
        let child = child.map_err(|status| self.source.without_child(status))?;
        child
            .check(job.fingerprint)
            .map_err(NotCompiled::NoProcess)?;
        self.source.has_worked.store(true, Ordering::Relaxed);
        Ok(child)
    }

    /// A child that is alive.
    fn child(&self, settings: &Settings) -> Result<CompilerChild> {
        let (mut has_lost, mut ended) = (false, 0);
        let until = Instant::now() + MOST_TIME_TO_START;
        while Instant::now() < until {
            match self.children.take(settings, until) {
                Some(Ok(child)) if child.is_there() => return Ok(child),
                // Idle ones may have ended without a job. One that has just started should not.
                Some(Ok(_)) if ended < MOST_IDLE => ended += 1,
                Some(Ok(_)) => return Err(self.source.give_up(not_waiting())),
                // This says nothing about the next one.
                Some(Err(StartFailure::Lost(_))) if !has_lost => has_lost = true,
                Some(Err(failure)) => return Err(failure.into_status()),
                None => break,
            }
        }
        Err(unavailable(format!(
            "expected a process that compiles to start within {MOST_TIME_TO_START:?}, found none"
        )))
    }
}

impl Source {
    /// Starts a child.
    fn start(&self, settings: &Settings) -> Result<CompilerChild, StartFailure> {
        self.check_usable().map_err(StartFailure::NotStarted)?;
        let begun = Instant::now();
        let started = CompilerChild::start(&self.spawner, settings);
        started.map_err(|failure| match failure {
            StartFailure::NotStarted(_) => failure,
            // This says nothing about the next one.
            _ if self.has_worked.load(Ordering::Relaxed) => failure,
            // One was killed, which another one may not be.
            StartFailure::Lost(_)
                if begun.elapsed() < SOON && !self.has_lost.swap(true, Ordering::Relaxed) =>
            {
                failure
            }
            StartFailure::Lost(status) | StartFailure::Unusable(status) => {
                StartFailure::Unusable(self.give_up(status))
            }
        })
    }

    /// Remembers for a while that children cannot be used, and returns the reason.
    fn give_up(&self, status: Status) -> Status {
        *locked(&self.unusable) = Some((status.clone(), Instant::now()));
        status
    }

    /// Fails for a while after a child could not be used, because finding that out takes time.
    fn check_usable(&self) -> Result<()> {
        match &*locked(&self.unusable) {
            // Once one has worked, this says nothing about the next one.
            Some((status, at))
                if at.elapsed() < PAUSE && !self.has_worked.load(Ordering::Relaxed) =>
            {
                Err(status.clone())
            }
            _ => Ok(()),
        }
    }

    /// The failure of a job that got no child. Where children have worked, the system lacks room
    /// for one now: then compiling in this process, without limits, would not help.
    fn without_child(&self, status: Status) -> NotCompiled {
        if !self.has_worked.load(Ordering::Relaxed) {
            return NotCompiled::NoProcess(status);
        }
        let message = format!(
            "no process to compile in can be started now: {}",
            status.message()
        );
        let status = Status::new(StatusCode::ResourceExhausted, Blame::Host, message);
        NotCompiled::Failed(status.with_recoverable(true))
    }
}

fn not_waiting() -> Status {
    unavailable(
        "expected processes that compile to wait for a module, found that they ended or sent something"
            .to_owned(),
    )
}

fn before_fork() -> Status {
    Status::new(
        StatusCode::FailedPrecondition,
        Blame::Caller,
        "expected a compiler that was made in this process, found one from before a fork",
    )
}

/// The status for a job that did not get its time because of others.
fn waited_too_long(job: &CompileJob<'_>, waited: Duration) -> Status {
    let time = job.time.unwrap_or_default();
    Status::new(
        StatusCode::ResourceExhausted,
        Blame::Caller,
        format!(
            "the module did not compile within {time:?} (`compile_time_ms`): it waited {waited:.1?} for a process, while other modules had them"
        ),
    )
}

/// The failure of a job that ran out of time after it had waited for `waited`.
fn out_of_time(child: &CompilerChild, task: &Task<'_>, waited: Duration) -> NotCompiled {
    let job = &task.job;
    let time = job.time.unwrap_or_default();
    let used = task.used + child.time_used();
    let left = |until: Instant| until.saturating_duration_since(task.begun);
    // Reading took a part of the limit, in some of which it waited, too.
    let read_in = time.saturating_sub(job.until.map_or(time, left));
    let waited = waited + read_in.saturating_sub(job.read_used);
    // The module had less time than the limit promises it.
    if waited > time / 4 {
        let status = waited_too_long(job, waited);
        return NotCompiled::Crowded { status, used };
    }
    if child.was_starved(time, job.read_used) {
        let message = format!(
            "the module did not compile within {time:?} (`compile_time_ms`): other work took the processors, of which its process got {used:.1?}"
        );
        let status = Status::new(StatusCode::DeadlineExceeded, Blame::Caller, message);
        return NotCompiled::Crowded { status, used };
    }
    NotCompiled::Failed(too_slow(time))
}
