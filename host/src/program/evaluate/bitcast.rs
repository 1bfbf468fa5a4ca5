//! Bits read as elements of another type.

use super::array::Elements;
use super::{bug, zeroed};
use crate::values::{ElementType, Result};

/// Whether a conversion of bits between these types leaves all bytes as they are: of types narrower than a byte each
/// element has a byte of its own.
pub(super) fn keeps_bytes(from: ElementType, to: ElementType) -> bool {
    from.bit_width() >= 8 && to.bit_width() >= 8
}

/// Reads the elements' bits, the lowest first, as elements of another width or kind.
pub(super) fn bitcast_convert(x: Elements<'_>, to: ElementType) -> Result<Vec<u8>> {
    let (from_bits, to_bits) = (x.element_type.bit_width(), to.bit_width());
    let count = x.bytes.len().checked_mul(from_bits.min(8) as usize);
    let count = count.ok_or_else(|| bug("a size overflows"))? / to_bits.clamp(1, 8) as usize;
    let mut bytes = zeroed(count)?;
    match from_bits >= to_bits {
        true => split(x.bytes, from_bits.min(8), to_bits, &mut bytes),
        false => join(x.bytes, from_bits, to_bits.min(8), &mut bytes),
    }
    if to.is_signed_integral() && to_bits < 8 {
        let unused = 8 - to_bits;
        bytes
            .iter_mut()
            .for_each(|x| *x = ((*x << unused) as i8 >> unused) as u8);
    }
    Ok(bytes)
}

/// Gives each element's low `from` bits as elements of `to` bits, the lowest first.
fn split(x: &[u8], from: u32, to: u32, out: &mut [u8]) {
    let shifts = (0..from / to).map(|part| part * to);
    let parts = x
        .iter()
        .flat_map(|&x| shifts.clone().map(move |shift| x >> shift));
    std::iter::zip(out, parts).for_each(|(out, part)| *out = part & mask(to));
}

/// Makes elements of `to` bits out of low `from` bits, the lowest first.
fn join(x: &[u8], from: u32, to: u32, out: &mut [u8]) {
    let groups = x.chunks_exact((to / from) as usize);
    for (out, group) in std::iter::zip(out, groups) {
        *out = group
            .iter()
            .rev()
            .fold(0, |joined, &x| joined << from | (x & mask(from)));
    }
}

fn mask(bits: u32) -> u8 {
    u8::MAX >> (8 - bits)
}

#[cfg(test)]
mod tests;
