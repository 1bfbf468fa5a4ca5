//! The operands and results of a call frame.

use alloc::vec::Vec;
use core::ptr;

use super::{Buffer, Chunk, Memory, bytes};
use crate::Failure;
use crate::description::Description;
use crate::text::text;

/// The element type, dimensions and layout in a buffer's record.
#[derive(Clone, Copy)]
pub(crate) struct Array<'a> {
    pub(crate) element_type: u8,
    pub(crate) dimensions: &'a [i64],
    pub(crate) minor_to_major: &'a [i64],
}

impl<'a> Array<'a> {
    #[inline]
    pub(super) fn of(memory: Memory, record: &Buffer) -> Self {
        // SAFETY: the host lays both out as lists of numbers, and nothing writes to them during a
        // call.
        let (dimensions, minor_to_major) = unsafe {
            (
                memory.slice(record.dimensions),
                memory.slice(record.minor_to_major),
            )
        };
        Self {
            element_type: record.element_type,
            dimensions,
            minor_to_major,
        }
    }
}

/// The operand and the result of an in-place parameter.
pub(crate) struct InPlaceBuffer<'a> {
    pub(crate) operand: Array<'a>,
    /// The operand's data, or `None` if it shares the result's memory.
    pub(crate) source: Option<&'a [u8]>,
    pub(crate) result: Array<'a>,
    pub(crate) data: &'a mut [u8],
}

/// The operands and results of a call. Each is handed out once, so that no two views overlap.
pub(crate) struct Buffers<'a> {
    memory: Memory,
    operands: &'a [Buffer],
    results: &'a [Buffer],
    shared: &'a SharedOperands,
    next_operand: usize,
    next_result: usize,
}

impl<'a> Buffers<'a> {
    /// Returns all operands and results of a frame. None is handed out yet.
    pub(super) fn new(
        memory: Memory,
        operands: &'a [Buffer],
        results: &'a [Buffer],
        shared: &'a SharedOperands,
    ) -> Self {
        Self {
            memory,
            operands,
            results,
            shared,
            next_operand: 0,
            next_result: 0,
        }
    }

    /// Returns the number of operands in the frame.
    pub(crate) fn operand_count(&self) -> usize {
        self.operands.len()
    }

    /// Returns the number of results in the frame.
    pub(crate) fn result_count(&self) -> usize {
        self.results.len()
    }

    /// Returns the number of operands that are not handed out yet.
    pub(crate) fn remaining_operand_count(&self) -> usize {
        self.operands.len().saturating_sub(self.next_operand)
    }

    /// Returns the number of results that are not handed out yet.
    pub(crate) fn remaining_result_count(&self) -> usize {
        self.results.len().saturating_sub(self.next_result)
    }

    /// Returns the number of an operand's element type.
    pub(crate) fn operand_type(&self, index: usize) -> Option<u8> {
        self.operands.get(index).map(|record| record.element_type)
    }

    /// Returns the number of a result's element type.
    pub(crate) fn result_type(&self, index: usize) -> Option<u8> {
        self.results.get(index).map(|record| record.element_type)
    }

    /// Takes the next operand and its data.
    #[inline]
    pub(crate) fn next_operand(&mut self) -> Option<(Array<'a>, &'a [u8])> {
        let index = self.next_operand;
        let record = self.operands.get(index)?;
        self.next_operand += 1;
        Some((
            Array::of(self.memory, record),
            self.operand_data(index, record)?,
        ))
    }

    /// Takes the next result and its data.
    #[inline]
    pub(crate) fn next_result(&mut self) -> Option<(Array<'a>, &'a mut [u8])> {
        let record = self.results.get(self.next_result)?;
        self.next_result += 1;
        // SAFETY: the host lays the data out, and no other slice of it exists: `next_result` hands
        // each result out once, and `operand_data` hands out a copy of an operand that shares its
        // memory.
        let data = unsafe { self.memory.slice_mut(record.data) };
        Some((Array::of(self.memory, record), data))
    }

    /// Takes the next operand and the next result together.
    pub(crate) fn next_in_place(&mut self) -> Option<InPlaceBuffer<'a>> {
        let (index, operand) = (self.next_operand, self.operands.get(self.next_operand)?);
        let is_shared = shares(self.results.get(self.next_result)?, index);
        let (result, data) = self.next_result()?;
        self.next_operand += 1;
        Some(InPlaceBuffer {
            operand: Array::of(self.memory, operand),
            source: if is_shared {
                None
            } else {
                Some(self.operand_data(index, operand)?)
            },
            result,
            data,
        })
    }

    /// Returns the operand's data, or its copy if a result shares the memory. `None` if there is no
    /// copy.
    #[inline]
    fn operand_data(&self, index: usize, record: &Buffer) -> Option<&'a [u8]> {
        if self.shared.is_any && self.results.iter().any(|result| shares(result, index)) {
            return self.shared.copy_of(index);
        }
        // SAFETY: the host lays the data out, and no result shares its memory, as checked above.
        Some(unsafe { self.memory.slice(record.data) })
    }
}

/// Copies of the operands whose memory a result shares, from when the call began.
pub(super) struct SharedOperands {
    is_any: bool,
    copies: Vec<SharedCopy>,
}

struct SharedCopy {
    operand: usize,
    chunks: Vec<Chunk>,
    len: usize,
}

impl SharedOperands {
    /// Copies each operand whose memory a result shares, unless one parameter takes both. A target
    /// may read its operands after it has written its results, and references to the two must not
    /// overlap.
    #[inline]
    pub(super) fn of(
        memory: Memory,
        operands: &[Buffer],
        results: &[Buffer],
        description: &Description,
    ) -> Result<Self, Failure> {
        let mut shared = Self {
            is_any: results
                .iter()
                .any(|result| result.aliased_operand.is_some != 0),
            copies: Vec::new(),
        };
        if shared.is_any {
            shared.copy(memory, operands, results, description)?;
        }
        Ok(shared)
    }

    #[cold]
    fn copy(
        &mut self,
        memory: Memory,
        operands: &[Buffer],
        results: &[Buffer],
        description: &Description,
    ) -> Result<(), Failure> {
        for (operand, record) in operands.iter().enumerate() {
            let mut sharing = (0..)
                .zip(results)
                .filter(|(_, result)| shares(result, operand));
            let Some((first, _)) = sharing.next() else {
                continue;
            };
            if let Some((second, _)) = sharing.next() {
                return Err(Failure::invalid_argument(text![
                    "results ",
                    first,
                    " and ",
                    second,
                    " both share the memory of operand ",
                    operand,
                    ": expected one at most"
                ]));
            }
            if !description.pairs_in_place(operand, first) {
                // SAFETY: the host lays the data out, and no slice of it has been handed out yet.
                let data: &[u8] = unsafe { memory.slice(record.data) };
                SharedCopy::of(operand, data)
                    .and_then(|copy| try_push(&mut self.copies, copy))
                    .ok_or_else(|| no_copy(data.len()))?;
            }
        }
        Ok(())
    }

    fn copy_of(&self, operand: usize) -> Option<&[u8]> {
        let copy = self.copies.iter().find(|copy| copy.operand == operand)?;
        bytes(&copy.chunks).get(..copy.len)
    }
}

impl SharedCopy {
    /// Copies an operand. `None` if memory is exhausted.
    fn of(operand: usize, data: &[u8]) -> Option<Self> {
        let count = data.len().div_ceil(size_of::<Chunk>());
        let mut chunks: Vec<Chunk> = Vec::new();
        chunks.try_reserve_exact(count).ok()?;
        let start = chunks.as_mut_ptr();
        // SAFETY: there is room for `count` chunks, which is at least the length of the data. The
        // new block does not overlap the data, and all of its bytes are written: only the last
        // chunk can have some past the data.
        unsafe {
            if let Some(last) = count.checked_sub(1) {
                start.add(last).write_bytes(0, 1);
            }
            ptr::copy_nonoverlapping(data.as_ptr(), start.cast(), data.len());
            chunks.set_len(count);
        }
        Some(Self {
            operand,
            chunks,
            len: data.len(),
        })
    }
}

/// Appends to a list. `None` if memory is exhausted.
fn try_push<T>(list: &mut Vec<T>, item: T) -> Option<()> {
    list.try_reserve(1).ok()?;
    list.spare_capacity_mut().first_mut()?.write(item);
    // SAFETY: the item after the list's end was written.
    unsafe { list.set_len(list.len() + 1) };
    Some(())
}

#[cold]
fn no_copy(size: usize) -> Failure {
    Failure::resource_exhausted(text![
        "Failed to copy an operand whose memory a result shares: expected ",
        size,
        " bytes, found less"
    ])
}

/// Returns whether a result shares the memory of this operand.
fn shares(result: &Buffer, operand: usize) -> bool {
    Option::from(result.aliased_operand).is_some_and(|shared: u32| shared as usize == operand)
}
