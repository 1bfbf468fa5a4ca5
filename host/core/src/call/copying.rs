//! Copies of bytes between guests' memory and callers' arrays.

#![allow(
    unsafe_code,
    reason = "callers' arrays may share memory: they are pointers. Stores past the cache"
)]

/// The size of an array from which on its bytes are stored past the cache.
///
/// Such an array does not stay in the cache until it is read again. A store in the cache first
/// fetches the line that it overwrites, so that the memory carries a third more.
const STREAMED: usize = 16 << 20;

/// The most bytes of a block where a copy in one piece is slow.
const BLOCK: usize = 2 << 10;

/// Copies bytes to part of an array of `whole` bytes, as [`copy_bytes`] does. The slices have the
/// same length.
///
/// # Panics
/// If they have not.
#[inline]
pub fn copy(from: &[u8], to: &mut [u8], whole: usize) {
    assert_eq!(from.len(), to.len(), "a copy has one length");
    // SAFETY: both slices have this length, and `to` is borrowed exclusively.
    unsafe { copy_bytes(from.as_ptr(), to.as_mut_ptr(), from.len(), whole) };
}

/// Copies bytes to part of an array of `whole` bytes, as is fastest.
///
/// With a `whole` of 0 the bytes stay in the cache: for operands, which the guest reads next, and
/// where the bytes that are replaced were read just before.
///
/// # Safety
/// As for `std::ptr::copy_nonoverlapping`.
#[inline]
pub unsafe fn copy_bytes(from: *const u8, to: *mut u8, count: usize, whole: usize) {
    if whole >= STREAMED {
        // SAFETY: the caller guarantees it.
        return unsafe { stream(from, to, count) };
    }
    if !is_copied_slowly(from.addr(), to.addr(), count) {
        // SAFETY: the caller guarantees it.
        return unsafe { std::ptr::copy_nonoverlapping(from, to, count) };
    }
    for at in (0..count).step_by(BLOCK) {
        let block = (count - at).min(BLOCK);
        // SAFETY: the block ends at `count` or before.
        unsafe { std::ptr::copy_nonoverlapping(from.add(at), to.add(at), block) };
    }
}

/// Whether a copy in one piece is slower than a copy block by block.
///
/// From 4 KiB on, glibc copies by `rep movsb`. AMD's Zen 3 and 4 then take 15 times as long if the
/// destination lies 1 to 31 bytes past the source, both modulo the size of a page. That is common:
/// an arena is aligned, and large memory of `malloc` begins 16 bytes past a page.
#[inline]
fn is_copied_slowly(from: usize, to: usize, count: usize) -> bool {
    const PAGE: usize = 4 << 10;
    count > BLOCK && matches!(to.wrapping_sub(from) % PAGE, 1..=31)
}

/// Copies bytes by stores past the cache.
///
/// # Safety
/// As for `std::ptr::copy_nonoverlapping`.
#[cfg(target_arch = "x86_64")]
unsafe fn stream(from: *const u8, to: *mut u8, count: usize) {
    use std::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_sfence, _mm_stream_si128};

    /// Two lines of the cache are loaded before they are stored: a load waits for an earlier store
    /// to the same place of another page.
    const LINES: usize = 128;
    const VECTOR: usize = size_of::<__m128i>();

    let head = to.align_offset(LINES).min(count);
    let end = count - (count - head) % LINES;
    // SAFETY: `head <= count`.
    unsafe { std::ptr::copy_nonoverlapping(from, to, head) };
    for at in (head..end).step_by(LINES) {
        // SAFETY: `at + LINES <= end <= count`, so that all loads and stores are within the ranges
        // that the caller vouches for. The stores are aligned to 16 bytes: `to + head` is to 128.
        // All x86-64 processors have these instructions.
        unsafe {
            let (from, to) = (from.add(at), to.add(at));
            let vectors: [__m128i; LINES / VECTOR] =
                std::array::from_fn(|i| _mm_loadu_si128(from.add(i * VECTOR).cast()));
            for (i, vector) in vectors.into_iter().enumerate() {
                _mm_stream_si128(to.add(i * VECTOR).cast(), vector);
            }
        }
    }
    // SAFETY: `end <= count`. The fence makes the stores visible before anything that follows.
    unsafe {
        std::ptr::copy_nonoverlapping(from.add(end), to.add(end), count - end);
        _mm_sfence();
    }
}

/// Copies bytes. Here no stores past the cache are known.
///
/// # Safety
/// As for `std::ptr::copy_nonoverlapping`.
#[cfg(not(target_arch = "x86_64"))]
unsafe fn stream(from: *const u8, to: *mut u8, count: usize) {
    // SAFETY: the caller guarantees it.
    unsafe { std::ptr::copy_nonoverlapping(from, to, count) };
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Copies of any length and alignment are whole, whichever way they are made.
    #[test]
    fn bytes_arrive_whichever_way_they_are_copied() {
        let from: Vec<u8> = (0..20_000_u32).map(|i| (i % 251) as u8).collect();
        for whole in [0, STREAMED - 1, STREAMED] {
            for count in [0, 1, 127, 128, 255, BLOCK, BLOCK + 1, 3 * BLOCK, 10_000] {
                for past in [0, 1, 16, 31, 32, 100, 4095] {
                    let from = &from[7..7 + count];
                    let mut memory = vec![255; count + 8192];
                    let behind = from.as_ptr().addr().wrapping_sub(memory.as_ptr().addr());
                    let at = behind.wrapping_add(past) % 4096;
                    copy(from, &mut memory[at..at + count], whole);
                    assert_eq!(&memory[at..at + count], from);
                    let (before, after) = (&memory[..at], &memory[at + count..]);
                    assert!(before.iter().chain(after).all(|byte| *byte == 255));
                }
            }
        }
    }

    #[test]
    fn destinations_shortly_past_the_source_are_slow() {
        const PAGE: usize = 4096;
        let slow = |to| is_copied_slowly(10 * PAGE, to, 1 << 20);
        for to in [PAGE + 1, 10 * PAGE + 16, 30 * PAGE + 31] {
            assert!(slow(to), "{to}");
        }
        for to in [0, PAGE, 10 * PAGE + 32, 11 * PAGE - 1] {
            assert!(!slow(to), "{to}");
        }
        assert!(!is_copied_slowly(0, 16, BLOCK));
    }
}
