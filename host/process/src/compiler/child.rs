//! A child that compiles, as its parent sees it.

use std::io::{self, PipeReader, Read};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ExitStatus};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use callbox_core::untrusted_text::clean_message;
use callbox_core::values::{Blame, Result, Status, StatusCode};
use callbox_wasm::{Code, CompileJob, CompilerSettings};
use rustix::fs::{OFlags, fcntl_setfl};
use rustix::process::{Signal, getpriority_process, setpriority_pgrp};

use super::children::Kept;
use super::failures::{killed, no_memory, processor_time_limit, too_long, unavailable, violation};
use super::jobs::{QUANTUM, Seen};
use super::memory::resident_bytes;
use super::places::{LOOK, Place};
use super::times::{LEAST_SHARE, ThreadTimes, shows_little, thread_times, waits_for_processor};
use crate::buffers::Buffers;
use crate::child::{CONTEXT, END, START};
use crate::exchange::{Closer, Exchange, Loss, Patience};
use crate::message::{Reply, Request, decode, encode};
use crate::spawner::{Descriptors, Spawner, Started};

/// The bytes of a reply beyond the text of its status.
const REPLY: usize = 64 << 10;

/// The processor time from which a job has a lower priority, and how much lower that of its threads
/// is. Time on the clock would not do: on a busy machine, a module that takes little would lose its
/// priority before it had begun. Guests of this process keep theirs. It is a little lower: guests
/// that run on would keep the module from the processors.
const OLD: Duration = Duration::from_millis(100);
const LOWER: i32 = 3;

/// A child on a busy machine may take this many times [`START`].
const MOST_STARTS: u32 = 6;

/// The most bytes of memory of a child that is used again.
const MEMORY_OF_IDLE: u64 = 128 << 20;

/// Native code may have this many bytes, and as many again for each byte of the file.
const CODE_BYTES: u64 = 16 << 20;
const CODE_BYTES_PER_BYTE: u64 = 16;

/// The most bytes that are read of a child's standard error after it ended.
const LAST_WORDS: u64 = 4096;

/// The message that Rust's allocator prints before it aborts.
const NO_MEMORY: &str = "memory allocation of";

/// Whether a process ended by a signal that its own faults do not raise. Daemons that watch the
/// memory of a machine begin with SIGTERM.
fn is_from_outside(signal: Option<i32>) -> bool {
    const FAULTS: [Signal; 7] = [
        Signal::SEGV,
        Signal::BUS,
        Signal::ILL,
        Signal::FPE,
        Signal::ABORT,
        Signal::TRAP,
        Signal::SYS,
    ];
    signal.is_some_and(|signal| FAULTS.iter().all(|fault| fault.as_raw() != signal))
}

/// The settings that a child keeps for life.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Settings {
    pub(super) compiler: CompilerSettings,
    pub(super) memory_bytes: u64,
}

impl Settings {
    pub(super) fn of(job: &CompileJob<'_>) -> Self {
        Self {
            compiler: job.settings.clone(),
            memory_bytes: job.memory_bytes,
        }
    }
}

/// Why there is no child.
#[derive(Debug)]
pub(super) enum StartFailure {
    /// The system did not start a process.
    NotStarted(Status),
    /// A process started, and was killed by a signal or too slow. Another one may serve.
    Lost(Status),
    /// A process started, but does not serve as a compiler.
    Unusable(Status),
}

impl StartFailure {
    pub(super) fn into_status(self) -> Status {
        match self {
            Self::NotStarted(status) | Self::Lost(status) | Self::Unusable(status) => status,
        }
    }
}

/// A child that compiles. Dropping it kills it.
#[derive(Debug)]
pub(super) struct CompilerChild {
    /// `None` once it is dropped.
    child: Option<Started>,
    exchange: Exchange,
    /// The child's standard error.
    errors: PipeReader,
    settings: Settings,
    /// Set once the child is ready.
    fingerprint: [u8; 32],
    spawner: Arc<Spawner>,
    /// Whether a job was so long that the child lost its priority.
    has_lost_priority: bool,
    /// The bytes of memory that the child held after its last job.
    memory_bytes: u64,
    /// The processor time of each thread before the current job.
    times_before: ThreadTimes,
    /// The processor times of the current job when a look at them last succeeded.
    times_seen: Vec<Duration>,
}

impl CompilerChild {
    /// Starts a child, which makes a compiler and then confines itself.
    pub(super) fn start(spawner: &Arc<Spawner>, settings: &Settings) -> Result<Self, StartFailure> {
        let mut new = Self::spawn(spawner, settings).map_err(|error| {
            StartFailure::NotStarted(unavailable(format!(
                "expected to start a process that compiles: {error}"
            )))
        })?;
        new.begin()?;
        Ok(new)
    }

    fn spawn(spawner: &Arc<Spawner>, settings: &Settings) -> io::Result<Self> {
        let (mut exchange, socket) = Exchange::new()?;
        let (errors, theirs) = io::pipe()?;
        // Neither side ever waits for this pipe.
        fcntl_setfl(&errors, OFlags::NONBLOCK)?;
        fcntl_setfl(&theirs, OFlags::NONBLOCK)?;
        let buffers = Buffers::new()?;
        buffers.set_size(0)?;
        let child = spawner.spawn(Descriptors {
            socket,
            buffers: buffers.share()?,
            errors: Some(theirs.into()),
        })?;
        exchange.watch(&child);
        Ok(Self {
            child: Some(child),
            exchange,
            errors,
            settings: settings.clone(),
            fingerprint: [0; 32],
            spawner: Arc::clone(spawner),
            has_lost_priority: false,
            memory_bytes: 0,
            times_before: ThreadTimes::new(),
            times_seen: Vec::new(),
        })
    }

    /// Waits until the child is ready to compile.
    fn begin(&mut self) -> Result<(), StartFailure> {
        let patience = Patience {
            until: Instant::now().checked_add(START),
            cancel: None,
        };
        let request = encode(&Request::StartCompiler {
            settings: self.settings.compiler.clone(),
            memory_bytes: self.settings.memory_bytes,
        });
        let request = request.map_err(StartFailure::Unusable)?;
        let answer = self.exchange.send(&request, patience);
        let answer = answer.and_then(|()| self.first_answer());
        let mut is_lost = false;
        let problem = match answer.map(|bytes| decode(&bytes)) {
            Ok(Ok(Reply::Ready { fingerprint })) => {
                self.fingerprint = fingerprint;
                self.end_job();
                return Ok(());
            }
            Ok(Ok(Reply::Failed { status, .. })) => status.message().to_owned(),
            Ok(Ok(_)) => "it answered something else".to_owned(),
            Ok(Err(status)) => status.message().to_owned(),
            Err(Loss::Ended) => match self.ending() {
                Ok(Some(ending)) => {
                    is_lost = ending.signal().is_some();
                    format!("it ended ({ending})")
                }
                Ok(None) => "it closed its socket".to_owned(),
                Err(_) => {
                    is_lost = true;
                    "it ended".to_owned()
                }
            },
            Err(Loss::Deadline | Loss::Cancelled) => {
                is_lost = true;
                "it did not answer in time".to_owned()
            }
            Err(Loss::Violation(text)) => text,
            Err(Loss::Failed(error)) => error.to_string(),
        };
        let status = unavailable(format!(
            "expected callbox's worker program to start as a compiler: {problem}"
        ));
        let status = clean_message(status, CONTEXT);
        Err(if is_lost {
            StartFailure::Lost(status)
        } else {
            StartFailure::Unusable(status)
        })
    }

    /// Waits for the first answer: for [`START`], and longer if the machine is too busy to run the
    /// child.
    fn first_answer(&mut self) -> Result<Vec<u8>, Loss> {
        let mut seen = Duration::ZERO;
        for _ in 0..MOST_STARTS {
            if self.exchange.has_answer(Instant::now() + START)? {
                return self.exchange.receive(
                    REPLY,
                    Patience {
                        until: Instant::now().checked_add(START),
                        cancel: None,
                    },
                );
            }
            let used = self.time_used();
            if used == seen && !self.process().is_some_and(waits_for_processor) {
                break;
            }
            seen = used;
        }
        Err(Loss::Deadline)
    }

    /// Fails if the code of this child does not fit the engine.
    pub(super) fn check(&self, fingerprint: [u8; 32]) -> Result<()> {
        if self.fingerprint == fingerprint {
            return Ok(());
        }
        Err(unavailable(
            "expected a worker program with the same callbox as this one, found another version or other settings".to_owned(),
        ))
    }

    /// Whether the child is alive and idle.
    pub(super) fn is_there(&self) -> bool {
        self.child.as_ref().is_some_and(Started::can_be_ended) && self.exchange.is_open()
    }

    /// Ends the use of the child by a job, and returns whether it can compile another module as a
    /// new child would.
    pub(super) fn end_job(&mut self) -> bool {
        let (times, _) = self.thread_times();
        // Otherwise the next module's job has the time of this one.
        let is_known = !times.is_empty() || self.times_before.is_empty();
        self.times_before = times;
        self.memory_bytes = self.resident_bytes();
        let used: Duration = self.times_before.values().sum();
        // The next module has half of it at least.
        let has_time = processor_time_limit().is_none_or(|most| used <= most / 2);
        !self.has_lost_priority && self.memory_bytes <= MEMORY_OF_IDLE && has_time && is_known
    }

    /// The bytes of memory that the child holds. None if `/proc` does not tell.
    fn resident_bytes(&self) -> u64 {
        let bytes = self.process().and_then(resident_bytes);
        bytes.unwrap_or_default()
    }

    /// Whether the machine was too busy to show that the module takes long, given the limit and the
    /// processor time in which its file was read.
    pub(super) fn was_starved(&self, time: Duration, read_used: Duration) -> bool {
        shows_little(
            &self.latest_times(),
            time.saturating_sub(LEAST_SHARE * read_used),
        )
    }

    /// The processor time of the current job, as far as `/proc` tells it.
    pub(super) fn time_used(&self) -> Duration {
        self.latest_times().into_iter().sum()
    }

    /// The processor times for the current job: now, or when a look at them last succeeded.
    fn latest_times(&self) -> Vec<Duration> {
        match self.times_used() {
            (times, _) if times.is_empty() => self.times_seen.clone(),
            (times, _) => times,
        }
    }

    /// The processor time of each thread for the current job, and the number of those that are
    /// ready to run.
    fn times_used(&self) -> (Vec<Duration>, usize) {
        let before = |thread| self.times_before.get(thread).copied().unwrap_or_default();
        let (now, ready) = self.thread_times();
        let used = now
            .iter()
            .map(|(thread, time)| time.saturating_sub(before(thread)));
        (used.collect(), ready)
    }

    fn thread_times(&self) -> (ThreadTimes, usize) {
        self.process().and_then(thread_times).unwrap_or_default()
    }

    fn process(&self) -> Option<&Child> {
        self.child.as_ref().map(|started| &started.child)
    }

    /// Ends the current job from another thread.
    pub(super) fn closer(&self) -> Closer {
        self.exchange.closer()
    }

    /// Compiles a module, whose earlier attempts used this much processor time. A loss leaves the
    /// child unusable. The child keeps its priority for as long as its place says, and runs when
    /// that says so. `on_old` is called once it is known that this is the child's last job.
    pub(super) fn compile(
        &mut self,
        job: &CompileJob<'_>,
        earlier: Duration,
        place: &Place,
        on_old: impl Fn(),
    ) -> Result<Result<Code>, Loss> {
        self.times_seen.clear();
        let until = job.until;
        let late = until.and_then(|until| until.checked_add(grace(job)));
        let patience = Patience {
            until: late,
            cancel: None,
        };
        let wasm_bytes = job.wasm.len() as u64;
        let most_bytes = wasm_bytes
            .saturating_mul(CODE_BYTES_PER_BYTE)
            .saturating_add(CODE_BYTES);
        let request = Request::Compile {
            wasm_bytes,
            most_bytes,
            message_bytes: job.message_bytes,
        };
        let request = encode(&request).map_err(violation)?;
        self.exchange.send(&request, patience)?;
        self.exchange.send(job.wasm, patience)?;
        place.begin_turns(self.child.as_ref().and_then(|child| child.handle.clone()));
        let waited = self.wait_for_answer(earlier, place, (until, late), on_old);
        place.end_turns();
        waited?;
        let most = job.message_bytes.saturating_mul(4).saturating_add(REPLY);
        let reply = self.exchange.receive(most, patience)?;
        match decode(&reply).map_err(violation)? {
            Reply::Compiled { bytes } if bytes <= most_bytes => {
                let bytes = usize::try_from(bytes).map_err(|_| too_long())?;
                self.exchange.receive_code(bytes, patience).map(Ok)
            }
            Reply::Compiled { .. } => Err(too_long()),
            Reply::Failed { status, .. } => {
                let limit = job.message_bytes.saturating_add(CONTEXT);
                Ok(Err(clean_message(status, limit)))
            }
            _ => Err(Loss::Violation("it answered something else".to_owned())),
        }
    }

    /// Waits for the reply until the first of two times, and meanwhile lowers the child's priority,
    /// and lets it run when it has its turn. A child that the machine kept from the processors, or
    /// that was stopped, shows nothing about its module: it has until the second time, or until all
    /// attempts have used the quantum.
    fn wait_for_answer(
        &mut self,
        earlier: Duration,
        place: &Place,
        (until, late): (Option<Instant>, Option<Instant>),
        on_old: impl Fn(),
    ) -> Result<(), Loss> {
        let begun = Instant::now();
        let old = OLD.saturating_sub(earlier).max(place.kept());
        let (mut busy, mut resident) = (0, 0);
        loop {
            let now = Instant::now();
            let end = if until > Some(now) { until } else { late };
            let look = end.map_or(now + LOOK, |end| end.min(now + LOOK));
            if self.exchange.has_answer(look)? {
                return Ok(());
            }
            // Those of a stopped child do not change. It may have been stopped before the first
            // look.
            if self.times_seen.is_empty() || !place.is_stopped() {
                let (times, ready) = self.times_used();
                // A look fails without a descriptor.
                if !times.is_empty() {
                    (self.times_seen, busy) = (times, ready);
                    resident = self.resident_bytes();
                }
            }
            let used = if self.times_seen.is_empty() {
                begun.elapsed()
            } else {
                self.times_seen.iter().sum()
            };
            let now = Instant::now();
            let shows_much = self.times_seen.is_empty() || earlier + used >= QUANTUM;
            let is_over = |end: Option<Instant>| end.is_some_and(|end| end <= now);
            if is_over(late) || (is_over(until) && shows_much) {
                return Err(Loss::Deadline);
            }
            if used >= old && !self.has_lost_priority {
                self.has_lost_priority = true;
                self.lower_priority();
                on_old();
            }
            place.look(Seen {
                used,
                busy,
                resident,
            });
        }
    }

    /// Lowers the priority of all threads. The child leads a group of its own, and may have ended.
    fn lower_priority(&self) {
        let Some(child) = self.child.as_ref().and_then(Started::number) else {
            return;
        };
        // Threads of this process may have a higher one than that which starts children.
        let first = getpriority_process(Some(child)).unwrap_or(0);
        let _ = setpriority_pgrp(Some(child), (first + LOWER).min(19));
    }

    /// The status of a job whose child was lost, other than by its deadline.
    pub(super) fn status(&mut self, loss: Loss, job: &CompileJob<'_>) -> Status {
        let problem = match loss {
            Loss::Ended => match (self.ending(), self.last_words()) {
                (_, words) if words.contains(NO_MEMORY) => return no_memory(job),
                (Ok(Some(ending)), _) if is_from_outside(ending.signal()) => {
                    return killed(ending.signal());
                }
                // Another part of the program has waited for it, and knows how it ended.
                // A busy machine may take long to end one that was killed.
                (Ok(None) | Err(_), words) if words.is_empty() => return killed(None),
                (Ok(Some(ending)), _) => format!("the compiler crashed on the module ({ending})"),
                (Ok(None) | Err(_), _) => "the compiler closed its socket".to_owned(),
            },
            Loss::Violation(text) => format!("the compiler broke the protocol: {text}"),
            Loss::Deadline | Loss::Cancelled => "the compiler was given up".to_owned(),
            Loss::Failed(error) => {
                return unavailable(format!("expected an answer of a compiler: {error}"));
            }
        };
        let status = Status::new(StatusCode::Internal, Blame::Guest, problem);
        clean_message(status, job.message_bytes.saturating_add(CONTEXT))
    }

    /// Waits briefly for the process to end, and returns its exit status if it has ended.
    fn ending(&mut self) -> io::Result<Option<ExitStatus>> {
        let Some(child) = self.child.as_mut() else {
            return Ok(None);
        };
        let until = Instant::now() + END;
        loop {
            match child.child.try_wait() {
                Ok(None) if Instant::now() < until => thread::sleep(Duration::from_millis(1)),
                ended => return ended,
            }
        }
    }

    /// The beginning of what the child wrote to standard error.
    fn last_words(&mut self) -> String {
        let mut bytes = Vec::new();
        // The pipe does not block: it has all bytes of a process that has ended.
        let _ = (&mut self.errors).take(LAST_WORDS).read_to_end(&mut bytes);
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

impl Kept for CompilerChild {
    fn settings(&self) -> &Settings {
        &self.settings
    }

    fn memory_bytes(&self) -> u64 {
        self.memory_bytes
    }
}

impl Drop for CompilerChild {
    fn drop(&mut self) {
        if let Some(child) = self.child.take() {
            self.spawner.reap(child);
        }
    }
}

/// How long past its time a job may wait for a process that has not run yet.
fn grace(job: &CompileJob<'_>) -> Duration {
    job.time.unwrap_or_default().min(START)
}
