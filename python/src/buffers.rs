//! Arrays where they lie: the caller's memory, as a call reads and writes it.
#![allow(
    unsafe_code,
    reason = "copies from and to memory that NumPy or XLA owns"
)]

use std::marker::PhantomData;

use callbox::call::CallBuffers;

/// Where an array's bytes lie.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    data: *mut u8,
    size: usize,
}

impl Place {
    pub(crate) const EMPTY: Self = Self {
        data: std::ptr::null_mut(),
        size: 0,
    };

    /// This many bytes from `data` on.
    pub(crate) fn new(data: *mut u8, size: usize) -> Self {
        Self { data, size }
    }

    /// How many bytes.
    pub(crate) fn size(&self) -> usize {
        self.size
    }
}

/// The operands and results of one call. An operand and a result may be the same memory, so that there is no reference to either: bytes are
/// copied by their addresses, operands before the target runs and results after.
#[derive(Debug)]
pub(crate) struct Places<'a> {
    operands: &'a [Place],
    results: &'a [Place],
    /// How many of the results the target knows.
    known: usize,
    arrays: PhantomData<&'a mut [u8]>,
}

// SAFETY: addresses mean the same on every thread, and whoever made it promises that the memory stays.
unsafe impl Send for Places<'_> {}

impl<'a> Places<'a> {
    /// # Safety
    /// For as long as it is there, the bytes of each operand must be there to be read and those of each result to be written, and nothing may hold
    /// a reference to them. What another thread writes there meanwhile is read or overwritten byte by byte, as with any function of
    /// NumPy's that lets go of the GIL.
    pub(crate) unsafe fn new(operands: &'a [Place], results: &'a [Place]) -> Self {
        Self {
            operands,
            results,
            known: results.len(),
            arrays: PhantomData,
        }
    }

    /// From here on the last result is not the target's. It is written by its number all the same.
    pub(crate) fn hide_last_result(&mut self) {
        self.known = self.results.len().saturating_sub(1);
    }

    /// Makes each byte of a result that is not 0 a 1.
    pub(crate) fn make_truth_values(&mut self, result: usize) {
        let place = self.results[result];
        let mut piece = [0; 4 << 10];
        for at in (0..place.size).step_by(piece.len()) {
            let piece = &mut piece[..(place.size - at).min(4 << 10)];
            // SAFETY: the range is within the result, whose bytes `new` was promised.
            unsafe {
                std::ptr::copy_nonoverlapping(place.data.add(at), piece.as_mut_ptr(), piece.len())
            };
            piece
                .iter_mut()
                .for_each(|byte| *byte = u8::from(*byte != 0));
            self.write(result, at, piece);
        }
    }

    /// The size of the result that is not the target's.
    pub(crate) fn hidden_size(&self) -> usize {
        self.results.get(self.known).map_or(0, Place::size)
    }

    /// Sets bytes of a result to `value`.
    pub(crate) fn fill(&mut self, result: usize, at: usize, size: usize, value: u8) {
        let place = self.results[result];
        assert!(at <= place.size && size <= place.size - at);
        if size > 0 {
            // SAFETY: the range is within the result, whose bytes `new` was promised.
            unsafe { std::ptr::write_bytes(place.data.add(at), value, size) };
        }
    }
}

impl CallBuffers for Places<'_> {
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
        let place = self.operands[operand];
        assert!(at <= place.size && into.len() <= place.size - at);
        if !into.is_empty() {
            // SAFETY: the range is within the operand, whose bytes `new` was promised; `into` is borrowed for writing, so that it is other memory.
            unsafe {
                std::ptr::copy_nonoverlapping(place.data.add(at), into.as_mut_ptr(), into.len());
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
        let place = self.results[result];
        assert!(at <= place.size && bytes.len() <= place.size - at);
        if !bytes.is_empty() {
            // SAFETY: as in `read`, the other way round.
            unsafe {
                std::ptr::copy_nonoverlapping(bytes.as_ptr(), place.data.add(at), bytes.len());
            }
        }
    }
}

impl Places<'_> {
    /// The bytes of one array.
    ///
    /// # Safety
    /// As for [`Places::new`].
    pub(crate) unsafe fn bytes(place: Place) -> Vec<u8> {
        let mut bytes = vec![0; place.size];
        let operands = [place];
        // SAFETY: as the caller promises.
        unsafe { Places::new(&operands, &[]) }.read(0, 0, &mut bytes);
        bytes
    }
}
