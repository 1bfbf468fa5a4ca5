//! The order of the elements of rows: a whole one, or its beginning (top-k).
//!
//! Only positions move, in the memory of the result: a sort needs no memory in proportion to its
//! row. Elements are ordered by their bits as a number, and equal ones by their positions, so that
//! the order is total and the same on every machine: its *rank* is a number of 8 or 12 bytes.
//!
//! Time grows linearly with the row, whatever its elements are:
//! - The first elements are those up to a rank, which is found byte by byte.
//!   Counting bytes costs as much for a row of one element as for one of `SHORT`. The ranks of
//!   shorter rows are copied instead, and partitioned.
//! - A range of more than `MERGED` positions is distributed by one byte of the ranks after the
//!   other (an American flag sort). Smaller ones are sorted in `PIECE`s, which are merged.

use std::ops::Range;

use callbox_abi::Order;

use crate::PIECE;
use crate::rows::{Element, Real, Work, nth};

/// The most positions whose ranks are copied, to sort and merge them.
const MERGED: usize = 16 * PIECE;

/// The most elements of a row whose first ones are found among a copy of its ranks.
const SHORT: usize = 512;

/// The bytes of a position.
const POSITION_BYTES: usize = size_of::<u32>();

/// A type of elements that are sorted: `f32` or `f64`.
pub trait Sortable: Element {
    /// The bytes of a key that can differ.
    const KEY_BYTES: usize;

    /// The bits of those bytes.
    const KEY_BITS: u64 = u64::MAX >> (64 - 8 * Self::KEY_BYTES);

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
        if columns <= SHORT {
            sorter.sort_short(row, found, pause)?;
            continue;
        }
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

    /// The bits that all keys have in common.
    fn key_base(self) -> u64 {
        if self.is_descending { !T::KEY_BITS } else { 0 }
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

/// The work since the last pause, and memory for ranges that are merged.
#[derive(Default)]
struct Sorter {
    work: Work,
    ranks: Vec<(u64, i32)>,
    merged: Vec<(u64, i32)>,
}

impl Sorter {
    /// Writes the positions of the first elements of a row of at most [`SHORT`], in order.
    fn sort_short<T: Sortable, E>(
        &mut self,
        row: Row<'_, T>,
        positions: &mut [i32],
        pause: &mut dyn FnMut() -> Result<(), E>,
    ) -> Result<(), E> {
        let all = 0..row.x.len() as i32;
        self.ranks.clear();
        self.ranks.extend(all.map(|at| row.rank(at)));
        if positions.len() < self.ranks.len() {
            self.ranks.select_nth_unstable(positions.len());
            self.ranks.truncate(positions.len());
        }
        self.ranks.sort_unstable();
        for (to, (_, position)) in positions.iter_mut().zip(&self.ranks) {
            *to = *position;
        }
        self.work.did(8 * row.x.len(), pause)
    }

    /// Writes the positions of the first elements of a row, in any order.
    fn select<T: Sortable, E>(
        &mut self,
        row: Row<'_, T>,
        kept: &mut [i32],
        pause: &mut dyn FnMut() -> Result<(), E>,
    ) -> Result<(), E> {
        let is_whole = kept.len() >= row.x.len();
        let mut all = 0..row.x.len() as i32;
        let last = if is_whole {
            (u64::MAX, i32::MAX)
        } else {
            self.last_rank(row, kept.len(), pause)?
        };
        let mut free = kept.iter_mut();
        while !all.is_empty() {
            let piece = all.start..all.end.min(all.start + PIECE as i32);
            all.start = piece.end;
            for position in piece {
                if is_whole || row.rank(position) <= last {
                    // There are as many as places.
                    free.next().into_iter().for_each(|place| *place = position);
                }
            }
            self.work.did(PIECE, pause)?;
        }
        self.work.did(0, pause)
    }

    /// The rank of the last of the first `count` elements of a row that has more.
    fn last_rank<T: Sortable, E>(
        &mut self,
        row: Row<'_, T>,
        mut count: usize,
        pause: &mut dyn FnMut() -> Result<(), E>,
    ) -> Result<(u64, i32), E> {
        // The rank's bytes so far, the other ones being 0, and the mask of those bytes.
        let (mut key, mut key_mask) = (row.key_base(), !T::KEY_BITS);
        let (mut place, mut place_mask) = (0_u32, 0_u32);
        for byte in 0..T::KEY_BYTES + POSITION_BYTES {
            let mut counts = [0; 256];
            for first in (0..row.x.len()).step_by(PIECE) {
                let end = row.x.len().min(first + PIECE);
                for position in first as i32..end as i32 {
                    let found = row.key(position);
                    if found & key_mask == key && position as u32 & place_mask == place {
                        counts[row.byte(position, byte)] += 1;
                    }
                }
                self.work.did(4 * (end - first), pause)?;
            }
            let mut value = 0;
            while value < 255 && counts[value] < count {
                count -= counts[value];
                value += 1;
            }
            if byte < T::KEY_BYTES {
                let shift = 8 * (T::KEY_BYTES - 1 - byte);
                key |= (value as u64) << shift;
                key_mask |= 0xff << shift;
            } else {
                let shift = 8 * (T::KEY_BYTES + POSITION_BYTES - 1 - byte);
                place |= (value as u32) << shift;
                place_mask |= 0xff << shift;
            }
            if counts[value] == count {
                // All with these bytes are among the first ones.
                return Ok((key | !key_mask, (place | !place_mask) as i32 & i32::MAX));
            }
        }
        Ok((key, place as i32))
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
            if part.len() <= MERGED {
                self.merge_sort(row, part, pause)?;
                continue;
            }
            let mut start = range.start;
            for bucket in self.distribute(row, part, byte, pause)? {
                let end = start + bucket.len();
                if bucket.len() > MERGED {
                    ranges.push((start..end, byte + 1));
                } else {
                    self.merge_sort(row, &mut positions[start..end], pause)?;
                }
                start = end;
            }
        }
        Ok(())
    }

    /// Sorts at most [`MERGED`] positions.
    fn merge_sort<T: Sortable, E>(
        &mut self,
        row: Row<'_, T>,
        positions: &mut [i32],
        pause: &mut dyn FnMut() -> Result<(), E>,
    ) -> Result<(), E> {
        self.ranks.clear();
        for piece in positions.chunks(PIECE) {
            let start = self.ranks.len();
            self.ranks.extend(piece.iter().map(|&at| row.rank(at)));
            self.ranks[start..].sort_unstable();
            self.work.did(8 * piece.len(), pause)?;
        }
        let mut width = PIECE;
        while width < positions.len() {
            self.merged.clear();
            for pair in self.ranks.chunks(2 * width) {
                let (first, second) = pair.split_at(width.min(pair.len()));
                merge(first, second, &mut self.merged);
                self.work.did(pair.len(), pause)?;
            }
            std::mem::swap(&mut self.ranks, &mut self.merged);
            width *= 2;
        }
        for (to, (_, position)) in positions.iter_mut().zip(&self.ranks) {
            *to = *position;
        }
        self.work.did(positions.len(), pause)
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
        for piece in positions.chunks(PIECE) {
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

/// Appends the numbers of two sorted lists in their order.
fn merge(mut first: &[(u64, i32)], mut second: &[(u64, i32)], into: &mut Vec<(u64, i32)>) {
    while let ([a, first_rest @ ..], [b, second_rest @ ..]) = (first, second) {
        if a < b {
            into.push(*a);
            first = first_rest;
        } else {
            into.push(*b);
            second = second_rest;
        }
    }
    into.extend_from_slice(first);
    into.extend_from_slice(second);
}
