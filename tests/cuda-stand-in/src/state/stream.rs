//! Streams: queues of work, and the order in which work is taken from them.

use std::collections::VecDeque;
use std::ffi::c_void;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use cudarc::driver::sys::CUresult;

use super::State;
use super::module::ModuleBody;
use crate::ptx::Shape;

/// How many queries of unfinished work are told "not ready" in lazy mode before one makes the work happen.
const POLLS: u32 = 3;

/// One stream.
#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) context: usize,
    /// It neither waits for the legacy default stream nor is waited for by it.
    pub(crate) non_blocking: bool,
    pub(crate) priority: i32,
    /// The program has destroyed it. It goes once its work is done.
    pub(crate) destroyed: bool,
    queue: VecDeque<Work>,
    queued: u64,
    completed: u64,
    /// A thread is running this stream's work and does not hold the lock.
    busy: bool,
    polls: u32,
    /// The capture that it takes part in, and the nodes that its next one comes after.
    pub(crate) capture: Option<u64>,
    pub(crate) frontier: Vec<usize>,
}

impl Stream {
    pub(crate) const fn new(context: usize, non_blocking: bool, priority: i32) -> Stream {
        Stream {
            context,
            non_blocking,
            priority,
            destroyed: false,
            queue: VecDeque::new(),
            queued: 0,
            completed: 0,
            busy: false,
            polls: 0,
            capture: None,
            frontier: Vec::new(),
        }
    }

    /// The position of what was enqueued last.
    pub(crate) const fn tail(&self) -> u64 {
        self.queued
    }

    /// Puts work at the end.
    pub(crate) fn push(&mut self, work: Work) {
        self.queue.push_back(work);
        self.queued += 1;
        self.polls = 0;
    }

    pub(crate) const fn is_idle(&self) -> bool {
        self.completed >= self.queued
    }
}

/// A point in a stream's work that an event stands for.
#[derive(Debug)]
pub(crate) struct Mark {
    pub(crate) stream: usize,
    pub(crate) position: u64,
    /// When the stream came to it.
    pub(crate) at: OnceLock<Instant>,
}

/// What a stream has to do.
#[derive(Clone, Debug)]
pub(crate) enum Work {
    /// What a graph's node could also be.
    Node(NodeWork),
    /// Note the time.
    Record(Arc<Mark>),
    /// Wait until another stream has come to a position.
    Wait { stream: usize, position: u64 },
    /// Device memory begins to be there.
    Allocate(u64),
    /// Device memory goes.
    Free(u64),
}

/// What streams and graphs can both do.
#[derive(Clone, Debug)]
pub(crate) enum NodeWork {
    Kernel(Launch),
    Copy(Copy),
    Set(Set),
    Host(HostFunction),
    Empty,
}

/// A kernel with its arguments.
#[derive(Clone, Debug)]
pub(crate) struct Launch {
    pub(crate) function: usize,
    pub(crate) module: Arc<ModuleBody>,
    pub(crate) name: String,
    pub(crate) shape: Shape,
    /// The parameters' bytes, each at its offset.
    pub(crate) parameters: Arc<[u8]>,
}

/// Bytes from somewhere to somewhere.
#[derive(Clone, Debug)]
pub(crate) struct Copy {
    pub(crate) to: u64,
    pub(crate) from: Source,
    pub(crate) size: usize,
    /// Between devices, which is for peer copies alone.
    pub(crate) peer: bool,
}

/// Where bytes come from.
#[derive(Clone, Debug)]
pub(crate) enum Source {
    /// Device memory or pinned host memory, read when the stream comes to it.
    Address(u64),
    /// Pageable host memory, as it was when the copy was enqueued.
    Bytes(Arc<[u8]>),
}

/// Memory filled with a pattern.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Set {
    pub(crate) to: u64,
    pub(crate) pattern: [u8; 4],
    /// How many of the pattern's bytes count.
    pub(crate) width: usize,
    /// How often it is written.
    pub(crate) count: usize,
}

/// A function of the host, and what it is called with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HostFunction {
    pub(crate) function: unsafe extern "C" fn(*mut c_void),
    pub(crate) data: usize,
}

/// What there is to do to bring a stream to a position.
#[derive(Debug)]
pub(crate) enum Next {
    Done,
    /// Another thread is at it.
    Busy,
    /// This, of this stream, which is marked busy until [`State::complete`].
    Work(usize, Work),
}

impl State {
    /// Whether a stream has come to a position. A stream that is gone has.
    fn is_past(&self, stream: usize, position: u64) -> bool {
        self.streams
            .get(stream)
            .map_or(true, |stream| stream.completed >= position)
    }

    /// Takes the next piece of work on the way to a position of a stream; a stream that waits for another makes that one's work next.
    pub(crate) fn next(&mut self, stream: usize, position: u64) -> Next {
        let (mut at, mut goal) = (stream, position);
        loop {
            if self.is_past(at, goal) {
                return Next::Done;
            }
            let Ok(found) = self.streams.get(at) else {
                return Next::Done;
            };
            if found.busy {
                return Next::Busy;
            }
            if let Some(Work::Wait { stream, position }) = found.queue.front()
                && !self.is_past(*stream, *position)
            {
                (at, goal) = (*stream, *position);
                continue;
            }
            let Ok(found) = self.streams.get_mut(at) else {
                return Next::Done;
            };
            let Some(work) = found.queue.pop_front() else {
                return Next::Done;
            };
            found.busy = true;
            return Next::Work(at, work);
        }
    }

    /// A piece of work is done.
    pub(crate) fn complete(&mut self, stream: usize) {
        let Ok(found) = self.streams.get_mut(stream) else {
            return;
        };
        found.busy = false;
        found.completed += 1;
        if found.destroyed && found.is_idle() {
            let _ = self.streams.remove(stream);
        }
    }

    /// The stream of a handle, on which work can be put: the context's legacy default stream for 0 and 1.
    pub(crate) fn stream_handle(&self, stream: usize, context: usize) -> Result<usize, CUresult> {
        match stream {
            0 | 1 => Ok(self.contexts.get(context)?.null_stream),
            // The per-thread default stream.
            2 => Err(CUresult::CUDA_ERROR_NOT_SUPPORTED),
            _ => {
                let found = self
                    .streams
                    .get(stream)
                    .ok()
                    .filter(|found| !found.destroyed);
                found
                    .map(|_| stream)
                    .ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)
            }
        }
    }

    /// Puts work on a stream, behind what the legacy default stream's rule says that it waits for.
    pub(crate) fn push(&mut self, stream: usize, work: Work) -> Result<(), CUresult> {
        self.push_waits(stream)?;
        self.streams.get_mut(stream)?.push(work);
        Ok(())
    }

    /// Puts a point on a stream that an event stands for.
    pub(crate) fn push_mark(&mut self, stream: usize) -> Result<Arc<Mark>, CUresult> {
        self.push_waits(stream)?;
        let found = self.streams.get_mut(stream)?;
        let mark = Arc::new(Mark {
            stream,
            position: found.tail() + 1,
            at: OnceLock::new(),
        });
        found.push(Work::Record(Arc::clone(&mark)));
        Ok(mark)
    }

    /// The legacy default stream waits for all blocking streams of its context, and they for it.
    fn push_waits(&mut self, stream: usize) -> Result<(), CUresult> {
        let (context, non_blocking) = self
            .streams
            .get(stream)
            .map(|found| (found.context, found.non_blocking))?;
        let null = self.contexts.get(context)?.null_stream;
        let waits: Vec<(usize, u64)> = if stream == null {
            let blocking = self.streams.iter().filter(|(handle, other)| {
                *handle != null && other.context == context && !other.non_blocking
            });
            blocking
                .filter(|(_, other)| !other.is_idle())
                .map(|(handle, other)| (handle, other.tail()))
                .collect()
        } else if non_blocking {
            Vec::new()
        } else {
            let null_stream = self.streams.get(null)?;
            if null_stream.is_idle() {
                Vec::new()
            } else {
                vec![(null, null_stream.tail())]
            }
        };
        let found = self.streams.get_mut(stream)?;
        for (stream, position) in waits {
            found.push(Work::Wait { stream, position });
        }
        Ok(())
    }

    /// Whether a stream's work up to a position is done, as a query sees it. In lazy mode the first few queries see nothing move; the
    /// one after them returns what to run, so that whoever polls gets to an end.
    pub(crate) fn poll(&mut self, stream: usize, position: u64) -> Poll {
        if self.is_past(stream, position) {
            return Poll::Ready;
        }
        let Ok(found) = self.streams.get_mut(stream) else {
            return Poll::Ready;
        };
        found.polls += 1;
        if self.settings.lazy && found.polls <= POLLS {
            Poll::NotReady
        } else {
            Poll::Run
        }
    }

    /// Every stream of a context with the position that it has to come to for the context to be idle.
    pub(crate) fn tails(&self, context: usize) -> Vec<(usize, u64)> {
        let streams = self
            .streams
            .iter()
            .filter(|(_, stream)| stream.context == context);
        streams
            .map(|(handle, stream)| (handle, stream.tail()))
            .collect()
    }
}

/// What a query sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Poll {
    Ready,
    NotReady,
    /// The work is to be run now.
    Run,
}
