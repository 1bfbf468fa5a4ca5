//! Conversions among F32, F16, BF16 and S8.
//!
//! Each conversion goes from or to F32, which represents all numbers of the other types, in
//! straight-line code on the bits. F16 and BF16 are given by their bits.

use std::ops::Range;

use crate::simd::{self, Vectorized};
use crate::{PIECE, canonical};

/// The numbers to convert.
#[derive(Clone, Copy, Debug)]
pub enum Source<'a> {
    /// IEEE 754's binary32.
    F32(&'a [f32]),
    /// IEEE 754's binary16.
    F16(&'a [u16]),
    /// The upper halves of F32.
    Bf16(&'a [u16]),
    /// Integers of 8 bits.
    S8(&'a [i8]),
}

/// The converted numbers.
#[derive(Debug)]
pub enum Target<'a> {
    /// IEEE 754's binary32.
    F32(&'a mut [f32]),
    /// IEEE 754's binary16.
    F16(&'a mut [u16]),
    /// The upper halves of F32.
    Bf16(&'a mut [u16]),
    /// Integers of 8 bits.
    S8(&'a mut [i8]),
}

impl<'a> Source<'a> {
    fn len(self) -> usize {
        match self {
            Self::F32(x) => x.len(),
            Self::F16(x) | Self::Bf16(x) => x.len(),
            Self::S8(x) => x.len(),
        }
    }

    fn part(self, range: Range<usize>) -> Self {
        match self {
            Self::F32(x) => Self::F32(&x[range]),
            Self::F16(x) => Self::F16(&x[range]),
            Self::Bf16(x) => Self::Bf16(&x[range]),
            Self::S8(x) => Self::S8(&x[range]),
        }
    }
}

impl Target<'_> {
    fn len(&self) -> usize {
        match self {
            Self::F32(y) => y.len(),
            Self::F16(y) | Self::Bf16(y) => y.len(),
            Self::S8(y) => y.len(),
        }
    }

    fn part(&mut self, range: Range<usize>) -> Target<'_> {
        match self {
            Self::F32(y) => Target::F32(&mut y[range]),
            Self::F16(y) => Target::F16(&mut y[range]),
            Self::Bf16(y) => Target::Bf16(&mut y[range]),
            Self::S8(y) => Target::S8(&mut y[range]),
        }
    }
}

/// Converts each number of `x` to the type of `y`, as far as the shorter of the two goes.
///
/// F16 and BF16 get the nearest number, of two equally near ones the even one. S8 gets the integer
/// towards zero, and the nearest one for a number out of its range; NaN becomes 0.
///
/// # Errors
/// The error of `pause`.
pub fn convert<E>(
    x: Source<'_>,
    mut y: Target<'_>,
    pause: &mut dyn FnMut() -> Result<(), E>,
) -> Result<(), E> {
    let length = x.len().min(y.len());
    for start in (0..length).step_by(PIECE) {
        let range = start..length.min(start + PIECE);
        match (x.part(range.clone()), y.part(range)) {
            (Source::F32(x), y) => narrow(x, y),
            (x, Target::F32(y)) => widen(x, y),
            (x, y) => {
                let mut wide = [0.0; PIECE];
                let wide = &mut wide[..y.len()];
                widen(x, wide);
                narrow(wide, y);
            }
        }
        pause()?;
    }
    Ok(())
}

fn widen(x: Source<'_>, y: &mut [f32]) {
    match x {
        Source::F32(x) => pairs(x, y, canonical),
        Source::F16(x) => pairs(x, y, f16_to_f32),
        Source::Bf16(x) => pairs(x, y, bf16_to_f32),
        Source::S8(x) => pairs(x, y, f32::from),
    }
}

fn narrow(x: &[f32], y: Target<'_>) {
    match y {
        Target::F32(y) => pairs(x, y, canonical),
        Target::F16(y) => pairs(x, y, f32_to_f16),
        Target::Bf16(y) => pairs(x, y, f32_to_bf16),
        Target::S8(y) => pairs(x, y, |x| x as i8),
    }
}

/// Writes the function of each element of `x` to `y`.
#[inline(always)]
fn pairs<X: Copy, Y>(x: &[X], y: &mut [Y], function: impl Fn(X) -> Y) {
    struct Pairs<'a, X, Y, F>(&'a [X], &'a mut [Y], F);
    impl<X: Copy, Y, F: Fn(X) -> Y> Vectorized for Pairs<'_, X, Y, F> {
        type Output = ();
        #[inline(always)]
        fn run(self) {
            for (x, y) in self.0.iter().zip(self.1) {
                *y = (self.2)(*x);
            }
        }
    }
    simd::run(Pairs(x, y, function));
}

/// The bits of F32's infinity; those of NaN, without the sign, are greater.
const INFINITY: u32 = 0x7f80_0000;
/// The difference of the biases of the exponents of F32 and F16, in F32's place.
const BIAS: u32 = (127 - 15) << 23;

#[inline(always)]
pub(crate) fn bf16_to_f32(x: u16) -> f32 {
    canonical(f32::from_bits(u32::from(x) << 16))
}

#[inline(always)]
pub(crate) fn f16_to_f32(x: u16) -> f32 {
    /// 2^-24, the unit of the numbers whose exponent is 0.
    const UNIT: f32 = f32::from_bits(0x3380_0000);
    let magnitude = u32::from(x & 0x7fff);
    let sign = u32::from(x & 0x8000) << 16;
    let small = (magnitude as i32 as f32 * UNIT).to_bits();
    let finite = if magnitude < 0x400 {
        small
    } else {
        (magnitude << 13) + BIAS
    };
    let any = if magnitude < 0x7c00 {
        finite
    } else {
        INFINITY | magnitude << 13
    };
    canonical(f32::from_bits(sign | any))
}

#[inline(always)]
fn f32_to_f16(x: f32) -> u16 {
    /// 2^16, the smallest power of two that overflows.
    const TOO_LARGE: u32 = 0x4780_0000;
    /// 2^-14, the smallest number whose exponent is not 0.
    const SMALLEST_NORMAL: u32 = 0x3880_0000;
    let bits = x.to_bits();
    let magnitude = bits & 0x7fff_ffff;
    let sign = bits >> 16 & 0x8000;
    // The unit in the last place of 0.5 is that of the result, so that the addition rounds.
    let small = (f32::from_bits(magnitude) + 0.5)
        .to_bits()
        .wrapping_sub(0.5_f32.to_bits());
    let to_even = 0xfff + (magnitude >> 13 & 1);
    let normal = magnitude.wrapping_sub(BIAS).wrapping_add(to_even) >> 13;
    let finite = if magnitude < SMALLEST_NORMAL {
        small
    } else {
        normal
    };
    let number = sign
        | if magnitude < TOO_LARGE {
            finite
        } else {
            0x7c00
        };
    (if magnitude > INFINITY { 0x7e00 } else { number }) as u16
}

#[inline(always)]
fn f32_to_bf16(x: f32) -> u16 {
    let bits = x.to_bits();
    let rounded = bits.wrapping_add(0x7fff + (bits >> 16 & 1)) >> 16;
    (if x.is_nan() { 0x7fc0 } else { rounded }) as u16
}
