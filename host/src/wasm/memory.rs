//! A guest's memory, as the host reads and writes it.
//!
//! Every offset and length from a guest is a claim. It becomes a range only through [`GuestMemory::range`], next to the access
//! that it is for, and no range outlives the borrow of the memory: a guest call in between ends it. What is read is a claim, too.

use std::ops::Range;

use super::claim::{Bytes, Claim, Extent};
use crate::values::{Blame, Result, Status, StatusCode};

/// A guest's linear memory, borrowed between two guest calls.
pub(super) struct GuestMemory<'a>(&'a mut [u8]);

impl<'a> GuestMemory<'a> {
    pub(super) fn new(bytes: &'a mut [u8]) -> Self {
        Self(bytes)
    }

    /// The bytes that a guest or the host says are there.
    ///
    /// # Errors
    /// OUT_OF_RANGE, the guest's doing, if they are not.
    #[inline]
    pub(super) fn read(
        &self,
        what: &str,
        offset: impl Extent,
        length: impl Extent,
    ) -> Result<Bytes<'_>> {
        let range = self.range(what, offset.to_check(), length.to_check())?;
        Ok(Bytes::claimed(what, &self.0[range]))
    }

    /// Whether bytes are there, which are not read.
    ///
    /// # Errors
    /// As for [`GuestMemory::read`].
    pub(super) fn check(&self, what: &str, offset: impl Extent, length: impl Extent) -> Result<()> {
        self.range(what, offset.to_check(), length.to_check())
            .map(drop)
    }

    /// Writes bytes.
    ///
    /// # Errors
    /// As for [`GuestMemory::read`].
    #[inline]
    pub(super) fn write(&mut self, what: &str, offset: impl Extent, bytes: &[u8]) -> Result<()> {
        let range = self.range(what, offset.to_check(), bytes.len())?;
        self.0[range].copy_from_slice(bytes);
        Ok(())
    }

    /// The bytes that the host says are there, to be written. They are not read: what the guest left in them was claimed by nobody.
    ///
    /// # Errors
    /// As for [`GuestMemory::read`].
    #[inline]
    pub(super) fn room(
        &mut self,
        what: &str,
        offset: impl Extent,
        length: usize,
    ) -> Result<&mut [u8]> {
        let range = self.range(what, offset.to_check(), length)?;
        Ok(&mut self.0[range])
    }

    /// Reads a 32-bit word.
    ///
    /// # Errors
    /// As for [`GuestMemory::read`].
    pub(super) fn read_u32(&self, what: &str, offset: impl Extent) -> Result<Claim<u32>> {
        self.read(what, offset, 4).map(|bytes| bytes.word())
    }

    #[inline]
    fn range(&self, what: &str, offset: usize, length: usize) -> Result<Range<usize>> {
        match offset.checked_add(length) {
            Some(end) if end <= self.0.len() => Ok(offset..end),
            _ => Err(out_of_range(what, offset, length, self.0.len())),
        }
    }
}

#[cold]
fn out_of_range(what: &str, offset: usize, length: usize, size: usize) -> Status {
    Status::new(
        StatusCode::OutOfRange,
        Blame::Guest,
        format!(
            "expected {what} within the {size} bytes of the guest's memory, found {length} bytes at {offset}"
        ),
    )
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    #[test]
    fn only_what_is_there_is_reached() {
        let mut bytes = [0; 8];
        let mut memory = GuestMemory::new(&mut bytes);
        memory.write("x", 4, &[1, 2, 3, 4]).unwrap();
        assert_eq!(memory.read_u32("x", 4).unwrap().opaque(), 0x0403_0201);
        assert!(memory.read("x", 8, 0).unwrap().is_empty());
        for (offset, length) in [(5, 4), (9, 0), (usize::MAX, 2), (0, usize::MAX)] {
            let err = memory.check("a message", offset, length).unwrap_err();
            assert_eq!(
                (err.code(), err.blame()),
                (StatusCode::OutOfRange, Blame::Guest)
            );
        }
        memory.room("x", 0, 2).unwrap().fill(9);
        assert_eq!(*memory.read("x", 0, 5).unwrap(), [9, 9, 0, 0, 1]);
        for (offset, length) in [(5, 4), (9, 0), (usize::MAX, 2), (0, usize::MAX)] {
            let err = memory.room("an operand", offset, length).unwrap_err();
            assert_eq!(err.code(), StatusCode::OutOfRange);
        }
        let err = memory.write("a message", 6, &[0; 4]).unwrap_err();
        assert_eq!(
            err.message(),
            "expected a message within the 8 bytes of the guest's memory, found 4 bytes at 6"
        );
    }
}
