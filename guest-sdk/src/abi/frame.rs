//! Access to the call frame.

use core::fmt;
use core::marker::PhantomData;

use super::buffers::{Array, Buffers, SharedOperands};
use super::{Attributes, BaseCallFrame, Buffer, CallFrame, List, Memory, State, machine};
use crate::description::Description;
use crate::text::text;
use crate::{Failure, Stage};

/// The address of the call frame. Only the host creates one, and passes it as the export's
/// parameter.
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
    /// Calls `body` with the frame's fields and buffers.
    ///
    /// # Errors
    /// FAILED_PRECONDITION for a frame that is shorter than version 1.0's, INVALID_ARGUMENT for two
    /// results that share one operand's memory, and the errors of `body`.
    #[inline]
    pub(crate) fn open<R>(
        &mut self,
        description: &Description,
        body: impl for<'b> FnOnce(Frame<'b>, Buffers<'b>) -> Result<R, Failure>,
    ) -> Result<R, Failure> {
        let size = self.size();
        if (size as usize) < size_of::<BaseCallFrame>() {
            return Err(short_frame(size));
        }
        // SAFETY: the host wrote a frame of `size` bytes, which the check above found to be large
        // enough.
        let record = unsafe { self.memory.at::<BaseCallFrame>(self.offset).read() };
        let frame = Frame {
            record: &record,
            memory: self.memory,
            offset: self.offset,
        };
        // SAFETY: the host lays out both lists of records, and nothing writes to them during a
        // call.
        let (operands, results) = unsafe {
            (
                self.memory.slice::<Buffer>(record.operands),
                self.memory.slice::<Buffer>(record.results),
            )
        };
        let shared = SharedOperands::of(self.memory, operands, results, description)?;
        body(frame, Buffers::new(self.memory, operands, results, &shared))
    }

    /// Stores the state that a stage returned for the stages after it.
    pub(crate) fn keep_state(&mut self, stage: Stage, state: State) {
        // A host of version 1.0 never drops state, so that the guest does when a stage runs again.
        let replaces = (self.size() as usize) < size_of::<CallFrame>();
        let at = self.memory.at::<BaseCallFrame>(self.offset);
        // SAFETY: the host wrote the frame, and its state words are the guest's to write. A word
        // holds zero or the result of an earlier `keep_state`, and no frame is open that could
        // borrow the state.
        unsafe {
            let word = match stage {
                Stage::Instantiate => &raw mut (*at).instantiate_state,
                Stage::Prepare => &raw mut (*at).prepare_state,
                Stage::Initialize => &raw mut (*at).initialize_state,
                Stage::Execute => return,
            };
            let before = word.replace(machine::state_to_word(state));
            // Last, because the destructor may panic.
            if replaces {
                machine::drop_state(before);
            }
        }
    }

    /// Returns the size of the frame in bytes, as the host gives it.
    #[inline]
    fn size(&self) -> u32 {
        // SAFETY: the host wrote a frame, and the size is its first field in every version.
        unsafe { self.memory.at::<u32>(self.offset).read() }
    }
}

/// The fields of a frame other than its buffers.
#[derive(Clone, Copy)]
pub(crate) struct Frame<'a> {
    record: &'a BaseCallFrame,
    memory: Memory,
    offset: u32,
}

impl<'a> Frame<'a> {
    /// Returns the number of the stage.
    pub(crate) fn stage_number(self) -> u8 {
        self.record.stage
    }

    /// Returns the call site's opaque bytes.
    pub(crate) fn opaque(self) -> &'a [u8] {
        // SAFETY: the host lays out the list of bytes, and nothing writes to it during a call.
        unsafe { self.memory.slice(self.record.opaque) }
    }

    /// Returns the call site's attributes.
    pub(crate) fn attributes(self) -> Attributes<'a> {
        // SAFETY: the list is the frame's own, and nothing writes to it or to the lists behind it
        // during a call.
        unsafe { Attributes::new(self.memory, self.record.attributes) }
    }

    /// Returns the leaves of the call site's literal. A host of version 1.0 passes none.
    pub(crate) fn literal(self) -> impl ExactSizeIterator<Item = (Array<'a>, &'a [u8])> {
        let list = self
            .later_fields()
            .map_or(List::EMPTY, |(literal, _)| literal);
        // SAFETY: the host lays out the list of records, and nothing writes to it during a call.
        let records = unsafe { self.memory.slice::<Buffer>(list) };
        records.iter().map(move |record| {
            // SAFETY: the host lays out the data of a literal, which is read-only.
            let data = unsafe { self.memory.slice(record.data) };
            (Array::of(self.memory, record), data)
        })
    }

    /// Returns the numbers of the called computations. A host of version 1.0 passes none.
    pub(crate) fn functions(self) -> &'a [u32] {
        let list = self
            .later_fields()
            .map_or(List::EMPTY, |(_, functions)| functions);
        // SAFETY: the host lays out the list of numbers, and nothing writes to it during a call.
        unsafe { self.memory.slice(list) }
    }

    /// Returns the lists `literal` and `functions` if the frame is of version 1.1.
    fn later_fields(self) -> Option<(List, List)> {
        if (self.record.size as usize) < size_of::<CallFrame>() {
            return None;
        }
        let at = self.memory.at::<CallFrame>(self.offset);
        // SAFETY: the host wrote a frame of `size` bytes, which the check above found to be large
        // enough.
        Some(unsafe {
            (
                (&raw const (*at).literal).read(),
                (&raw const (*at).functions).read(),
            )
        })
    }

    /// Returns the state that an earlier stage left.
    pub(crate) fn state(self, stage: Stage) -> Option<&'a State> {
        let word = match stage {
            Stage::Instantiate => self.record.instantiate_state,
            Stage::Prepare => self.record.prepare_state,
            Stage::Initialize => self.record.initialize_state,
            Stage::Execute => return None,
        };
        // SAFETY: the host hands back the word that `keep_state` stored, or zero. Only `keep_state`
        // and `take_back_state` drop the state, and neither runs while a frame is open.
        unsafe { machine::state_from_word(word) }
    }
}

#[cold]
fn short_frame(size: u32) -> Failure {
    Failure::failed_precondition(text![
        "call frame too small: expected at least ",
        size_of::<BaseCallFrame>(),
        " bytes, found ",
        size
    ])
}
