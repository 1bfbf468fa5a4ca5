//! A Bloom filter (1970).

use callbox_guest::{Failure, Operand, Pred, ResultBuffer, target};
use gallery::invalid;

/// Adds `keys` to a filter of bytes: sets `hashes` bits for each key. Bit `i` is bit `i % 8` of
/// byte `i / 8`.
#[target(pure)]
fn bloom_insert(
    #[dimensions(b)] filter: &Operand<u8, 1>,
    #[dimensions(n)] keys: &Operand<u64, 1>,
    #[dimensions(b)] new: &mut ResultBuffer<u8, 1>,
    #[attr] hashes: i32,
) -> Result<(), Failure> {
    check(filter, hashes)?;
    new.copy_from_slice(filter);
    for &key in keys.iter() {
        for bit in bits(key, hashes, filter.len()) {
            new[bit / 8] |= 1 << (bit % 8);
        }
    }
    Ok(())
}

/// Tells which keys may be in a filter. False is certain.
#[target(rows)]
fn bloom_query(
    #[dimensions(b)] filter: &Operand<u8, 1>,
    #[dimensions(..)] keys: &Operand<u64>,
    #[dimensions(..)] found: &mut ResultBuffer<Pred>,
    #[attr] hashes: i32,
) -> Result<(), Failure> {
    gallery::row_major(&[("keys", keys.shape()), ("found", found.shape())])?;
    check(filter, hashes)?;
    for (found, &key) in found.iter_mut().zip(keys.iter()) {
        let mut bits = bits(key, hashes, filter.len());
        *found = Pred::from(bits.all(|bit| filter[bit / 8] & (1 << (bit % 8)) != 0));
    }
    Ok(())
}

fn check(filter: &[u8], hashes: i32) -> Result<(), Failure> {
    if filter.is_empty() {
        return Err(Failure::invalid_argument(
            "expected a filter of bytes, found none",
        ));
    }
    if (1..=64).contains(&hashes) {
        return Ok(());
    }
    Err(invalid(format!(
        "expected hashes from 1 to 64, found {hashes}"
    )))
}

/// Returns the bits of a key: `(a + i b) mod m`, with two hashes `a` and `b` of the key.
fn bits(key: u64, hashes: i32, bytes: usize) -> impl Iterator<Item = usize> {
    let (a, b) = (mix(key), mix(key ^ 0x9e37_79b9_7f4a_7c15) | 1);
    let count = bytes as u64 * 8;
    (0..hashes as u64).map(move |i| (a.wrapping_add(i.wrapping_mul(b)) % count) as usize)
}

/// The function of SplitMix64.
fn mix(key: u64) -> u64 {
    let mut z = key.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
