//! Floating-point types of at most 8 bits, decoded by definition and encoded by search over all
//! codes.
//!
//! Written from the published definitions (OCP 8-bit Floating Point Specification 1.0, OCP
//! Microscaling Formats 1.0, and for `fnuz` arXiv 2206.02915) and independent of callbox's own
//! conversions, which it judges.

use callbox::ElementType;

/// The bit layout of a type.
#[derive(Clone, Copy, Debug)]
struct Format {
    exponent_bits: u32,
    mantissa_bits: u32,
    bias: i32,
    special: Special,
}

/// The codes that are not finite numbers.
#[derive(Clone, Copy, Debug)]
enum Special {
    /// The largest exponent encodes infinity and NaN, as in IEEE 754.
    Ieee,
    /// All ones in exponent and mantissa encode NaN; there is no infinity.
    OnesAreNan,
    /// The code of negative zero encodes NaN; there is neither infinity nor negative zero.
    NegativeZeroIsNan,
    /// Every code is a finite number.
    None,
}

/// Decodes a code of a minifloat type. Returns `None` for other types.
#[must_use]
pub fn decode(element_type: ElementType, code: u8) -> Option<f64> {
    if element_type == ElementType::F8e8m0fnu {
        return Some(match code {
            255 => f64::NAN,
            _ => power_of_two(i32::from(code) - 127),
        });
    }
    format(element_type).map(|format| format.decode(code))
}

/// Encodes a value that the type represents exactly, including the sign of zero. Returns `None`
/// otherwise.
#[must_use]
pub fn encode(element_type: ElementType, value: f64) -> Option<u8> {
    let codes = 0..=u8::MAX >> (8 - element_type.bit_width().min(8));
    codes.into_iter().find(|&code| {
        decode(element_type, code).is_some_and(|found| {
            (found.is_nan() && value.is_nan())
                || (found == value && found.is_sign_negative() == value.is_sign_negative())
        })
    })
}

/// Returns the position of a code among the type's numbers. NaN has none; both zeros have the same.
#[must_use]
pub fn ordinal(element_type: ElementType, code: u8) -> Option<i128> {
    if decode(element_type, code).is_none_or(f64::is_nan) {
        return None;
    }
    if element_type == ElementType::F8e8m0fnu {
        return Some(i128::from(code));
    }
    let sign_bit = 1 << (element_type.bit_width() - 1);
    let magnitude = i128::from(code & (sign_bit - 1));
    Some(if code & sign_bit == 0 {
        magnitude
    } else {
        -magnitude
    })
}

fn format(element_type: ElementType) -> Option<Format> {
    use ElementType as E;
    let (exponent_bits, mantissa_bits, bias, special) = match element_type {
        E::F8e5m2 => (5, 2, 15, Special::Ieee),
        E::F8e4m3 => (4, 3, 7, Special::Ieee),
        E::F8e3m4 => (3, 4, 3, Special::Ieee),
        E::F8e4m3fn => (4, 3, 7, Special::OnesAreNan),
        E::F8e4m3b11fnuz => (4, 3, 11, Special::NegativeZeroIsNan),
        E::F8e5m2fnuz => (5, 2, 16, Special::NegativeZeroIsNan),
        E::F8e4m3fnuz => (4, 3, 8, Special::NegativeZeroIsNan),
        E::F4e2m1fn => (2, 1, 1, Special::None),
        _ => return None,
    };
    Some(Format {
        exponent_bits,
        mantissa_bits,
        bias,
        special,
    })
}

impl Format {
    fn decode(self, code: u8) -> f64 {
        let code = u32::from(code);
        let mantissa = code & ((1 << self.mantissa_bits) - 1);
        let exponent = (code >> self.mantissa_bits) & ((1 << self.exponent_bits) - 1);
        let negative = code >> (self.mantissa_bits + self.exponent_bits) & 1 == 1;
        let largest = (1 << self.exponent_bits) - 1;
        let ones = (1 << self.mantissa_bits) - 1;
        let magnitude = match self.special {
            Special::Ieee if exponent == largest && mantissa == 0 => f64::INFINITY,
            Special::Ieee if exponent == largest => f64::NAN,
            Special::OnesAreNan if exponent == largest && mantissa == ones => f64::NAN,
            Special::NegativeZeroIsNan if negative && exponent == 0 && mantissa == 0 => f64::NAN,
            _ => self.magnitude(exponent, mantissa),
        };
        if negative { -magnitude } else { magnitude }
    }

    fn magnitude(self, exponent: u32, mantissa: u32) -> f64 {
        let unit = power_of_two(1 - self.bias - self.mantissa_bits as i32);
        match exponent {
            0 => f64::from(mantissa) * unit,
            _ => {
                f64::from(mantissa + (1 << self.mantissa_bits))
                    * unit
                    * power_of_two(exponent as i32 - 1)
            }
        }
    }
}

/// Returns 2 to this power. It is exact, because each power that these types use is normal in f64.
fn power_of_two(power: i32) -> f64 {
    2f64.powi(power)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Largest finite value, smallest positive value, and number of NaN codes, from the
    /// specifications named above.
    #[test]
    fn extremes_are_those_of_the_specifications() {
        use ElementType as E;
        for (element_type, largest, smallest, nans) in [
            (E::F8e5m2, 57344.0, 2f64.powi(-16), 6),
            (E::F8e4m3, 240.0, 2f64.powi(-9), 14),
            (E::F8e3m4, 15.5, 2f64.powi(-6), 30),
            (E::F8e4m3fn, 448.0, 2f64.powi(-9), 2),
            (E::F8e4m3b11fnuz, 30.0, 2f64.powi(-13), 1),
            (E::F8e5m2fnuz, 57344.0, 2f64.powi(-17), 1),
            (E::F8e4m3fnuz, 240.0, 2f64.powi(-10), 1),
            (E::F8e8m0fnu, 2f64.powi(127), 2f64.powi(-127), 1),
            (E::F4e2m1fn, 6.0, 0.5, 0),
        ] {
            let codes = 0..=u8::MAX >> (8 - element_type.bit_width());
            let values: Vec<f64> = codes
                .map(|code| decode(element_type, code).unwrap())
                .collect();
            let finite = values.iter().copied().filter(|v| v.is_finite());
            assert_eq!(
                finite.clone().fold(0.0, f64::max),
                largest,
                "{element_type}"
            );
            let positive = finite.filter(|&v| v > 0.0);
            assert_eq!(
                positive.fold(f64::INFINITY, f64::min),
                smallest,
                "{element_type}"
            );
            assert_eq!(
                values.iter().filter(|v| v.is_nan()).count(),
                nans,
                "{element_type}"
            );
        }
        assert_eq!(decode(E::F32, 0), None);
    }

    #[test]
    fn codes_are_found_again_and_ordered_by_value() {
        for &element_type in &ElementType::ALL {
            let codes = 0..=u8::MAX >> (8 - element_type.bit_width().clamp(1, 8));
            for (a, b) in codes
                .clone()
                .flat_map(|a| codes.clone().map(move |b| (a, b)))
            {
                let (Some(x), Some(y)) = (decode(element_type, a), decode(element_type, b)) else {
                    continue;
                };
                if !x.is_nan() {
                    assert_eq!(encode(element_type, x), Some(a));
                }
                if let (Some(i), Some(j)) = (ordinal(element_type, a), ordinal(element_type, b)) {
                    assert_eq!(
                        i.partial_cmp(&j),
                        x.partial_cmp(&y),
                        "{element_type} {a} {b}"
                    );
                }
            }
        }
        assert_eq!(encode(ElementType::F8e4m3fn, 0.3), None);
        assert_eq!(encode(ElementType::F8e4m3fnuz, -0.0), None);
    }
}
