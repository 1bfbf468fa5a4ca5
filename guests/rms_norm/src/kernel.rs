//! The normalisation and its gradient, apart from the FFI. Sums are made in F64, so that a long row loses nothing that a short one does not.

/// One over the root of the mean of a row's squares and `eps`.
fn scale(x: &[f32], eps: f32) -> f64 {
    let squares: f64 = x.iter().map(|&x| f64::from(x) * f64::from(x)).sum();
    1.0 / (squares / x.len() as f64 + f64::from(eps)).sqrt()
}

/// Writes to `y` each row of `x`, as long as `weight` is, over the root of the mean of its squares and `eps`, times `weight`.
///
/// `x` and `y` have the same length, a multiple of that of `weight`. A row of zeros is NaN if `eps` is 0.
pub fn rms_norm(x: &[f32], weight: &[f32], eps: f32, y: &mut [f32]) {
    if weight.is_empty() {
        return;
    }
    for (x, y) in x.chunks(weight.len()).zip(y.chunks_mut(weight.len())) {
        let scale = scale(x, eps);
        for ((y, &x), &weight) in y.iter_mut().zip(x).zip(weight) {
            *y = (f64::from(x) * scale * f64::from(weight)) as f32;
        }
    }
}

/// Writes the cotangents of `x` and `weight` to `dx` and `dweight`, for the cotangent `dy` of the result.
///
/// With `s` one over the root and `g = dy * weight`, a row of `dx` is `s g - s^3 x mean(x g)`, and `dweight` is the sum over rows of `dy x s`.
pub fn rms_norm_grad(
    x: &[f32],
    weight: &[f32],
    dy: &[f32],
    eps: f32,
    dx: &mut [f32],
    dweight: &mut [f32],
) {
    let length = weight.len();
    if length == 0 {
        return;
    }
    let mut sums = vec![0.0_f64; length];
    let rows = x.chunks(length).zip(dy.chunks(length));
    for ((x, dy), dx) in rows.zip(dx.chunks_mut(length)) {
        let scale = scale(x, eps);
        let mut products = 0.0;
        for (((sum, &x), &dy), &weight) in sums.iter_mut().zip(x).zip(dy).zip(weight) {
            let product = f64::from(x) * f64::from(dy);
            products += product * f64::from(weight);
            *sum += product * scale;
        }
        let along = scale * scale * scale * products / length as f64;
        for (((dx, &x), &dy), &weight) in dx.iter_mut().zip(x).zip(dy).zip(weight) {
            *dx = (scale * f64::from(dy) * f64::from(weight) - along * f64::from(x)) as f32;
        }
    }
    for (dweight, sum) in dweight.iter_mut().zip(sums) {
        *dweight = sum as f32;
    }
}

#[cfg(test)]
mod tests {
    use super::{rms_norm, rms_norm_grad};

    /// Numbers from -2 to 2 that follow no pattern.
    fn numbers(count: usize, seed: u32) -> Vec<f32> {
        let mut state = seed;
        let mut next = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) as f32 / (1_u32 << 24) as f32 * 4.0 - 2.0
        };
        (0..count).map(|_| next()).collect()
    }

    /// The definition, in F64.
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
        // The mean of 1 and 49 is 25, that of 0 and 0 with 25 is 25 too.
        rms_norm(&[1.0, -7.0], &[1.0, 10.0], 0.0, &mut y);
        assert_eq!(y[..2], [0.2, -14.0]);
        rms_norm(&[0.0; 4], &[1.0, 1.0], 25.0, &mut y);
        assert_eq!(y, [0.0; 4]);
        rms_norm(&[0.0; 2], &[1.0, 1.0], 0.0, &mut y);
        assert!(y[0].is_nan());
    }

    /// The squares of numbers whose squares F32 does not have.
    #[test]
    fn large_and_small_numbers_neither_overflow_nor_vanish() {
        for size in [1e30_f32, 1e-30] {
            let mut y = [0.0; 2];
            rms_norm(&[size, -size], &[1.0, 2.0], 0.0, &mut y);
            assert_eq!(y, [1.0, -2.0]);
        }
    }

    /// Central differences of the definition, in F64.
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
