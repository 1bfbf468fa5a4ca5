//! The layouts of floating-point types that Rust has no type for.

use crate::values::ElementType;

/// A floating-point type: sign, exponent and mantissa, from the highest bit to the lowest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FloatFormat {
    exponent_bits: u32,
    mantissa_bits: u32,
    bias: i32,
    specials: Specials,
}

/// Which bits are not numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Specials {
    /// The largest exponent: infinities and NaNs with a payload, as in IEEE 754.
    Ieee,
    /// All ones but the sign: NaN.
    AllOnes,
    /// What would be -0: NaN.
    NegativeZero,
    /// None.
    Nothing,
    /// All ones: NaN. There is no sign and no zero: each exponent is a power of two.
    PowersOfTwo,
}

impl FloatFormat {
    /// F32.
    pub(super) const F32: Self = Self::new(8, 23, 127, Specials::Ieee);

    /// The format of a type narrower than F32 (ml_dtypes has the definitions); `None` for any other type.
    pub(super) fn of(element_type: ElementType) -> Option<Self> {
        Some(match element_type {
            ElementType::F16 => Self::new(5, 10, 15, Specials::Ieee),
            ElementType::Bf16 => Self::new(8, 7, 127, Specials::Ieee),
            ElementType::F8e5m2 => Self::new(5, 2, 15, Specials::Ieee),
            ElementType::F8e4m3 => Self::new(4, 3, 7, Specials::Ieee),
            ElementType::F8e3m4 => Self::new(3, 4, 3, Specials::Ieee),
            ElementType::F8e4m3fn => Self::new(4, 3, 7, Specials::AllOnes),
            ElementType::F8e5m2fnuz => Self::new(5, 2, 16, Specials::NegativeZero),
            ElementType::F8e4m3fnuz => Self::new(4, 3, 8, Specials::NegativeZero),
            ElementType::F8e4m3b11fnuz => Self::new(4, 3, 11, Specials::NegativeZero),
            ElementType::F4e2m1fn => Self::new(2, 1, 1, Specials::Nothing),
            ElementType::F8e8m0fnu => Self::new(8, 0, 127, Specials::PowersOfTwo),
            _ => return None,
        })
    }

    /// The bits of a finite number, rounded to the nearest, ties to even. `None` if it is out of range.
    pub(super) fn round(self, value: f64) -> Option<u64> {
        if self.specials == Specials::PowersOfTwo && value <= 0.0 {
            return None;
        }
        let magnitude = self.round_magnitude(value.abs());
        match magnitude <= self.largest() {
            true if magnitude == 0 && self.specials == Specials::NegativeZero => Some(0),
            true => Some(magnitude | self.sign(value.is_sign_negative())),
            false => None,
        }
    }

    /// The bits of an infinity, if there are infinities.
    pub(super) fn infinity(self, negative: bool) -> Option<u64> {
        let is_ieee = self.specials == Specials::Ieee;
        is_ieee.then(|| self.exponent_mask() | self.sign(negative))
    }

    /// The bits of a NaN with this mantissa, or of the usual one. `None` if the type has none such.
    pub(super) fn nan(self, negative: bool, payload: Option<u64>) -> Option<u64> {
        match (self.specials, payload) {
            (Specials::Ieee, _) => {
                let payload = payload.unwrap_or(1 << (self.mantissa_bits - 1));
                let fits = payload < 1 << self.mantissa_bits;
                fits.then(|| self.exponent_mask() | payload | self.sign(negative))
            }
            (Specials::Nothing, _) | (_, Some(_)) => None,
            (Specials::AllOnes, None) => Some((self.sign(true) - 1) | self.sign(negative)),
            (Specials::NegativeZero, None) => Some(self.sign(true)),
            (Specials::PowersOfTwo, None) => Some(self.exponent_mask()),
        }
    }

    const fn new(exponent_bits: u32, mantissa_bits: u32, bias: i32, specials: Specials) -> Self {
        Self {
            exponent_bits,
            mantissa_bits,
            bias,
            specials,
        }
    }

    /// The bits of a magnitude, which may be too large for the format. As numbers, the bits of magnitudes are in the magnitudes' order,
    /// so that rounding up carries into the exponent.
    fn round_magnitude(self, value: f64) -> u64 {
        let (significand, exponent) = decompose(value);
        let smallest = 1 - self.bias;
        let binade = exponent.max(smallest);
        let mantissa_bits = self.mantissa_bits.cast_signed();
        // The significand counts steps of 2^(exponent - 52); the format counts steps of 2^(binade - mantissa_bits).
        let shift = (binade - mantissa_bits) - (exponent - 52);
        let steps = round_shift(significand, shift.unsigned_abs());
        steps + (u64::from((binade - smallest).unsigned_abs()) << self.mantissa_bits)
    }

    /// The bits of the largest finite number.
    fn largest(self) -> u64 {
        match self.specials {
            Specials::Ieee => self.exponent_mask() - 1,
            Specials::AllOnes => self.sign(true) - 2,
            Specials::NegativeZero | Specials::Nothing => self.sign(true) - 1,
            Specials::PowersOfTwo => self.exponent_mask() - 1,
        }
    }

    fn sign(self, negative: bool) -> u64 {
        u64::from(negative) << (self.exponent_bits + self.mantissa_bits)
    }

    fn exponent_mask(self) -> u64 {
        ((1 << self.exponent_bits) - 1) << self.mantissa_bits
    }
}

/// The 53 bits of a number's significand and the exponent of the highest of them. A number below 2^-1022 rounds to 0 in every format, and
/// is given as 0.
fn decompose(value: f64) -> (u64, i32) {
    const MANTISSA: u64 = (1 << 52) - 1;
    let bits = value.to_bits();
    let biased = ((bits >> 52) & 0x7ff) as i32;
    match biased {
        0 => (0, -1022),
        _ => ((bits & MANTISSA) | (1 << 52), biased - 1023),
    }
}

/// A number by 2 to this power, rounded to the nearest, ties to even.
fn round_shift(number: u64, shift: u32) -> u64 {
    if shift >= 64 {
        return 0;
    }
    let floor = number >> shift;
    let rest = number - (floor << shift);
    let half = (1_u64 << shift) >> 1;
    match rest.cmp(&half) {
        std::cmp::Ordering::Greater => floor + 1,
        std::cmp::Ordering::Equal if shift > 0 => floor + (floor & 1),
        _ => floor,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;
    use half::{bf16, f16};

    const TYPES: [&str; 11] = [
        "f16",
        "bf16",
        "f8e5m2",
        "f8e4m3",
        "f8e3m4",
        "f8e4m3fn",
        "f8e5m2fnuz",
        "f8e4m3fnuz",
        "f8e4m3b11fnuz",
        "f4e2m1fn",
        "f8e8m0fnu",
    ];

    /// The number that magnitude bits stand for, from the definition and without rounding.
    fn exact(format: FloatFormat, bits: u64) -> f64 {
        let mantissa = (bits & ((1 << format.mantissa_bits) - 1)) as f64
            / f64::from(1 << format.mantissa_bits);
        let exponent = (bits >> format.mantissa_bits) as i32;
        match exponent {
            0 if format.specials == Specials::PowersOfTwo => 2_f64.powi(-format.bias),
            0 => mantissa * 2_f64.powi(1 - format.bias),
            _ => (1.0 + mantissa) * 2_f64.powi(exponent - format.bias),
        }
    }

    fn formats() -> impl Iterator<Item = (&'static str, FloatFormat)> {
        TYPES
            .into_iter()
            .map(|name| (name, FloatFormat::of(name.parse().unwrap()).unwrap()))
    }

    #[test]
    fn every_number_reads_back() {
        for (name, format) in formats() {
            for bits in 0..=format.largest() {
                let value = exact(format, bits);
                assert_eq!(format.round(value), Some(bits), "{name} {value}");
                let negative = match format.specials {
                    Specials::PowersOfTwo => None,
                    Specials::NegativeZero if bits == 0 => Some(0),
                    _ => Some(bits | format.sign(true)),
                };
                assert_eq!(format.round(-value), negative, "{name} -{value}");
            }
            assert_eq!(format.round(1e300), None, "{name}");
        }
    }

    /// Ties go to even; what is off a tie by one F64 does not.
    #[test]
    fn numbers_round_to_the_nearest() {
        for (name, format) in
            formats().filter(|(_, format)| format.specials != Specials::PowersOfTwo)
        {
            for bits in 1..=format.largest() {
                let midpoint = f64::midpoint(exact(format, bits - 1), exact(format, bits));
                assert_eq!(
                    format.round(midpoint),
                    Some(bits - (bits & 1)),
                    "{name} {midpoint}"
                );
                assert_eq!(
                    format.round(midpoint.next_down()),
                    Some(bits - 1),
                    "{name} {midpoint}"
                );
                assert_eq!(
                    format.round(midpoint.next_up()),
                    Some(bits),
                    "{name} {midpoint}"
                );
            }
        }
    }

    #[test]
    fn halfs_agree_with_another_implementation() {
        for bits in 0..=u16::MAX {
            let (narrow, brain) = (f16::from_bits(bits), bf16::from_bits(bits));
            if narrow.is_finite() {
                let format = FloatFormat::of(ElementType::F16).unwrap();
                assert_eq!(format.round(narrow.to_f64()), Some(bits.into()));
            }
            if brain.is_finite() {
                let format = FloatFormat::of(ElementType::Bf16).unwrap();
                assert_eq!(format.round(brain.to_f64()), Some(bits.into()));
            }
        }
    }

    /// `numeric_limits::max` of ml_dtypes.
    #[test]
    fn largest_numbers_are_the_definitions() {
        let largest = [
            65504.0,
            3.3895313892515355e38,
            57344.0,
            240.0,
            15.5,
            448.0,
            57344.0,
            240.0,
            30.0,
            6.0,
            2_f64.powi(127),
        ];
        for ((name, format), expected) in std::iter::zip(formats(), largest) {
            assert_eq!(exact(format, format.largest()), expected, "{name}");
        }
    }
}
