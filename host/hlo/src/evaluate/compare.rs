//! Elementwise comparisons.

use num_complex::Complex;

use super::array::Elements;
use super::elementwise::{blocks, pairs};
use super::wide::{Kind, Wide};
use super::{bug, direct};
use crate::instruction::{Comparison, ComparisonOrder};
use callbox_core::values::{ElementType, Result};

/// Compares each pair of elements; gives PRED.
pub(super) fn compare(
    direction: Comparison,
    order: ComparisonOrder,
    x: Elements<'_>,
    y: Elements<'_>,
) -> Result<Vec<u8>> {
    if x.element_type == ElementType::F32 && order == ComparisonOrder::Partial {
        return direct::compare(direction, x.bytes, y.bytes);
    }
    match (Kind::of(x.element_type)?, order) {
        (Kind::Signed, _) => ordered::<i64>(direction, [x, y], |x| x),
        (Kind::Unsigned, _) => ordered::<u64>(direction, [x, y], |x| x),
        (Kind::Real, ComparisonOrder::Partial) => ordered::<f64>(direction, [x, y], |x| x),
        (Kind::Real, ComparisonOrder::Total) if has_one_nan(x.element_type) => {
            ordered::<f64>(direction, [x, y], |x| {
                if x.is_nan() {
                    f64::INFINITY.copysign(x)
                } else {
                    x
                }
            })
        }
        (Kind::Real, ComparisonOrder::Total) => {
            ordered::<i64>(direction, [bits(x)?, bits(y)?], total_order_key)
        }
        (Kind::Complex, _) => equal(direction, [x, y]),
    }
}

fn ordered<A: Wide + PartialOrd>(
    direction: Comparison,
    operands: [Elements<'_>; 2],
    key: impl Fn(A) -> A,
) -> Result<Vec<u8>> {
    blocks(
        operands,
        ElementType::Pred,
        |[x, y]: [&[A]; 2], out: &mut [u64]| match direction {
            Comparison::Eq => pairs(x, y, out, |x, y| u64::from(key(x) == key(y))),
            Comparison::Ne => pairs(x, y, out, |x, y| u64::from(key(x) != key(y))),
            Comparison::Ge => pairs(x, y, out, |x, y| u64::from(key(x) >= key(y))),
            Comparison::Gt => pairs(x, y, out, |x, y| u64::from(key(x) > key(y))),
            Comparison::Le => pairs(x, y, out, |x, y| u64::from(key(x) <= key(y))),
            Comparison::Lt => pairs(x, y, out, |x, y| u64::from(key(x) < key(y))),
        },
    )
}

fn equal(direction: Comparison, operands: [Elements<'_>; 2]) -> Result<Vec<u8>> {
    let expected = match direction {
        Comparison::Eq => true,
        Comparison::Ne => false,
        _ => return Err(bug("complex numbers have no order")),
    };
    blocks(
        operands,
        ElementType::Pred,
        |[x, y]: [&[Complex<f64>]; 2], out: &mut [u64]| {
            pairs(x, y, out, |x, y| u64::from((x == y) == expected))
        },
    )
}

/// Whether a type has one NaN and neither infinities nor -0.
///
/// As in XLA, that NaN is the least value if its sign bit is set and the largest value of a type
/// without a sign. The order of the bits would place it among the numbers.
fn has_one_nan(element_type: ElementType) -> bool {
    use ElementType::{F8e4m3b11fnuz, F8e4m3fnuz, F8e5m2fnuz, F8e8m0fnu};
    matches!(
        element_type,
        F8e4m3b11fnuz | F8e4m3fnuz | F8e5m2fnuz | F8e8m0fnu
    )
}

/// The elements' bits as signed integers of the same width.
fn bits(x: Elements<'_>) -> Result<Elements<'_>> {
    let element_type = match x.element_type.bit_width() {
        4 => ElementType::S4,
        8 => ElementType::S8,
        16 => ElementType::S16,
        32 => ElementType::S32,
        64 => ElementType::S64,
        other => return Err(bug(format_args!("expected up to 64 bits, found {other}"))),
    };
    Ok(Elements { element_type, ..x })
}

/// Maps sign and magnitude to two's complement, whose order is the total order.
fn total_order_key(bits: i64) -> i64 {
    if bits < 0 { bits ^ i64::MAX } else { bits }
}

#[cfg(test)]
mod tests;
