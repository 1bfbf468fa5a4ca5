//! What stands for the host and its memory where a target runs natively: in tests and benchmarks.
//!
//! The API table's functions write to a record of the calling thread. A call frame lies in a block of memory in which
//! every list is disjoint from the others, because [`Block`] alone makes lists.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::any::Any;
use core::cell::RefCell;
use core::marker::PhantomData;
use core::mem::size_of;

pub(crate) use super::record::List;
use super::record::OptionU32;
use super::{Attribute, Buffer, CallFrame, Chunk, FramePointer, Plain};
use crate::description::AttributeKind;
use crate::{Failure, LogLevel, StatusCode};

/// What the API table's functions were told on this thread.
#[derive(Default)]
pub(crate) struct Record {
    pub(crate) failure: Option<Failure>,
    pub(crate) log: Vec<(LogLevel, String)>,
}

std::thread_local! {
    static RECORD: RefCell<Record> = RefCell::default();
    static STATES: RefCell<Vec<*mut dyn Any>> = const { RefCell::new(Vec::new()) };
}

/// Takes what was recorded on this thread, and begins anew.
pub(crate) fn take_record() -> Record {
    RECORD.with(RefCell::take)
}

/// Version 1.0.
pub(crate) fn version() -> u32 {
    1 << 16
}

/// Records a failure.
pub(crate) fn set_failure(code: StatusCode, message: &str, recoverable: bool) {
    let failure = Failure::new(code, String::from(message));
    let failure = if recoverable {
        failure.recoverable()
    } else {
        failure
    };
    RECORD.with_borrow_mut(|record| record.failure = Some(failure));
}

/// Records success.
pub(crate) fn set_success() {
    RECORD.with_borrow_mut(|record| record.failure = None);
}

/// Records a line.
pub(crate) fn log(level: LogLevel, message: &str) {
    RECORD.with_borrow_mut(|record| record.log.push((level, String::from(message))));
}

/// The block that offsets count from.
#[derive(Clone, Copy)]
pub(crate) struct Memory {
    base: *mut u8,
}

impl Memory {
    /// What lies at this offset.
    pub(super) fn at<T>(self, offset: u32) -> *mut T {
        self.base.wrapping_add(offset as usize).cast()
    }
}

/// Makes a state into a word that is not zero: its place in a list of the thread's, counted from one.
pub(super) fn state_to_word(state: Box<dyn Any>) -> u32 {
    STATES.with_borrow_mut(|states| {
        states.push(Box::into_raw(state));
        states.len() as u32
    })
}

/// The state that a word stands for.
///
/// # Safety
/// The word is zero or from [`state_to_word`] on this thread, and its state outlives `'a`.
pub(super) unsafe fn state_from_word<'a>(word: u32) -> Option<&'a dyn Any> {
    let place = (word as usize).checked_sub(1)?;
    let state = STATES.with_borrow(|states| states.get(place).copied())?;
    // SAFETY: the pointer is from `Box::into_raw`, and the state is still there, by the caller's promise.
    Some(unsafe { &*state })
}

/// Drops the state that a word stands for.
///
/// # Safety
/// The word is zero or from [`state_to_word`] on this thread, and neither it nor its state is used any more.
pub(super) unsafe fn drop_state(word: u32) {
    let Some(place) = (word as usize).checked_sub(1) else {
        return;
    };
    let state = STATES.with_borrow(|states| states.get(place).copied());
    if let Some(state) = state {
        // SAFETY: the pointer is from `Box::into_raw`, and is used no more, by the caller's promise.
        drop(unsafe { Box::from_raw(state) });
    }
}

/// What [`Block::call`] puts into a call frame.
pub(crate) struct FrameLists {
    pub(crate) stage: u8,
    pub(crate) operands: List,
    pub(crate) results: List,
    pub(crate) attributes: List,
    pub(crate) opaque: List,
}

/// Memory in which a frame is laid out, and the state words that targets leave. Lists of one block are not for another.
#[derive(Default)]
pub(crate) struct Block {
    chunks: Vec<Chunk>,
    states: [u32; 3],
}

impl Drop for Block {
    fn drop(&mut self) {
        for word in self.states {
            // SAFETY: the words are those that the last call left, and no other call has them.
            unsafe { drop_state(word) };
        }
    }
}

impl Block {
    /// A new list of these elements, apart from all others.
    pub(crate) fn list<T: Plain>(&mut self, elements: &[T]) -> List {
        let bytes = super::bytes(elements);
        let offset = self.chunks.len() * size_of::<Chunk>();
        for part in bytes.chunks(size_of::<Chunk>()) {
            let mut chunk = Chunk([0; 64]);
            chunk.0[..part.len()].copy_from_slice(part);
            self.chunks.push(chunk);
        }
        List {
            offset: offset as u32,
            count: elements.len() as u32,
        }
    }

    /// A record `buffer`, whose data is a list of bytes of this block. A result that shares an operand's memory has the
    /// operand's data.
    pub(crate) fn buffer(
        &mut self,
        element_type: u8,
        data: List,
        dimensions: &[i64],
        minor_to_major: &[i64],
        aliased_operand: Option<u32>,
    ) -> Buffer {
        Buffer {
            data,
            dimensions: self.list(dimensions),
            minor_to_major: self.list(minor_to_major),
            element_type,
            read_only: 0,
            padding: [0; 2],
            aliased_operand: OptionU32 {
                is_some: u8::from(aliased_operand.is_some()),
                padding: [0; 3],
                value: aliased_operand.unwrap_or_default(),
            },
        }
    }

    /// A record `attribute`. `value` is a list of bytes, or a dictionary's list of records.
    pub(crate) fn attribute(
        &mut self,
        name: &str,
        kind: u8,
        element_type: u8,
        dimensions: &[i64],
        value: List,
    ) -> Attribute {
        let is_dictionary = kind == AttributeKind::Dictionary as u8;
        let unit = if is_dictionary {
            size_of::<Attribute>() as u32
        } else {
            1
        };
        Attribute {
            name: self.list(name.as_bytes()),
            value: List {
                offset: value.offset,
                count: value.count * unit,
            },
            dimensions: self.list(dimensions),
            kind,
            element_type,
            padding: [0; 2],
        }
    }

    /// The bytes of a list.
    pub(crate) fn bytes(&self, list: List) -> &[u8] {
        &super::bytes(&self.chunks)[list.offset as usize..][..list.count as usize]
    }

    /// Calls a target with a frame of these lists, and keeps the state words that it leaves.
    pub(crate) fn call(
        &mut self,
        lists: &FrameLists,
        target: impl FnOnce(FramePointer<'_>) -> u32,
    ) -> u32 {
        let frame = self.list(&[CallFrame {
            size: size_of::<CallFrame>() as u32,
            stage: lists.stage,
            padding: [0; 3],
            operands: lists.operands,
            results: lists.results,
            attributes: lists.attributes,
            opaque: lists.opaque,
            instantiate_state: self.states[0],
            prepare_state: self.states[1],
            initialize_state: self.states[2],
        }]);
        let memory = Memory {
            base: self.chunks.as_mut_ptr().cast(),
        };
        let code = target(FramePointer {
            offset: frame.offset,
            memory,
            frame: PhantomData,
        });
        // SAFETY: the frame that was written above, of which the target's borrow has ended.
        let after = unsafe { memory.at::<CallFrame>(frame.offset).read() };
        self.states = [
            after.instantiate_state,
            after.prepare_state,
            after.initialize_state,
        ];
        code
    }
}
