//! The caller's memory, which a call reads and writes in place.
#![allow(
    unsafe_code,
    reason = "copies from and to memory that NumPy or XLA owns"
)]

use std::marker::PhantomData;
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use callbox::call::{CallBuffers, SharedBuffers, copy_bytes};
use callbox::values::untouched;

/// The memory of one array.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RawArray {
    data: *mut u8,
    size: usize,
}

impl RawArray {
    pub(crate) const EMPTY: Self = Self {
        data: std::ptr::null_mut(),
        size: 0,
    };

    /// The `size` bytes from `data` on.
    pub(crate) fn new(data: *mut u8, size: usize) -> Self {
        Self { data, size }
    }

    /// The size in bytes.
    pub(crate) fn size(&self) -> usize {
        self.size
    }

    /// Whether the two arrays have all of their memory in common.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.data == other.data && self.size == other.size
    }

    /// Whether the two arrays have any memory in common.
    pub(crate) fn overlaps(&self, other: &Self) -> bool {
        let (own, others) = (self.data.addr(), other.data.addr());
        let (first, second) = (own.max(others), own.min(others));
        let size = if own < others { self.size } else { other.size };
        self.size > 0 && other.size > 0 && first - second < size
    }
}

/// The operands and results of one call.
///
/// An operand and a result may share memory, so this type never makes references to it: bytes are
/// copied through raw pointers, operands before the target runs and results after it.
#[derive(Debug)]
pub(crate) struct RawArrays<'a> {
    operands: &'a [RawArray],
    results: &'a [RawArray],
    /// The number of results that the target has.
    known: usize,
    arrays: PhantomData<&'a mut [u8]>,
}

// SAFETY: the pointers are valid on every thread, and the caller of `new` keeps the memory alive.
unsafe impl Send for RawArrays<'_> {}

// SAFETY: as above. Threads that share the value only copy bytes: `read` and `copy_out` use raw
// pointers, and each thread of a call writes ranges of its own. Where the caller's arrays overlap
// otherwise, the bytes are unspecified, as `new` says.
unsafe impl Sync for RawArrays<'_> {}

impl<'a> RawArrays<'a> {
    /// # Safety
    /// While the value exists, the operands must be readable, the results writable, and no
    /// reference to either may exist. Another thread may write there concurrently: the bytes read
    /// or overwritten are then unspecified, as in any function of NumPy that releases the GIL.
    pub(crate) unsafe fn new(operands: &'a [RawArray], results: &'a [RawArray]) -> Self {
        Self {
            operands,
            results,
            known: results.len(),
            arrays: PhantomData,
        }
    }

    /// Hides the last result from the target. `write` and `fill` still reach it by its number.
    pub(crate) fn hide_last_result(&mut self) {
        self.known = self.results.len().saturating_sub(1);
    }

    /// Replaces each byte of a result.
    pub(crate) fn replace(&mut self, result: usize, by: impl Fn(u8) -> u8) {
        let array = self.results[result];
        let mut piece = [0; 4 << 10];
        for at in (0..array.size).step_by(piece.len()) {
            let piece = &mut piece[..(array.size - at).min(4 << 10)];
            // SAFETY: the range is within the result, which `new`'s caller keeps writable.
            unsafe {
                std::ptr::copy_nonoverlapping(array.data.add(at), piece.as_mut_ptr(), piece.len())
            };
            piece.iter_mut().for_each(|byte| *byte = by(*byte));
            self.write(result, at, piece);
        }
    }

    /// Copies the bytes of a result.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED if there is no memory for them.
    pub(crate) fn result_bytes(&self, result: usize) -> callbox::Result<Vec<u8>> {
        let array = self.results[result];
        let mut bytes = untouched(array.size)?;
        if array.size > 0 {
            // SAFETY: `bytes` has the size of the result, which `new`'s caller keeps writable and
            // so readable. It is new memory, so the two do not overlap.
            unsafe { copy_bytes(array.data, bytes.as_mut_ptr(), array.size, 0) };
        }
        Ok(bytes)
    }

    /// Copies the bytes of an operand.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED if there is no memory for them.
    pub(crate) fn operand_bytes(&self, operand: usize) -> callbox::Result<Vec<u8>> {
        let mut bytes = untouched(self.operand_size(operand))?;
        self.read(operand, 0, &mut bytes);
        Ok(bytes)
    }

    /// The size of the hidden result.
    pub(crate) fn hidden_size(&self) -> usize {
        self.results.get(self.known).map_or(0, RawArray::size)
    }

    /// Sets bytes of a result to `value`.
    pub(crate) fn fill(&mut self, result: usize, at: usize, size: usize, value: u8) {
        let array = self.results[result];
        assert!(at <= array.size && size <= array.size - at);
        if size > 0 {
            // SAFETY: the assertion keeps the range within the result, which `new`'s caller keeps
            // writable.
            unsafe { std::ptr::write_bytes(array.data.add(at), value, size) };
        }
    }
}

impl CallBuffers for RawArrays<'_> {
    #[inline]
    fn operands(&self) -> usize {
        self.operands.len()
    }

    #[inline]
    fn operand_size(&self, operand: usize) -> usize {
        self.operands[operand].size
    }

    #[inline]
    fn read(&self, operand: usize, at: usize, into: &mut [u8]) {
        let array = self.operands[operand];
        assert!(at <= array.size && into.len() <= array.size - at);
        if !into.is_empty() {
            // SAFETY: the assertion keeps the range within the operand, which `new`'s caller keeps
            // readable. `into` is an exclusive borrow, so the two do not overlap.
            unsafe {
                copy_bytes(array.data.add(at), into.as_mut_ptr(), into.len(), 0);
            }
        }
    }

    #[inline]
    fn results(&self) -> usize {
        self.known
    }

    #[inline]
    fn result_size(&self, result: usize) -> usize {
        self.results[result].size
    }

    #[inline]
    fn write(&mut self, result: usize, at: usize, bytes: &[u8]) {
        self.copy_out(result, at, bytes, self.size_unless_read(result));
    }

    fn shared(&mut self) -> Option<Box<dyn SharedBuffers + '_>> {
        Some(Box::new(SharedArrays(self)))
    }
}

/// Arrays of a call that several threads share.
struct SharedArrays<'a>(&'a RawArrays<'a>);

impl SharedBuffers for SharedArrays<'_> {
    fn read(&self, operand: usize, at: usize, into: &mut [u8]) {
        self.0.read(operand, at, into);
    }

    fn write(&self, result: usize, at: usize, bytes: &[u8]) {
        self.0
            .copy_out(result, at, bytes, self.0.size_unless_read(result));
    }
}

impl RawArrays<'_> {
    /// The size of a result, or 0 if an operand shares its memory. The bytes that it replaces were
    /// read just now then, and are in the cache.
    #[inline]
    fn size_unless_read(&self, result: usize) -> usize {
        let array = &self.results[result];
        let is_read = self.operands.iter().any(|operand| operand.overlaps(array));
        if is_read { 0 } else { array.size }
    }

    /// Copies bytes into a result, as to an array of `whole` bytes.
    #[inline]
    fn copy_out(&self, result: usize, at: usize, bytes: &[u8], whole: usize) {
        let array = self.results[result];
        assert!(at <= array.size && bytes.len() <= array.size - at);
        if !bytes.is_empty() {
            // SAFETY: the assertion keeps the range within the result, which `new`'s caller keeps
            // writable. `bytes` is not of the caller's arrays, so the two do not overlap.
            unsafe {
                copy_bytes(bytes.as_ptr(), array.data.add(at), bytes.len(), whole);
            }
        }
    }

    /// Copies as many bytes of an operand as `into` has.
    pub(crate) fn read_operand(&self, operand: usize, into: &mut [u8]) {
        self.read(operand, 0, into);
    }

    /// Calls `call` with other memory in place of some arrays.
    pub(crate) fn with_others<T>(
        &self,
        operands: &mut [Option<Vec<u8>>],
        results: &mut [Option<Vec<u8>>],
        call: impl FnOnce(&mut RawArrays<'_>) -> T,
    ) -> T {
        let others = |arrays: &[RawArray], others: &mut [Option<Vec<u8>>]| -> Vec<RawArray> {
            let pairs = std::iter::zip(arrays, others);
            let pick = |(array, other): (&RawArray, &mut Option<Vec<u8>>)| match other {
                Some(other) => RawArray::new(other.as_mut_ptr(), other.len()),
                None => *array,
            };
            pairs.map(pick).collect()
        };
        let operands = others(self.operands, operands);
        let results = others(self.results, results);
        // SAFETY: `new`'s caller keeps the arrays of `self` as they must be. The others are
        // borrowed exclusively until this function returns, so that no reference to them exists.
        call(&mut unsafe { RawArrays::new(&operands, &results) })
    }

    /// Copies the bytes of one array.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED if there is no memory for them.
    pub(crate) unsafe fn bytes(array: RawArray) -> callbox::Result<Vec<u8>> {
        let operands = [array];
        // SAFETY: the caller guarantees it.
        unsafe { RawArrays::new(&operands, &[]) }.operand_bytes(0)
    }
}

/// The operands and results of a call that leaves its results unchanged if it fails.
///
/// The bytes that a result had are saved before they are overwritten, and are restored when the
/// value is dropped without [`Undo::keep`].
pub(crate) struct Undo<'a, 'b> {
    arrays: &'a mut RawArrays<'b>,
    /// For each result, memory of its size.
    saved: Vec<RawArray>,
    memory: PhantomData<&'a mut [u8]>,
    /// The results and their ranges that were overwritten.
    written: Mutex<Vec<(usize, Range<usize>)>>,
}

// SAFETY: `saved` points into memory that the value borrows exclusively. Threads that share the
// value copy to it by raw pointers, and each thread of a call writes ranges of its own.
unsafe impl Sync for Undo<'_, '_> {}

impl<'a, 'b> Undo<'a, 'b> {
    /// Saves results in `memory`, which has the size of all of them.
    ///
    /// # Panics
    /// If `memory` is smaller.
    pub(crate) fn new(arrays: &'a mut RawArrays<'b>, mut memory: &'a mut [u8]) -> Self {
        let saved = (0..arrays.results()).map(|result| {
            let size = arrays.result_size(result);
            let (own, rest) = std::mem::take(&mut memory).split_at_mut(size);
            memory = rest;
            RawArray::new(own.as_mut_ptr(), size)
        });
        Self {
            saved: saved.collect(),
            arrays,
            memory: PhantomData,
            written: Mutex::default(),
        }
    }

    /// Keeps the results of a call that succeeded.
    pub(crate) fn keep(mut self) {
        self.written_ranges().clear();
    }

    fn written_ranges(&mut self) -> &mut Vec<(usize, Range<usize>)> {
        let written = self.written.get_mut();
        written.unwrap_or_else(PoisonError::into_inner)
    }

    /// Saves the bytes of a result, and overwrites them.
    fn overwrite(&self, result: usize, at: usize, bytes: &[u8]) {
        let range = at..at + bytes.len();
        let saved = self.saved[result];
        copy(self.arrays.results[result], &range, saved, saved.size);
        let written = self.written.lock();
        let mut written = written.unwrap_or_else(PoisonError::into_inner);
        written.push((result, range));
        drop(written);
        // The bytes were read just now, and are in the cache.
        self.arrays.copy_out(result, at, bytes, 0);
    }
}

impl Drop for Undo<'_, '_> {
    fn drop(&mut self) {
        for (result, range) in std::mem::take(self.written_ranges()) {
            copy(self.saved[result], &range, self.arrays.results[result], 0);
        }
    }
}

/// Copies a range of one of [`Undo`]'s arrays to the same range of another, as to an array of
/// `whole` bytes.
fn copy(from: RawArray, range: &Range<usize>, to: RawArray, whole: usize) {
    let count = range.len();
    assert!(range.end <= from.size && range.end <= to.size);
    if count > 0 {
        // SAFETY: the assertion keeps the range within both arrays. One is a result, which the
        // caller of `RawArrays::new` keeps readable and writable, and the other one is memory that
        // `Undo` borrows exclusively, so the two do not overlap.
        unsafe {
            copy_bytes(
                from.data.add(range.start),
                to.data.add(range.start),
                count,
                whole,
            );
        };
    }
}

impl CallBuffers for Undo<'_, '_> {
    fn operands(&self) -> usize {
        self.arrays.operands()
    }

    fn operand_size(&self, operand: usize) -> usize {
        self.arrays.operand_size(operand)
    }

    fn read(&self, operand: usize, at: usize, into: &mut [u8]) {
        self.arrays.read(operand, at, into);
    }

    fn results(&self) -> usize {
        self.arrays.results()
    }

    fn result_size(&self, result: usize) -> usize {
        self.arrays.result_size(result)
    }

    fn write(&mut self, result: usize, at: usize, bytes: &[u8]) {
        self.overwrite(result, at, bytes);
    }

    fn shared(&mut self) -> Option<Box<dyn SharedBuffers + '_>> {
        Some(Box::new(SharedUndo(self)))
    }
}

/// Arrays to be restored that several threads share.
struct SharedUndo<'s, 'a, 'b>(&'s Undo<'a, 'b>);

impl SharedBuffers for SharedUndo<'_, '_, '_> {
    fn read(&self, operand: usize, at: usize, into: &mut [u8]) {
        self.0.arrays.read(operand, at, into);
    }

    fn write(&self, result: usize, at: usize, bytes: &[u8]) {
        self.0.overwrite(result, at, bytes);
    }
}
