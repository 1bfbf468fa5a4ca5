//! Pinned memory: the host's, where a device's copies can reach it.
#![allow(unsafe_code, reason = "calls the driver, and shares memory with it")]

use std::ptr::{self, NonNull};
use std::sync::Arc;

use cudarc::driver::sys;

use super::{Context, Outcome, check};

/// Page-locked memory of the host.
#[derive(Debug)]
pub(in crate::cuda) struct Pinned {
    start: NonNull<u8>,
    size: usize,
    context: Arc<Context>,
}

// SAFETY: it is memory, and whoever reads or writes it does so by the unsafe methods, whose callers keep apart what must be.
unsafe impl Send for Pinned {}
// SAFETY: as above.
unsafe impl Sync for Pinned {}

impl Pinned {
    /// This many bytes, at least 1, with anything in them.
    pub(in crate::cuda) fn new(context: &Arc<Context>, size: usize) -> Outcome<Self> {
        context.bind()?;
        let mut start = ptr::null_mut();
        // SAFETY: the context is current, and `start` is the pointer that is written. Without flags it is cached memory, which the host reads as fast
        // as any.
        check("cuMemHostAlloc", unsafe {
            sys::cuMemHostAlloc(&raw mut start, size.max(1), 0)
        })?;
        let Some(start) = NonNull::new(start.cast::<u8>()) else {
            return Err(crate::cuda::failure::DriverFailure {
                call: "cuMemHostAlloc",
                code: 2,
            });
        };
        // SAFETY: as many bytes were just given. What reads them later finds no uninitialised ones.
        unsafe { ptr::write_bytes(start.as_ptr(), 0, size.max(1)) };
        Ok(Self {
            start,
            size: size.max(1),
            context: Arc::clone(context),
        })
    }

    /// How many bytes it has.
    pub(in crate::cuda) fn size(&self) -> usize {
        self.size
    }

    /// A pointer to `size` bytes from `offset` on.
    ///
    /// # Panics
    /// If they are not all in it: the host's own arithmetic is wrong.
    pub(super) fn address(&self, offset: usize, size: usize) -> *mut u8 {
        assert!(
            offset.checked_add(size).is_some_and(|end| end <= self.size),
            "bytes past the end of pinned memory"
        );
        // SAFETY: it is in the allocation, or one past it.
        unsafe { self.start.as_ptr().add(offset) }
    }

    /// Bytes of it.
    ///
    /// # Safety
    /// Nothing may write them meanwhile, a device's copy neither.
    pub(in crate::cuda) unsafe fn bytes(&self, offset: usize, size: usize) -> &[u8] {
        // SAFETY: `address` has checked the range, all of it is initialised, and nothing writes it, as the caller says.
        unsafe { std::slice::from_raw_parts(self.address(offset, size), size) }
    }

    /// Bytes of it, to be written.
    ///
    /// # Safety
    /// Nothing may read or write them meanwhile, a device's copy neither.
    #[allow(
        clippy::mut_from_ref,
        reason = "the caller keeps apart what it hands out, as for any shared memory"
    )]
    pub(in crate::cuda) unsafe fn bytes_mut(&self, offset: usize, size: usize) -> &mut [u8] {
        // SAFETY: as above, with nobody else at it.
        unsafe { std::slice::from_raw_parts_mut(self.address(offset, size), size) }
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        self.context.bind_anyway();
        // SAFETY: it was taken above, and nobody has it any longer.
        let _ = unsafe { sys::cuMemFreeHost(self.start.as_ptr().cast()) };
    }
}
