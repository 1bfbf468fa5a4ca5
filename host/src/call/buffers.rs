//! Where a call's operands come from and where its results go.

/// A call's operands and results, wherever they are. Leaves are in preorder; offsets and sizes are in bytes.
///
/// A backend asks for the sizes first and compares them with the call site's. After that it reads and writes only what is there: `at` and the
/// length together are never more than the size. Results are written when the call has succeeded, and nothing is read after that.
///
/// It is bytes that are copied, and no slices that are lent: an operand and a result may be the same memory, of which there can be no two
/// slices at one time.
pub trait CallBuffers {
    /// How many operands there are.
    fn operands(&self) -> usize;

    /// The size of an operand.
    fn operand_size(&self, operand: usize) -> usize;

    /// Copies an operand's bytes from `at` on, as many as `into` has.
    fn read(&self, operand: usize, at: usize, into: &mut [u8]);

    /// How many results there are.
    fn results(&self) -> usize;

    /// The size of a result: 0 for one in [`CallSite::scratch`](super::CallSite::scratch).
    fn result_size(&self, result: usize) -> usize;

    /// Copies `bytes` into a result from `at` on.
    fn write(&mut self, result: usize, at: usize, bytes: &[u8]);
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
        into.copy_from_slice(&self.operands[operand][at..at + into.len()]);
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
        self.results[result][at..at + bytes.len()].copy_from_slice(bytes);
    }
}
