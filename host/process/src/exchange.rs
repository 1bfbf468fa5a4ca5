//! The socket to a worker: whole messages, with a time limit that the worker cannot exceed.
//!
//! The worker's end of the socket does not tell alone that the worker has ended. If this process
//! forked while it started the worker, the forked one holds that end, too.

use std::io::{self, ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::message::LENGTH;
use crate::spawner::Started;
use callbox_core::call::CancelToken;
use callbox_wasm::{Code, CodeBuffer};

/// The interval at which a cancel token is polled.
const LOOK: Duration = Duration::from_millis(1);

/// The bytes of a message that are read at a time: a claimed length alone reserves no memory.
const PIECE: usize = 1 << 20;

/// Why a worker is lost.
#[derive(Debug)]
pub(super) enum Loss {
    /// The worker closed its socket, or its process ended.
    Ended,
    /// The deadline passed.
    Deadline,
    /// The caller cancelled the call.
    Cancelled,
    /// The worker broke the protocol.
    Violation(String),
    /// The socket failed.
    Failed(io::Error),
}

/// How long to wait.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patience<'a> {
    pub(super) until: Option<Instant>,
    pub(super) cancel: Option<&'a CancelToken>,
}

impl Patience<'_> {
    /// Whether neither a deadline nor a token ends the wait.
    pub(super) fn is_endless(&self) -> bool {
        self.until.is_none() && self.cancel.is_none()
    }

    /// Fails once the wait is over.
    fn check(&self) -> Result<(), Loss> {
        if self.cancel.is_some_and(CancelToken::is_cancelled) {
            return Err(Loss::Cancelled);
        }
        match self.until {
            Some(until) if Instant::now() >= until => Err(Loss::Deadline),
            _ => Ok(()),
        }
    }

    /// How long to sleep before checking again.
    pub(super) fn slice(&self) -> Option<Duration> {
        let left = self
            .until
            .map(|until| until.saturating_duration_since(Instant::now()));
        let look = self.cancel.map(|_| LOOK);
        left.into_iter().chain(look).min()
    }
}

/// This process's end of a socket.
#[derive(Debug)]
pub(super) struct Exchange {
    socket: Arc<UnixStream>,
    /// The worker's process. `None` if it has not started, or if the system does not tell.
    process: Option<Arc<OwnedFd>>,
}

/// Closes an exchange, whose worker then counts as ended.
#[derive(Debug)]
pub(super) struct Closer(Arc<UnixStream>);

impl Closer {
    pub(super) fn close(&self) {
        // Fails if the worker has closed the socket.
        let _ = self.0.shutdown(Shutdown::Both);
    }
}

/// What a wait found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    Nothing,
    /// The socket is ready, or closed.
    Socket,
    /// The worker ended, and the socket has nothing more of it.
    End,
}

impl Exchange {
    /// A socket pair: this process's end, and the worker's.
    pub(super) fn new() -> io::Result<(Self, OwnedFd)> {
        let (ours, theirs) = UnixStream::pair()?;
        ours.set_nonblocking(true)?;
        let new = Self {
            socket: Arc::new(ours),
            process: None,
        };
        Ok((new, theirs.into()))
    }

    /// Sees from now on that the worker ends, also if a forked process holds its socket.
    pub(super) fn watch(&mut self, worker: &Started) {
        let handle = worker.handle.as_ref();
        self.process = handle.and_then(|handle| handle.descriptor.clone());
    }

    pub(super) fn closer(&self) -> Closer {
        Closer(Arc::clone(&self.socket))
    }

    /// Whether the worker is there and silent, as an idle one is.
    pub(super) fn is_open(&self) -> bool {
        let found = self.poll(PollFlags::IN, Some(Duration::ZERO));
        matches!(found, Ok(Found::Nothing))
    }

    /// Waits for an answer until `until`, and returns whether there is one.
    pub(super) fn has_answer(&self, until: Instant) -> Result<bool, Loss> {
        loop {
            let left = until.saturating_duration_since(Instant::now());
            match self.poll(PollFlags::IN, Some(left))? {
                Found::Nothing if left.is_zero() => return Ok(false),
                Found::Nothing => {}
                Found::Socket => return Ok(true),
                Found::End => return Err(Loss::Ended),
            }
        }
    }

    /// Waits for the socket or for the worker's end. A signal may end the wait.
    fn poll(&self, flags: PollFlags, time: Option<Duration>) -> Result<Found, Loss> {
        let time = time.map(timespec);
        let socket = self.socket.as_fd();
        let process = self.process.as_deref().map(OwnedFd::as_fd);
        let mut polled = [
            PollFd::from_borrowed_fd(socket, flags),
            PollFd::from_borrowed_fd(process.unwrap_or(socket), PollFlags::IN),
        ];
        let count = 1 + usize::from(process.is_some());
        match poll(&mut polled[..count], time.as_ref()) {
            Ok(0) | Err(Errno::INTR) => Ok(Found::Nothing),
            Ok(_) if !polled[0].revents().is_empty() => Ok(Found::Socket),
            // It may have sent something between the two looks.
            Ok(_) => {
                let mut polled = [PollFd::from_borrowed_fd(socket, flags)];
                match poll(&mut polled, Some(&Timespec::default())) {
                    Ok(0) => Ok(Found::End),
                    Ok(_) => Ok(Found::Socket),
                    Err(Errno::INTR) => Ok(Found::Nothing),
                    Err(error) => Err(Loss::Failed(error.into())),
                }
            }
            Err(error) => Err(Loss::Failed(error.into())),
        }
    }

    pub(super) fn send(&mut self, mut bytes: &[u8], patience: Patience<'_>) -> Result<(), Loss> {
        while !bytes.is_empty() {
            match (&*self.socket).write(bytes) {
                Ok(count) => bytes = &bytes[count..],
                Err(error) => self.wait(error, PollFlags::OUT, patience)?,
            }
        }
        Ok(())
    }

    /// Receives a message of at most `most` bytes.
    pub(super) fn receive(&mut self, most: usize, patience: Patience<'_>) -> Result<Vec<u8>, Loss> {
        patience.check()?;
        let mut length = [0; LENGTH];
        self.fill(&mut length, patience)?;
        let length = u32::from_le_bytes(length) as usize;
        if length > most {
            return Err(Loss::Violation(format!(
                "expected a message of at most {most} bytes, found one of {length}"
            )));
        }
        self.receive_bytes(length, patience)
    }

    /// Receives this many bytes.
    fn receive_bytes(&mut self, length: usize, patience: Patience<'_>) -> Result<Vec<u8>, Loss> {
        let mut bytes = Vec::new();
        while bytes.len() < length {
            let begin = bytes.len();
            bytes.resize(length.min(begin + PIECE), 0);
            self.fill(&mut bytes[begin..], patience)?;
        }
        Ok(bytes)
    }

    /// Receives this many bytes of native code.
    pub(super) fn receive_code(
        &mut self,
        length: usize,
        patience: Patience<'_>,
    ) -> Result<Code, Loss> {
        let mut code = CodeBuffer::new(length);
        let mut piece = vec![0; PIECE.min(length)];
        for at in (0..length).step_by(PIECE) {
            let left = length - at;
            let piece = &mut piece[..left.min(PIECE)];
            self.fill(piece, patience)?;
            code.push(piece).map_err(Loss::Failed)?;
        }
        code.finish().map_err(Loss::Failed)
    }

    fn fill(&mut self, mut bytes: &mut [u8], patience: Patience<'_>) -> Result<(), Loss> {
        while !bytes.is_empty() {
            match (&*self.socket).read(bytes) {
                Ok(0) => return Err(Loss::Ended),
                Ok(count) => bytes = &mut bytes[count..],
                Err(error) => self.wait(error, PollFlags::IN, patience)?,
            }
        }
        Ok(())
    }

    /// Waits for the socket after an attempt that would have blocked.
    fn wait(&self, error: io::Error, flags: PollFlags, patience: Patience<'_>) -> Result<(), Loss> {
        match error.kind() {
            ErrorKind::WouldBlock => {}
            ErrorKind::Interrupted => return patience.check(),
            ErrorKind::BrokenPipe | ErrorKind::ConnectionReset => return Err(Loss::Ended),
            _ => return Err(Loss::Failed(error)),
        }
        patience.check()?;
        match self.poll(flags, patience.slice())? {
            Found::Nothing | Found::Socket => Ok(()),
            Found::End => Err(Loss::Ended),
        }
    }
}

fn timespec(duration: Duration) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(duration.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: duration.subsec_nanos().into(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use std::process::{Command, Stdio};

    use super::*;

    /// A process that ends soon.
    fn child() -> Started {
        let mut tests = Command::new(std::env::current_exe().unwrap());
        let tests = tests.arg("--list").stdout(Stdio::null());
        Started::new(tests.spawn().unwrap())
    }

    #[test]
    fn the_end_of_a_worker_shows_although_a_forked_process_holds_its_socket() {
        let patience = Patience {
            until: Instant::now().checked_add(Duration::from_secs(60)),
            cancel: None,
        };
        let (mut ours, theirs) = Exchange::new().unwrap();
        let mut forked = UnixStream::from(theirs);
        assert!(ours.is_open());
        let mut child = child();
        ours.watch(&child);
        assert!(ours.process.is_some(), "expected Linux 5.3 or later");
        forked.write_all(&[2, 0, 0, 0, 7, 8]).unwrap();
        child.child.wait().unwrap();
        assert!(!ours.is_open());
        // What it sent before its end comes first.
        assert!(ours.has_answer(Instant::now()).unwrap());
        assert_eq!(ours.receive(2, patience).unwrap(), [7, 8]);
        assert!(matches!(ours.has_answer(Instant::now()), Err(Loss::Ended)));
        assert!(matches!(ours.receive(2, patience), Err(Loss::Ended)));
        let much = vec![0; 16 << 20];
        assert!(matches!(ours.send(&much, patience), Err(Loss::Ended)));
        drop(forked);
    }
}
