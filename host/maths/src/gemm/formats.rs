//! The formats of matrix elements, and the numbers in which their products are computed.

use std::ops::{Add, Mul};

use super::sealed::Multiply;
use crate::convert::{bf16_to_f32, f16_to_f32};

/// The format of the elements of A and B: `f32`, `f64`, [`F16`], [`Bf16`] or `i8`.
pub trait Format: sealed::Sealed + 'static {
    /// The type that holds an element.
    type Stored: Copy;
    /// The type of terms and of the sum of a tile's terms.
    type Wide: Number;
    /// The type of the elements of C.
    type Sum: Sum<Wide = Self::Wide>;

    /// The number that an element represents.
    fn widen(element: Self::Stored) -> Self::Wide;

    /// The elements, if they are wide ones.
    fn as_wide(_: &[Self::Stored]) -> Option<&[Self::Wide]> {
        None
    }

    /// The dot product of slices as long as each other, of a tile's terms at most. `None` for
    /// formats that are faster widened.
    fn dot(_: &[Self::Stored], _: &[Self::Stored]) -> Option<Self::Wide> {
        None
    }
}

/// IEEE 754's binary16, given by its bits. C has F32.
#[derive(Clone, Copy, Debug)]
pub enum F16 {}

/// The upper half of an F32, given by its bits. C has F32.
#[derive(Clone, Copy, Debug)]
pub enum Bf16 {}

/// A type of elements of C: `f32`, `f64` or `i32`.
pub trait Sum: sealed::Sealed + Copy + 'static {
    /// The type of the sum of a tile's terms.
    type Wide: Number;
    /// The factor that changes nothing.
    const ONE: Self;

    /// The number in the wide type, if it is a wide one.
    fn wide(self) -> Self::Wide;

    /// The elements, if they are wide ones.
    fn as_wide(elements: &mut [Self]) -> Option<&mut [Self::Wide]>;

    /// The element `alpha sum + beta before`. If `beta` is 0, `before` has no influence.
    fn finish(alpha: Self, sum: Self::Wide, beta: Self, before: Self) -> Self;
}

/// A type that `matrixmultiply` multiplies: `f32` or `f64`.
pub trait Number:
    Format<Stored = Self, Wide = Self, Sum = Self>
    + Sum<Wide = Self>
    + Default
    + PartialEq
    + Add<Output = Self>
    + Mul<Output = Self>
    + Multiply
{
    /// Zero.
    const ZERO: Self;
}

mod sealed {
    pub trait Sealed {}
}

macro_rules! number {
    ($type:ident, $nan:literal) => {
        impl sealed::Sealed for $type {}

        impl Number for $type {
            const ZERO: Self = 0.0;
        }

        impl Format for $type {
            type Stored = Self;
            type Wide = Self;
            type Sum = Self;

            #[inline(always)]
            fn widen(element: Self) -> Self {
                element
            }

            fn as_wide(elements: &[Self]) -> Option<&[Self]> {
                Some(elements)
            }
        }

        impl Sum for $type {
            type Wide = Self;
            const ONE: Self = 1.0;

            fn wide(self) -> Self {
                self
            }

            fn as_wide(elements: &mut [Self]) -> Option<&mut [Self]> {
                Some(elements)
            }

            #[inline(always)]
            fn finish(alpha: Self, sum: Self, beta: Self, before: Self) -> Self {
                let product = alpha * sum;
                let sum = if beta == 0.0 {
                    product
                } else {
                    product + beta * before
                };
                Self::from_bits(if sum.is_nan() { $nan } else { sum.to_bits() })
            }
        }
    };
}

number!(f32, 0x7fc0_0000);
number!(f64, 0x7ff8_0000_0000_0000);

macro_rules! narrow {
    ($($type:ident($stored:ty) to $sum:ty: $widen:expr $(, $dot:expr)?;)*) => {$(
        impl sealed::Sealed for $type {}

        impl Format for $type {
            type Stored = $stored;
            type Wide = f32;
            type Sum = $sum;

            #[inline(always)]
            fn widen(element: $stored) -> f32 {
                $widen(element)
            }

            $(
                #[inline(always)]
                fn dot(a: &[$stored], b: &[$stored]) -> Option<f32> {
                    Some($dot(a, b))
                }
            )?
        }
    )*};
}

narrow! {
    F16(u16) to f32: f16_to_f32;
    Bf16(u16) to f32: bf16_to_f32;
    i8(i8) to i32: f32::from, dot_of_s8;
}

/// At most 256 products of at most 2^14: an integer of F32.
#[inline(always)]
fn dot_of_s8(a: &[i8], b: &[i8]) -> f32 {
    #[inline(always)]
    fn sum(a: &[i8], b: &[i8]) -> i32 {
        let products = a.iter().zip(b).map(|(a, b)| i32::from(*a) * i32::from(*b));
        products.sum()
    }
    // A loop of known length takes half the time.
    match (a.as_array::<256>(), b.as_array::<256>()) {
        (Some(a), Some(b)) => sum(a, b) as f32,
        _ => sum(a, b) as f32,
    }
}

impl sealed::Sealed for i32 {}

/// Sums of S8, which wrap around. The sum of a tile's terms is an integer.
impl Sum for i32 {
    type Wide = f32;
    const ONE: Self = 1;

    fn wide(self) -> f32 {
        self as f32
    }

    fn as_wide(_: &mut [Self]) -> Option<&mut [f32]> {
        None
    }

    #[inline(always)]
    fn finish(alpha: Self, sum: f32, beta: Self, before: Self) -> Self {
        let product = alpha.wrapping_mul(sum as Self);
        product.wrapping_add(beta.wrapping_mul(before))
    }
}
