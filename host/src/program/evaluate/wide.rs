//! The four types that arithmetic is done in, and how each element type is read into one and rounded from it.
//!
//! | element types | wide type | why that gives the element type's own result |
//! | --- | --- | --- |
//! | signed integers | `i64`, wrapping | the low bits of a sum, product or power depend on low bits alone |
//! | unsigned integers, PRED | `u64`, wrapping | the same; PRED is 0 or 1, and what is not 0 becomes 1: a sum is an or |
//! | floating point | `f64` | 53 bits are more than 2 · 24 + 2: rounding a sum, difference, product, quotient or square root to `f64` and then to `f32` or less is rounding it once (Figueroa, 1995) |
//! | complex | two `f64` | |

use num_complex::Complex;

use super::bug;
use crate::values::{ElementType, FloatFormat, NativeType, Result, Status};

/// Which wide type an element type has.
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
    pub(super) fn of(element_type: ElementType) -> Result<Self> {
        match element_type {
            t if t.is_signed_integral() => Ok(Self::Signed),
            t if t.is_unsigned_integral() || t.is_pred() => Ok(Self::Unsigned),
            t if t.is_floating() => Ok(Self::Real),
            t if t.is_complex() => Ok(Self::Complex),
            t => Err(bug(format_args!(
                "expected an element type with values, found {t}"
            ))),
        }
    }
}

/// A type that arithmetic is done in.
pub(super) trait Wide: Copy + Default + PartialEq + 'static {
    /// Reads elements. An integer may be read as a wider kind; an `i64` or `u64` as `f64` is rounded.
    fn decode(from: ElementType, bytes: &[u8], to: &mut [Self]) -> Result<()>;

    /// Writes elements of a type of this kind: an integer's low bits, the nearest floating-point number.
    fn encode(from: &[Self], to: ElementType, bytes: &mut [u8]) -> Result<()>;

    /// The sum, wrapping if it is an integer.
    fn add(self, other: Self) -> Self;

    /// The product, wrapping if it is an integer.
    fn multiply(self, other: Self) -> Self;
}

impl Wide for i64 {
    fn decode(from: ElementType, bytes: &[u8], to: &mut [Self]) -> Result<()> {
        use ElementType as E;
        match from {
            E::S8 => read(bytes, to, |x: i8| x.into()),
            E::S16 => read(bytes, to, |x: i16| x.into()),
            E::S32 => read(bytes, to, |x: i32| x.into()),
            E::S64 => read(bytes, to, |x: i64| x),
            E::S1 | E::S2 | E::S4 => {
                read(bytes, to, |x: u8| {
                    low_bits_signed(x, from.bit_width()).into()
                });
            }
            _ => {
                let mut unsigned = vec![0; to.len()];
                u64::decode(from, bytes, &mut unsigned)?;
                std::iter::zip(to, unsigned).for_each(|(to, x)| *to = x as i64);
            }
        }
        Ok(())
    }

    fn encode(from: &[Self], to: ElementType, bytes: &mut [u8]) -> Result<()> {
        use ElementType as E;
        match to {
            E::S8 => write(from, bytes, |x| x as i8),
            E::S16 => write(from, bytes, |x| x as i16),
            E::S32 => write(from, bytes, |x| x as i32),
            E::S64 => write(from, bytes, |x| x),
            E::S1 | E::S2 | E::S4 => {
                write(from, bytes, |x| low_bits_signed(x as u8, to.bit_width()));
            }
            _ => return Err(unsuitable("a signed integer", to)),
        }
        Ok(())
    }

    fn add(self, other: Self) -> Self {
        self.wrapping_add(other)
    }

    fn multiply(self, other: Self) -> Self {
        self.wrapping_mul(other)
    }
}

impl Wide for u64 {
    fn decode(from: ElementType, bytes: &[u8], to: &mut [Self]) -> Result<()> {
        use ElementType as E;
        match from {
            E::Pred => read(bytes, to, |x: bool| x.into()),
            E::U8 => read(bytes, to, |x: u8| x.into()),
            E::U16 => read(bytes, to, |x: u16| x.into()),
            E::U32 => read(bytes, to, |x: u32| x.into()),
            E::U64 => read(bytes, to, |x: u64| x),
            E::U1 | E::U2 | E::U4 => read(bytes, to, |x: u8| low_bits(x, from.bit_width()).into()),
            _ => return Err(unsuitable("an unsigned integer or pred", from)),
        }
        Ok(())
    }

    fn encode(from: &[Self], to: ElementType, bytes: &mut [u8]) -> Result<()> {
        use ElementType as E;
        match to {
            E::Pred => write(from, bytes, |x| x != 0),
            E::U8 => write(from, bytes, |x| x as u8),
            E::U16 => write(from, bytes, |x| x as u16),
            E::U32 => write(from, bytes, |x| x as u32),
            E::U64 => write(from, bytes, |x| x),
            E::U1 | E::U2 | E::U4 => write(from, bytes, |x| low_bits(x as u8, to.bit_width())),
            _ => return Err(unsuitable("an unsigned integer or pred", to)),
        }
        Ok(())
    }

    fn add(self, other: Self) -> Self {
        self.wrapping_add(other)
    }

    fn multiply(self, other: Self) -> Self {
        self.wrapping_mul(other)
    }
}

impl Wide for f64 {
    fn decode(from: ElementType, bytes: &[u8], to: &mut [Self]) -> Result<()> {
        match from {
            ElementType::F32 => read(bytes, to, |x: f32| x.into()),
            ElementType::F64 => read(bytes, to, |x: f64| x),
            ElementType::Bf16 => read(bytes, to, |x: u16| {
                f32::from_bits(u32::from(x) << 16).into()
            }),
            _ => match FloatFormat::of(from) {
                Some(format) if from.byte_width() == 2 => {
                    read(bytes, to, |x: u16| format.decode(x.into()));
                }
                Some(format) => read(bytes, to, |x: u8| format.decode(x.into())),
                None => decode_integers(from, bytes, to)?,
            },
        }
        Ok(())
    }

    fn encode(from: &[Self], to: ElementType, bytes: &mut [u8]) -> Result<()> {
        match to {
            ElementType::F32 => write(from, bytes, |x| x as f32),
            ElementType::F64 => write(from, bytes, |x| x),
            _ => match FloatFormat::of(to) {
                Some(format) if to.byte_width() == 2 => {
                    write(from, bytes, |x| format.encode(x) as u16);
                }
                Some(format) => write(from, bytes, |x| format.encode(x) as u8),
                None => return Err(unsuitable("a floating-point type", to)),
            },
        }
        Ok(())
    }

    fn add(self, other: Self) -> Self {
        self + other
    }

    fn multiply(self, other: Self) -> Self {
        self * other
    }
}

impl Wide for Complex<f64> {
    fn decode(from: ElementType, bytes: &[u8], to: &mut [Self]) -> Result<()> {
        match from {
            ElementType::C64 => read(bytes, to, |x: Complex<f32>| {
                Complex::new(x.re.into(), x.im.into())
            }),
            ElementType::C128 => read(bytes, to, |x: Complex<f64>| x),
            _ => {
                let mut real = vec![0.0; to.len()];
                f64::decode(from, bytes, &mut real)?;
                std::iter::zip(to, real).for_each(|(to, x)| *to = x.into());
            }
        }
        Ok(())
    }

    fn encode(from: &[Self], to: ElementType, bytes: &mut [u8]) -> Result<()> {
        match to {
            ElementType::C64 => write(from, bytes, |x| Complex::new(x.re as f32, x.im as f32)),
            ElementType::C128 => write(from, bytes, |x| x),
            _ => return Err(unsuitable("a complex type", to)),
        }
        Ok(())
    }

    fn add(self, other: Self) -> Self {
        self + other
    }

    fn multiply(self, other: Self) -> Self {
        self * other
    }
}

fn decode_integers(from: ElementType, bytes: &[u8], to: &mut [f64]) -> Result<()> {
    match Kind::of(from)? {
        Kind::Signed => {
            let mut integers = vec![0i64; to.len()];
            i64::decode(from, bytes, &mut integers)?;
            std::iter::zip(to, integers).for_each(|(to, x)| *to = x as f64);
        }
        _ => {
            let mut integers = vec![0u64; to.len()];
            u64::decode(from, bytes, &mut integers)?;
            std::iter::zip(to, integers).for_each(|(to, x)| *to = x as f64);
        }
    }
    Ok(())
}

fn read<T: NativeType, W>(bytes: &[u8], to: &mut [W], widen: impl Fn(T) -> W) {
    let elements = bytes.chunks_exact(size_of::<T>()).map(T::read);
    std::iter::zip(to, elements).for_each(|(to, x)| *to = widen(x));
}

fn write<T: NativeType, W: Copy>(from: &[W], bytes: &mut [u8], narrow: impl Fn(W) -> T) {
    let elements = bytes.chunks_exact_mut(size_of::<T>());
    std::iter::zip(from, elements).for_each(|(&x, to)| narrow(x).write(to));
}

/// The lowest bits: types narrower than a byte have a byte for each element, of which a target may have set more.
fn low_bits(x: u8, bits: u32) -> u8 {
    x & ((1 << bits) - 1)
}

/// The lowest bits, sign-extended.
fn low_bits_signed(x: u8, bits: u32) -> i8 {
    (x << (8 - bits)) as i8 >> (8 - bits)
}

fn unsuitable(expected: &str, found: ElementType) -> Status {
    bug(format_args!("expected {expected}, found {found}"))
}
