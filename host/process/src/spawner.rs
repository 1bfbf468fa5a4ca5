//! The thread that starts workers and reaps them.
//!
//! The kernel kills a worker when the thread that started it ends. This thread therefore lives as
//! long as the sandbox, and no worker outlives the process.

use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::{self, Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use callbox_core::call::processors;
use callbox_core::locks::locked;

use crate::child::START;
use crate::config::Worker;

/// The most threads that a worker compiles on.
const MOST_THREADS: usize = 8;

/// The interval at which killed workers are polled until they are gone.
const LOOK: Duration = Duration::from_millis(5);

/// All descriptors of a worker: its socket is standard input, the memory of its buffers standard
/// output.
pub(super) struct Descriptors {
    pub(super) socket: OwnedFd,
    pub(super) buffers: OwnedFd,
    /// Standard error, if its output is wanted.
    pub(super) errors: Option<OwnedFd>,
}

enum Job {
    Start(Descriptors, Sender<io::Result<Child>>),
    Reap(Child),
}

/// What the end of a spawner waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// All its workers are gone.
    AllGone,
    /// All its workers are killed. The kernel may take long to free their memory.
    AllKilled,
}

/// Starts and reaps workers.
pub(super) struct Spawner {
    jobs: Mutex<Option<Sender<Job>>>,
    /// Returns the workers that are killed and not yet gone.
    thread: Option<JoinHandle<Vec<Child>>>,
    end: End,
    /// The process that the thread belongs to. A forked child does not have the thread.
    process: u32,
}

impl fmt::Debug for Spawner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Spawner").finish_non_exhaustive()
    }
}

impl Spawner {
    /// Starts the thread.
    ///
    /// # Errors
    /// The system's error if it cannot start one.
    pub(super) fn start(worker: Worker, end: End) -> io::Result<Self> {
        let (sender, receiver) = mpsc::channel();
        let thread = thread::Builder::new()
            .name("callbox-spawner".to_owned())
            .spawn(move || run(&worker, &receiver))?;
        Ok(Self {
            jobs: Mutex::new(Some(sender)),
            thread: Some(thread),
            end,
            process: process::id(),
        })
    }

    /// Whether this is the process that made the spawner.
    pub(super) fn is_here(&self) -> bool {
        process::id() == self.process
    }

    /// Starts a worker.
    ///
    /// # Errors
    /// The system's error: no such program, too many processes.
    pub(super) fn spawn(&self, descriptors: Descriptors) -> io::Result<Child> {
        let (sender, receiver) = mpsc::channel();
        self.send(Job::Start(descriptors, sender));
        // A worker that is started after the timeout finds no receiver, and is reaped. If the
        // machine was paused, the first timeout is no sign of trouble.
        let answer = receiver.recv_timeout(START);
        let answer = answer.or_else(|_| receiver.recv_timeout(START));
        answer.map_err(|error| {
            io::Error::other(format!(
                "no answer from the thread that starts workers: {error}"
            ))
        })?
    }

    /// Kills a worker in the background.
    pub(super) fn reap(&self, child: Child) {
        // In a forked child, the worker belongs to the parent.
        if self.is_here() {
            self.send(Job::Reap(child));
        }
    }

    fn send(&self, job: Job) {
        let jobs = locked(&self.jobs);
        if let Some(jobs) = &*jobs {
            // If the thread has ended, its workers have been killed.
            let _ = jobs.send(job);
        }
    }
}

impl Drop for Spawner {
    fn drop(&mut self) {
        let mut jobs = locked(&self.jobs);
        *jobs = None;
        drop(jobs);
        if let Some(thread) = self.thread.take()
            && self.is_here()
        {
            // The thread does not panic.
            let mut dying = thread.join().unwrap_or_default();
            dying.retain_mut(is_alive);
            if self.end == End::AllGone || dying.is_empty() {
                wait_for(dying);
                return;
            }
            // Without a thread, the closure is dropped: the processes end unreaped.
            let reaper = thread::Builder::new().name("callbox-reaper".to_owned());
            let _ = reaper.spawn(move || wait_for(dying));
        }
    }
}

fn wait_for(workers: Vec<Child>) {
    for mut worker in workers {
        let _ = worker.wait();
    }
}

/// Serves jobs. It polls killed workers rather than waiting for one: the kernel may take long to
/// free a worker's memory.
fn run(worker: &Worker, jobs: &Receiver<Job>) -> Vec<Child> {
    let mut dying = Vec::new();
    loop {
        let job = if dying.is_empty() {
            jobs.recv().map_err(RecvTimeoutError::from)
        } else {
            jobs.recv_timeout(LOOK)
        };
        match job {
            Ok(Job::Start(descriptors, answer)) => {
                if let Err(mpsc::SendError(Ok(child))) = answer.send(spawn(worker, descriptors)) {
                    dying.extend(killed(child));
                }
            }
            Ok(Job::Reap(child)) => dying.extend(killed(child)),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
        dying.retain_mut(is_alive);
    }
    dying
}

/// The number of threads on which a worker compiles: one for each processor, up to a limit.
fn compiler_threads() -> usize {
    processors().min(MOST_THREADS)
}

/// Starts a worker without the environment of this process and in its own process group: Ctrl-C in
/// a terminal interrupts this process, not its workers.
fn spawn(worker: &Worker, descriptors: Descriptors) -> io::Result<Child> {
    let errors = descriptors.errors.map_or_else(Stdio::null, Stdio::from);
    Command::new(&worker.program)
        .args(&worker.arguments)
        .env_clear()
        // Bounds the threads of the compiler on large machines.
        .env("RAYON_NUM_THREADS", compiler_threads().to_string())
        .current_dir("/")
        .stdin(Stdio::from(descriptors.socket))
        .stdout(Stdio::from(descriptors.buffers))
        .stderr(errors)
        .process_group(0)
        .spawn()
}

/// Kills a worker, and returns it unless its process is gone already.
fn killed(mut child: Child) -> Option<Child> {
    // Killing fails if the process has ended.
    let _ = child.kill();
    is_alive(&mut child).then_some(child)
}

/// Whether the process still exists.
fn is_alive(child: &mut Child) -> bool {
    matches!(child.try_wait(), Ok(None))
}
