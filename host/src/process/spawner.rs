//! The thread that starts workers and buries them. The kernel kills a worker when the thread that started it ends, so that thread is
//! one that lives as long as the sandbox, and no worker outlives this process.

use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::{self, Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::child::START;
use super::config::Worker;

/// How often workers that were killed are looked after.
const LOOK: Duration = Duration::from_millis(5);

/// What a worker has: its socket as standard input, the memory of its buffers as standard output, and nothing else.
pub(super) struct Descriptors {
    pub(super) socket: OwnedFd,
    pub(super) buffers: OwnedFd,
}

enum Job {
    Start(Descriptors, Sender<io::Result<Child>>),
    Bury(Child),
}

/// Starts and buries one sandbox's workers.
pub(super) struct Spawner {
    jobs: Mutex<Option<Sender<Job>>>,
    thread: Option<JoinHandle<()>>,
    /// The process that the thread is of: it does not live on in a forked child.
    process: u32,
}

impl fmt::Debug for Spawner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Spawner").finish_non_exhaustive()
    }
}

impl Spawner {
    /// # Errors
    /// What the machine says that gives no thread.
    pub(super) fn start(worker: Worker) -> io::Result<Self> {
        let (sender, receiver) = mpsc::channel();
        let thread = thread::Builder::new()
            .name("callbox-spawner".to_owned())
            .spawn(move || run(&worker, &receiver))?;
        Ok(Self {
            jobs: Mutex::new(Some(sender)),
            thread: Some(thread),
            process: process::id(),
        })
    }

    /// Whether this is the process that it was made in.
    pub(super) fn is_here(&self) -> bool {
        process::id() == self.process
    }

    /// Starts a worker.
    ///
    /// # Errors
    /// Why there is none: no such program, too many processes.
    pub(super) fn spawn(&self, descriptors: Descriptors) -> io::Result<Child> {
        let (sender, receiver) = mpsc::channel();
        self.send(Job::Start(descriptors, sender));
        // Should it come after all, there is nobody to take it, and it is buried.
        receiver
            .recv_timeout(START)
            .map_err(|error| io::Error::other(format!("the thread that starts them: {error}")))?
    }

    /// Kills a worker and waits for its end, some time soon.
    pub(super) fn bury(&self, child: Child) {
        // In a forked child it is another's process.
        if self.is_here() {
            self.send(Job::Bury(child));
        }
    }

    fn send(&self, job: Job) {
        let jobs = self.jobs.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(jobs) = &*jobs {
            // A thread that is gone took its workers with it.
            let _ = jobs.send(job);
        }
    }
}

impl Drop for Spawner {
    fn drop(&mut self) {
        let mut jobs = self.jobs.lock().unwrap_or_else(PoisonError::into_inner);
        *jobs = None;
        drop(jobs);
        if let Some(thread) = self.thread.take()
            && self.is_here()
        {
            // All that was buried is gone when this returns. The thread has nothing that panics.
            let _ = thread.join();
        }
    }
}

/// Starts and buries. Nobody waits here for a worker's end: that can take as long as the kernel takes to free its memory.
fn run(worker: &Worker, jobs: &Receiver<Job>) {
    let mut dying = Vec::new();
    loop {
        // Nothing but another job wakes a thread that has nobody to look after.
        let job = match dying.is_empty() {
            true => jobs.recv().map_err(RecvTimeoutError::from),
            false => jobs.recv_timeout(LOOK),
        };
        match job {
            Ok(Job::Start(descriptors, answer)) => {
                if let Err(mpsc::SendError(Ok(child))) = answer.send(spawn(worker, descriptors)) {
                    dying.extend(killed(child));
                }
            }
            Ok(Job::Bury(child)) => dying.extend(killed(child)),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
        dying.retain_mut(is_alive);
    }
    for mut child in dying {
        // It was killed.
        let _ = child.wait();
    }
}

/// A worker has no environment, and is in a process group of its own: Ctrl-C in a terminal is this process's to act on.
fn spawn(worker: &Worker, descriptors: Descriptors) -> io::Result<Child> {
    Command::new(&worker.program)
        .args(&worker.arguments)
        .env_clear()
        .current_dir("/")
        .stdin(Stdio::from(descriptors.socket))
        .stdout(Stdio::from(descriptors.buffers))
        .stderr(Stdio::null())
        .process_group(0)
        .spawn()
}

/// A worker that was killed, unless it is gone already.
fn killed(mut child: Child) -> Option<Child> {
    // Who has ended is not killed.
    let _ = child.kill();
    is_alive(&mut child).then_some(child)
}

/// Whether the kernel still has a process. One that cannot be asked for is not ours.
fn is_alive(child: &mut Child) -> bool {
    matches!(child.try_wait(), Ok(None))
}
