//! The memory of a call's operands and results.

use std::sync::{Mutex, PoisonError};

use super::copying::copy;
use crate::values::{Result, untouched, zeroed};

/// A call's operands and results. Leaves are in preorder; offsets and sizes are in bytes.
///
/// A backend first compares the sizes with the call site's. All its reads and writes are then in
/// bounds. It writes results only after the call has succeeded, and reads nothing after that.
///
/// The methods copy bytes rather than lend slices, because an operand and a result may share
/// memory.
pub trait CallBuffers {
    /// The number of operands.
    fn operands(&self) -> usize;

    /// The size of an operand.
    fn operand_size(&self, operand: usize) -> usize;

    /// Copies an operand's bytes from `at` on, as many as `into` has.
    fn read(&self, operand: usize, at: usize, into: &mut [u8]);

    /// The number of results.
    fn results(&self) -> usize;

    /// The size of a result: 0 for one in [`CallSite::scratch`](super::CallSite::scratch).
    fn result_size(&self, result: usize) -> usize;

    /// Copies `bytes` into a result from `at` on.
    fn write(&mut self, result: usize, at: usize, bytes: &[u8]);

    /// The same buffers for several threads at one time, each of which writes ranges of its own.
    /// `None` if they belong to the calling thread.
    fn shared(&mut self) -> Option<Box<dyn SharedBuffers + '_>> {
        None
    }

    /// Runs `call` on slices of the operands and of the results.
    ///
    /// Buffers that are no slices are copied: the operands before the call, the results after it if
    /// it succeeded.
    ///
    /// # Errors
    /// The failure of `call`; RESOURCE_EXHAUSTED if there is no memory for the copies.
    fn with_slices(&mut self, call: SliceCall<'_>) -> Result<()> {
        let operands = (0..self.operands()).map(|operand| {
            let mut bytes = zeroed(self.operand_size(operand))?;
            self.read(operand, 0, &mut bytes);
            Ok(bytes)
        });
        let operands = operands.collect::<Result<Vec<Vec<u8>>>>()?;
        let operands: Vec<&[u8]> = operands.iter().map(Vec::as_slice).collect();
        let results = (0..self.results()).map(|result| untouched(self.result_size(result)));
        let mut results = results.collect::<Result<Vec<Vec<u8>>>>()?;
        let mut slices: Vec<&mut [u8]> = results.iter_mut().map(Vec::as_mut_slice).collect();
        call(&operands, &mut slices)?;
        for (number, bytes) in results.iter().enumerate() {
            self.write(number, 0, bytes);
        }
        Ok(())
    }
}

/// A call that takes operands and results as slices.
pub type SliceCall<'a> = &'a mut dyn FnMut(&[&[u8]], &mut [&mut [u8]]) -> Result<()>;

/// A call's operands and results for several threads at one time.
///
/// No thread reads or writes a range that another thread writes meanwhile, unless the caller's own
/// operands and results overlap other than element by element.
pub trait SharedBuffers: Sync {
    /// [`CallBuffers::read`].
    fn read(&self, operand: usize, at: usize, into: &mut [u8]);

    /// [`CallBuffers::write`].
    fn write(&self, result: usize, at: usize, bytes: &[u8]);
}

/// Copies a part of the operands and results of a call.
pub(super) trait Transfer {
    fn read(&self, operand: usize, at: usize, into: &mut [u8]);

    fn write(&mut self, result: usize, at: usize, bytes: &[u8]);
}

impl<B: CallBuffers> Transfer for B {
    #[inline]
    fn read(&self, operand: usize, at: usize, into: &mut [u8]) {
        CallBuffers::read(self, operand, at, into);
    }

    #[inline]
    fn write(&mut self, result: usize, at: usize, bytes: &[u8]) {
        CallBuffers::write(self, result, at, bytes);
    }
}

/// One thread's view of shared buffers.
pub(super) struct View<'a>(pub(super) &'a dyn SharedBuffers);

impl Transfer for View<'_> {
    fn read(&self, operand: usize, at: usize, into: &mut [u8]) {
        self.0.read(operand, at, into);
    }

    fn write(&mut self, result: usize, at: usize, bytes: &[u8]) {
        self.0.write(result, at, bytes);
    }
}

/// An array of the caller, of which a call gets the part at `at`.
pub(super) trait PartAt<A> {
    /// The part's size in bytes.
    fn size_at(&self, at: &A) -> usize;

    /// Where the part begins in the array.
    fn offset_at(&self, at: &A) -> usize;
}

/// The operands and results of one of the calls that a caller's call becomes.
pub(super) struct Parts<'a, P, A, T> {
    pub(super) operands: &'a [P],
    pub(super) results: &'a [P],
    pub(super) at: A,
    /// The caller's arrays.
    pub(super) whole: &'a mut T,
}

impl<P: PartAt<A>, A, T: Transfer> CallBuffers for Parts<'_, P, A, T> {
    #[inline]
    fn operands(&self) -> usize {
        self.operands.len()
    }

    #[inline]
    fn operand_size(&self, operand: usize) -> usize {
        self.operands[operand].size_at(&self.at)
    }

    #[inline]
    fn read(&self, operand: usize, at: usize, into: &mut [u8]) {
        let start = self.operands[operand].offset_at(&self.at);
        self.whole.read(operand, start + at, into);
    }

    #[inline]
    fn results(&self) -> usize {
        self.results.len()
    }

    #[inline]
    fn result_size(&self, result: usize) -> usize {
        self.results[result].size_at(&self.at)
    }

    #[inline]
    fn write(&mut self, result: usize, at: usize, bytes: &[u8]) {
        let start = self.results[result].offset_at(&self.at);
        self.whole.write(result, start + at, bytes);
    }
}

/// The bytes of all operands and results.
pub(super) fn total_bytes<B: CallBuffers>(buffers: &B) -> usize {
    let operands = (0..buffers.operands()).map(|i| buffers.operand_size(i));
    let results = (0..buffers.results()).map(|i| buffers.result_size(i));
    operands.chain(results).sum()
}

/// Operands and results that are slices.
#[derive(Debug)]
pub struct Slices<'a, 'b> {
    /// The operands.
    pub operands: &'a [&'a [u8]],
    /// The results.
    pub results: &'a mut [&'b mut [u8]],
}

impl CallBuffers for Slices<'_, '_> {
    #[inline]
    fn operands(&self) -> usize {
        self.operands.len()
    }

    #[inline]
    fn operand_size(&self, operand: usize) -> usize {
        self.operands[operand].len()
    }

    #[inline]
    fn read(&self, operand: usize, at: usize, into: &mut [u8]) {
        copy(&self.operands[operand][at..at + into.len()], into, 0);
    }

    #[inline]
    fn results(&self) -> usize {
        self.results.len()
    }

    #[inline]
    fn result_size(&self, result: usize) -> usize {
        self.results[result].len()
    }

    #[inline]
    fn write(&mut self, result: usize, at: usize, bytes: &[u8]) {
        let whole = &mut self.results[result];
        let size = whole.len();
        copy(bytes, &mut whole[at..at + bytes.len()], size);
    }

    fn shared(&mut self) -> Option<Box<dyn SharedBuffers + '_>> {
        let results = self.results.iter_mut();
        let results = results.map(|result| result.chunks_mut(CHUNK).map(Mutex::new).collect());
        Some(Box::new(SharedSlices {
            operands: self.operands,
            results: results.collect(),
        }))
    }

    fn with_slices(&mut self, call: SliceCall<'_>) -> Result<()> {
        call(self.operands, self.results)
    }
}

/// The size of the chunks in which threads write a shared slice.
const CHUNK: usize = 64 << 10;

/// Slices that several threads write. A chunk is locked while a thread copies into it.
struct SharedSlices<'a> {
    operands: &'a [&'a [u8]],
    results: Vec<Vec<Mutex<&'a mut [u8]>>>,
}

impl SharedBuffers for SharedSlices<'_> {
    fn read(&self, operand: usize, at: usize, into: &mut [u8]) {
        copy(&self.operands[operand][at..at + into.len()], into, 0);
    }

    fn write(&self, result: usize, mut at: usize, mut bytes: &[u8]) {
        let chunks = &self.results[result];
        while !bytes.is_empty() {
            let chunk = chunks[at / CHUNK].lock();
            let mut chunk = chunk.unwrap_or_else(PoisonError::into_inner);
            let room = &mut chunk[at % CHUNK..];
            let (now, later) = bytes.split_at(bytes.len().min(room.len()));
            copy(now, &mut room[..now.len()], chunks.len() * CHUNK);
            (at, bytes) = (at + now.len(), later);
        }
    }
}
