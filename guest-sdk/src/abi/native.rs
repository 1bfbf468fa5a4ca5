//! The host's stand-in in native builds: its functions and its memory.
//!
//! The functions of the API table write to a record that is local to the thread. A call frame lies
//! in a [`Block`], whose lists are disjoint because only `Block` creates them.

use alloc::boxed::Box;
use alloc::rc::Rc;
use alloc::string::String;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use core::marker::PhantomData;
use core::mem::size_of;

use super::{Attribute, BaseCallFrame, Buffer, CallFrame, Chunk, FramePointer, Plain, State};
use crate::{AnyOperand, AnyResult, AttributeKind, Failure, LogLevel, StatusCode};
pub(crate) use callbox_abi::List;

/// A function of the program, as a test provides it.
pub(crate) type Function =
    Rc<dyn Fn(&[AnyOperand<'_>], &mut [AnyResult<'_>]) -> Result<(), Failure>>;

/// The state of the API table's functions on this thread: their input, and what the target told
/// them.
#[derive(Default)]
pub(crate) struct Record {
    pub(crate) minor_version: u16,
    pub(crate) functions: Vec<Function>,
    pub(crate) user_data: Vec<(String, Vec<u8>)>,
    pub(crate) failure: Option<Failure>,
    pub(crate) function_failure: Option<Failure>,
    pub(crate) last_function_call: u32,
    pub(crate) log: Vec<(LogLevel, String)>,
}

std::thread_local! {
    static RECORD: RefCell<Record> = RefCell::default();
    static STATES: RefCell<Vec<Option<*mut State>>> = const { RefCell::new(Vec::new()) };
    /// Outlives the records, so that every function call on this thread has its own number.
    static FUNCTION_CALLS: Cell<u32> = const { Cell::new(0) };
}

/// Installs a record, and returns the previous one.
pub(crate) fn replace_record(record: Record) -> Record {
    RECORD.replace(record)
}

/// Returns the version of the emulated host.
pub(crate) fn version() -> u32 {
    1 << 16 | RECORD.with_borrow(|record| u32::from(record.minor_version))
}

/// Calls a function of the program. The results keep their contents if it fails.
pub(crate) fn call_function(
    function: u32,
    operands: &[AnyOperand<'_>],
    results: &mut [AnyResult<'_>],
) -> u32 {
    let called = RECORD.with_borrow_mut(|record| {
        record.function_failure = None;
        record.functions.get(function as usize).cloned()
    });
    let before: Vec<Vec<u8>> = results.iter_mut().map(|r| r.bytes_mut().to_vec()).collect();
    let outcome = match called {
        Some(called) => called(operands, results),
        None => Err(Failure::not_found(alloc::format!(
            "expected a function that the call was handed, found number {function}"
        ))),
    };
    let Err(failure) = outcome else {
        return StatusCode::Ok as u32;
    };
    for (result, before) in results.iter_mut().zip(before) {
        result.bytes_mut().copy_from_slice(&before);
    }
    let code = failure.code() as u32;
    RECORD.with_borrow_mut(|record| record.function_failure = Some(failure));
    code
}

/// Copies the message of the last failed function, and returns its length.
pub(crate) fn function_message(into: &mut [u8]) -> usize {
    RECORD.with_borrow(|record| {
        let failure = record.function_failure.as_ref();
        fill(into, failure.map_or("", Failure::message).as_bytes())
    })
}

/// Copies the user data with this name, and returns its length.
pub(crate) fn user_data(name: &str, into: &mut [u8]) -> Option<usize> {
    RECORD.with_borrow(|record| {
        let found = record.user_data.iter().find(|(known, _)| known == name);
        found.map(|(_, bytes)| fill(into, bytes))
    })
}

/// Copies the bytes that fit, and returns the number of all bytes.
fn fill(into: &mut [u8], from: &[u8]) -> usize {
    let count = into.len().min(from.len());
    into[..count].copy_from_slice(&from[..count]);
    from.len()
}

/// Returns the number of the last function call.
pub(crate) fn function_call_count() -> u32 {
    RECORD.with_borrow(|record| record.last_function_call)
}

/// Counts a function call, and returns its number, which is never 0.
pub(crate) fn count_function_call() -> u32 {
    let number = FUNCTION_CALLS.get().wrapping_add(1).max(1);
    FUNCTION_CALLS.set(number);
    RECORD.with_borrow_mut(|record| record.last_function_call = number);
    number
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

/// Clears the recorded failure.
pub(crate) fn set_success() {
    RECORD.with_borrow_mut(|record| record.failure = None);
}

/// Records a log message.
pub(crate) fn log(level: LogLevel, message: &str) {
    RECORD.with_borrow_mut(|record| record.log.push((level, String::from(message))));
}

/// The memory of a [`Block`]: the base of all offsets.
#[derive(Clone, Copy)]
pub(crate) struct Memory {
    base: *mut u8,
}

impl Memory {
    /// Returns a pointer to this offset.
    pub(super) fn at<T>(self, offset: u32) -> *mut T {
        self.base.wrapping_add(offset as usize).cast()
    }
}

/// Stores a state, and returns its word: its index in the thread's list plus one.
pub(super) fn state_to_word(state: State) -> u32 {
    STATES.with_borrow_mut(|states| {
        states.push(Some(Box::into_raw(Box::new(state))));
        states.len() as u32
    })
}

/// Returns the state with this word.
///
/// # Safety
/// The word must be zero or from [`state_to_word`] on this thread, and its state must outlive `'a`.
pub(super) unsafe fn state_from_word<'a>(word: u32) -> Option<&'a State> {
    let place = (word as usize).checked_sub(1)?;
    let state = STATES.with_borrow(|states| states.get(place).copied().flatten())?;
    // SAFETY: the pointer is from `Box::into_raw`, and the caller guarantees that the state is
    // alive.
    Some(unsafe { &*state })
}

/// Drops the state with this word.
///
/// # Safety
/// The word must be zero or from [`state_to_word`] on this thread, and must not be used again.
pub(super) unsafe fn drop_state(word: u32) {
    let Some(place) = (word as usize).checked_sub(1) else {
        return;
    };
    // Removed before it is dropped: if the destructor panics, the word may be handed back again.
    let state = STATES.with_borrow_mut(|states| states.get_mut(place)?.take());
    if let Some(state) = state {
        // SAFETY: the pointer is from `Box::into_raw`, and the caller guarantees that this is its
        // last use.
        drop(unsafe { Box::from_raw(state) });
    }
}

/// The lists of a call frame.
pub(crate) struct FrameLists {
    pub(crate) stage: u8,
    pub(crate) operands: List,
    pub(crate) results: List,
    pub(crate) attributes: List,
    pub(crate) opaque: List,
    pub(crate) literal: List,
    pub(crate) functions: List,
}

/// Memory for one call's frame, and the state words of its target. A list belongs to the block that
/// created it.
#[derive(Default)]
pub(crate) struct Block {
    chunks: Vec<Chunk>,
    states: [u32; 3],
}

impl Drop for Block {
    fn drop(&mut self) {
        for word in core::mem::take(&mut self.states) {
            // SAFETY: the words are from the last call, and no other block has them.
            unsafe { drop_state(word) };
        }
    }
}

impl Block {
    /// Appends a list of these elements.
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

    /// Returns a record `buffer` whose data is a list of bytes of this block. A result that shares
    /// an operand's memory takes the operand's list.
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
            aliased_operand: aliased_operand.into(),
        }
    }

    /// Returns a record `attribute`. `value` is a list of bytes, or of a dictionary's records.
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

    /// Returns the bytes of a list.
    pub(crate) fn bytes(&self, list: List) -> &[u8] {
        &super::bytes(&self.chunks)[list.offset as usize..][..list.count as usize]
    }

    /// Calls a target with a frame of these lists, and keeps the state words that it leaves.
    pub(crate) fn call(
        &mut self,
        minor_version: u16,
        lists: &FrameLists,
        target: impl FnOnce(FramePointer<'_>) -> u32,
    ) -> u32 {
        let frame = self.frame(minor_version, lists);
        let memory = Memory {
            base: self.chunks.as_mut_ptr().cast(),
        };
        let code = target(FramePointer {
            offset: frame.offset,
            memory,
            frame: PhantomData,
        });
        // SAFETY: the frame was written above, and the target's borrow of it has ended.
        let after = unsafe { memory.at::<BaseCallFrame>(frame.offset).read() };
        self.states = [
            after.instantiate_state,
            after.prepare_state,
            after.initialize_state,
        ];
        code
    }

    /// Appends a frame of the size that a host of this version writes.
    fn frame(&mut self, minor_version: u16, lists: &FrameLists) -> List {
        if minor_version > 0 {
            self.take_back_state(lists.stage);
        }
        let size = match minor_version {
            0 => size_of::<BaseCallFrame>(),
            _ => size_of::<CallFrame>(),
        };
        let base = BaseCallFrame {
            size: size as u32,
            stage: lists.stage,
            padding: [0; 3],
            operands: lists.operands,
            results: lists.results,
            attributes: lists.attributes,
            opaque: lists.opaque,
            instantiate_state: self.states[0],
            prepare_state: self.states[1],
            initialize_state: self.states[2],
        };
        match minor_version {
            0 => self.list(&[base]),
            _ => self.list(&[CallFrame {
                base,
                literal: lists.literal,
                functions: lists.functions,
            }]),
        }
    }

    /// Drops the state of a stage before the stage runs again, as a host does.
    fn take_back_state(&mut self, stage: u8) {
        if let Some(word) = self.states.get_mut(usize::from(stage)) {
            // SAFETY: the word is zero or from the last call, no other block has it, and it is
            // cleared.
            unsafe { drop_state(core::mem::take(word)) };
        }
    }
}
