//! Squareplus and its derivative, independent of the FFI. Both are computed in F64.

/// A floating-point type of the arrays.
pub trait Real: Copy + Into<f64> + 'static {
    /// Rounds `value` to the nearest number.
    fn from_f64(value: f64) -> Self;
}

impl Real for f32 {
    #[inline(always)]
    fn from_f64(value: f64) -> Self {
        value as Self
    }
}

impl Real for f64 {
    #[inline(always)]
    fn from_f64(value: f64) -> Self {
        value
    }
}

/// Returns `sqrt(x^2 + beta)`, also where `x^2` overflows or underflows F64. `beta` is 0 or a
/// positive F32.
#[inline(always)]
fn root(x: f64, beta: f64) -> f64 {
    let root = (x * x + beta).sqrt();
    // Where the square is infinite, beta is negligible; where it is 0, the square is.
    if beta == 0.0 || root == f64::INFINITY {
        x.abs()
    } else {
        root
    }
}

/// Returns `(x + root) / 2`. For negative `x` the terms nearly cancel, so that a quotient takes
/// their place.
#[inline(always)]
fn value(x: f64, beta: f64, root: f64) -> f64 {
    let half = x.abs() / 2.0 + root / 2.0;
    if x >= 0.0 { half } else { beta / (4.0 * half) }
}

/// Returns the derivative, `(1 + x / root) / 2`, which is `value / root`.
#[inline(always)]
fn slope(x: f64, beta: f64) -> f64 {
    let root = root(x, beta);
    if root == 0.0 {
        // With beta 0 the function has a corner here.
        0.5
    } else if root == f64::INFINITY {
        if x > 0.0 { 1.0 } else { 0.0 }
    } else {
        value(x, beta, root) / root
    }
}

/// Writes `(x + sqrt(x^2 + beta)) / 2` to each element of `y`.
pub fn squareplus<T: Real>(x: &[T], beta: f32, y: &mut [T]) {
    let beta = f64::from(beta);
    for (y, &x) in y.iter_mut().zip(x) {
        let x: f64 = x.into();
        *y = T::from_f64(value(x, beta, root(x, beta)));
    }
}

/// Writes `dy (1 + x / sqrt(x^2 + beta)) / 2` to each element of `dx`.
///
/// Its loop needs all registers. In a function with calls, the host looks at its stop word behind
/// each, which takes one: such a loop has a function of its own.
#[inline(never)]
pub fn squareplus_grad<T: Real>(x: &[T], dy: &[T], beta: f32, dx: &mut [T]) {
    let beta = f64::from(beta);
    for (dx, (&x, &dy)) in dx.iter_mut().zip(x.iter().zip(dy)) {
        let dy: f64 = dy.into();
        *dx = T::from_f64(dy * slope(x.into(), beta));
    }
}

#[cfg(test)]
mod tests {
    use super::{squareplus, squareplus_grad};

    fn values(x: &[f64], beta: f32) -> Vec<f64> {
        let mut y = vec![7.0; x.len()];
        squareplus(x, beta, &mut y);
        y
    }

    fn slopes(x: &[f64], beta: f32) -> Vec<f64> {
        let mut dx = vec![7.0; x.len()];
        squareplus_grad(x, &vec![1.0; x.len()], beta, &mut dx);
        dx
    }

    #[test]
    fn known_values() {
        // Pythagorean triples: 3, 4, 5 and 5, 12, 13.
        assert_eq!(values(&[3.0, -3.0, 0.0], 16.0), [4.0, 1.0, 2.0]);
        assert_eq!(slopes(&[3.0, -3.0, 0.0], 16.0), [0.8, 0.2, 0.5]);
        assert_eq!(values(&[5.0, -5.0], 144.0), [9.0, 4.0]);
    }

    #[test]
    fn without_beta_it_is_the_positive_part() {
        let x = [3.0, -3.0, 0.0, -0.0, 1e-170, -1e-170, 1e200, -1e200];
        assert_eq!(
            values(&x, 0.0),
            [3.0, 0.0, 0.0, 0.0, 1e-170, 0.0, 1e200, 0.0]
        );
        assert_eq!(slopes(&x, 0.0), [1.0, 0.0, 0.5, 0.5, 1.0, 0.0, 1.0, 0.0]);
    }

    #[test]
    fn extremes_are_limits() {
        let infinity = f64::INFINITY;
        assert_eq!(
            values(&[infinity, -infinity, f64::MAX, f64::MIN], 4.0)[..3],
            [infinity, 0.0, f64::MAX]
        );
        assert_eq!(
            slopes(&[infinity, -infinity, f64::MAX, f64::MIN], 4.0),
            [1.0, 0.0, 1.0, 0.0]
        );
        assert!(values(&[f64::NAN], 4.0)[0].is_nan() && slopes(&[f64::NAN], 4.0)[0].is_nan());
        let mut y = [0.0_f32; 2];
        squareplus(&[f32::MAX, f32::MIN], 4.0, &mut y);
        assert_eq!(y, [f32::MAX, 1.0 / f32::MAX]);
    }

    /// Far from zero, where the two terms of the definition cancel, the value is beta / (4 |x|).
    #[test]
    fn small_values_keep_their_digits() {
        for x in [-1e6, -1e9, -1e12] {
            let (found, limit) = (values(&[x], 4.0)[0], -1.0 / x);
            assert!((found / limit - 1.0).abs() < 2e-12, "{x}: {found} {limit}");
            let slope = slopes(&[x], 4.0)[0];
            assert!((slope / (limit / -x) - 1.0).abs() < 1e-11, "{x}: {slope}");
        }
    }

    /// Compares the gradient with central differences.
    #[test]
    fn slopes_are_those_of_the_values() {
        for beta in [0.5_f32, 4.0] {
            for i in -40..=40 {
                let (x, step) = (f64::from(i) / 8.0, 1e-6);
                let around = values(&[x + step, x - step], beta);
                let expected = (around[0] - around[1]) / (2.0 * step);
                let found = slopes(&[x], beta)[0];
                assert!(
                    (found - expected).abs() < 1e-8,
                    "{x} {beta}: {found} {expected}"
                );
            }
        }
    }
}
