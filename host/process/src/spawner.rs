//! The threads that start workers and reap them.
//!
//! The kernel kills a worker when the thread that started it ends. That thread therefore lives as
//! long as the sandbox, and no worker outlives the process. Another one reaps: the kernel may take
//! long to free a worker's memory, and `wait4` was seen to take seconds, also with `WNOHANG`, where
//! a killed worker of low priority gets no processor.

use std::fmt;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{self, Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

use callbox_core::call::processors;
use callbox_core::locks::locked;
use rustix::io::retry_on_intr;
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, kill_process, pidfd_open, pidfd_send_signal,
    test_kill_process, waitid,
};

use crate::child::START;
use crate::config::Worker;

/// The most threads that a worker compiles on.
const MOST_THREADS: usize = 8;

/// All descriptors of a worker: its socket is standard input, the memory of its buffers standard
/// output.
pub(super) struct Descriptors {
    pub(super) socket: OwnedFd,
    pub(super) buffers: OwnedFd,
    /// Standard error, if its output is wanted.
    pub(super) errors: Option<OwnedFd>,
}

/// A worker to be started, and where it is sent.
struct Start(Descriptors, Sender<io::Result<Started>>);

/// A process that was started.
#[derive(Debug)]
pub(crate) struct Started {
    pub(crate) child: Child,
    pub(crate) handle: Option<Handle>,
}

/// A process, for signals. Where the embedder reaps all children, as the first process of a
/// container does, the number of one that ended may be that of a stranger.
#[derive(Clone, Debug)]
pub(crate) struct Handle {
    pub(crate) number: Pid,
    /// `None` if the system has none: Linux has them since version 5.3, and a container may forbid
    /// them.
    pub(crate) descriptor: Option<Arc<OwnedFd>>,
}

impl Handle {
    fn of(child: &Child) -> Option<Self> {
        let number = Pid::from_raw(i32::try_from(child.id()).ok()?)?;
        let descriptor = pidfd_open(number, PidfdFlags::empty());
        Some(Self {
            number,
            descriptor: descriptor.ok().map(Arc::new),
        })
    }

    /// Sends a signal, and returns whether it was sent.
    pub(crate) fn signal(&self, signal: Signal) -> bool {
        let sent = match &self.descriptor {
            Some(descriptor) => pidfd_send_signal(descriptor, signal),
            None => kill_process(self.number, signal),
        };
        sent.is_ok()
    }
}

impl Started {
    pub(crate) fn new(child: Child) -> Self {
        let handle = Handle::of(&child);
        Self { child, handle }
    }

    pub(crate) fn number(&self) -> Option<Pid> {
        self.handle.as_ref().map(|handle| handle.number)
    }

    /// Whether this process can end it. A process that gave up root cannot end those that it
    /// started before.
    pub(crate) fn can_be_ended(&self) -> bool {
        self.number()
            .is_some_and(|number| test_kill_process(number).is_ok())
    }

    /// Waits for its end.
    fn wait(&mut self) {
        let handle = self.handle.as_ref();
        let _ = match handle.and_then(|handle| handle.descriptor.as_ref()) {
            Some(descriptor) => {
                let id = || WaitId::PidFd(descriptor.as_fd());
                retry_on_intr(|| waitid(id(), WaitIdOptions::EXITED))
                    .map(drop)
                    .map_err(io::Error::from)
            }
            None => self.child.wait().map(drop),
        };
    }
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
    starts: Mutex<Option<Sender<Start>>>,
    starter: Option<JoinHandle<()>>,
    /// Killed workers.
    dying: Mutex<Option<Sender<Started>>>,
    reaper: Option<JoinHandle<()>>,
    end: End,
    /// The process that the threads belong to. A forked child does not have them.
    process: u32,
}

impl fmt::Debug for Spawner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Spawner").finish_non_exhaustive()
    }
}

impl Spawner {
    /// Starts the threads.
    ///
    /// # Errors
    /// The system's error if it cannot start one.
    pub(super) fn start(worker: Worker, end: End) -> io::Result<Self> {
        let (starts, received) = mpsc::channel();
        let (dying, killed) = mpsc::channel();
        let named = |name: &str| thread::Builder::new().name(name.to_owned());
        let reaper = named("callbox-reaper").spawn(move || wait_for(&killed))?;
        let orphans = dying.clone();
        let starter = named("callbox-spawner").spawn(move || run(&worker, &received, &orphans))?;
        Ok(Self {
            starts: Mutex::new(Some(starts)),
            starter: Some(starter),
            dying: Mutex::new(Some(dying)),
            reaper: Some(reaper),
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
    pub(super) fn spawn(&self, descriptors: Descriptors) -> io::Result<Started> {
        let (sender, receiver) = mpsc::channel();
        if let Some(starts) = &*locked(&self.starts) {
            // The thread does not end before.
            let _ = starts.send(Start(descriptors, sender));
        }
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

    /// Kills a worker, and reaps it in the background.
    pub(super) fn reap(&self, child: Started) {
        // In a forked child, the worker belongs to the parent.
        if self.is_here()
            && let Some(dying) = &*locked(&self.dying)
        {
            kill(child, dying);
        }
    }
}

impl Drop for Spawner {
    fn drop(&mut self) {
        // In a forked child, a thread that is not there may hold the lock.
        if !self.is_here() {
            return;
        }
        *locked(&self.starts) = None;
        // The threads do not panic.
        if let Some(starter) = self.starter.take() {
            let _ = starter.join();
        }
        *locked(&self.dying) = None;
        if self.end == End::AllGone
            && let Some(reaper) = self.reaper.take()
        {
            let _ = reaper.join();
        }
    }
}

/// Starts workers. One that is not awaited any more is killed.
fn run(worker: &Worker, starts: &Receiver<Start>, orphans: &Sender<Started>) {
    for Start(descriptors, answer) in starts {
        if let Err(mpsc::SendError(Ok(child))) =
            answer.send(spawn(worker, descriptors).map(Started::new))
        {
            kill(child, orphans);
        }
    }
}

fn kill(child: Started, dying: &Sender<Started>) {
    // Killing fails if the process has ended.
    let _ = child
        .handle
        .as_ref()
        .is_some_and(|handle| handle.signal(Signal::KILL));
    // The reaper does not end before.
    let _ = dying.send(child);
}

fn wait_for(killed: &Receiver<Started>) {
    for mut child in killed {
        child.wait();
    }
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
