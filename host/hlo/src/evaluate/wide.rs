//! The four types of arithmetic, and how element types are decoded to and encoded from them.
//!
//! | element types | wide type |
//! | --- | --- |
//! | signed integers | `i64`, wrapping |
//! | unsigned integers, PRED | `u64`, wrapping |
//! | floating point | `f64` |
//! | complex | `Complex<f64>` |
//!
//! Results equal those of arithmetic in the element type:
//!
//! - The low bits of integer sums, products and powers depend on low bits only. PRED is encoded as
//!   "not 0", so that a sum is an or.
//! - For `f32` and narrower types, the 53 bits of `f64` exceed 2 · 24 + 2. Rounding a sum,
//!   difference, product, quotient or square root to `f64` and then to the narrower type therefore
//!   equals rounding it once (Figueroa, 1995).

use std::iter::zip;
use std::ops::{Add, Mul};

use num_complex::Complex;

use super::bug;
use callbox_core::values::ElementType as E;
use callbox_core::values::{FloatFormat, NativeType, Result, Status};

/// The wide type of an element type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// `i64`.
    Signed,
    /// `u64`.
    Unsigned,
    /// `f64`.
    Real,
    /// `Complex<f64>`.
    Complex,
}

impl Kind {
    pub(super) fn of(element_type: E) -> Result<Self> {
        match element_type {
            t if t.is_signed_integral() => Ok(Self::Signed),
            t if t.is_unsigned_integral() || t.is_pred() => Ok(Self::Unsigned),
            t if t.is_floating() => Ok(Self::Real),
            t if t.is_complex() => Ok(Self::Complex),
            t => Err(unsuitable("an element type with values", t)),
        }
    }
}

/// A type of arithmetic.
pub(super) trait Wide: Copy + Default + PartialEq + Send + Sync + 'static {
    /// Decodes elements of this kind. `f64` takes integers, too, rounded to nearest, and
    /// `Complex<f64>` takes all numbers.
    fn decode(from: E, bytes: &[u8], to: &mut [Self]) -> Result<()>;

    /// Encodes elements of this kind: an integer's low bits, the nearest floating-point number.
    fn encode(from: &[Self], to: E, bytes: &mut [u8]) -> Result<()>;

    /// The sum. Wraps for integers.
    fn add(self, other: Self) -> Self;

    /// The product. Wraps for integers.
    fn multiply(self, other: Self) -> Self;
}

macro_rules! arithmetic {
    ($add:path, $multiply:path) => {
        fn add(self, other: Self) -> Self {
            $add(self, other)
        }

        fn multiply(self, other: Self) -> Self {
            $multiply(self, other)
        }
    };
}

impl Wide for i64 {
    fn decode(from: E, bytes: &[u8], to: &mut [Self]) -> Result<()> {
        let low_bits = |x: u8| low_bits_signed(x, from.bit_width()).into();
        match from {
            E::S8 => read(bytes, to, |x: i8| x.into()),
            E::S16 => read(bytes, to, |x: i16| x.into()),
            E::S32 => read(bytes, to, |x: i32| x.into()),
            E::S64 => read(bytes, to, |x: i64| x),
            E::S1 | E::S2 | E::S4 => read(bytes, to, low_bits),
            _ => decode_as(from, bytes, to, |x: u64| x as i64),
        }
    }

    fn encode(from: &[Self], to: E, bytes: &mut [u8]) -> Result<()> {
        let low_bits = |x| low_bits_signed(x as u8, to.bit_width());
        match to {
            E::S8 => write(from, bytes, |x| x as i8),
            E::S16 => write(from, bytes, |x| x as i16),
            E::S32 => write(from, bytes, |x| x as i32),
            E::S64 => write(from, bytes, |x| x),
            E::S1 | E::S2 | E::S4 => write(from, bytes, low_bits),
            _ => Err(unsuitable("a signed integer", to)),
        }
    }

    arithmetic!(i64::wrapping_add, i64::wrapping_mul);
}

impl Wide for u64 {
    fn decode(from: E, bytes: &[u8], to: &mut [Self]) -> Result<()> {
        match from {
            E::Pred => read(bytes, to, |x: bool| x.into()),
            E::U8 => read(bytes, to, |x: u8| x.into()),
            E::U16 => read(bytes, to, |x: u16| x.into()),
            E::U32 => read(bytes, to, |x: u32| x.into()),
            E::U64 => read(bytes, to, |x: u64| x),
            E::U1 | E::U2 | E::U4 => read(bytes, to, |x: u8| low_bits(x, from.bit_width()).into()),
            _ => Err(unsuitable("an unsigned integer or pred", from)),
        }
    }

    fn encode(from: &[Self], to: E, bytes: &mut [u8]) -> Result<()> {
        match to {
            E::Pred => write(from, bytes, |x| x != 0),
            E::U8 => write(from, bytes, |x| x as u8),
            E::U16 => write(from, bytes, |x| x as u16),
            E::U32 => write(from, bytes, |x| x as u32),
            E::U64 => write(from, bytes, |x| x),
            E::U1 | E::U2 | E::U4 => write(from, bytes, |x| low_bits(x as u8, to.bit_width())),
            _ => Err(unsuitable("an unsigned integer or pred", to)),
        }
    }

    arithmetic!(u64::wrapping_add, u64::wrapping_mul);
}

impl Wide for f64 {
    fn decode(from: E, bytes: &[u8], to: &mut [Self]) -> Result<()> {
        match (from, FloatFormat::of(from)) {
            // The compiler makes vectors of this loop, and not of that of `read`.
            (E::F32, _) => {
                let elements = bytes.as_chunks().0.iter();
                zip(to, elements).for_each(|(to, &x)| *to = f32::from_le_bytes(x).into());
                Ok(())
            }
            (E::F64, _) => read(bytes, to, |x: f64| x),
            (E::Bf16, _) => read(bytes, to, |x: u16| {
                f32::from_bits(u32::from(x) << 16).into()
            }),
            (_, Some(format)) if from.byte_width() == 2 => {
                read(bytes, to, |x: u16| format.decode(x.into()))
            }
            (_, Some(format)) => read(bytes, to, |x: u8| format.decode(x.into())),
            _ if from.is_signed_integral() => decode_as(from, bytes, to, |x: i64| x as f64),
            _ => decode_as(from, bytes, to, |x: u64| x as f64),
        }
    }

    fn encode(from: &[Self], to: E, bytes: &mut [u8]) -> Result<()> {
        match (to, FloatFormat::of(to)) {
            (E::F32, _) => write(from, bytes, |x| x as f32),
            (E::F64, _) => write(from, bytes, |x| x),
            (_, Some(format)) if to.byte_width() == 2 => {
                write(from, bytes, |x| format.encode(x) as u16)
            }
            (_, Some(format)) => write(from, bytes, |x| format.encode(x) as u8),
            _ => Err(unsuitable("a floating-point type", to)),
        }
    }

    arithmetic!(Add::add, Mul::mul);
}

impl Wide for Complex<f64> {
    fn decode(from: E, bytes: &[u8], to: &mut [Self]) -> Result<()> {
        let widen = |x: Complex<f32>| Complex::new(x.re.into(), x.im.into());
        match from {
            E::C64 => read(bytes, to, widen),
            E::C128 => read(bytes, to, |x: Complex<f64>| x),
            _ => decode_as(from, bytes, to, |x: f64| x.into()),
        }
    }

    fn encode(from: &[Self], to: E, bytes: &mut [u8]) -> Result<()> {
        match to {
            E::C64 => write(from, bytes, |x| Complex::new(x.re as f32, x.im as f32)),
            E::C128 => write(from, bytes, |x| x),
            _ => Err(unsuitable("a complex type", to)),
        }
    }

    arithmetic!(Add::add, Mul::mul);
}

/// Decodes to one wide type and converts to another.
fn decode_as<T: Wide, W>(
    from: E,
    bytes: &[u8],
    to: &mut [W],
    convert: impl Fn(T) -> W,
) -> Result<()> {
    let mut decoded = vec![T::default(); to.len()];
    T::decode(from, bytes, &mut decoded)?;
    zip(to, decoded).for_each(|(to, x)| *to = convert(x));
    Ok(())
}

fn read<T: NativeType, W>(bytes: &[u8], to: &mut [W], widen: impl Fn(T) -> W) -> Result<()> {
    let elements = bytes.chunks_exact(size_of::<T>()).map(T::read);
    zip(to, elements).for_each(|(to, x)| *to = widen(x));
    Ok(())
}

fn write<T: NativeType, W: Copy>(
    from: &[W],
    bytes: &mut [u8],
    narrow: impl Fn(W) -> T,
) -> Result<()> {
    let elements = bytes.chunks_exact_mut(size_of::<T>());
    zip(from, elements).for_each(|(&x, to)| narrow(x).write(to));
    Ok(())
}

/// The low bits. Types narrower than a byte take a byte for each element, and a target may have set
/// its other bits.
fn low_bits(x: u8, bits: u32) -> u8 {
    x & ((1 << bits) - 1)
}

/// The low bits, sign-extended.
fn low_bits_signed(x: u8, bits: u32) -> i8 {
    (x << (8 - bits)) as i8 >> (8 - bits)
}

fn unsuitable(expected: &str, found: E) -> Status {
    bug(format_args!("expected {expected}, found {found}"))
}
