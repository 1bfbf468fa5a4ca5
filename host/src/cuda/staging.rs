//! Pinned memory through which bytes pass between host and device: slots that are guarded by events, and collected when done.
//!
//! Nothing waits for a slot: one that is still in use stays where it is, and another is taken.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Arc, Mutex};

use super::driver::{Context, Event, GraphExec, HostTask, Outcome, Pinned, Stream};
use super::guard::locked;
use crate::call::DeviceBuffer;
use crate::values::{Result, Status};

/// The smallest slot, in bytes.
const SMALLEST: usize = 4 << 10;

/// How many bytes of idle slots are kept.
const MOST_IDLE: usize = 256 << 20;

/// How many bytes of slots may be in use before somebody waits.
const MOST_BUSY: usize = 1 << 30;

/// What has to stay until a stream has passed it.
#[derive(Default)]
pub(super) struct Kept {
    pub(super) slots: Vec<Arc<Pinned>>,
    pub(super) tasks: Vec<Arc<Box<HostTask>>>,
    pub(super) memory: Vec<DeviceBuffer>,
    pub(super) graph: Option<GraphExec>,
}

struct Busy {
    passed: Event,
    kept: Kept,
}

/// The slots of a device.
pub(super) struct Staging {
    context: Arc<Context>,
    idle: Mutex<Vec<Arc<Pinned>>>,
    busy: Mutex<VecDeque<Busy>>,
}

impl Staging {
    pub(super) fn new(context: &Arc<Context>) -> Self {
        Self {
            context: Arc::clone(context),
            idle: Mutex::default(),
            busy: Mutex::default(),
        }
    }

    /// A slot of at least this many bytes that nothing else uses.
    pub(super) fn take(&self, size: usize) -> Outcome<Arc<Pinned>> {
        self.collect();
        let size = size.max(SMALLEST);
        let size = size.checked_next_power_of_two().unwrap_or(size);
        let mut idle = locked(&self.idle);
        if let Some(place) = idle.iter().position(|slot| slot.size() == size) {
            return Ok(idle.swap_remove(place));
        }
        drop(idle);
        Pinned::new(&self.context, size).map(Arc::new)
    }

    /// Whether more bytes are on their way than there should be at one time.
    pub(super) fn is_crowded(&self) -> bool {
        let busy = locked(&self.busy);
        let slots = busy.iter().flat_map(|entry| &entry.kept.slots);
        slots.map(|slot| slot.size()).sum::<usize>() > MOST_BUSY
    }

    /// Keeps these until the stream has passed what is in it now.
    pub(super) fn retire(&self, stream: &Stream, kept: Kept) -> Outcome<()> {
        let event = Event::new(&self.context);
        let recorded = event.and_then(|event| event.record(stream).map(|()| event));
        match recorded {
            Ok(passed) => {
                locked(&self.busy).push_back(Busy { passed, kept });
                Ok(())
            }
            Err(failure) => {
                // Without a mark there is only waiting, and where that fails too, nobody knows who still uses them.
                match stream.synchronize() {
                    Ok(()) => self.give_back(kept),
                    Err(_) => std::mem::forget(kept),
                }
                Err(failure)
            }
        }
    }

    /// Keeps these until this event has come to pass.
    pub(super) fn retire_behind(&self, passed: Event, kept: Kept) {
        locked(&self.busy).push_back(Busy { passed, kept });
    }

    /// Takes back what streams have passed.
    pub(super) fn collect(&self) {
        let mut busy = locked(&self.busy);
        let mut done = Vec::new();
        let mut still = VecDeque::with_capacity(busy.len());
        for entry in busy.drain(..) {
            match entry.passed.is_done() {
                Ok(true) => done.push(entry.kept),
                // Without an answer nobody knows, and what is still in use must not be used again.
                Ok(false) | Err(_) => still.push_back(entry),
            }
        }
        *busy = still;
        drop(busy);
        done.into_iter().for_each(|kept| self.give_back(kept));
    }

    /// Slots that nothing uses any longer.
    pub(super) fn give_back(&self, kept: Kept) {
        // A task may hold a slot, and a graph launches tasks.
        drop((kept.graph, kept.tasks, kept.memory));
        let mut idle = locked(&self.idle);
        let mut sum: usize = idle.iter().map(|slot| slot.size()).sum();
        for slot in kept.slots {
            sum = sum.saturating_add(slot.size());
            if sum <= MOST_IDLE {
                idle.push(slot);
            }
        }
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        const ATTEMPTS: usize = 3;
        if locked(&self.busy).is_empty() {
            return;
        }
        for _ in 0..ATTEMPTS {
            match self.context.synchronize() {
                Ok(()) => return,
                Err(failure) if failure.is_sticky() => break,
                // Memory that was short for a moment, say.
                Err(_) => {}
            }
        }
        // Nobody knows what a lost device still reads; the memory is the price.
        std::mem::forget(std::mem::take(&mut *locked(&self.busy)));
    }
}

/// Where arrays lie in a slot, each aligned, from `start` on, and where they end.
pub(super) fn places(buffers: &[DeviceBuffer], start: usize) -> Result<(Vec<Range<usize>>, usize)> {
    const ALIGNMENT: usize = 64;
    let mut end = start;
    let mut places = Vec::with_capacity(buffers.len());
    for buffer in buffers {
        let begin = end.checked_next_multiple_of(ALIGNMENT);
        let range = begin.and_then(|begin| Some(begin..begin.checked_add(buffer.size())?));
        let range = range.ok_or_else(|| {
            Status::invalid_argument("expected arrays that fit into memory together")
        })?;
        end = range.end;
        places.push(range);
    }
    Ok((places, end))
}
