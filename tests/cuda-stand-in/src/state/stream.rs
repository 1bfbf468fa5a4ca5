//! Streams: queues of work, and the order in which it runs.

use std::collections::VecDeque;
use std::ffi::c_void;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use cudarc::driver::sys::CUresult;

use super::State;
use super::module::ModuleBody;
use crate::ptx::Shape;

/// In lazy mode, the number of queries that return "not ready" before one runs the work.
const POLLS: u32 = 3;

/// A stream.
#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) context: usize,
    /// It neither waits for the legacy default stream nor is waited for by it.
    pub(crate) non_blocking: bool,
    pub(crate) priority: i32,
    /// The program destroyed it. It is removed once its work is done.
    pub(crate) destroyed: bool,
    queue: VecDeque<Work>,
    queued: u64,
    completed: u64,
    /// A thread runs this stream's work without the lock.
    busy: bool,
    polls: u32,
    /// The capture that it takes part in, and the predecessors of its next node.
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

    /// Returns the position of the last enqueued work.
    pub(crate) const fn tail(&self) -> u64 {
        self.queued
    }

    /// Appends work.
    pub(crate) fn push(&mut self, work: Work) {
        self.queue.push_back(work);
        self.queued += 1;
        self.polls = 0;
    }

    pub(crate) const fn is_idle(&self) -> bool {
        self.completed >= self.queued
    }
}

/// A point in a stream's work that an event refers to.
#[derive(Debug)]
pub(crate) struct Mark {
    pub(crate) stream: usize,
    pub(crate) position: u64,
    /// The time at which the stream reached it.
    pub(crate) at: OnceLock<Instant>,
}

/// Work of a stream.
#[derive(Clone, Debug)]
pub(crate) enum Work {
    /// Work that can also be a graph's node.
    Node(NodeWork),
    /// Records the time.
    Record(Arc<Mark>),
    /// Waits until another stream has reached a position.
    Wait { stream: usize, position: u64 },
    /// Makes device memory accessible.
    Allocate(u64),
    /// Frees device memory.
    Free(u64),
}

/// Work that streams and graphs share.
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

/// A copy.
#[derive(Clone, Debug)]
pub(crate) struct Copy {
    pub(crate) to: u64,
    pub(crate) from: Source,
    pub(crate) size: usize,
    /// Between devices, which only peer copies may do.
    pub(crate) peer: bool,
}

/// The source of a copy.
#[derive(Clone, Debug)]
pub(crate) enum Source {
    /// Device memory or pinned host memory, read when the stream reaches the copy.
    Address(u64),
    /// Pageable host memory, as it was when the copy was enqueued.
    Bytes(Arc<[u8]>),
}

/// A fill with a pattern.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Set {
    pub(crate) to: u64,
    pub(crate) pattern: [u8; 4],
    /// The number of bytes of the pattern that are used.
    pub(crate) width: usize,
    /// The number of repetitions.
    pub(crate) count: usize,
}

/// A host function and its argument.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HostFunction {
    pub(crate) function: unsafe extern "C" fn(*mut c_void),
    pub(crate) data: usize,
}

/// The next step towards a position of a stream.
#[derive(Debug)]
pub(crate) enum Next {
    Done,
    /// Another thread is running the stream's work.
    Busy,
    /// This work of this stream, which is marked busy until [`State::complete`].
    Work(usize, Work),
}

impl State {
    /// Returns whether a stream has reached a position. A removed stream has.
    fn is_past(&self, stream: usize, position: u64) -> bool {
        self.streams
            .get(stream)
            .map_or(true, |stream| stream.completed >= position)
    }

    /// Takes the next work on the way to a position of a stream. If the stream waits for another,
    /// that one's work is next.
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

    /// Marks work as done.
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

    /// Resolves a stream handle for enqueuing. 0 and 1 are the context's legacy default stream.
    pub(crate) fn stream_handle(&self, stream: usize, context: usize) -> Result<usize, CUresult> {
        match stream {
            0 | 1 => Ok(self.contexts.get(context)?.null_stream),
            // The per-thread default stream is not supported.
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

    /// Enqueues work, after the work that the legacy default stream's rule orders it behind.
    pub(crate) fn push(&mut self, stream: usize, work: Work) -> Result<(), CUresult> {
        self.push_waits(stream)?;
        self.streams.get_mut(stream)?.push(work);
        Ok(())
    }

    /// Enqueues a mark for an event.
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

    /// Enqueues the mutual waits of the legacy default stream and the blocking streams of its
    /// context.
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

    /// Queries whether a stream's work up to a position is done. In lazy mode the first few queries
    /// see no progress, and the next one asks to run the work, so that polling loops end.
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

    /// Returns every stream of a context with the position at which the context is idle.
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

/// The answer to a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Poll {
    Ready,
    NotReady,
    /// The work must run now.
    Run,
}
