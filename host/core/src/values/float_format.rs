//! Conversions between `f64` and the floating-point formats of at most 32 bits.
//!
//! An `f64` represents each number of these formats exactly. The reader of decimals and the
//! evaluator round with the same code.
//!
//! | type | defined by |
//! | --- | --- |
//! | F32, F16 | IEEE 754-2019, binary32 and binary16 |
//! | BF16 | the upper half of binary32 |
//! | F8E5M2, F8E4M3FN | OCP 8-bit Floating Point Specification (OFP8), 1.0 |
//! | F4E2M1FN, F8E8M0FNU | OCP Microscaling Formats (MX) Specification, 1.0 |
//! | F8E5M2FNUZ, F8E4M3FNUZ | Noune et al., *8-bit Numerical Formats for Deep Neural Networks* |
//! | F8E4M3B11FNUZ | the README of ml_dtypes: F8E4M3FNUZ with another bias |
//! | F8E4M3, F8E3M4 | the README of ml_dtypes: as in IEEE 754, with fewer bits |
//!
//! Noune et al. is arXiv 2206.02915 of 2022. Names and rounding are those of ml_dtypes
//! (github.com/jax-ml/ml_dtypes), with which XLA's conversions agree.

use super::ElementType;

/// A floating-point format: sign, exponent and mantissa, from the highest bit to the lowest. E8M0
/// has an exponent only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FloatFormat {
    exponent_bits: u32,
    mantissa_bits: u32,
    bias: i32,
    specials: Specials,
}

/// The bit patterns that are not finite numbers, which determine the result of an overflow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Specials {
    /// The largest exponent: infinities, and NaNs with a payload, as in IEEE 754. Overflow gives
    /// infinity.
    Ieee,
    /// All ones but the sign: a NaN for each sign. Overflow gives NaN.
    AllOnes,
    /// The pattern of -0 is NaN. Overflow gives NaN.
    NegativeZero,
    /// There are none. Overflow gives the largest number, and NaN gives -0, as in XLA.
    Nothing,
    /// All ones is NaN. Numbers are powers of two, without a sign or a zero. Negative numbers, zero
    /// and overflow give NaN.
    PowersOfTwo,
}

/// 2^129, which is out of range of every format here.
const BEYOND: f64 = 4.0 * (1_u128 << 127) as f64;

impl FloatFormat {
    /// The format of a real floating-point type narrower than F64; `None` for any other type.
    pub const fn of(element_type: ElementType) -> Option<Self> {
        use Specials::{AllOnes, Ieee, NegativeZero, Nothing, PowersOfTwo};
        let (exponent_bits, mantissa_bits, bias, specials) = match element_type {
            ElementType::F32 => (8, 23, 127, Ieee),
            ElementType::F16 => (5, 10, 15, Ieee),
            ElementType::Bf16 => (8, 7, 127, Ieee),
            ElementType::F8e5m2 => (5, 2, 15, Ieee),
            ElementType::F8e4m3 => (4, 3, 7, Ieee),
            ElementType::F8e3m4 => (3, 4, 3, Ieee),
            ElementType::F8e4m3fn => (4, 3, 7, AllOnes),
            ElementType::F8e5m2fnuz => (5, 2, 16, NegativeZero),
            ElementType::F8e4m3fnuz => (4, 3, 8, NegativeZero),
            ElementType::F8e4m3b11fnuz => (4, 3, 11, NegativeZero),
            ElementType::F4e2m1fn => (2, 1, 1, Nothing),
            ElementType::F8e8m0fnu => (8, 0, 127, PowersOfTwo),
            _ => return None,
        };
        Some(Self {
            exponent_bits,
            mantissa_bits,
            bias,
            specials,
        })
    }

    /// The width of the exponent in bits.
    pub const fn exponent_bits(self) -> u32 {
        self.exponent_bits
    }

    /// The width of the mantissa in bits, without the implicit leading bit.
    pub const fn mantissa_bits(self) -> u32 {
        self.mantissa_bits
    }

    /// The number with these bits. Bits above the format's width and a NaN's payload are ignored.
    pub fn decode(self, bits: u32) -> f64 {
        let negative = bits & self.sign(true) != 0;
        let magnitude = self.decode_magnitude(bits & self.magnitude_mask(), negative);
        if negative { -magnitude } else { magnitude }
    }

    /// The bits of the nearest number, as [`FloatFormat::round`] gives it, or of the format's
    /// replacement for a number out of range, an infinity or NaN.
    pub fn encode(self, value: f64) -> u32 {
        if let Some(bits) = self.round(value) {
            return bits;
        }
        let negative = value.is_sign_negative();
        let nan = || self.nan(negative, None).unwrap_or(self.sign(true));
        match self.specials {
            _ if value.is_nan() => nan(),
            Specials::Nothing => self.largest() | self.sign(negative),
            _ => self.infinity(negative).unwrap_or_else(nan),
        }
    }

    /// The bits of the nearest number, with ties to even. `None` if the number is out of range or
    /// not finite.
    ///
    /// E8M0 has no mantissa: ties go to the larger power of two. Positive numbers below the
    /// smallest round to the smallest; zero and negative numbers are out of range.
    pub fn round(self, value: f64) -> Option<u32> {
        let has_no_zero = self.specials == Specials::PowersOfTwo;
        if !value.is_finite() || (has_no_zero && value <= 0.0) {
            return None;
        }
        let magnitude = self.round_magnitude(value.abs().min(BEYOND));
        if magnitude == 0 && self.specials == Specials::NegativeZero {
            return Some(0);
        }
        (magnitude <= self.largest()).then(|| magnitude | self.sign(value.is_sign_negative()))
    }

    /// The bits of an infinity, if there are infinities.
    pub fn infinity(self, negative: bool) -> Option<u32> {
        let is_ieee = self.specials == Specials::Ieee;
        is_ieee.then(|| self.exponent_mask() | self.sign(negative))
    }

    /// The bits of a NaN with this mantissa, or of the default NaN. `None` if the format lacks it.
    pub fn nan(self, negative: bool, payload: Option<u64>) -> Option<u32> {
        match (self.specials, payload) {
            (Specials::Ieee, None) => {
                let quiet = 1 << (self.mantissa_bits - 1);
                Some(self.exponent_mask() | quiet | self.sign(negative))
            }
            (Specials::Ieee, Some(payload)) => {
                let payload = u32::try_from(payload).ok()?;
                let fits = payload < 1 << self.mantissa_bits;
                fits.then(|| self.exponent_mask() | payload | self.sign(negative))
            }
            (Specials::Nothing, _) | (_, Some(_)) => None,
            (Specials::AllOnes, None) => Some(self.magnitude_mask() | self.sign(negative)),
            (Specials::NegativeZero, None) => Some(self.sign(true)),
            (Specials::PowersOfTwo, None) => Some(self.exponent_mask()),
        }
    }

    fn decode_magnitude(self, bits: u32, negative: bool) -> f64 {
        let fraction = bits & ((1 << self.mantissa_bits) - 1);
        match self.specials {
            Specials::NegativeZero if bits == 0 && negative => return f64::NAN,
            Specials::PowersOfTwo if bits <= self.largest() => {
                return power_of_two(bits.cast_signed() - self.bias);
            }
            Specials::Ieee if bits > self.largest() && fraction == 0 => return f64::INFINITY,
            _ if bits > self.largest() => return f64::NAN,
            _ => {}
        }
        let (significand, exponent) = match bits >> self.mantissa_bits {
            0 => (fraction, 1),
            exponent => (fraction | 1 << self.mantissa_bits, exponent),
        };
        let exponent = exponent.cast_signed() - self.bias - self.mantissa_bits.cast_signed();
        f64::from(significand) * power_of_two(exponent)
    }

    /// The bits of a magnitude up to [`BEYOND`], which may be too large for the format. The bits of
    /// magnitudes have the order of the magnitudes, so that rounding up carries into the exponent.
    fn round_magnitude(self, value: f64) -> u32 {
        // Below the smallest normal number the distance between numbers does not shrink any more.
        let lowest = 1 - self.bias;
        let exponent = exponent(value).max(lowest);
        let steps = value * power_of_two(self.mantissa_bits.cast_signed() - exponent);
        // A normal number's leading bit adds one to the exponent's field, and so does a carry.
        let field = (exponent - lowest).unsigned_abs();
        (field << self.mantissa_bits) + steps.round_ties_even() as u32
    }

    /// The bits of the largest number.
    const fn largest(self) -> u32 {
        match self.specials {
            Specials::Ieee | Specials::PowersOfTwo => self.exponent_mask() - 1,
            Specials::AllOnes => self.magnitude_mask() - 1,
            Specials::NegativeZero | Specials::Nothing => self.magnitude_mask(),
        }
    }

    const fn sign(self, negative: bool) -> u32 {
        match (negative, self.specials) {
            (false, _) | (true, Specials::PowersOfTwo) => 0,
            (true, _) => 1 << (self.exponent_bits + self.mantissa_bits),
        }
    }

    const fn magnitude_mask(self) -> u32 {
        (1 << (self.exponent_bits + self.mantissa_bits)) - 1
    }

    const fn exponent_mask(self) -> u32 {
        ((1 << self.exponent_bits) - 1) << self.mantissa_bits
    }
}

/// The exponent of a positive number; that of a subnormal is below all others.
fn exponent(value: f64) -> i32 {
    ((value.to_bits() >> 52) & 0x7ff) as i32 - 1023
}

/// The power, if it is a normal number.
fn power_of_two(exponent: i32) -> f64 {
    debug_assert!((-1022..=1023).contains(&exponent), "{exponent}");
    f64::from_bits(((exponent + 1023) as u64) << 52)
}

#[cfg(test)]
mod tests;
