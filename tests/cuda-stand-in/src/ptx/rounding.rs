//! Floating-point formats and rounding.
//!
//! A result that f64 has exactly, or with a known remainder, is rounded once more to the requested
//! format in the requested direction.

/// How an inexact result is rounded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rounding {
    /// `.rn`: to nearest, ties to even.
    Nearest,
    /// `.rz`
    Zero,
    /// `.rm`
    Down,
    /// `.rp`
    Up,
}

/// A binary floating-point format with infinities.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Format {
    exponent_bits: u32,
    mantissa_bits: u32,
}

pub(super) const HALF: Format = Format {
    exponent_bits: 5,
    mantissa_bits: 10,
};
pub(super) const BRAIN: Format = Format {
    exponent_bits: 8,
    mantissa_bits: 7,
};
pub(super) const SINGLE: Format = Format {
    exponent_bits: 8,
    mantissa_bits: 23,
};
pub(super) const DOUBLE: Format = Format {
    exponent_bits: 11,
    mantissa_bits: 52,
};

/// The canonical NaN of f32 operations.
pub(super) const SINGLE_NAN: u32 = 0x7fff_ffff;
/// The NaN of f64 operations without a NaN operand.
pub(super) const DOUBLE_NAN: u64 = 0xfff8_0000_0000_0000;

impl Format {
    /// Encodes a number. NaN becomes the format's canonical NaN, all ones except the sign.
    pub(super) fn encode(self, value: f64, rounding: Rounding) -> u64 {
        let bits = value.to_bits();
        let is_negative = value.is_sign_negative();
        let infinity = ((1 << self.exponent_bits) - 1) << self.mantissa_bits;
        if value.is_nan() {
            return infinity | ((1 << self.mantissa_bits) - 1);
        }
        if value.is_infinite() {
            return self.with_sign(infinity, is_negative);
        }
        let fraction = bits & ((1 << 52) - 1);
        match ((bits >> 52) & 0x7ff) as i32 {
            0 => self.encode_scaled(is_negative, fraction, -1074, rounding),
            exponent => {
                self.encode_scaled(is_negative, fraction | (1 << 52), exponent - 1075, rounding)
            }
        }
    }

    fn with_sign(self, bits: u64, is_negative: bool) -> u64 {
        bits | (u64::from(is_negative) << (self.exponent_bits + self.mantissa_bits))
    }

    /// Encodes `significand * 2^exponent`, with a sign.
    pub(super) fn encode_scaled(
        self,
        is_negative: bool,
        significand: u64,
        exponent: i32,
        rounding: Rounding,
    ) -> u64 {
        if significand == 0 {
            return self.with_sign(0, is_negative);
        }
        let mantissa = self.mantissa_bits as i32;
        let bias = (1 << (self.exponent_bits - 1)) - 1;
        let least = 1 - bias;
        let top = 63 - significand.leading_zeros() as i32 + exponent;
        let shift = top.max(least) - mantissa - exponent;
        let (mut kept, rest, half) = match shift {
            ..=0 => (significand << -shift, 0, 1),
            1..=63 => (
                significand >> shift,
                significand & ((1 << shift) - 1),
                1 << (shift - 1),
            ),
            64 => (0, significand, 1 << 63),
            _ => (0, 1, 2),
        };
        let up = match rounding {
            Rounding::Nearest => rest > half || (rest == half && kept & 1 == 1),
            Rounding::Zero => false,
            Rounding::Down => is_negative && rest > 0,
            Rounding::Up => !is_negative && rest > 0,
        };
        kept += u64::from(up);
        // A carry out of the mantissa correctly increments the exponent.
        let bits = if top < least {
            kept
        } else {
            (((top + bias) as u64) << mantissa) + (kept - (1 << mantissa))
        };
        let infinity = ((1 << self.exponent_bits) - 1) << self.mantissa_bits;
        let stays_finite = match rounding {
            Rounding::Nearest => false,
            Rounding::Zero => true,
            Rounding::Down => !is_negative,
            Rounding::Up => is_negative,
        };
        let bits = if bits < infinity {
            bits
        } else {
            infinity - u64::from(stays_finite)
        };
        self.with_sign(bits, is_negative)
    }
}

/// An f64 near an exact result, and the side on which the result lies: above (1), below (-1), or
/// equal (0).
#[derive(Clone, Copy, Debug)]
pub(super) struct Near {
    value: f64,
    side: i32,
}

fn two_sum(a: f64, b: f64) -> (f64, f64) {
    let sum = a + b;
    let b_part = sum - a;
    (sum, (a - (sum - b_part)) + (b - b_part))
}

/// Returns the sign of an exact sum, by Shewchuk's expansions.
fn sign_of_sum(terms: [f64; 4]) -> i32 {
    let mut parts = [0.0; 4];
    for (count, term) in terms.into_iter().enumerate() {
        let mut carried = term;
        for part in &mut parts[..count] {
            (carried, *part) = two_sum(carried, *part);
        }
        parts[count] = carried;
    }
    parts
        .iter()
        .rev()
        .find(|&&part| part != 0.0)
        .map_or(0, |&part| if part > 0.0 { 1 } else { -1 })
}

impl Near {
    fn new(value: f64, operands: &[f64], side: impl FnOnce() -> i32) -> Self {
        let side = if !operands.iter().all(|x| x.is_finite()) || value.is_nan() {
            0
        } else if value.is_infinite() {
            // An overflow. `quotient` handles division by zero.
            if value > 0.0 { -1 } else { 1 }
        } else {
            side()
        };
        Self { value, side }
    }

    pub(super) fn sum(a: f64, b: f64, rounding: Rounding) -> Self {
        Self::product_sum(a, 1.0, b, rounding)
    }

    pub(super) fn product(a: f64, b: f64) -> Self {
        let value = a * b;
        Self::new(value, &[a, b], || {
            sign_of_sum([a.mul_add(b, -value), 0.0, 0.0, 0.0])
        })
    }

    /// Computes `a * b + c`.
    pub(super) fn product_sum(a: f64, b: f64, c: f64, rounding: Rounding) -> Self {
        let product = a * b;
        let value = a.mul_add(b, c);
        // An exact cancellation gives +0, or -0 when rounding down.
        let cancels = value == 0.0 && product != 0.0 && product == -c;
        let value = if cancels && rounding == Rounding::Down {
            -0.0
        } else {
            value
        };
        let signs_differ =
            product == 0.0 && c == 0.0 && product.is_sign_negative() != c.is_sign_negative();
        let value = if signs_differ && rounding == Rounding::Down {
            -0.0
        } else {
            value
        };
        Self::new(value, &[a, b, c], || {
            sign_of_sum([product, a.mul_add(b, -product), c, -value])
        })
    }

    pub(super) fn quotient(a: f64, b: f64) -> Self {
        let value = a / b;
        if b == 0.0 {
            return Self { value, side: 0 };
        }
        Self::new(value, &[a, b], || {
            let product = value * b;
            let side = sign_of_sum([a, -product, -value.mul_add(b, -product), 0.0]);
            if b > 0.0 { side } else { -side }
        })
    }

    pub(super) fn root(a: f64) -> Self {
        let value = a.sqrt();
        Self::new(value, &[a], || {
            let square = value * value;
            sign_of_sum([a, -square, -value.mul_add(value, -square), 0.0])
        })
    }

    /// Rounds the result to f64.
    pub(super) fn to_double(self, rounding: Rounding) -> f64 {
        let Self { value, side } = self;
        match rounding {
            Rounding::Down if side < 0 => value.next_down(),
            Rounding::Up if side > 0 => value.next_up(),
            Rounding::Zero if side < 0 && value > 0.0 => value.next_down(),
            Rounding::Zero if side > 0 && value < 0.0 => value.next_up(),
            _ => value,
        }
    }

    /// Encodes the result in a narrower format, rounded once.
    pub(super) fn encode(self, format: Format, rounding: Rounding) -> u64 {
        // Rounding to odd preserves the side of every narrower number on which the result lies.
        let Self { value, side } = self;
        let odd = if side == 0 || value.to_bits() & 1 == 1 {
            value
        } else if side > 0 {
            value.next_up()
        } else {
            value.next_down()
        };
        format.encode(odd, rounding)
    }
}

/// Returns an f64 result's bits with the hardware's NaN: the first NaN operand, otherwise the one
/// for invalid operations.
pub(super) fn double_bits(value: f64, operands: &[f64]) -> u64 {
    if !value.is_nan() {
        return value.to_bits();
    }
    let operand = operands.iter().find(|operand| operand.is_nan());
    operand.map_or(DOUBLE_NAN, |nan| nan.to_bits() | (1 << 51))
}

/// Returns an f32 result's bits, with the canonical NaN.
pub(super) fn single_bits(value: f32) -> u64 {
    u64::from(if value.is_nan() {
        SINGLE_NAN
    } else {
        value.to_bits()
    })
}
