//! The allocator of a guest without the standard library. It takes less than a tenth of the code of
//! a general allocator.
//!
//! Blocks have one of four sizes between two powers of two, so that at most a fifth of a block is
//! unused. Freed blocks of each size form a list, and are used again for that size only. New blocks
//! are cut off the end of the memory, which grows by whole pages. A block of a power of two is
//! aligned to its size, up to a page.
#![cfg_attr(
    not(target_arch = "wasm32"),
    allow(unreachable_pub, reason = "natively, only the tests use the allocator")
)]

use alloc::alloc::{GlobalAlloc, Layout};
use core::cell::UnsafeCell;
use core::ptr;

/// The smallest block, and the largest alignment of blocks that are not powers of two.
const SMALLEST: usize = 16;

/// The number of block sizes: four for each power of two from 16 to 2^31.
const SIZES: usize = 4 * 28;

/// WebAssembly's page.
const PAGE: usize = 64 << 10;

/// The allocator of a guest's own memory.
#[cfg(target_arch = "wasm32")]
pub type GuestAllocator = Allocator<LinearMemory>;

/// An allocator over a memory that grows.
pub struct Allocator<M>(UnsafeCell<Blocks<M>>);

/// The state of an allocator.
struct Blocks<M> {
    memory: M,
    /// The first free block of each size. A free block begins with the address of the next one.
    free: [*mut u8; SIZES],
    /// The unused end of the memory: the address of its first byte, and its length.
    end: *mut u8,
    left: usize,
}

/// A memory that grows by pages.
pub trait Memory {
    /// Appends pages, and returns the address of the first. `None` if the limit is reached.
    fn grow(&mut self, pages: usize) -> Option<*mut u8>;
}

/// The memory of a WebAssembly module.
#[cfg(target_arch = "wasm32")]
#[derive(Debug)]
pub struct LinearMemory;

#[cfg(target_arch = "wasm32")]
impl Memory for LinearMemory {
    fn grow(&mut self, pages: usize) -> Option<*mut u8> {
        match core::arch::wasm32::memory_grow::<0>(pages) {
            usize::MAX => None,
            before => Some(ptr::with_exposed_provenance_mut(before * PAGE)),
        }
    }
}

#[cfg(target_arch = "wasm32")]
impl GuestAllocator {
    /// Returns an allocator that takes its memory by `memory.grow`.
    #[must_use]
    pub const fn new() -> Self {
        Self(UnsafeCell::new(Blocks::new(LinearMemory)))
    }
}

// SAFETY: a guest has one thread, and the methods of the only `static` do not call each other.
#[cfg(target_arch = "wasm32")]
unsafe impl Sync for GuestAllocator {}

impl<M> core::fmt::Debug for Allocator<M> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Allocator").finish_non_exhaustive()
    }
}

// SAFETY: a block has at least the layout's size and alignment, as `BlockSize::of` determines, and
// is on a list or in use, never both. Nothing unwinds.
unsafe impl<M: Memory> GlobalAlloc for Allocator<M> {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: no other reference to the state exists: one thread calls, and `grow` does not
        // call back.
        let blocks = unsafe { &mut *self.0.get() };
        BlockSize::of(layout).map_or(ptr::null_mut(), |size| blocks.take(size))
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: as in `alloc`.
        let blocks = unsafe { &mut *self.0.get() };
        if let Some(size) = BlockSize::of(layout)
            && let Some(first) = blocks.free.get_mut(size.index)
        {
            // SAFETY: the caller returns a block from `alloc`, which has room for an address and
            // the alignment of one.
            unsafe { block.cast::<*mut u8>().write(*first) };
            *first = block;
        }
    }
}

/// The size of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct BlockSize {
    /// The index of its list.
    index: usize,
    bytes: usize,
    align: usize,
}

impl BlockSize {
    /// Returns the smallest size for a layout. `None` if no block is that large or that aligned.
    fn of(layout: Layout) -> Option<Self> {
        if layout.align() > PAGE {
            return None;
        }
        let bytes = layout.size().max(layout.align()).max(SMALLEST);
        let power = bytes.checked_next_power_of_two()?;
        let (half, quarter) = (power / 2, power / 8);
        // From 64 on, the sizes between powers of two are multiples of 16.
        let quarters = if bytes > half && power > 64 && layout.align() <= SMALLEST {
            // A division would bring the panic of a division by zero into every guest.
            (bytes - half + quarter - 1) >> quarter.trailing_zeros()
        } else {
            4
        };
        Some(Self {
            index: 4 * (power.trailing_zeros() - SMALLEST.trailing_zeros()) as usize + quarters - 1,
            bytes: half + quarters * quarter,
            align: if quarters == 4 {
                power.min(PAGE)
            } else {
                SMALLEST
            },
        })
        .filter(|size| size.index < SIZES)
    }
}

impl<M: Memory> Blocks<M> {
    const fn new(memory: M) -> Self {
        Self {
            memory,
            free: [ptr::null_mut(); SIZES],
            end: ptr::null_mut(),
            left: 0,
        }
    }

    /// Returns a block of this size, or null.
    fn take(&mut self, size: BlockSize) -> *mut u8 {
        let Some(first) = self.free.get_mut(size.index) else {
            return ptr::null_mut();
        };
        let block = *first;
        if block.is_null() {
            return self.cut(size).unwrap_or(ptr::null_mut());
        }
        // SAFETY: the block is free, and begins with the address of the next one.
        *first = unsafe { block.cast::<*mut u8>().read() };
        block
    }

    /// Cuts a block off the unused end, which grows if it is too short.
    #[cold]
    fn cut(&mut self, size: BlockSize) -> Option<*mut u8> {
        let mut skip = self.end.addr().wrapping_neg() & (size.align - 1);
        let mut needed = size.bytes.checked_add(skip)?;
        if needed > self.left {
            let pages = (needed - self.left).div_ceil(PAGE);
            let start = self.memory.grow(pages)?;
            if start == self.end.wrapping_add(self.left) {
                self.left += pages * PAGE;
            } else {
                // Another part of the guest has grown the memory meanwhile. Pages are aligned.
                (self.end, self.left) = (start, pages * PAGE);
                (skip, needed) = (0, size.bytes);
                let more = needed.saturating_sub(self.left).div_ceil(PAGE);
                if more > 0 {
                    self.memory.grow(more)?;
                    self.left += more * PAGE;
                }
            }
        }
        let block = self.end.wrapping_add(skip);
        self.left = self.left.checked_sub(needed)?;
        self.end = self.end.wrapping_add(needed);
        Some(block)
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    /// Memory of a fixed number of pages, of which some are in use.
    struct Pages {
        start: *mut u8,
        layout: Layout,
        used: usize,
        /// The calls of `grow` after which another part of the program takes a page.
        disturbed: bool,
    }

    impl Pages {
        fn new(pages: usize, disturbed: bool) -> Option<Self> {
            let layout = Layout::from_size_align(pages * PAGE, PAGE).ok()?;
            // SAFETY: the size is not zero.
            let start = unsafe { alloc::alloc::alloc(layout) };
            Some(Self {
                start,
                layout,
                used: 0,
                disturbed,
            })
        }
    }

    impl Memory for Pages {
        fn grow(&mut self, pages: usize) -> Option<*mut u8> {
            let before = self.used;
            let after = before + pages * PAGE;
            (after <= self.layout.size()).then(|| {
                self.used = after
                    + if self.disturbed && pages % 2 == 1 {
                        PAGE
                    } else {
                        0
                    };
                self.start.wrapping_add(before)
            })
        }
    }

    impl Drop for Pages {
        fn drop(&mut self) {
            // SAFETY: the block is from `new`, with this layout.
            unsafe { alloc::alloc::dealloc(self.start, self.layout) };
        }
    }

    fn allocator(pages: usize, disturbed: bool) -> Option<Allocator<Pages>> {
        let pages = Pages::new(pages, disturbed)?;
        Some(Allocator(UnsafeCell::new(Blocks::new(pages))))
    }

    #[test]
    fn sizes_waste_a_fifth_at_most_above_64_bytes() {
        for bytes in (1..5000).chain([65_536, 65_537, 1_000_000, (1 << 31) - 5]) {
            for align in [1, 4, 16] {
                let found = Layout::from_size_align(bytes, align).map(BlockSize::of);
                let Ok(Some(size)) = found else {
                    unreachable!("{bytes} {align} {found:?}")
                };
                assert!(size.bytes >= bytes && size.align >= align, "{size:?}");
                assert!(size.bytes % size.align.min(16) == 0, "{size:?}");
                assert!(
                    bytes <= 64 || 4 * size.bytes <= 5 * bytes + 4,
                    "{bytes} {size:?}"
                );
            }
        }
    }

    /// Fills blocks of random layouts, frees some, and checks that the others keep their bytes.
    #[test]
    fn blocks_are_aligned_and_do_not_overlap() {
        for disturbed in [false, true] {
            let Some(allocator) = allocator(2048, disturbed) else {
                unreachable!("no memory")
            };
            let mut state = 1_u32;
            let mut random = |below: u32| {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                (state >> 8) % below
            };
            let mut blocks: Vec<(*mut u8, Layout, u8)> = Vec::new();
            for step in 0..20_000 {
                if random(2) == 0 && !blocks.is_empty() {
                    let place = random(blocks.len() as u32) as usize;
                    let (block, layout, mark) = blocks.swap_remove(place);
                    // SAFETY: the block is in use, and has that many bytes.
                    unsafe {
                        let bytes = core::slice::from_raw_parts(block, layout.size());
                        assert!(bytes.iter().all(|byte| *byte == mark), "{layout:?}");
                        allocator.dealloc(block, layout);
                    }
                    continue;
                }
                let bits = random(17);
                let size = 1 + random(1 << bits) as usize;
                let Ok(layout) = Layout::from_size_align(size, 1_usize << random(9)) else {
                    unreachable!("{size}")
                };
                // SAFETY: the size is not zero, and the block has that many bytes.
                unsafe {
                    let block = allocator.alloc(layout);
                    assert!(!block.is_null(), "{step} {layout:?}");
                    assert_eq!(block.addr() % layout.align(), 0, "{layout:?}");
                    block.write_bytes(step as u8, size);
                    blocks.push((block, layout, step as u8));
                }
            }
        }
    }

    #[test]
    fn a_freed_block_is_used_again() {
        let (Some(allocator), Ok(layout)) =
            (allocator(2, false), Layout::from_size_align(70_000, 8))
        else {
            unreachable!("no memory")
        };
        for _ in 0..10 {
            // SAFETY: the size is not zero, and the block is freed once, with its layout.
            unsafe {
                let block = allocator.alloc(layout);
                assert!(!block.is_null());
                allocator.dealloc(block, layout);
            }
        }
    }

    #[test]
    fn what_does_not_fit_is_null() {
        let Some(allocator) = allocator(2, false) else {
            unreachable!("no memory")
        };
        for (size, align) in [(3 * PAGE, 1), (1, 2 * PAGE), (isize::MAX as usize, 1)] {
            let layout = Layout::from_size_align(size, align);
            // SAFETY: the size is not zero.
            let block = layout.map(|layout| unsafe { allocator.alloc(layout) });
            assert_eq!(block, Ok(ptr::null_mut()), "{size} {align}");
        }
    }
}
