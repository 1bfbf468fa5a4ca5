//! Pinned slots, through which bytes pass between the host and a device, and what streams still
//! use.
//!
//! An event guards each slot: the slot is reused when its stream has passed the event. Nothing
//! waits for a slot. While one is in use, another is taken.

use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::sync::{Arc, Mutex};

use callbox_core::call::DeviceBuffer;
use callbox_core::locks::locked;
use callbox_core::values::{Result, Status};

use super::driver::{Context, Event, GraphExec, HostTask, Outcome, Pinned, Stream, StreamId};
use super::fenced::Running;

/// The smallest slot, in bytes.
const MIN_SLOT: usize = 4 << 10;

/// The most bytes of idle slots that are kept.
const MAX_IDLE: usize = 256 << 20;

/// The most bytes of slots in use. Beyond it, a queue waits for its stream.
const MAX_BUSY: usize = 1 << 30;

/// Values that have to live until a stream has passed the work that uses them.
#[derive(Default)]
pub(super) struct Kept {
    pub(super) slots: Vec<Arc<Pinned>>,
    pub(super) tasks: Vec<Arc<Box<HostTask>>>,
    pub(super) memory: Vec<DeviceBuffer>,
    pub(super) graph: Option<GraphExec>,
    /// Launches of fenced kernels, with their records.
    pub(super) running: Vec<Arc<Running>>,
}

impl Kept {
    pub(super) fn slot(slot: Arc<Pinned>) -> Self {
        Self {
            slots: vec![slot],
            ..Self::default()
        }
    }

    pub(super) fn task(task: Arc<Box<HostTask>>) -> Self {
        Self {
            tasks: vec![task],
            ..Self::default()
        }
    }

    fn slot_bytes(&self) -> usize {
        self.slots.iter().map(|slot| slot.size()).sum()
    }
}

/// Values in use until a stream has passed the event.
struct InUse {
    passed: Event,
    kept: Kept,
}

/// What streams still use.
#[derive(Default)]
struct Busy {
    /// Of each stream, in the order of its work: an event that it has not passed holds back those
    /// behind it, which are not asked.
    streams: HashMap<StreamId, VecDeque<InUse>>,
    /// The size of all slots in use.
    bytes: usize,
}

impl Busy {
    fn push(&mut self, stream: StreamId, entry: InUse) {
        self.bytes = self.bytes.saturating_add(entry.kept.slot_bytes());
        self.streams.entry(stream).or_default().push_back(entry);
    }

    /// Removes the values that their streams have passed.
    fn take_passed(&mut self) -> Vec<Kept> {
        let mut done = Vec::new();
        self.streams.retain(|_, entries| {
            // If the query fails, the stream may still use the values.
            let is_passed = |entry: &mut InUse| matches!(entry.passed.is_done(), Ok(true));
            while let Some(entry) = entries.pop_front_if(is_passed) {
                done.push(entry.kept);
            }
            !entries.is_empty()
        });
        let bytes: usize = done.iter().map(Kept::slot_bytes).sum();
        self.bytes = self.bytes.saturating_sub(bytes);
        done
    }

    fn into_entries(self) -> impl Iterator<Item = InUse> {
        self.streams.into_values().flatten()
    }
}

/// Slots that no stream uses, by their size.
#[derive(Default)]
struct Idle {
    slots: HashMap<usize, Vec<Arc<Pinned>>>,
    bytes: usize,
}

impl Idle {
    fn take(&mut self, size: usize) -> Option<Arc<Pinned>> {
        let slot = self.slots.get_mut(&size)?.pop()?;
        self.bytes = self.bytes.saturating_sub(size);
        Some(slot)
    }

    /// Keeps a slot, if all kept ones have no more bytes than their limit then.
    fn put(&mut self, slot: Arc<Pinned>) {
        let bytes = self.bytes.saturating_add(slot.size());
        if bytes <= MAX_IDLE {
            self.bytes = bytes;
            self.slots.entry(slot.size()).or_default().push(slot);
        }
    }
}

/// The slots of a device.
pub(super) struct Staging {
    context: Arc<Context>,
    idle: Mutex<Idle>,
    busy: Mutex<Busy>,
}

impl Staging {
    pub(super) fn new(context: &Arc<Context>) -> Self {
        Self {
            context: Arc::clone(context),
            idle: Mutex::default(),
            busy: Mutex::default(),
        }
    }

    /// Takes an idle slot of at least this many bytes, or allocates one.
    pub(super) fn take(&self, size: usize) -> Outcome<Arc<Pinned>> {
        self.collect();
        let size = size.max(MIN_SLOT);
        let size = size.checked_next_power_of_two().unwrap_or(size);
        if let Some(slot) = locked(&self.idle).take(size) {
            return Ok(slot);
        }
        Pinned::new(&self.context, size).map(Arc::new)
    }

    /// Whether the slots in use have more bytes than their limit.
    pub(super) fn is_crowded(&self) -> bool {
        locked(&self.busy).bytes > MAX_BUSY
    }

    /// Keeps these values until the stream has passed its current work.
    pub(super) fn retire(&self, stream: &Stream, kept: Kept) -> Outcome<()> {
        let event = Event::new(&self.context);
        match event.and_then(|event| event.record(stream).map(|()| event)) {
            Ok(passed) => {
                self.retire_behind(stream.id(), passed, kept);
                Ok(())
            }
            Err(failure) => {
                // Without an event, only waiting is left. If that fails as well, the stream may
                // still use the values, and they are leaked.
                match stream.synchronize() {
                    Ok(()) => self.give_back(kept),
                    Err(_) => leak(kept),
                }
                Err(failure)
            }
        }
    }

    /// Keeps these values until this stream has passed the event.
    pub(super) fn retire_behind(&self, stream: StreamId, passed: Event, kept: Kept) {
        locked(&self.busy).push(stream, InUse { passed, kept });
    }

    /// Takes back the values that their streams have passed.
    pub(super) fn collect(&self) {
        let done = locked(&self.busy).take_passed();
        done.into_iter().for_each(|kept| self.give_back(kept));
    }

    /// Takes back values that no stream uses any longer.
    pub(super) fn give_back(&self, kept: Kept) {
        // Before the slots: a task may hold a slot, and a graph launches tasks.
        drop((kept.graph, kept.tasks, kept.memory));
        // The failures of launches that were not waited for have no reader.
        let records = kept.running.iter().filter_map(|running| running.end());
        let records: Vec<_> = records.map(|(_, slot)| slot).collect();
        let mut idle = locked(&self.idle);
        let slots = kept.slots.into_iter().chain(records);
        slots.for_each(|slot| idle.put(slot));
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        const ATTEMPTS: usize = 3;
        if locked(&self.busy).streams.is_empty() {
            return;
        }
        for _ in 0..ATTEMPTS {
            match self.context.synchronize() {
                Ok(()) => {
                    let busy = std::mem::take(&mut *locked(&self.busy));
                    return busy
                        .into_entries()
                        .for_each(|entry| self.give_back(entry.kept));
                }
                Err(failure) if failure.is_sticky() => break,
                // The failure may pass, such as a lack of memory.
                Err(_) => {}
            }
        }
        // A lost device may still read the memory, which is therefore leaked.
        for entry in std::mem::take(&mut *locked(&self.busy)).into_entries() {
            std::mem::forget(entry.passed);
            leak(entry.kept);
        }
    }
}

/// Leaks what a lost device may still use.
fn leak(kept: Kept) {
    kept.running.iter().for_each(|running| running.abandon());
    std::mem::forget(kept);
}

/// Lays out arrays in a slot from `start` on, each aligned. Returns their ranges, and the end.
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
