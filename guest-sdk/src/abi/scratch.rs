//! Memory that a target has until its call ends.

use alloc::alloc::{Layout, alloc_zeroed, dealloc};
use alloc::boxed::Box;
use core::cell::Cell;
use core::ptr;

/// The blocks that one call took. They are freed with it, whatever becomes of the call.
///
/// It is made anew for each call, and costs nothing until a block is taken.
pub(crate) struct Scratch {
    last: Cell<Option<Box<Block>>>,
}

struct Block {
    start: *mut u8,
    layout: Layout,
    before: Option<Box<Block>>,
}

impl Scratch {
    /// No blocks.
    #[inline]
    pub(crate) const fn new() -> Self {
        Self {
            last: Cell::new(None),
        }
    }

    /// A block of zeros, or `None` if there is no memory for it.
    #[allow(
        clippy::mut_from_ref,
        reason = "each call hands out a block of its own"
    )]
    pub(crate) fn take(&self, layout: Layout) -> Option<&mut [u8]> {
        if layout.size() == 0 {
            return Some(&mut []);
        }
        // SAFETY: the size is not zero.
        let start = unsafe { alloc_zeroed(layout) };
        if start.is_null() {
            return None;
        }
        self.last.set(Some(Box::new(Block {
            start,
            layout,
            before: self.last.take(),
        })));
        // SAFETY: a block of that many bytes, all initialised, handed out here only. It lives until `self` is dropped, which the
        // slice borrows.
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
        // SAFETY: the block is from `take`, with this layout, and what borrowed it is gone with the `Scratch`.
        unsafe { dealloc(block.start, block.layout) };
        next = block.before;
    }
}
