//! Element types that Rust lacks: 16-bit floats and complex numbers.

use core::cmp::Ordering;
use core::fmt;

/// An IEEE 754 binary16. Arithmetic is done in [`f32`], which represents all of its values.
///
/// ```
/// use callbox_guest::F16;
///
/// assert_eq!(F16::from_f32(1.5).to_bits(), 0x3e00);
/// assert_eq!(F16::from_f32(65520.0).to_f32(), f32::INFINITY);
/// ```
#[derive(Clone, Copy, Default)]
#[repr(transparent)]
pub struct F16(u16);

impl F16 {
    /// Returns the number with these bits.
    ///
    /// ```
    /// use callbox_guest::F16;
    ///
    /// assert_eq!(F16::from_bits(0x3e00), F16::from_f32(1.5));
    /// ```
    #[must_use]
    pub const fn from_bits(bits: u16) -> Self {
        Self(bits)
    }

    /// Returns the bits.
    ///
    /// ```
    /// use callbox_guest::F16;
    ///
    /// assert_eq!(F16::from_f32(1.5).to_bits(), 0x3e00);
    /// ```
    #[must_use]
    pub const fn to_bits(self) -> u16 {
        self.0
    }

    /// Rounds to the nearest number, ties to even. A NaN stays a NaN, and becomes quiet.
    ///
    /// ```
    /// use callbox_guest::F16;
    ///
    /// // 2049 lies between two numbers, and 2048 is the even one.
    /// assert_eq!(F16::from_f32(2049.0).to_f32(), 2048.0);
    /// ```
    #[must_use]
    pub const fn from_f32(value: f32) -> Self {
        const INFINITY: u32 = 0x7f80_0000;
        /// 65536, the smallest power of two that overflows.
        const TOO_LARGE: u32 = 0x4780_0000;
        /// 2^-14, the smallest normal number.
        const SMALLEST_NORMAL: u32 = 0x3880_0000;
        /// The difference of the exponents' biases, shifted to the exponent.
        const BIAS: u32 = (127 - 15) << 23;

        let bits = value.to_bits();
        let sign = (bits >> 16) as u16 & 0x8000;
        let magnitude = bits & 0x7fff_ffff;
        let rounded = if magnitude > INFINITY {
            0x7e00 | (magnitude >> 13) as u16 & 0x3ff
        } else if magnitude >= TOO_LARGE {
            0x7c00
        } else if magnitude >= SMALLEST_NORMAL {
            let to_even = 0xfff + (magnitude >> 13 & 1);
            ((magnitude - BIAS + to_even) >> 13) as u16
        } else {
            // The last bit of 0.5 has the weight of the result's last bit, so that the addition
            // rounds.
            let sum = f32::from_bits(magnitude) + 0.5;
            (sum.to_bits() - 0.5_f32.to_bits()) as u16
        };
        Self(sign | rounded)
    }

    /// Converts to [`f32`] without loss.
    ///
    /// ```
    /// use callbox_guest::F16;
    ///
    /// assert_eq!(F16::from_bits(0x3e00).to_f32(), 1.5);
    /// ```
    #[must_use]
    pub const fn to_f32(self) -> f32 {
        let sign = (self.0 as u32 & 0x8000) << 16;
        let (exponent, mantissa) = (self.0 as u32 >> 10 & 31, self.0 as u32 & 0x3ff);
        let magnitude = match exponent {
            0 => (mantissa as f32 * SMALLEST_F16).to_bits(),
            31 => 0x7f80_0000 | mantissa << 13,
            _ => (exponent + (127 - 15)) << 23 | mantissa << 13,
        };
        f32::from_bits(sign | magnitude)
    }
}

/// 2^-24.
const SMALLEST_F16: f32 = f32::from_bits(0x3380_0000);

/// The upper half of an [`f32`]. Arithmetic is done in [`f32`], which represents all of its values.
///
/// ```
/// use callbox_guest::Bf16;
///
/// assert_eq!(Bf16::from_f32(1.5).to_bits(), 0x3fc0);
/// ```
#[derive(Clone, Copy, Default)]
#[repr(transparent)]
pub struct Bf16(u16);

impl Bf16 {
    /// Returns the number with these bits.
    ///
    /// ```
    /// use callbox_guest::Bf16;
    ///
    /// assert_eq!(Bf16::from_bits(0x3fc0), Bf16::from_f32(1.5));
    /// ```
    #[must_use]
    pub const fn from_bits(bits: u16) -> Self {
        Self(bits)
    }

    /// Returns the bits.
    ///
    /// ```
    /// use callbox_guest::Bf16;
    ///
    /// assert_eq!(Bf16::from_f32(1.5).to_bits(), 0x3fc0);
    /// ```
    #[must_use]
    pub const fn to_bits(self) -> u16 {
        self.0
    }

    /// Rounds to the nearest number, ties to even. A NaN stays a NaN, and becomes quiet.
    ///
    /// ```
    /// use callbox_guest::Bf16;
    ///
    /// // 257 lies between two numbers, and 256 is the even one.
    /// assert_eq!(Bf16::from_f32(257.0).to_f32(), 256.0);
    /// ```
    #[must_use]
    pub const fn from_f32(value: f32) -> Self {
        let bits = value.to_bits();
        if value.is_nan() {
            return Self((bits >> 16) as u16 | 0x40);
        }
        // The addition cannot overflow: the largest value is infinity, which stays infinity.
        let to_even = 0x7fff + (bits >> 16 & 1);
        Self(((bits + to_even) >> 16) as u16)
    }

    /// Converts to [`f32`] without loss.
    ///
    /// ```
    /// use callbox_guest::Bf16;
    ///
    /// assert_eq!(Bf16::from_bits(0x3fc0).to_f32(), 1.5);
    /// ```
    #[must_use]
    pub const fn to_f32(self) -> f32 {
        f32::from_bits((self.0 as u32) << 16)
    }
}

macro_rules! like_f32 {
    ($($type:ty),*) => {$(
        impl From<$type> for f32 {
            fn from(number: $type) -> Self {
                number.to_f32()
            }
        }

        impl PartialEq for $type {
            fn eq(&self, other: &Self) -> bool {
                self.to_f32() == other.to_f32()
            }
        }

        impl PartialOrd for $type {
            fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
                self.to_f32().partial_cmp(&other.to_f32())
            }
        }

        impl fmt::Debug for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.to_f32().fmt(f)
            }
        }
    )*};
}

like_f32!(F16, Bf16);

/// A complex number of two [`f32`].
///
/// With the feature `num-complex`, `From` converts from and to `num_complex::Complex<f32>`, which
/// has arithmetic and functions:
///
#[cfg_attr(feature = "num-complex", doc = "```")]
#[cfg_attr(not(feature = "num-complex"), doc = "```ignore")]
/// use callbox_guest::{C64, Operand, ResultBuffer, target};
/// use num_complex::Complex;
///
/// #[target(elementwise)]
/// fn squared(#[dimensions(..)] x: &Operand<C64>, #[dimensions(..)] y: &mut ResultBuffer<C64>) {
///     for (y, &x) in y.iter_mut().zip(x.iter()) {
///         let x = Complex::from(x);
///         *y = (x * x).into();
///     }
/// }
/// # let mut call = callbox_guest::native::Call::new();
/// # call.operand(&[C64 { re: 1.0, im: 2.0 }], &[1]).result::<C64>(&[1]);
/// # assert_eq!(call.run::<squared>(), Ok(()));
/// # assert_eq!(call.result_elements::<C64>(0), [C64 { re: -3.0, im: 4.0 }]);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[repr(C)]
pub struct C64 {
    /// The real part.
    pub re: f32,
    /// The imaginary part.
    pub im: f32,
}

/// A complex number of two [`f64`]. With the feature `num-complex`, `From` converts from and to
/// `num_complex::Complex<f64>`, as for [`C64`].
///
/// ```
/// use callbox_guest::C128;
///
/// let x = C128 { re: 3.0, im: -4.0 };
/// assert_eq!(x.re.hypot(x.im), 5.0);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[repr(C)]
pub struct C128 {
    /// The real part.
    pub re: f64,
    /// The imaginary part.
    pub im: f64,
}

#[cfg(feature = "num-complex")]
macro_rules! like_num_complex {
    ($($type:ident: $part:ty),*) => {$(
        impl From<num_complex::Complex<$part>> for $type {
            fn from(number: num_complex::Complex<$part>) -> Self {
                Self { re: number.re, im: number.im }
            }
        }

        impl From<$type> for num_complex::Complex<$part> {
            fn from(number: $type) -> Self {
                Self::new(number.re, number.im)
            }
        }
    )*};
}

#[cfg(feature = "num-complex")]
like_num_complex!(C64: f32, C128: f64);

#[cfg(test)]
mod tests {
    use super::*;

    /// The finite positive numbers in ascending order, each with its successor.
    fn ascending(limit: u16, to_f32: impl Fn(u16) -> f32) -> impl Iterator<Item = (f32, f32, u16)> {
        (0..limit).map(move |bits| (to_f32(bits), to_f32(bits + 1), bits))
    }

    /// The midpoint of two neighbours rounds to the even one, and the values next to it to their
    /// own side.
    fn rounds(below: f32, above: f32, bits: u16, round: impl Fn(f32) -> u16) {
        let middle = f32::midpoint(below, above);
        assert_eq!(round(below), bits, "{below}");
        assert_eq!(round(middle), bits + (bits & 1), "{middle}");
        assert_eq!(round(middle.next_down()), bits, "below {middle}");
        assert_eq!(round(middle.next_up()), bits + 1, "above {middle}");
        assert_eq!(round(-below), bits | 0x8000, "-{below}");
    }

    #[test]
    fn f16_rounds_to_the_nearest() {
        // The successor of the largest number, 65504, would be 65536: values nearer to it are
        // infinite.
        let value = |bits| {
            if bits == 0x7c00 {
                65536.0
            } else {
                F16(bits).to_f32()
            }
        };
        assert_eq!(value(0x7bff), 65504.0);
        assert_eq!(value(1), 1.0 / 16_777_216.0);
        for (below, above, bits) in ascending(0x7c00, value) {
            rounds(below, above, bits, |x| F16::from_f32(x).to_bits());
        }
    }

    #[test]
    fn bf16_rounds_to_the_nearest() {
        for (below, above, bits) in ascending(0x7f7f, |bits| Bf16(bits).to_f32()) {
            rounds(below, above, bits, |x| Bf16::from_f32(x).to_bits());
        }
        assert_eq!(Bf16::from_f32(f32::MAX).to_f32(), f32::INFINITY);
    }

    #[test]
    fn what_is_not_finite_stays_so() {
        for sign in [1.0_f32, -1.0] {
            let infinity = sign * f32::INFINITY;
            assert_eq!(F16::from_f32(infinity).to_f32(), infinity);
            assert_eq!(Bf16::from_f32(infinity).to_f32(), infinity);
            // A NaN whose only mantissa bit is the last, which the short mantissas lack.
            let nan = f32::from_bits(infinity.to_bits() | 1);
            assert!(F16::from_f32(nan).to_f32().is_nan());
            assert!(Bf16::from_f32(nan).to_f32().is_nan());
        }
        for nan in 0x7c01..=0x7fff {
            let quiet = F16(nan | 0x200);
            assert_eq!(F16::from_f32(F16(nan).to_f32()).to_bits(), quiet.to_bits());
        }
    }

    #[test]
    fn numbers_compare_as_they_are() {
        assert_eq!(F16(0x8000), F16(0));
        assert_ne!(F16(0x7e00), F16(0x7e00));
        assert!(Bf16::from_f32(-1.0) < Bf16::from_f32(0.5));
    }
}
