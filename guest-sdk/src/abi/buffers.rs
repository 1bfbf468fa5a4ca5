//! The operands and results of a call frame.

use alloc::format;
use alloc::vec::Vec;

use super::{Buffer, Chunk, Memory, bytes};
use crate::Failure;
use crate::description::Description;

/// What a buffer's record says of its array.
#[derive(Clone, Copy)]
pub(crate) struct Array<'a> {
    pub(crate) element_type: u8,
    pub(crate) dimensions: &'a [i64],
    pub(crate) minor_to_major: &'a [i64],
}

impl<'a> Array<'a> {
    #[inline]
    pub(super) fn of(memory: Memory, record: &Buffer) -> Self {
        // SAFETY: a buffer's lists of numbers, which nothing writes to during a call.
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

/// An operand and a result in one.
pub(crate) struct InPlaceBuffer<'a> {
    pub(crate) operand: Array<'a>,
    /// The operand's data, unless it lies in the result's memory.
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
    /// All operands and results of a frame, none handed out yet.
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

    /// How many operands the frame has.
    pub(crate) fn operand_count(&self) -> usize {
        self.operands.len()
    }

    /// How many results the frame has.
    pub(crate) fn result_count(&self) -> usize {
        self.results.len()
    }

    /// How many operands are not handed out yet.
    pub(crate) fn remaining_operand_count(&self) -> usize {
        self.operands.len().saturating_sub(self.next_operand)
    }

    /// How many results are not handed out yet.
    pub(crate) fn remaining_result_count(&self) -> usize {
        self.results.len().saturating_sub(self.next_result)
    }

    /// The number of the element type of an operand.
    pub(crate) fn operand_type(&self, index: usize) -> Option<u8> {
        self.operands.get(index).map(|record| record.element_type)
    }

    /// The number of the element type of a result.
    pub(crate) fn result_type(&self, index: usize) -> Option<u8> {
        self.results.get(index).map(|record| record.element_type)
    }

    /// The next operand and its data.
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

    /// The next result and its data.
    #[inline]
    pub(crate) fn next_result(&mut self) -> Option<(Array<'a>, &'a mut [u8])> {
        let record = self.results.get(self.next_result)?;
        self.next_result += 1;
        // SAFETY: no other slice is made of a result's data: this result is handed out here and never again, and an operand
        // that shares its memory is handed out as a copy or not at all.
        let data = unsafe { self.memory.slice_mut(record.data) };
        Some((Array::of(self.memory, record), data))
    }

    /// The next operand and the next result, in one.
    pub(crate) fn next_in_place(&mut self) -> Option<InPlaceBuffer<'a>> {
        let (index, operand) = (self.next_operand, self.operands.get(self.next_operand)?);
        let is_shared = self.results.get(self.next_result)?.shares(index);
        let (result, data) = self.next_result()?;
        self.next_operand += 1;
        Some(InPlaceBuffer {
            operand: Array::of(self.memory, operand),
            source: match is_shared {
                true => None,
                false => Some(self.operand_data(index, operand)?),
            },
            result,
            data,
        })
    }

    /// The operand's data, or its copy if a result shares its memory; none if that was not copied.
    #[inline]
    fn operand_data(&self, index: usize, record: &Buffer) -> Option<&'a [u8]> {
        if self.shared.is_any && self.results.iter().any(|result| result.shares(index)) {
            return self.shared.copy_of(index);
        }
        // SAFETY: no result shares this operand's memory.
        Some(unsafe { self.memory.slice(record.data) })
    }
}

/// What the operands held, whose memory a result shares, when the call began.
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
    /// Copies each operand whose memory a result shares, unless one parameter takes both: a target may read its operands
    /// after it wrote to its results, and Rust's references to the two must not overlap.
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
            let mut sharing = (0..results.len()).filter(|&r| results[r].shares(operand));
            let Some(first) = sharing.next() else {
                continue;
            };
            if let Some(second) = sharing.next() {
                return Err(Failure::invalid_argument(format!(
                    "results {first} and {second} both share the memory of operand {operand}: expected one at most"
                )));
            }
            if !description.pairs_in_place(operand, first) {
                // SAFETY: the operand's data, of which there is no other slice yet.
                let data: &[u8] = unsafe { memory.slice(record.data) };
                self.copies.push(SharedCopy::of(operand, data));
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
    fn of(operand: usize, data: &[u8]) -> Self {
        let mut chunks = alloc::vec![Chunk([0; 64]); data.len().div_ceil(64)];
        for (chunk, data) in chunks.iter_mut().zip(data.chunks(64)) {
            chunk.0[..data.len()].copy_from_slice(data);
        }
        Self {
            operand,
            chunks,
            len: data.len(),
        }
    }
}
