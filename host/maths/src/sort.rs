//! The order of the elements of rows: a whole one, or its beginning (top-k).
//!
//! Only positions move, in the memory of the result: a sort needs no memory in proportion to its
//! row. Elements are ordered by their bits as a number, and equal ones by their positions, so that
//! the order is total and the same on every machine. Ranges of more than [`SMALL`] positions are
//! distributed by one byte after the other (an American flag sort), whose time grows linearly
//! whatever the elements are.

use std::ops::Range;

use callbox_abi::Order;

use crate::rows::{Element, Real, Work, nth};

/// The most positions that are sorted at once, which takes less than half a millisecond.
const SMALL: usize = 4096;

/// The bytes of a position.
const POSITION_BYTES: usize = size_of::<u32>();

/// A type of elements that are sorted: `f32` or `f64`.
pub trait Sortable: Element {
    /// The bytes of a key that can differ.
    const KEY_BYTES: usize;

    /// A number that grows with the element. Zeros have the same, and so have all NaNs, which are
    /// greater than every other element.
    fn key(self) -> u64;
}

impl Sortable for f32 {
    const KEY_BYTES: usize = 4;

    #[inline]
    fn key(self) -> u64 {
        let bits = if self == 0.0 {
            0
        } else {
            self.canonical().to_bits()
        };
        let flipped = if bits >> 31 == 0 { 1 << 31 } else { u32::MAX };
        u64::from(bits ^ flipped)
    }
}

impl Sortable for f64 {
    const KEY_BYTES: usize = 8;

    #[inline]
    fn key(self) -> u64 {
        let bits = if self == 0.0 {
            0
        } else {
            self.canonical().to_bits()
        };
        bits ^ if bits >> 63 == 0 { 1 << 63 } else { u64::MAX }
    }
}

/// Writes the positions of the first `kept` elements of each row of `x`, in this order, to a row of
/// `positions`. The rows of `x` have `columns` elements, at most 2^31, and at least `kept`.
///
/// In descending order NaNs come first. In both orders equal elements stay in the order of their
/// positions.
///
/// # Errors
/// The error of `pause`.
pub fn argsort_rows<T: Sortable, E>(
    order: Order,
    x: &[T],
    columns: usize,
    positions: &mut [i32],
    kept: usize,
    pause: &mut dyn FnMut() -> Result<(), E>,
) -> Result<(), E> {
    let mut sorter = Sorter::default();
    for (row, found) in positions.chunks_mut(kept.max(1)).enumerate() {
        let row = Row {
            x: nth(x, row, columns),
            is_descending: order == Order::Descending,
        };
        sorter.fill(found, pause)?;
        sorter.select(row, found, pause)?;
        sorter.sort(row, found, pause)?;
    }
    Ok(())
}

/// A row that is sorted.
#[derive(Clone, Copy)]
struct Row<'a, T> {
    x: &'a [T],
    is_descending: bool,
}

impl<T: Sortable> Row<'_, T> {
    /// The key of the element at this position: the sort is by ascending keys.
    #[inline]
    fn key(self, position: i32) -> u64 {
        // All positions are in the row.
        let key = self.x.get(position as usize).map_or(0, |x| x.key());
        if self.is_descending { !key } else { key }
    }

    /// The key and the position, by which no two elements are equal.
    #[inline]
    fn rank(self, position: i32) -> (u64, i32) {
        (self.key(position), position)
    }

    /// The byte of the rank with this number, counted from the most significant one.
    #[inline]
    fn byte(self, position: i32, number: usize) -> usize {
        let (word, below) = if number < T::KEY_BYTES {
            (self.key(position), T::KEY_BYTES - 1 - number)
        } else {
            let below = POSITION_BYTES - 1 - (number - T::KEY_BYTES);
            (position as u64, below)
        };
        usize::from((word >> (8 * below)) as u8)
    }
}

/// The work since the last pause, and memory for ranges that are sorted at once.
#[derive(Default)]
struct Sorter {
    work: Work,
    ranks: Vec<(u64, i32)>,
}

impl Sorter {
    /// Writes the first positions of a row.
    fn fill<E>(
        &mut self,
        positions: &mut [i32],
        pause: &mut dyn FnMut() -> Result<(), E>,
    ) -> Result<(), E> {
        for (number, piece) in positions.chunks_mut(SMALL).enumerate() {
            let first = (number * SMALL) as i32;
            piece.iter_mut().zip(first..).for_each(|(to, at)| *to = at);
            self.work.did(piece.len(), pause)?;
        }
        self.work.did(0, pause)
    }

    /// Replaces the first positions of a row by those of its first elements, in any order.
    fn select<T: Sortable, E>(
        &mut self,
        row: Row<'_, T>,
        kept: &mut [i32],
        pause: &mut dyn FnMut() -> Result<(), E>,
    ) -> Result<(), E> {
        let count = kept.len();
        if count == 0 || count == row.x.len() {
            return Ok(());
        }
        let levels = count.ilog2() as usize + 1;
        for parent in (0..count / 2).rev() {
            sift_down(row, kept, parent);
            self.work.did(64 * levels, pause)?;
        }
        let mut last = row.rank(kept[0]);
        for piece in (count..row.x.len()).step_by(SMALL) {
            let end = row.x.len().min(piece + SMALL);
            for position in piece as i32..end as i32 {
                // An equal element has a lower position.
                if row.key(position) < last.0 {
                    kept[0] = position;
                    sift_down(row, kept, 0);
                    last = row.rank(kept[0]);
                    self.work.did(64 * levels, pause)?;
                }
            }
            self.work.did(end - piece, pause)?;
        }
        Ok(())
    }

    /// Sorts positions by their elements.
    fn sort<T: Sortable, E>(
        &mut self,
        row: Row<'_, T>,
        positions: &mut [i32],
        pause: &mut dyn FnMut() -> Result<(), E>,
    ) -> Result<(), E> {
        // Ranges whose ranks agree in the bytes before this one. All are disjoint and large.
        let mut ranges = vec![(0..positions.len(), 0)];
        while let Some((range, byte)) = ranges.pop() {
            let part = &mut positions[range.clone()];
            if part.len() <= SMALL {
                self.sort_at_once(row, part, pause)?;
                continue;
            }
            let mut start = range.start;
            for bucket in self.distribute(row, part, byte, pause)? {
                let end = start + bucket.len();
                if bucket.len() > SMALL {
                    ranges.push((start..end, byte + 1));
                } else {
                    self.sort_at_once(row, &mut positions[start..end], pause)?;
                }
                start = end;
            }
        }
        Ok(())
    }

    fn sort_at_once<T: Sortable, E>(
        &mut self,
        row: Row<'_, T>,
        positions: &mut [i32],
        pause: &mut dyn FnMut() -> Result<(), E>,
    ) -> Result<(), E> {
        self.ranks.clear();
        self.ranks.extend(positions.iter().map(|&at| row.rank(at)));
        self.ranks.sort_unstable();
        for (to, (_, position)) in positions.iter_mut().zip(&self.ranks) {
            *to = *position;
        }
        self.work.did(8 * positions.len(), pause)
    }

    /// Puts positions with the same byte of their ranks together, in the order of that byte.
    /// Returns the ranges.
    fn distribute<T: Sortable, E>(
        &mut self,
        row: Row<'_, T>,
        positions: &mut [i32],
        byte: usize,
        pause: &mut dyn FnMut() -> Result<(), E>,
    ) -> Result<[Range<usize>; 256], E> {
        let mut counts = [0; 256];
        for piece in positions.chunks(SMALL) {
            piece.iter().for_each(|&at| counts[row.byte(at, byte)] += 1);
            self.work.did(4 * piece.len(), pause)?;
        }
        let mut end = 0;
        let buckets = counts.map(|count| {
            let start = end;
            end += count;
            start..end
        });
        let is_one = counts.contains(&positions.len());
        let mut next = buckets.clone();
        let first = if is_one { 256 } else { 0 };
        for bucket in first..256 {
            while let Some(at) = next[bucket].next() {
                let mut position = positions[at];
                loop {
                    self.work.did(0, pause)?;
                    let found = row.byte(position, byte);
                    if found == bucket {
                        break;
                    }
                    // A bucket has as many places as elements, so that the place is one.
                    let Some(place) = next[found].next() else {
                        break;
                    };
                    std::mem::swap(&mut position, &mut positions[place]);
                }
                positions[at] = position;
            }
        }
        Ok(buckets)
    }
}

/// Moves the position at the root of a part of the heap down until none below it has a greater
/// rank.
fn sift_down<T: Sortable>(row: Row<'_, T>, heap: &mut [i32], mut parent: usize) {
    loop {
        let children = 2 * parent + 1..heap.len().min(2 * parent + 3);
        let Some(child) = children.max_by_key(|&child| row.rank(heap[child])) else {
            return;
        };
        if row.rank(heap[child]) < row.rank(heap[parent]) {
            return;
        }
        heap.swap(parent, child);
        parent = child;
    }
}
