//! The floating-point formats of 16 bits and less, to and from `f64`, which holds each of their values exactly.
//!
//! One pair of functions serves all but E8M0, which has neither sign nor mantissa. Names and limits are those of
//! ml_dtypes, which XLA's conversions agree with.

use crate::values::ElementType;

/// How a format's bits are shared out: a sign, then exponent, then mantissa.
#[derive(Clone, Copy, Debug)]
pub(super) struct Format {
    pub(super) exponent_bits: u32,
    pub(super) mantissa_bits: u32,
    bias: i32,
    special: Special,
}

/// Which bit patterns are not numbers, and so what is too large becomes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Special {
    /// IEEE 754's infinities and NaNs: the highest exponent. Overflow gives infinity.
    Ieee,
    /// No infinities, and a NaN for each sign: all ones. Overflow gives NaN.
    Fn,
    /// No infinities and no negative zero, whose pattern is NaN. Overflow gives NaN.
    Fnuz,
    /// Numbers only. Overflow gives the largest; NaN gives negative zero, as in XLA.
    Finite,
}

impl Format {
    /// The format of a type that is no wider than 16 bits and is not E8M0.
    pub(super) fn of(element_type: ElementType) -> Option<Self> {
        let (exponent_bits, mantissa_bits, bias, special) = match element_type {
            ElementType::F16 => (5, 10, 15, Special::Ieee),
            ElementType::Bf16 => (8, 7, 127, Special::Ieee),
            ElementType::F8e5m2 => (5, 2, 15, Special::Ieee),
            ElementType::F8e4m3 => (4, 3, 7, Special::Ieee),
            ElementType::F8e3m4 => (3, 4, 3, Special::Ieee),
            ElementType::F8e4m3fn => (4, 3, 7, Special::Fn),
            ElementType::F8e4m3b11fnuz => (4, 3, 11, Special::Fnuz),
            ElementType::F8e5m2fnuz => (5, 2, 16, Special::Fnuz),
            ElementType::F8e4m3fnuz => (4, 3, 8, Special::Fnuz),
            ElementType::F4e2m1fn => (2, 1, 1, Special::Finite),
            _ => return None,
        };
        Some(Self {
            exponent_bits,
            mantissa_bits,
            bias,
            special,
        })
    }

    /// The number that these bits stand for. Bits above the format's are ignored.
    pub(super) fn decode(self, bits: u16) -> f64 {
        let bits = u32::from(bits);
        let sign = 1 << (self.exponent_bits + self.mantissa_bits);
        let magnitude = self.magnitude(bits & (sign - 1), bits & sign != 0);
        match bits & sign {
            0 => magnitude,
            _ => -magnitude,
        }
    }

    /// The bits of the nearest number; of two equally near, of the one whose last bit is 0.
    pub(super) fn encode(self, value: f64) -> u16 {
        let sign = match value.is_sign_negative() {
            true => 1 << (self.exponent_bits + self.mantissa_bits),
            false => 0,
        };
        let bits = match (self.round(value.abs()), self.special) {
            (None, Special::Fnuz) => 1 << (self.exponent_bits + self.mantissa_bits),
            (None, Special::Finite) if value.is_nan() => {
                1 << (self.exponent_bits + self.mantissa_bits)
            }
            (None, _) => sign | self.beyond(value),
            (Some(0), Special::Fnuz) => 0,
            (Some(magnitude), _) => sign | magnitude,
        };
        // A format has 16 bits at most.
        bits as u16
    }

    /// The bits of the largest number, without a sign.
    fn largest(self) -> u32 {
        let all = (1 << (self.exponent_bits + self.mantissa_bits)) - 1;
        match self.special {
            Special::Ieee => all - (1 << self.mantissa_bits),
            Special::Fn => all - 1,
            Special::Fnuz | Special::Finite => all,
        }
    }

    fn magnitude(self, bits: u32, negative: bool) -> f64 {
        if self.special == Special::Fnuz && bits == 0 && negative {
            return f64::NAN;
        }
        let fraction = bits & ((1 << self.mantissa_bits) - 1);
        if bits > self.largest() {
            return match (self.special, fraction) {
                (Special::Ieee, 0) => f64::INFINITY,
                _ => f64::NAN,
            };
        }
        let (significand, exponent) = match bits >> self.mantissa_bits {
            0 => (fraction, 1),
            exponent => (fraction | 1 << self.mantissa_bits, exponent),
        };
        f64::from(significand)
            * power_of_two(exponent as i32 - self.bias - self.mantissa_bits as i32)
    }

    /// The bits of the nearest number to one that is not negative: `None` if there is none.
    fn round(self, value: f64) -> Option<u32> {
        if !value.is_finite() {
            return None;
        }
        // Below the smallest normal number the distance between numbers does not shrink any more.
        let lowest = 1 - self.bias;
        let exponent = exponent(value).max(lowest);
        let units = value * power_of_two(self.mantissa_bits as i32 - exponent);
        // A normal number's leading bit, and a carry, add one to the exponent's field.
        let field = (exponent - lowest) as u32;
        let bits = (field << self.mantissa_bits) + units.round_ties_even() as u32;
        (bits <= self.largest()).then_some(bits)
    }

    /// The bits, without a sign, of what has no nearest number.
    fn beyond(self, value: f64) -> u32 {
        let infinity = ((1 << self.exponent_bits) - 1) << self.mantissa_bits;
        match self.special {
            Special::Ieee if value.is_nan() => infinity | 1 << (self.mantissa_bits - 1),
            Special::Ieee => infinity,
            Special::Fn | Special::Fnuz => infinity | ((1 << self.mantissa_bits) - 1),
            Special::Finite => self.largest(),
        }
    }
}

/// The number that these bits of E8M0 stand for.
pub(super) fn decode_e8m0(bits: u8) -> f64 {
    match bits {
        u8::MAX => f64::NAN,
        _ => power_of_two(i32::from(bits) - 127),
    }
}

/// The bits of the nearest power of two; of two equally near, of the larger. NaN, zero and what is negative or too
/// large are NaN. Below the second smallest power all that is above the smallest is rounded up, as in ml_dtypes
/// and XLA.
pub(super) fn encode_e8m0(value: f64) -> u8 {
    if value.is_nan() || value <= 0.0 {
        return u8::MAX;
    }
    if value < power_of_two(-126) {
        return u8::from(value > power_of_two(-127));
    }
    let exponent = exponent(value);
    // An infinity's exponent is 1024.
    let rounded = match exponent < 1024 && value >= 1.5 * power_of_two(exponent) {
        true => exponent + 1,
        false => exponent,
    };
    u8::try_from(rounded + 127).unwrap_or(u8::MAX)
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
