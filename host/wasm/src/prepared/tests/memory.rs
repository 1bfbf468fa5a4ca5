//! Buffers in one memory, in which an operand and a result can share bytes.

use std::cell::Cell;
use std::ops::Range;

use callbox_core::call::CallBuffers;

/// A memory with operands and results. Every copy must be within one buffer.
pub(super) struct Memory {
    bytes: Vec<Cell<u8>>,
    pub(super) operands: Vec<Range<usize>>,
    pub(super) results: Vec<Range<usize>>,
    /// The bytes read of each operand, and the bytes written to each result.
    pub(super) read: Vec<Cell<usize>>,
    pub(super) written: Vec<Cell<usize>>,
}

/// The value of bytes that were not written.
pub(super) const UNTOUCHED: u8 = 0x5a;

impl Memory {
    /// Operands with these bytes, and results of these sizes.
    pub(super) fn new(operands: &[Vec<u8>], results: &[usize]) -> Self {
        let mut memory = Self {
            bytes: operands.concat().into_iter().map(Cell::new).collect(),
            operands: Vec::new(),
            results: Vec::new(),
            read: vec![Cell::new(0); operands.len()],
            written: vec![Cell::new(0); results.len()],
        };
        let mut at = 0;
        for operand in operands {
            memory.operands.push(at..at + operand.len());
            at += operand.len();
        }
        for size in results {
            memory.results.push(at..at + size);
            at += size;
        }
        memory.bytes.resize(at, Cell::new(UNTOUCHED));
        memory
    }

    /// Places this result in the memory of this operand.
    pub(super) fn donate(mut self, operand: usize, result: usize) -> Self {
        self.results[result] = self.operands[operand].clone();
        self
    }

    pub(super) fn operand(&self, operand: usize) -> Vec<u8> {
        let range = self.operands[operand].clone();
        self.bytes[range].iter().map(Cell::get).collect()
    }

    /// Writes an `f32` into an operand.
    pub(super) fn write_operand(&mut self, operand: usize, at: usize, value: f32) {
        let range = self.operands[operand].clone();
        for (to, from) in std::iter::zip(&self.bytes[range][at..], value.to_le_bytes()) {
            to.set(from);
        }
    }

    pub(super) fn result(&self, result: usize) -> Vec<u8> {
        let range = self.results[result].clone();
        self.bytes[range].iter().map(Cell::get).collect()
    }

    pub(super) fn all_results(&self) -> Vec<Vec<u8>> {
        (0..self.results.len()).map(|i| self.result(i)).collect()
    }
}

impl CallBuffers for Memory {
    fn operands(&self) -> usize {
        self.operands.len()
    }

    fn operand_size(&self, operand: usize) -> usize {
        self.operands[operand].len()
    }

    fn read(&self, operand: usize, at: usize, into: &mut [u8]) {
        let range = self.operands[operand].clone();
        assert!(at + into.len() <= range.len(), "a read past an operand");
        self.read[operand].update(|bytes| bytes + into.len());
        for (to, from) in std::iter::zip(into, &self.bytes[range][at..]) {
            *to = from.get();
        }
    }

    fn results(&self) -> usize {
        self.results.len()
    }

    fn result_size(&self, result: usize) -> usize {
        self.results[result].len()
    }

    fn write(&mut self, result: usize, at: usize, bytes: &[u8]) {
        let range = self.results[result].clone();
        assert!(at + bytes.len() <= range.len(), "a write past a result");
        self.written[result].update(|written| written + bytes.len());
        for (to, from) in std::iter::zip(&self.bytes[range][at..], bytes) {
            to.set(*from);
        }
    }
}
