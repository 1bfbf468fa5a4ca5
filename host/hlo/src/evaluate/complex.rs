//! Functions of complex numbers, with XLA's principal values: cuts are on the negative real axis.
//!
//! Infinities and NaN follow C99's Annex G where XLA does. As in XLA, products do not.

use num_complex::Complex;

type C = Complex<f64>;

pub(super) fn abs(z: C) -> f64 {
    libm::hypot(z.re, z.im)
}

/// `z` divided by its magnitude. A zero is its own sign.
pub(super) fn sign(z: C) -> C {
    match abs(z) {
        0.0 => z,
        magnitude => C::new(z.re / magnitude, z.im / magnitude),
    }
}

pub(super) fn exp(z: C) -> C {
    if z.im == 0.0 {
        C::new(libm::exp(z.re), z.im)
    } else {
        C::new(
            exp_times(z.re, libm::cos(z.im)),
            exp_times(z.re, libm::sin(z.im)),
        )
    }
}

/// exp(z) - 1, without cancellation near 0.
pub(super) fn exp_m1(z: C) -> C {
    let half_sine = libm::sin(z.im / 2.0);
    let re = libm::expm1(z.re) * libm::cos(z.im) - 2.0 * half_sine * half_sine;
    if z.re < 700.0 {
        C::new(re, exp(z).im)
    } else {
        exp(z)
    }
}

pub(super) fn ln(z: C) -> C {
    C::new(ln_abs(z), libm::atan2(z.im, z.re))
}

/// ln(1 + z), without cancellation near 0.
pub(super) fn ln_1p(z: C) -> C {
    // |1 + z|² - 1
    let excess = z.re * (2.0 + z.re) + z.im * z.im;
    let re = if excess.abs() < 0.5 {
        0.5 * libm::log1p(excess)
    } else {
        ln_abs(1.0 + z)
    };
    C::new(re, libm::atan2(z.im, 1.0 + z.re))
}

/// 1 / (1 + exp(-z)), without overflow.
pub(super) fn logistic(z: C) -> C {
    if z.re < 0.0 {
        divide(exp(z), 1.0 + exp(z))
    } else {
        divide(1.0.into(), 1.0 + exp(-z))
    }
}

/// Kahan's algorithm, which is accurate in both parts.
pub(super) fn sqrt(z: C) -> C {
    if z.im.is_infinite() {
        return C::new(f64::INFINITY, z.im);
    }
    if z.re.is_infinite() {
        let nothing = z.im * 0.0;
        return if z.re > 0.0 {
            C::new(z.re, nothing)
        } else {
            C::new(nothing.abs(), f64::INFINITY.copysign(z.im))
        };
    }
    if z.re == 0.0 && z.im == 0.0 {
        return C::new(0.0, z.im);
    }
    if z.is_nan() {
        return C::new(f64::NAN, f64::NAN);
    }
    // Scaling by an even power of two avoids overflow and underflow.
    let half = libm::ilogb(z.re.abs().max(z.im.abs())) / 2;
    let near_one = scaled(z, -2 * half);
    let larger = ((near_one.re.abs() + abs(near_one)) / 2.0).sqrt();
    let smaller = near_one.im.abs() / (2.0 * larger);
    let (re, im) = if near_one.re >= 0.0 {
        (larger, smaller)
    } else {
        (smaller, larger)
    };
    scaled(C::new(re, im.copysign(z.im)), half)
}

pub(super) fn rsqrt(z: C) -> C {
    divide(1.0.into(), sqrt(z))
}

pub(super) fn sin(z: C) -> C {
    C::new(
        zero_or_product(libm::sin(z.re), libm::cosh(z.im)),
        zero_or_product(libm::sinh(z.im), libm::cos(z.re)),
    )
}

pub(super) fn cos(z: C) -> C {
    C::new(
        libm::cos(z.re) * libm::cosh(z.im),
        -zero_or_product(libm::sin(z.re), libm::sinh(z.im)),
    )
}

/// -i tanh(iz).
pub(super) fn tan(z: C) -> C {
    let turned = tanh(C::new(-z.im, z.re));
    C::new(turned.im, -turned.re)
}

/// Kahan's algorithm, which is accurate in both parts and does not overflow.
pub(super) fn tanh(z: C) -> C {
    if z.re.abs() > 20.0 {
        let im = 4.0 * libm::sin(z.im) * libm::cos(z.im) * libm::exp(-2.0 * z.re.abs());
        return C::new(1f64.copysign(z.re), im);
    }
    let (tan, sinh) = (libm::tan(z.im), libm::sinh(z.re));
    let beta = 1.0 + tan * tan;
    let denominator = 1.0 + beta * sinh * sinh;
    let re = beta * (1.0 + sinh * sinh).sqrt() * sinh / denominator;
    C::new(re, tan / denominator)
}

/// The algorithm of C99's Annex G: scaled, with defined quotients for zeros and infinities.
pub(super) fn divide(x: C, y: C) -> C {
    let divisor = match y.re.abs().max(y.im.abs()) {
        largest if largest.is_finite() && largest > 0.0 => -libm::ilogb(largest),
        _ => 0,
    };
    // The scaled divisor is between 1 and 2, so that the products below are at most eight times
    // the dividend.
    let dividend = if x.re.abs().max(x.im.abs()) > 1e307 {
        -3
    } else {
        0
    };
    let (y, scaled_x) = (scaled(y, divisor), scaled(x, dividend));
    let norm = y.norm_sqr();
    let product = scaled_x * y.conj();
    let quotient = C::new(product.re / norm, product.im / norm);
    if quotient.re.is_nan() && quotient.im.is_nan() {
        special_quotient(x, y, norm).unwrap_or(quotient)
    } else {
        scaled(quotient, divisor - dividend)
    }
}

/// exp(y ln(x)), with XLA's values for `x` = 0 and `x` = 1.
pub(super) fn power(x: C, y: C) -> C {
    let (zero, one) = (C::new(0.0, 0.0), C::new(1.0, 0.0));
    if x == one || y == zero {
        return one;
    }
    if x == zero {
        return if y.re > 0.0 && y.im == 0.0 {
            zero
        } else {
            C::new(f64::NAN, f64::NAN)
        };
    }
    let argument = libm::atan2(x.im, x.re);
    let magnitude = libm::pow(abs(x), y.re) * libm::exp(-y.im * argument);
    let angle = y.re * argument + y.im * ln_abs(x);
    C::new(magnitude * libm::cos(angle), magnitude * libm::sin(angle))
}

/// -i ln((x + iy) / √(x² + y²)). The absolute error is a few units in the last place of 1.
pub(super) fn atan2(y: C, x: C) -> C {
    let log = ln(divide(x + C::new(-y.im, y.re), sqrt(x * x + y * y)));
    C::new(log.im, -log.re)
}

/// `z` times a power of two.
fn scaled(z: C, exponent: i32) -> C {
    C::new(libm::scalbn(z.re, exponent), libm::scalbn(z.im, exponent))
}

fn special_quotient(x: C, y: C, norm: f64) -> Option<C> {
    let unit = |v: f64| f64::from(u8::from(v.is_infinite())).copysign(v);
    if norm == 0.0 && !(x.re.is_nan() && x.im.is_nan()) {
        let infinity = f64::INFINITY.copysign(y.re);
        Some(C::new(infinity * x.re, infinity * x.im))
    } else if (x.re.is_infinite() || x.im.is_infinite()) && y.is_finite() {
        let direction = C::new(unit(x.re), unit(x.im)) * y.conj();
        Some(C::new(
            f64::INFINITY * direction.re,
            f64::INFINITY * direction.im,
        ))
    } else if (y.re.is_infinite() || y.im.is_infinite()) && x.is_finite() {
        let direction = x * C::new(unit(y.re), unit(y.im)).conj();
        Some(C::new(0.0 * direction.re, 0.0 * direction.im))
    } else {
        None
    }
}

/// ln |z|, accurate near 1, too.
fn ln_abs(z: C) -> f64 {
    let (a, b) = (z.re.abs().max(z.im.abs()), z.re.abs().min(z.im.abs()));
    let square = a * a + b * b;
    if (0.5..3.0).contains(&square) {
        0.5 * libm::log1p((a - 1.0) * (a + 1.0) + b * b)
    } else {
        libm::log(abs(z))
    }
}

/// exp(x) · factor, also if exp(x) alone overflows.
fn exp_times(x: f64, factor: f64) -> f64 {
    if x > 700.0 {
        libm::exp(x / 2.0) * factor * libm::exp(x / 2.0)
    } else {
        libm::exp(x) * factor
    }
}

/// The product, which is 0 if `x` is 0, also for an infinite `y`.
fn zero_or_product(x: f64, y: f64) -> f64 {
    if x == 0.0 {
        x * 1f64.copysign(y)
    } else {
        x * y
    }
}

#[cfg(test)]
mod tests;
