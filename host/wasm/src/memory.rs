//! Checked access to a guest's memory.
//!
//! An offset or length from a guest is a claim. It becomes a range only in [`GuestMemory::range`],
//! right before the access, and no range outlives the borrow of the memory, which ends before the
//! guest runs again. Bytes that are read are claims, too.

#[cfg(feature = "maths")]
use std::iter::zip;
use std::ops::Range;

use callbox_core::values::{Result, Status};

use crate::claim::{Bytes, Claim, Extent};
use crate::failure::status;

/// The bytes of results, and of operands that overlap none of them.
#[cfg(feature = "maths")]
pub(crate) type Separate<'m, const R: usize, const N: usize> = ([&'m mut [u8]; R], [&'m [u8]; N]);

/// A guest's linear memory, borrowed between two calls of the guest.
pub(crate) struct GuestMemory<'a>(&'a mut [u8]);

impl<'a> GuestMemory<'a> {
    pub(crate) fn new(bytes: &'a mut [u8]) -> Self {
        Self(bytes)
    }

    /// Reads bytes. `what` names them in a message.
    ///
    /// # Errors
    /// OUT_OF_RANGE, blamed on the guest, if they are out of bounds.
    #[inline]
    pub(crate) fn read(
        &self,
        what: &str,
        offset: impl Extent,
        length: impl Extent,
    ) -> Result<Bytes<'_>> {
        let range = self.range(what, offset.to_check(), length.to_check())?;
        Ok(Bytes::claimed(what, &self.0[range]))
    }

    /// Checks that bytes are in bounds, without reading them.
    ///
    /// # Errors
    /// As for [`GuestMemory::read`].
    pub(crate) fn check(&self, what: &str, offset: impl Extent, length: impl Extent) -> Result<()> {
        self.range(what, offset.to_check(), length.to_check())
            .map(drop)
    }

    /// Writes as many of `bytes` as fit into `room` bytes, all of which must be in bounds.
    ///
    /// # Errors
    /// As for [`GuestMemory::read`].
    pub(crate) fn write_prefix(
        &mut self,
        what: &str,
        offset: impl Extent,
        room: impl Extent,
        bytes: &[u8],
    ) -> Result<()> {
        let range = self.range(what, offset.to_check(), room.to_check())?;
        let length = bytes.len().min(range.len());
        self.0[range][..length].copy_from_slice(&bytes[..length]);
        Ok(())
    }

    /// Writes bytes.
    ///
    /// # Errors
    /// As for [`GuestMemory::read`].
    #[inline]
    pub(crate) fn write(&mut self, what: &str, offset: impl Extent, bytes: &[u8]) -> Result<()> {
        let range = self.range(what, offset.to_check(), bytes.len())?;
        self.0[range].copy_from_slice(bytes);
        Ok(())
    }

    /// Bytes to be overwritten. The host does not read them, so they are no claim.
    ///
    /// # Errors
    /// As for [`GuestMemory::read`].
    #[inline]
    pub(crate) fn room(
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
    pub(crate) fn read_u32(&self, what: &str, offset: impl Extent) -> Result<Claim<u32>> {
        self.read(what, offset, 4).map(|bytes| bytes.word())
    }

    /// The range of bytes of an array. The range of an array without elements is empty.
    ///
    /// # Errors
    /// INVALID_ARGUMENT, blamed on the guest, if the offset is not a multiple of the elements'
    /// size, and as for [`GuestMemory::read`].
    #[cfg(feature = "maths")]
    pub(crate) fn array(
        &self,
        what: &str,
        offset: Claim<u32>,
        bytes: usize,
        element_size: usize,
    ) -> Result<Range<usize>> {
        if bytes == 0 {
            return Ok(0..0);
        }
        if !offset.to_check().is_multiple_of(element_size) {
            return Err(crate::failure::invalid(format!(
                "expected {what} at a multiple of {element_size} bytes, found it at {offset}"
            )));
        }
        self.range(what, offset.to_check(), bytes)
    }

    /// The bytes of results to write, and of operands to read. `None` if a result overlaps an
    /// operand or another result.
    ///
    /// The elements of operands are arbitrary, and the host only computes with them.
    #[cfg(feature = "maths")]
    pub(crate) fn results_and_operands<const R: usize, const N: usize>(
        &mut self,
        results: [Range<usize>; R],
        operands: [(&str, Range<usize>); N],
    ) -> Option<Separate<'_, R, N>> {
        #[cfg(feature = "fault-injection")]
        for (what, range) in &operands {
            crate::claim::alter_operand(what, self.0.get_mut(range.clone())?);
        }
        let mut in_order = [(0, 0, 0); R];
        for (place, (index, range)) in zip(&mut in_order, results.iter().enumerate()) {
            *place = (range.start, range.end, index);
        }
        in_order.sort_unstable();
        // The bytes between the results, with their offsets.
        let mut gaps = [(0, &[][..]); R];
        let (mut at, mut rest) = (0, &mut *self.0);
        let mut bytes = std::array::from_fn(|_| &mut [][..]);
        for (gap, (start, end, index)) in zip(&mut gaps, in_order) {
            let (before, tail) = rest.split_at_mut_checked(start.checked_sub(at)?)?;
            let (result, tail) = tail.split_at_mut_checked(end.checked_sub(start)?)?;
            *gap = (at, &*before);
            *bytes.get_mut(index)? = result;
            (at, rest) = (end, tail);
        }
        let last = (at, &*rest);
        let mut found = [&[][..]; N];
        for (found, (_, range)) in zip(&mut found, operands) {
            if range.is_empty() {
                continue;
            }
            *found = gaps.iter().chain([&last]).find_map(|(start, gap)| {
                gap.get(range.start.checked_sub(*start)?..range.end.checked_sub(*start)?)
            })?;
        }
        Some((bytes, found))
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
    status!(
        OutOfRange,
        Guest,
        "expected {what} within the {size} bytes of the guest's memory, found {length} bytes at {offset}"
    )
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use callbox_core::values::{Blame, StatusCode};

    use super::*;

    #[test]
    fn access_is_bounds_checked() {
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
