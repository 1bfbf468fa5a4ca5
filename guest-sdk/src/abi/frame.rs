//! The call frame: where it lies, and what it says.

use alloc::format;
use core::fmt;
use core::marker::PhantomData;

use super::buffers::{Array, Buffers, SharedOperands};
use super::record::CallFrame10;
use super::{Attributes, Buffer, CallFrame, List, Memory, State, machine};
use crate::Failure;
use crate::description::{Description, Stage};

/// Where a call frame lies. The one in a call's parameter is the only one: nothing but a host makes it.
#[cfg_attr(target_arch = "wasm32", repr(transparent))]
pub struct FramePointer<'a> {
    pub(super) offset: u32,
    pub(super) memory: Memory,
    pub(super) frame: PhantomData<&'a mut CallFrame>,
}

impl fmt::Debug for FramePointer<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FramePointer({})", self.offset)
    }
}

impl FramePointer<'_> {
    /// Calls `body` with what the frame says.
    ///
    /// # Errors
    /// FAILED_PRECONDITION for a frame of an older contract, INVALID_ARGUMENT for two results that share one operand's
    /// memory, and what `body` returns.
    #[inline]
    pub(crate) fn open<R>(
        &mut self,
        description: &Description,
        body: impl for<'b> FnOnce(Frame<'b>, Buffers<'b>) -> Result<R, Failure>,
    ) -> Result<R, Failure> {
        let size = self.size();
        if (size as usize) < size_of::<CallFrame10>() {
            return Err(short_frame(size));
        }
        // SAFETY: the frame has at least the fields that `CallFrame10` has.
        let record = unsafe { self.memory.at::<CallFrame10>(self.offset).read() };
        let frame = Frame {
            record: &record,
            memory: self.memory,
            offset: self.offset,
        };
        // SAFETY: the frame's lists hold these records, which nothing writes to during a call.
        let (operands, results) = unsafe {
            (
                self.memory.slice::<Buffer>(record.operands),
                self.memory.slice::<Buffer>(record.results),
            )
        };
        let shared = SharedOperands::of(self.memory, operands, results, description)?;
        body(frame, Buffers::new(self.memory, operands, results, &shared))
    }

    /// Keeps what a stage returned for the stages after it.
    pub(crate) fn keep_state(&mut self, stage: Stage, state: State) {
        // A host of version 1.0 takes no state back, so that what the stage left before goes when it runs again.
        let replaces = (self.size() as usize) < size_of::<CallFrame>();
        let at = self.memory.at::<CallFrame10>(self.offset);
        // SAFETY: the host wrote a frame there, whose state words are the guest's to write. They hold zero or what an
        // earlier call put there, and nothing borrows that while no frame is open.
        unsafe {
            let word = match stage {
                Stage::Instantiate => &raw mut (*at).instantiate_state,
                Stage::Prepare => &raw mut (*at).prepare_state,
                Stage::Initialize => &raw mut (*at).initialize_state,
                Stage::Execute => return,
            };
            let before = word.replace(machine::state_to_word(state));
            // Last, because it may panic.
            if replaces {
                machine::drop_state(before);
            }
        }
    }

    /// The frame's size as the host says it, in bytes.
    #[inline]
    fn size(&self) -> u32 {
        // SAFETY: the host wrote a frame there, of which the size is the first field.
        unsafe { self.memory.at::<u32>(self.offset).read() }
    }
}

/// What a frame says besides its buffers.
#[derive(Clone, Copy)]
pub(crate) struct Frame<'a> {
    record: &'a CallFrame10,
    memory: Memory,
    offset: u32,
}

impl<'a> Frame<'a> {
    /// The stage, by number.
    pub(crate) fn stage_number(self) -> u8 {
        self.record.stage
    }

    /// The call site's opaque bytes.
    pub(crate) fn opaque(self) -> &'a [u8] {
        // SAFETY: the frame's list holds bytes that nothing writes to during a call.
        unsafe { self.memory.slice(self.record.opaque) }
    }

    /// The call site's attributes.
    pub(crate) fn attributes(self) -> Attributes<'a> {
        // SAFETY: the frame's own list, and nothing writes to what it leads to during a call.
        unsafe { Attributes::new(self.memory, self.record.attributes) }
    }

    /// The leaves of the call site's literal. There are none in the frame of a host of version 1.0.
    pub(crate) fn literal(self) -> impl ExactSizeIterator<Item = (Array<'a>, &'a [u8])> {
        let list = self
            .later_fields()
            .map_or(List::EMPTY, |(literal, _)| literal);
        // SAFETY: the frame's list holds these records, which nothing writes to during a call.
        let records = unsafe { self.memory.slice::<Buffer>(list) };
        records.iter().map(move |record| {
            // SAFETY: a literal's data, which is read-only.
            let data = unsafe { self.memory.slice(record.data) };
            (Array::of(self.memory, record), data)
        })
    }

    /// The numbers of the called computations. There are none in the frame of a host of version 1.0.
    pub(crate) fn functions(self) -> &'a [u32] {
        let list = self
            .later_fields()
            .map_or(List::EMPTY, |(_, functions)| functions);
        // SAFETY: the frame's list holds these numbers, which nothing writes to during a call.
        unsafe { self.memory.slice(list) }
    }

    /// The lists that version 1.1 appended, if the host's frame has them.
    fn later_fields(self) -> Option<(List, List)> {
        if (self.record.size as usize) < size_of::<CallFrame>() {
            return None;
        }
        let at = self.memory.at::<CallFrame>(self.offset);
        // SAFETY: the frame has at least the fields that `CallFrame` has.
        Some(unsafe {
            (
                (&raw const (*at).literal).read(),
                (&raw const (*at).functions).read(),
            )
        })
    }

    /// What an earlier stage returned.
    pub(crate) fn state(self, stage: Stage) -> Option<&'a State> {
        let word = match stage {
            Stage::Instantiate => self.record.instantiate_state,
            Stage::Prepare => self.record.prepare_state,
            Stage::Initialize => self.record.initialize_state,
            Stage::Execute => return None,
        };
        // SAFETY: the host hands back the word that `keep_state` wrote, or zero. The state is dropped in `keep_state` and
        // `take_back_state` only, when no frame is open.
        unsafe { machine::state_from_word(word) }
    }
}

#[cold]
fn short_frame(size: u32) -> Failure {
    Failure::failed_precondition(format!(
        "call frame too small: expected at least {} bytes, found {size}",
        size_of::<CallFrame10>()
    ))
}
