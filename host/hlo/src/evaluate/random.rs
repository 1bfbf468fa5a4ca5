//! Random bits: XLA's counter-based generators (xla/hlo/builder/lib/prng.cc).

use std::iter::zip;

use super::array::Array;
use super::{bug, zeroed};
use crate::instruction::RandomAlgorithm;
use callbox_core::values::{Literal, Result, Shape};

/// The new state, and an array of random bits.
pub(super) fn random_bits(
    shape: &Shape,
    state: &Array<'_>,
    algorithm: RandomAlgorithm,
) -> Result<Literal> {
    let Some([_, Shape::Array(bits)]) = shape.as_tuple() else {
        return Err(bug("random bits have no array"));
    };
    let words = state.bytes.as_chunks::<8>().0.iter();
    let mut state = Vec::from_iter(words.map(|word| u64::from_le_bytes(*word)));
    let width = bits.element_type().byte_width();
    let count = bits.element_count();
    let values = match (algorithm, &mut *state) {
        (RandomAlgorithm::ThreeFry, [key, counter]) if width == 8 => {
            three_fry_64(*key, counter, count)?
        }
        (RandomAlgorithm::ThreeFry, [key, counter]) => {
            three_fry_32(*key, counter, bits.dimensions())?
        }
        (_, [key, counter @ ..]) => philox(*key, counter, count, width == 8)?,
        _ => return Err(bug("a generator has no state")),
    };
    let mut bytes = zeroed(bits.byte_size())?;
    for (to, value) in zip(bytes.chunks_exact_mut(width), values) {
        to.copy_from_slice(&value.to_le_bytes()[..width]);
    }
    let state = state.into_iter().flat_map(u64::to_le_bytes).collect();
    Literal::from_leaves(shape.clone(), vec![state, bytes]).map_err(bug)
}

/// The low and the high half.
fn halves(x: u64) -> [u32; 2] {
    [x as u32, (x >> 32) as u32]
}

fn joined([low, high]: [u32; 2]) -> u64 {
    u64::from(low) | u64::from(high) << 32
}

/// One number of 64 bits for each counter.
fn three_fry_64(key: u64, counter: &mut u64, count: usize) -> Result<Vec<u64>> {
    let mut values = zeroed(count)?;
    for (i, value) in values.iter_mut().enumerate() {
        let input = counter.wrapping_add(i as u64);
        *value = joined(three_fry(halves(key), halves(input)));
    }
    *counter = counter.wrapping_add(count as u64);
    Ok(values)
}

/// Two numbers of 32 bits for each counter, side by side in the first dimension of even size, or
/// else in the largest one.
fn three_fry_32(key: u64, counter: &mut u64, dimensions: &[usize]) -> Result<Vec<u64>> {
    let dimensions = if dimensions.is_empty() {
        &[1]
    } else {
        dimensions
    };
    let even = dimensions.iter().position(|size| size.is_multiple_of(2));
    let largest = || {
        let mut largest = 0;
        for (i, size) in dimensions.iter().enumerate() {
            if *size > dimensions[largest] {
                largest = i;
            }
        }
        largest
    };
    let split = even.unwrap_or_else(largest);
    let whole = dimensions[split];
    let half = whole.div_ceil(2);
    let inner: usize = dimensions[split + 1..].iter().product();
    let count: usize = dimensions.iter().product();
    let mut values = zeroed(count)?;
    for (at, value) in values.iter_mut().enumerate() {
        let (outer, rest) = (at / (whole * inner), at % (whole * inner));
        let (i, offset) = (rest / inner, rest % inner);
        let number = (outer * half + i / 2) * inner + offset;
        let input = counter.wrapping_add(number as u64);
        *value = three_fry(halves(key), halves(input))[i % 2].into();
    }
    let counters = count / whole.max(1) * half;
    *counter = counter.wrapping_add(counters as u64);
    Ok(values)
}

/// Threefry2x32 with 20 rounds.
fn three_fry(key: [u32; 2], [mut x, mut y]: [u32; 2]) -> [u32; 2] {
    const ROTATIONS: [[u32; 4]; 2] = [[13, 15, 26, 6], [17, 29, 16, 24]];
    let keys = [key[0], key[1], key[0] ^ key[1] ^ 0x1BD1_1BDA];
    x = x.wrapping_add(keys[0]);
    y = y.wrapping_add(keys[1]);
    for round in 0..5 {
        for rotation in ROTATIONS[round % 2] {
            x = x.wrapping_add(y);
            y = y.rotate_left(rotation) ^ x;
        }
        x = x.wrapping_add(keys[(round + 1) % 3]);
        y = y
            .wrapping_add(keys[(round + 2) % 3])
            .wrapping_add(round as u32 + 1);
    }
    [x, y]
}

/// Returns four 32-bit or two 64-bit numbers for each 128-bit counter. If the state has one word
/// of the counter, that word is the low half, and the key is the high half.
fn philox(key: u64, counter: &mut [u64], count: usize, wide: bool) -> Result<Vec<u64>> {
    let each = if wide { 2 } else { 4 };
    let blocks = count.div_ceil(each);
    let high = counter.get(1).copied().unwrap_or(key);
    let low = counter.first().copied().unwrap_or(0);
    let first = u128::from(low) | u128::from(high) << 64;
    let mut values = zeroed(count)?;
    for (i, values) in values.chunks_mut(each).enumerate() {
        let input = first.wrapping_add(i as u128);
        let [a, b, c, d] = philox_4x32(halves(key), input);
        let numbers = if wide {
            [joined([a, b]), joined([c, d]), 0, 0]
        } else {
            [a, b, c, d].map(u64::from)
        };
        zip(values, numbers).for_each(|(to, number)| *to = number);
    }
    let next = first.wrapping_add(blocks as u128);
    for (i, word) in counter.iter_mut().enumerate() {
        *word = (next >> (64 * i)) as u64;
    }
    Ok(values)
}

/// Philox4x32 with 10 rounds.
fn philox_4x32(mut key: [u32; 2], counter: u128) -> [u32; 4] {
    let mut x = [0, 32, 64, 96].map(|shift| (counter >> shift) as u32);
    for _ in 0..10 {
        let product = |multiplier: u32, x: u32| halves(u64::from(multiplier) * u64::from(x));
        let [low_0, high_0] = product(0xD251_1F53, x[0]);
        let [low_1, high_1] = product(0xCD9E_8D57, x[2]);
        x = [high_1 ^ x[1] ^ key[0], low_1, high_0 ^ x[3] ^ key[1], low_0];
        key = [
            key[0].wrapping_add(0x9E37_79B9),
            key[1].wrapping_add(0xBB67_AE85),
        ];
    }
    x
}
