//! The normalisation and its gradient, independent of the FFI. The host computes both, with sums in
//! F64, so that long rows lose no precision.

use callbox_guest::maths;

/// Normalises rows: divides each row of `x` by `sqrt(mean(x^2) + eps)` and multiplies it by
/// `weight`.
///
/// A row is as long as `weight`. `x` and `y` have the same length, a multiple of a row's. A row of
/// zeros becomes NaN if `eps` is 0.
pub fn rms_norm(x: &[f32], weight: &[f32], eps: f32, y: &mut [f32]) {
    maths::rms_norm_rows(x, weight, eps, y);
}

/// Writes the cotangents of `x` and `weight` to `dx` and `dweight`, for the cotangent `dy` of the
/// result.
///
/// With `s = 1 / sqrt(mean(x^2) + eps)` and `g = dy * weight`, a row of `dx` is
/// `s g - s^3 x mean(x g)`, and `dweight` is the sum over rows of `dy x s`.
pub fn rms_norm_grad(
    x: &[f32],
    weight: &[f32],
    dy: &[f32],
    eps: f32,
    dx: &mut [f32],
    dweight: &mut [f32],
) {
    let mut sums = vec![0.0_f64; weight.len()];
    maths::rms_norm_rows_gradient([x, weight, dy], eps, dx, &mut sums);
    for (dweight, sum) in dweight.iter_mut().zip(sums) {
        *dweight = sum as f32;
    }
}

#[cfg(test)]
mod tests {
    use super::{rms_norm, rms_norm_grad};

    /// Returns numbers from -2 to 2 without a pattern.
    fn numbers(count: usize, seed: u32) -> Vec<f32> {
        let mut state = seed;
        let mut next = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) as f32 / (1_u32 << 24) as f32 * 4.0 - 2.0
        };
        (0..count).map(|_| next()).collect()
    }

    /// The definition in F64.
    fn definition(x: &[f64], weight: &[f64], eps: f64) -> Vec<f64> {
        let mut y = Vec::new();
        for row in x.chunks(weight.len()) {
            let mean = row.iter().map(|x| x * x).sum::<f64>() / row.len() as f64;
            let normal = row.iter().zip(weight);
            y.extend(normal.map(|(x, weight)| x / (mean + eps).sqrt() * weight));
        }
        y
    }

    fn wide(x: &[f32]) -> Vec<f64> {
        x.iter().map(|&x| f64::from(x)).collect()
    }

    #[test]
    fn rows_are_the_definition() {
        for length in [1, 2, 3, 16, 31, 1000] {
            let (x, weight) = (numbers(3 * length, 1), numbers(length, 2));
            let mut y = vec![0.0; x.len()];
            rms_norm(&x, &weight, 1e-5, &mut y);
            let expected = definition(&wide(&x), &wide(&weight), f64::from(1e-5_f32));
            for (y, expected) in y.iter().zip(expected) {
                assert!(
                    (f64::from(*y) - expected).abs() <= 1e-7 * expected.abs(),
                    "{length}: {y} {expected}"
                );
            }
        }
    }

    #[test]
    fn known_rows() {
        let mut y = [0.0; 4];
        // The mean of 1 and 49 is 25. The mean of 0 and 0, plus 25, is 25 too.
        rms_norm(&[1.0, -7.0], &[1.0, 10.0], 0.0, &mut y[..2]);
        assert_eq!(y[..2], [0.2, -14.0]);
        rms_norm(&[0.0; 4], &[1.0, 1.0], 25.0, &mut y);
        assert_eq!(y, [0.0; 4]);
        rms_norm(&[0.0; 2], &[1.0, 1.0], 0.0, &mut y[..2]);
        assert!(y[0].is_nan());
    }

    /// Numbers whose squares overflow or underflow F32.
    #[test]
    fn large_and_small_numbers_neither_overflow_nor_vanish() {
        for size in [1e30_f32, 1e-30] {
            let mut y = [0.0; 2];
            rms_norm(&[size, -size], &[1.0, 2.0], 0.0, &mut y);
            assert_eq!(y, [1.0, -2.0]);
        }
    }

    /// Compares the gradient with central differences of the definition in F64.
    #[test]
    fn gradients_are_those_of_the_definition() {
        let (rows, length, eps) = (3, 7, 0.25_f32);
        let (x, weight) = (numbers(rows * length, 3), numbers(length, 4));
        let dy = numbers(rows * length, 5);
        let (mut dx, mut dweight) = (vec![0.0; x.len()], vec![0.0; length]);
        rms_norm_grad(&x, &weight, &dy, eps, &mut dx, &mut dweight);

        let loss = |x: &[f64], weight: &[f64]| -> f64 {
            let y = definition(x, weight, f64::from(eps));
            y.iter().zip(&dy).map(|(y, &dy)| y * f64::from(dy)).sum()
        };
        let (x, weight, step) = (wide(&x), wide(&weight), 1e-5);
        let moved = |values: &[f64], i: usize, step: f64| {
            let mut values = values.to_vec();
            values[i] += step;
            values
        };
        for (i, &found) in dx.iter().enumerate() {
            let (up, down) = (moved(&x, i, step), moved(&x, i, -step));
            let slope = (loss(&up, &weight) - loss(&down, &weight)) / (2.0 * step);
            assert!(
                (f64::from(found) - slope).abs() < 1e-6,
                "dx {i}: {found} {slope}"
            );
        }
        for (i, &found) in dweight.iter().enumerate() {
            let (up, down) = (moved(&weight, i, step), moved(&weight, i, -step));
            let slope = (loss(&x, &up) - loss(&x, &down)) / (2.0 * step);
            assert!(
                (f64::from(found) - slope).abs() < 1e-6,
                "dweight {i}: {found} {slope}"
            );
        }
    }

    #[test]
    fn no_rows_have_no_gradient() {
        let mut dweight = [7.0; 2];
        rms_norm_grad(&[], &[1.0, 2.0], &[], 1.0, &mut [], &mut dweight);
        assert_eq!(dweight, [0.0; 2]);
    }
}
