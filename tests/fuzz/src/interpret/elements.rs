//! Operations on single elements.

use callbox::program::{BinaryOperation, Comparison, ComparisonOrder, UnaryOperation};
use callbox::{ArrayShape, ElementType};
use num_complex::Complex;

use super::array::{Array, Tolerance, decode, encode};

/// An element, in a type wide enough for all of its kind.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Element {
    /// An integer, or a truth value as 0 or 1.
    Integer(i128),
    /// A floating-point number.
    Real(f64),
    /// A complex number.
    Complex(Complex<f64>),
}

/// Reduces an integer to the low bits of its type. Floating-point numbers are rounded when they are
/// encoded.
pub(crate) fn rounded(t: ElementType, element: Element) -> Element {
    match element {
        Element::Integer(x) if t.is_pred() => Element::Integer((x != 0).into()),
        Element::Integer(x) => {
            let bits = t.bit_width();
            let low = x.rem_euclid(1 << bits);
            let is_negative = t.is_signed_integral() && low >> (bits - 1) == 1;
            Element::Integer(if is_negative { low - (1 << bits) } else { low })
        }
        other => other,
    }
}

/// Returns an integer's bits as a non-negative number.
fn own(t: ElementType, x: i128) -> i128 {
    x.rem_euclid(1 << t.bit_width())
}

pub(crate) fn unary(operation: UnaryOperation, t: ElementType, x: Element) -> Element {
    match x {
        Element::Integer(x) => Element::Integer(integer_unary(operation, t, x)),
        Element::Real(x) => match operation {
            UnaryOperation::IsFinite => Element::Integer(x.is_finite().into()),
            _ => Element::Real(real_unary(operation, x)),
        },
        Element::Complex(x) => match operation {
            UnaryOperation::Abs => Element::Real(x.norm()),
            UnaryOperation::Real => Element::Real(x.re),
            UnaryOperation::Imag => Element::Real(x.im),
            _ => Element::Complex(complex_unary(operation, x)),
        },
    }
}

fn integer_unary(operation: UnaryOperation, t: ElementType, x: i128) -> i128 {
    let bits = i128::from(t.bit_width());
    match operation {
        UnaryOperation::Abs => x.abs(),
        UnaryOperation::CountLeadingZeros => (0..bits)
            .rev()
            .take_while(|&bit| own(t, x) >> bit & 1 == 0)
            .count() as i128,
        UnaryOperation::Negate => -x,
        UnaryOperation::Not if t.is_pred() => 1 - x,
        UnaryOperation::Not => !x,
        UnaryOperation::PopulationCount => (0..bits).map(|bit| own(t, x) >> bit & 1).sum(),
        UnaryOperation::Sign => x.signum(),
        other => panic!("{other:?} of integers"),
    }
}

fn real_unary(operation: UnaryOperation, x: f64) -> f64 {
    use UnaryOperation as U;
    match operation {
        U::Abs => x.abs(),
        U::Cbrt => x.cbrt(),
        U::Ceil => x.ceil(),
        U::Cosine => x.cos(),
        // The standard library has no `erf`. The executor uses the same function.
        U::Erf => libm::erf(x),
        U::Exponential => x.exp(),
        U::ExponentialMinusOne => x.exp_m1(),
        U::Floor => x.floor(),
        U::Imag => 0.0,
        U::Log => x.ln(),
        U::LogPlusOne => x.ln_1p(),
        // For large negative numbers the plain formula would divide by infinity.
        U::Logistic if x < 0.0 => x.exp() / (1.0 + x.exp()),
        U::Logistic => 1.0 / (1.0 + (-x).exp()),
        U::Negate => -x,
        U::Real => x,
        U::RoundNearestAfz => x.round(),
        U::RoundNearestEven => x.round_ties_even(),
        U::Rsqrt => x.sqrt().recip(),
        U::Sign if x == 0.0 || x.is_nan() => x,
        U::Sign => x.signum(),
        U::Sine => x.sin(),
        U::Sqrt => x.sqrt(),
        U::Tan => x.tan(),
        U::Tanh => x.tanh(),
        other => panic!("{other:?} of floating-point numbers"),
    }
}

fn complex_unary(operation: UnaryOperation, x: Complex<f64>) -> Complex<f64> {
    use UnaryOperation as U;
    let one = Complex::new(1.0, 0.0);
    match operation {
        // Not compared: implementations differ.
        _ if !x.is_finite() && operation != U::Negate => Complex::new(f64::NAN, f64::NAN),
        U::Cosine => x.cos(),
        U::Exponential => x.exp(),
        U::ExponentialMinusOne => x.exp() - one,
        U::Log => x.ln(),
        U::LogPlusOne => (x + one).ln(),
        U::Logistic => one / (one + (-x).exp()),
        U::Negate => -x,
        U::Rsqrt => one / x.sqrt(),
        U::Sign if x.norm() == 0.0 => x,
        U::Sign => x / x.norm(),
        U::Sine => x.sin(),
        U::Sqrt => x.sqrt(),
        U::Tan => x.tan(),
        U::Tanh => x.tanh(),
        other => panic!("{other:?} of complex numbers"),
    }
}

/// Returns the tolerance of a function. Two algorithms for a transcendental function differ
/// slightly.
pub(crate) fn unary_tolerance(operation: UnaryOperation, t: ElementType) -> Tolerance {
    use UnaryOperation as U;
    match operation {
        U::Abs | U::Negate | U::Real | U::Imag if t.is_integral() || t.is_floating() => {
            Tolerance::Exact
        }
        U::Negate | U::Real | U::Imag => Tolerance::Exact,
        U::Abs => Tolerance::Ulps(4),
        // These suffer cancellation in the plain formula.
        U::ExponentialMinusOne | U::LogPlusOne | U::Tan | U::Tanh | U::Logistic | U::Log
            if t.is_complex() =>
        {
            Tolerance::Relative(0.1)
        }
        _ if t == ElementType::C64 => Tolerance::Relative(1e-4),
        _ if t == ElementType::C128 => Tolerance::Relative(1e-9),
        U::Ceil
        | U::Floor
        | U::RoundNearestAfz
        | U::RoundNearestEven
        | U::Sign
        | U::Sqrt
        | U::Erf
        | U::IsFinite => Tolerance::Exact,
        _ if t == ElementType::F64 => Tolerance::Ulps(16),
        _ if t.is_floating() => Tolerance::Ulps(2),
        _ => Tolerance::Exact,
    }
}

pub(crate) fn binary(
    operation: BinaryOperation,
    t: ElementType,
    x: Element,
    y: Element,
) -> Element {
    match (x, y) {
        (Element::Integer(x), Element::Integer(y)) => {
            Element::Integer(integer_binary(operation, t, x, y))
        }
        (Element::Real(x), Element::Real(y)) => match operation {
            BinaryOperation::Complex => Element::Complex(Complex::new(x, y)),
            _ => Element::Real(real_binary(operation, x, y)),
        },
        (Element::Complex(x), Element::Complex(y)) => {
            Element::Complex(complex_binary(operation, x, y))
        }
        _ => panic!("{operation:?} of {x:?} and {y:?}"),
    }
}

fn integer_binary(operation: BinaryOperation, t: ElementType, x: i128, y: i128) -> i128 {
    use BinaryOperation as B;
    let bits = i128::from(t.bit_width());
    let is_within = (0..bits).contains(&y);
    match operation {
        B::Add if t.is_pred() => x | y,
        B::Add => x + y,
        B::And => x & y,
        B::Divide if y == 0 => -1,
        B::Divide => x / y,
        B::Maximum => x.max(y),
        B::Minimum => x.min(y),
        // The low 64 bits of a product of 64-bit numbers are right in 128 bits.
        B::Multiply => own(t, x).wrapping_mul(own(t, y)),
        B::Or => x | y,
        B::Power => integer_power(t, x, y),
        B::Remainder if y == 0 => x,
        B::Remainder => x % y,
        B::ShiftLeft if is_within => own(t, x) << y,
        B::ShiftRightLogical if is_within => own(t, x) >> y,
        B::ShiftLeft | B::ShiftRightLogical => 0,
        B::ShiftRightArithmetic => {
            let signed = own(t, x) - (own(t, x) >> (bits - 1) << bits);
            signed >> if is_within { y } else { bits - 1 }
        }
        B::Subtract => x - y,
        B::Xor => x ^ y,
        B::Atan2 | B::Complex => panic!("{operation:?} of integers"),
    }
}

/// Raises to an integer power. A negative exponent gives the truncated reciprocal.
fn integer_power(t: ElementType, x: i128, y: i128) -> i128 {
    if y < 0 {
        return match x {
            1 => 1,
            -1 if y % 2 == 0 => 1,
            -1 => -1,
            _ => 0,
        };
    }
    let (mut result, mut base, mut left) = (1, own(t, x), y);
    while left > 0 {
        if left % 2 == 1 {
            result = own(t, i128::wrapping_mul(result, base));
        }
        base = own(t, base.wrapping_mul(base));
        left /= 2;
    }
    result
}

fn real_binary(operation: BinaryOperation, x: f64, y: f64) -> f64 {
    use BinaryOperation as B;
    match operation {
        B::Add => x + y,
        B::Atan2 => x.atan2(y),
        B::Divide => x / y,
        B::Maximum | B::Minimum if x.is_nan() || y.is_nan() => f64::NAN,
        // The zeros compare equal, yet +0 is the larger one.
        B::Maximum if x == 0.0 && y == 0.0 => {
            if x.is_sign_positive() {
                x
            } else {
                y
            }
        }
        B::Minimum if x == 0.0 && y == 0.0 => {
            if x.is_sign_negative() {
                x
            } else {
                y
            }
        }
        B::Maximum => {
            if x > y {
                x
            } else {
                y
            }
        }
        B::Minimum => {
            if x < y {
                x
            } else {
                y
            }
        }
        B::Multiply => x * y,
        B::Power => x.powf(y),
        B::Remainder => x % y,
        B::Subtract => x - y,
        other => panic!("{other:?} of floating-point numbers"),
    }
}

fn complex_binary(operation: BinaryOperation, x: Complex<f64>, y: Complex<f64>) -> Complex<f64> {
    let is_finite = x.is_finite() && y.is_finite();
    match operation {
        BinaryOperation::Add => x + y,
        // Not compared: implementations differ.
        BinaryOperation::Divide | BinaryOperation::Multiply | BinaryOperation::Power
            if !is_finite =>
        {
            Complex::new(f64::NAN, f64::NAN)
        }
        BinaryOperation::Divide => x / y,
        BinaryOperation::Multiply => x * y,
        BinaryOperation::Power => x.powc(y),
        BinaryOperation::Subtract => x - y,
        other => panic!("{other:?} of complex numbers"),
    }
}

pub(crate) fn binary_tolerance(operation: BinaryOperation, t: ElementType) -> Tolerance {
    use BinaryOperation as B;
    match operation {
        B::Power if t.is_complex() => Tolerance::Relative(0.1),
        B::Multiply | B::Divide if t == ElementType::C64 => Tolerance::Relative(1e-5),
        B::Multiply | B::Divide if t == ElementType::C128 => Tolerance::Relative(1e-12),
        B::Atan2 | B::Power if t == ElementType::F64 => Tolerance::Ulps(16),
        B::Atan2 | B::Power if t.is_floating() => Tolerance::Ulps(2),
        _ => Tolerance::Exact,
    }
}

pub(crate) fn compare(
    comparison: Comparison,
    order: ComparisonOrder,
    (x, y): (&Array, &Array),
    i: usize,
) -> Element {
    use std::cmp::Ordering as O;
    let t = x.shape.element_type();
    let ordering = match (x.element(i), y.element(i)) {
        (Element::Integer(x), Element::Integer(y)) => Some(x.cmp(&y)),
        (Element::Real(a), Element::Real(b)) => match order {
            ComparisonOrder::Partial => a.partial_cmp(&b),
            ComparisonOrder::Total => Some(total_key(t, x.raw(i)).cmp(&total_key(t, y.raw(i)))),
        },
        (Element::Complex(x), Element::Complex(y)) if x == y => Some(O::Equal),
        _ => None,
    };
    let is_true = match comparison {
        Comparison::Eq => ordering == Some(O::Equal),
        Comparison::Ne => ordering != Some(O::Equal),
        Comparison::Ge => matches!(ordering, Some(O::Greater | O::Equal)),
        Comparison::Gt => ordering == Some(O::Greater),
        Comparison::Le => matches!(ordering, Some(O::Less | O::Equal)),
        Comparison::Lt => ordering == Some(O::Less),
    };
    Element::Integer(is_true.into())
}

/// Maps bits to a number that follows IEEE 754's total order. Negative numbers are reversed, below
/// 0.
pub(super) fn total_key(t: ElementType, bytes: &[u8]) -> i128 {
    let bits = bytes
        .iter()
        .rev()
        .fold(0, |bits, &byte| bits << 8 | i128::from(byte));
    let sign = 1 << (t.bit_width() - 1);
    if bits < sign { bits } else { sign - bits - 1 }
}

pub(crate) fn clamp(shape: &ArrayShape, [low, x, high]: [&Array; 3]) -> Array {
    let t = shape.element_type();
    let bound =
        |bound: &Array, i: usize| bound.element(if bound.shape.rank() == 0 { 0 } else { i });
    Array::compute(shape, |i| {
        let raised = binary(BinaryOperation::Maximum, t, bound(low, i), x.element(i));
        binary(BinaryOperation::Minimum, t, raised, bound(high, i))
    })
}

/// Converts an element. Floats become integers by truncation and saturation, NaN becomes 0;
/// integers keep their low bits.
pub(crate) fn convert(x: Element, to: ElementType) -> Element {
    let is_true = |is_true: bool| Element::Integer(is_true.into());
    match x {
        _ if to.is_complex() => Element::Complex(match x {
            Element::Integer(x) => Complex::new(x as f64, 0.0),
            Element::Real(x) => Complex::new(x, 0.0),
            Element::Complex(x) => x,
        }),
        Element::Integer(x) if to == ElementType::F32 => Element::Real((x as f32).into()),
        Element::Integer(x) if to.is_floating() => Element::Real(x as f64),
        Element::Integer(x) => Element::Integer(x),
        Element::Real(x) if to.is_floating() => Element::Real(x),
        Element::Real(x) if to.is_pred() => is_true(x != 0.0),
        Element::Real(x) => {
            let bits = to.bit_width();
            let (least, most) = if to.is_signed_integral() {
                (-(1_i128 << (bits - 1)), (1_i128 << (bits - 1)) - 1)
            } else {
                (0, (1_i128 << bits) - 1)
            };
            Element::Integer((x as i128).clamp(least, most))
        }
        Element::Complex(_) => panic!("{x:?} as {to}"),
    }
}

pub(crate) fn convert_tolerance(from: ElementType, to: ElementType) -> Tolerance {
    match (from.bit_width(), to) {
        // The value passes through an `f64`, with 53 bits.
        (64, ElementType::C64) => Tolerance::Relative(1e-6),
        _ => Tolerance::Exact,
    }
}

/// Rounds to this many exponent and mantissa bits. Overflow gives infinity; values below the
/// smallest normal number give 0.
pub(crate) fn reduce_precision(
    x: &Array,
    i: usize,
    exponent_bits: u32,
    mantissa_bits: u32,
) -> Element {
    let t = x.shape.element_type();
    let (own_exponent, own_mantissa) = match t {
        ElementType::F16 => (5, 10),
        ElementType::Bf16 => (8, 7),
        ElementType::F32 => (8, 23),
        other => panic!("reduce-precision of {other} is not interpreted"),
    };
    let element = x.element(i);
    let Element::Real(value) = element else {
        panic!("reduce-precision of {element:?}")
    };
    if !value.is_finite() || value == 0.0 {
        return element;
    }
    let least = 2 - (1 << (own_exponent - 1));
    let exponent = (value.abs().log2().floor() as i32).max(least);
    // The distance between neighbours with this many mantissa bits.
    let step = 2_f64.powi(exponent - mantissa_bits.min(own_mantissa) as i32);
    let near = (value / step).round_ties_even() * step;
    // A carry past the largest finite value of its own type gives infinity.
    let Element::Real(near) = decode(t, &encode(t, Element::Real(near))) else {
        return element;
    };
    if exponent_bits >= own_exponent || near.is_infinite() {
        return Element::Real(near);
    }
    let bias = (1 << (exponent_bits - 1)) - 1;
    let magnitude = near.abs();
    let limited = if magnitude >= 2_f64.powi(bias + 1) {
        f64::INFINITY
    } else if magnitude < 2_f64.powi(1 - bias) {
        0.0
    } else {
        magnitude
    };
    Element::Real(limited.copysign(value))
}
