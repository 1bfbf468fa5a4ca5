//! The socket to a worker: whole messages, within a time, whatever the worker does.

use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::message::LENGTH;
use crate::call::CancelToken;

/// How often a cancel token is looked at.
const LOOK: Duration = Duration::from_millis(1);

/// What of a message is read at a time, so that a length alone makes no room.
const PIECE: usize = 1 << 20;

/// Why nothing more comes of a worker.
#[derive(Debug)]
pub(super) enum Loss {
    /// It closed its socket: it ended.
    Ended,
    /// The deadline passed.
    Deadline,
    /// The caller cancelled the call.
    Cancelled,
    /// It said what none would say.
    Violation(String),
    /// The socket failed.
    Failed(io::Error),
}

/// Until when something is waited for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patience<'a> {
    pub(super) until: Option<Instant>,
    pub(super) cancel: Option<&'a CancelToken>,
}

impl Patience<'_> {
    /// Whether nothing ends it.
    pub(super) fn is_endless(&self) -> bool {
        self.until.is_none() && self.cancel.is_none()
    }

    /// Whether there is any left.
    fn check(&self) -> Result<(), Loss> {
        if self.cancel.is_some_and(CancelToken::is_cancelled) {
            return Err(Loss::Cancelled);
        }
        match self.until {
            Some(until) if Instant::now() >= until => Err(Loss::Deadline),
            _ => Ok(()),
        }
    }

    /// How long to wait before looking again.
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
pub(super) struct Exchange(UnixStream);

impl Exchange {
    /// A socket, and the end of it that a worker gets.
    pub(super) fn new() -> io::Result<(Self, OwnedFd)> {
        let (ours, theirs) = UnixStream::pair()?;
        ours.set_nonblocking(true)?;
        Ok((Self(ours), theirs.into()))
    }

    /// Whether the worker is there, as far as its socket says.
    pub(super) fn is_open(&self) -> bool {
        let mut polled = [PollFd::new(&self.0, PollFlags::IN)];
        // A worker that nobody has asked anything has nothing to say.
        matches!(poll(&mut polled, Some(&Timespec::default())), Ok(0))
    }

    pub(super) fn send(&mut self, mut bytes: &[u8], patience: Patience<'_>) -> Result<(), Loss> {
        while !bytes.is_empty() {
            match self.0.write(bytes) {
                Ok(count) => bytes = &bytes[count..],
                Err(error) => self.wait(error, PollFlags::OUT, patience)?,
            }
        }
        Ok(())
    }

    /// A message of at most `most` bytes.
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
        let mut bytes = Vec::new();
        while bytes.len() < length {
            let begin = bytes.len();
            bytes.resize(length.min(begin + PIECE), 0);
            self.fill(&mut bytes[begin..], patience)?;
        }
        Ok(bytes)
    }

    fn fill(&mut self, mut bytes: &mut [u8], patience: Patience<'_>) -> Result<(), Loss> {
        while !bytes.is_empty() {
            match self.0.read(bytes) {
                Ok(0) => return Err(Loss::Ended),
                Ok(count) => bytes = &mut bytes[count..],
                Err(error) => self.wait(error, PollFlags::IN, patience)?,
            }
        }
        Ok(())
    }

    /// Waits after an attempt that failed, if it only came too early.
    fn wait(&self, error: io::Error, flags: PollFlags, patience: Patience<'_>) -> Result<(), Loss> {
        match error.kind() {
            ErrorKind::WouldBlock => {}
            ErrorKind::Interrupted => return patience.check(),
            ErrorKind::BrokenPipe | ErrorKind::ConnectionReset => return Err(Loss::Ended),
            _ => return Err(Loss::Failed(error)),
        }
        patience.check()?;
        let slice = patience.slice().map(|slice| Timespec {
            tv_sec: i64::try_from(slice.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: slice.subsec_nanos().into(),
        });
        let mut polled = [PollFd::from_borrowed_fd(self.0.as_fd(), flags)];
        match poll(&mut polled, slice.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(Loss::Failed(error.into())),
        }
    }
}
