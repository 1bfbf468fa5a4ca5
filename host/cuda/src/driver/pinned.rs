//! Pinned memory: page-locked memory of the host, which a device's copies can reach.
#![allow(unsafe_code, reason = "calls the driver, and shares memory with it")]

use std::ops::Range;
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use cudarc::driver::sys;

use super::{Context, Outcome};
use crate::failure::DriverFailure;

/// Page-locked memory of the host.
#[derive(Debug)]
pub(crate) struct Pinned {
    start: NonNull<u8>,
    size: usize,
    context: Arc<Context>,
}

// SAFETY: it is plain memory. Access goes through unsafe methods, whose callers prevent data races.
unsafe impl Send for Pinned {}
// SAFETY: as for `Send`.
unsafe impl Sync for Pinned {}

impl Pinned {
    /// Allocates this many zeroed bytes, and at least 1.
    pub(crate) fn new(context: &Arc<Context>, size: usize) -> Outcome<Self> {
        let size = size.max(1);
        let mut start = ptr::null_mut();
        context.call("cuMemHostAlloc", || {
            // SAFETY: the driver writes `start`. Without flags the memory is cached by the host.
            unsafe { sys::cuMemHostAlloc(&raw mut start, size, 0) }
        })?;
        let start = NonNull::new(start.cast::<u8>()).ok_or(DriverFailure {
            call: "cuMemHostAlloc",
            code: 2,
        })?;
        // SAFETY: the driver has just allocated this many bytes. No byte stays uninitialised.
        unsafe { ptr::write_bytes(start.as_ptr(), 0, size) };
        Ok(Self {
            start,
            size,
            context: Arc::clone(context),
        })
    }

    /// The size in bytes.
    pub(crate) fn size(&self) -> usize {
        self.size
    }

    /// A pointer to these bytes.
    ///
    /// # Panics
    /// If they are out of bounds, which is a bug of the host.
    pub(super) fn address(&self, bytes: &Range<usize>) -> *mut u8 {
        assert!(
            bytes.start <= bytes.end && bytes.end <= self.size,
            "bytes past the end of pinned memory"
        );
        // SAFETY: the start is in bounds, or one past the end.
        unsafe { self.start.as_ptr().add(bytes.start) }
    }

    /// The address at which kernels reach the memory: with unified addressing, the host's own.
    pub(crate) fn device_address(&self) -> u64 {
        self.start.as_ptr().expose_provenance() as u64
    }

    /// The word of four bytes at this offset, which must be a multiple of four.
    ///
    /// # Panics
    /// If it is out of bounds or misaligned, which is a bug of the host.
    fn word(&self, offset: usize) -> &AtomicU32 {
        let word: *mut u32 = self.address(&(offset..offset + size_of::<u32>())).cast();
        assert!(word.is_aligned(), "a misaligned word of pinned memory");
        // SAFETY: `address` has checked the range, the assertion above the alignment, and the
        // memory is initialised and lives as long as `self`. The host accesses a record in pinned
        // memory through this method alone while a kernel may.
        unsafe { AtomicU32::from_ptr(word) }
    }

    /// Reads a word that a kernel may write.
    pub(crate) fn load_word(&self, offset: usize) -> u32 {
        self.word(offset).load(Ordering::Acquire)
    }

    /// Writes a word that a kernel may read.
    pub(crate) fn store_word(&self, offset: usize, value: u32) {
        self.word(offset).store(value, Ordering::Release);
    }

    /// Borrows these bytes.
    ///
    /// # Safety
    /// Neither the host nor a device's copy may write them for the life of the slice.
    pub(crate) unsafe fn bytes(&self, bytes: &Range<usize>) -> &[u8] {
        // SAFETY: `address` has checked the range, and all of the memory is initialised. The caller
        // guarantees that no writer exists.
        unsafe { std::slice::from_raw_parts(self.address(bytes), bytes.len()) }
    }

    /// Borrows these bytes mutably.
    ///
    /// # Safety
    /// Neither the host nor a device's copy may otherwise access them for the life of the slice.
    #[allow(
        clippy::mut_from_ref,
        reason = "the caller guarantees exclusive access to the range"
    )]
    pub(crate) unsafe fn bytes_mut(&self, bytes: &Range<usize>) -> &mut [u8] {
        // SAFETY: as in `bytes`; the caller guarantees exclusive access to this range.
        unsafe { std::slice::from_raw_parts_mut(self.address(bytes), bytes.len()) }
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        // SAFETY: this value owns the memory.
        self.context
            .free(|| unsafe { sys::cuMemFreeHost(self.start.as_ptr().cast()) });
    }
}
