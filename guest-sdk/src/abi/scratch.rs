//! Scratch memory, which lives until a call ends.

use alloc::alloc::{Layout, alloc_zeroed, dealloc};
use alloc::boxed::Box;
use core::cell::Cell;
use core::ptr;

/// The scratch blocks of one call. They are freed when the call ends, whether it succeeds or fails.
///
/// Each call has its own `Scratch`, which costs nothing until a block is taken.
pub(crate) struct Scratch {
    last: Cell<Option<Box<Block>>>,
}

struct Block {
    start: *mut u8,
    layout: Layout,
    before: Option<Box<Block>>,
}

impl Scratch {
    /// Returns a list of no blocks.
    #[inline]
    pub(crate) const fn new() -> Self {
        Self {
            last: Cell::new(None),
        }
    }

    /// Allocates a zeroed block, or returns `None` if memory is exhausted.
    #[allow(
        clippy::mut_from_ref,
        reason = "each call hands out a block of its own"
    )]
    pub(crate) fn take(&self, layout: Layout) -> Option<&mut [u8]> {
        if layout.size() == 0 {
            return Some(&mut []);
        }
        // SAFETY: the check above excludes a size of zero.
        let start = unsafe { alloc_zeroed(layout) };
        if start.is_null() {
            return None;
        }
        self.last.set(Some(Box::new(Block {
            start,
            layout,
            before: self.last.take(),
        })));
        // SAFETY: the block has that many initialised bytes, and only this call hands it out. It
        // lives until `self` is dropped, and the slice borrows `self`.
        Some(unsafe { &mut *ptr::slice_from_raw_parts_mut(start, layout.size()) })
    }
}

impl Drop for Scratch {
    #[inline]
    fn drop(&mut self) {
        if let Some(last) = self.last.take() {
            free(last);
        }
    }
}

#[cold]
fn free(last: Box<Block>) {
    let mut next = Some(last);
    while let Some(block) = next {
        // SAFETY: the block is from `take`, with this layout, and every borrow of it ended with the
        // `Scratch`.
        unsafe { dealloc(block.start, block.layout) };
        next = block.before;
    }
}
