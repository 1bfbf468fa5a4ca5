//! Rounding to fewer bits of exponent and mantissa, on bits, as XLA's `EmitReducePrecisionIR`
//! (xla/service/elemental_ir_emitter.cc) does.

use super::array::Elements;
use super::bug;
use super::convert::convert;
use super::elementwise::{blocks, each};
use callbox_core::values::{ElementType, FloatFormat, Result};

/// Rounds each element to a number of a format with these numbers of bits.
///
/// Numbers that are too large become infinite, and numbers too small to be normal become 0. More
/// bits than the element type has change nothing.
pub(super) fn reduce_precision(
    x: Elements<'_>,
    exponent_bits: u32,
    mantissa_bits: u32,
) -> Result<Vec<u8>> {
    let (bits, own_exponent, own_mantissa) = match x.element_type {
        ElementType::F64 => (ElementType::U64, 11, 52),
        ElementType::F32 => (ElementType::U32, 8, 23),
        ElementType::F16 | ElementType::Bf16 => {
            let format =
                FloatFormat::of(x.element_type).ok_or_else(|| bug("a format is missing"))?;
            (
                ElementType::U16,
                format.exponent_bits(),
                format.mantissa_bits(),
            )
        }
        ElementType::F8e8m0fnu => {
            return by_way_of(ElementType::F32, x, exponent_bits, mantissa_bits);
        }
        _ => return by_way_of(ElementType::F16, x, exponent_bits, mantissa_bits),
    };
    let rounding = Rounding {
        own_exponent,
        own_mantissa,
        exponent: exponent_bits,
        mantissa: mantissa_bits,
    };
    let x = Elements {
        element_type: bits,
        ..x
    };
    blocks([x], bits, |[x], out| each(x, out, |x| rounding.apply(x)))
}

/// Rounds elements of a narrow type in a wider one.
///
/// The special values of types of 8 bits and less are not where IEEE 754 has them. XLA:CPU, too,
/// rounds them in a type that contains their numbers, which decides which numbers are subnormal.
fn by_way_of(
    wide: ElementType,
    x: Elements<'_>,
    exponent_bits: u32,
    mantissa_bits: u32,
) -> Result<Vec<u8>> {
    let widened = |bytes| Elements {
        element_type: wide,
        bytes,
    };
    let exact = convert(x, wide)?;
    let rounded = reduce_precision(widened(&exact), exponent_bits, mantissa_bits)?;
    convert(widened(&rounded), x.element_type)
}

#[derive(Clone, Copy)]
struct Rounding {
    own_exponent: u32,
    own_mantissa: u32,
    exponent: u32,
    mantissa: u32,
}

impl Rounding {
    fn apply(self, x: u64) -> u64 {
        let sign_bit = 1 << (self.own_exponent + self.own_mantissa);
        let (sign, magnitude) = (x & sign_bit, x & (sign_bit - 1));
        let infinity = ((1 << self.own_exponent) - 1) << self.own_mantissa;
        if magnitude > infinity {
            x
        } else {
            sign | self.limit_exponent(self.round_mantissa(magnitude), infinity)
        }
    }

    /// Rounds to nearest, ties to even. A carry into the exponent gives the next power of two.
    fn round_mantissa(self, x: u64) -> u64 {
        match self.own_mantissa.checked_sub(self.mantissa) {
            None | Some(0) => x,
            Some(dropped) => {
                let last_kept = (x >> dropped) & 1;
                let half = (1 << (dropped - 1)) - 1;
                (x + half + last_kept) & !((1 << dropped) - 1)
            }
        }
    }

    /// Replaces numbers that the exponent bits cannot express by infinity or 0. The bias puts the
    /// exponent of 1 into the middle of the field, whose lowest value stands for 0.
    fn limit_exponent(self, x: u64, infinity: u64) -> u64 {
        if self.exponent >= self.own_exponent || self.exponent == 0 {
            return x;
        }
        let (own_bias, bias) = (
            (1 << (self.own_exponent - 1)) - 1,
            (1 << (self.exponent - 1)) - 1,
        );
        match x >> self.own_mantissa {
            exponent if exponent > own_bias + bias => infinity,
            exponent if exponent <= own_bias - bias => 0,
            _ => x,
        }
    }
}

#[cfg(test)]
mod tests;
