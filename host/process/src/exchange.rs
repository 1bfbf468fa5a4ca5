//! The socket to a worker: whole messages, with a time limit that the worker cannot exceed.

use std::io::{self, ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::message::LENGTH;
use callbox_core::call::CancelToken;
use callbox_wasm::{Code, CodeBuffer};

/// The interval at which a cancel token is polled.
const LOOK: Duration = Duration::from_millis(1);

/// The bytes of a message that are read at a time: a claimed length alone reserves no memory.
const PIECE: usize = 1 << 20;

/// Why a worker is lost.
#[derive(Debug)]
pub(super) enum Loss {
    /// The worker closed its socket: its process ended.
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
pub(super) struct Exchange(Arc<UnixStream>);

/// Closes an exchange, whose worker then counts as ended.
#[derive(Debug)]
pub(super) struct Closer(Arc<UnixStream>);

impl Closer {
    pub(super) fn close(&self) {
        // Fails if the worker has closed the socket.
        let _ = self.0.shutdown(Shutdown::Both);
    }
}

impl Exchange {
    /// A socket pair: this process's end, and the worker's.
    pub(super) fn new() -> io::Result<(Self, OwnedFd)> {
        let (ours, theirs) = UnixStream::pair()?;
        ours.set_nonblocking(true)?;
        Ok((Self(Arc::new(ours)), theirs.into()))
    }

    pub(super) fn closer(&self) -> Closer {
        Closer(Arc::clone(&self.0))
    }

    /// Whether the worker's socket is open and silent, as an idle worker's is.
    pub(super) fn is_open(&self) -> bool {
        let mut polled = [PollFd::new(&*self.0, PollFlags::IN)];
        matches!(poll(&mut polled, Some(&Timespec::default())), Ok(0))
    }

    /// Waits for an answer until `until`, and returns whether there is one.
    pub(super) fn has_answer(&self, until: Instant) -> Result<bool, Loss> {
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let mut polled = [PollFd::new(&*self.0, PollFlags::IN)];
            match poll(&mut polled, Some(&timespec(left))) {
                Ok(0) if left.is_zero() => return Ok(false),
                Ok(0) | Err(rustix::io::Errno::INTR) => {}
                Ok(_) => return Ok(true),
                Err(error) => return Err(Loss::Failed(error.into())),
            }
        }
    }

    pub(super) fn send(&mut self, mut bytes: &[u8], patience: Patience<'_>) -> Result<(), Loss> {
        while !bytes.is_empty() {
            match (&*self.0).write(bytes) {
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
            match (&*self.0).read(bytes) {
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
        let slice = patience.slice().map(timespec);
        let mut polled = [PollFd::from_borrowed_fd(self.0.as_fd(), flags)];
        match poll(&mut polled, slice.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(Loss::Failed(error.into())),
        }
    }
}

fn timespec(duration: Duration) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(duration.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: duration.subsec_nanos().into(),
    }
}
