//! The accuracy of functions of F64 rows, and of the normalisation of rows, against computations
//! with twice the digits of F64.

use callbox_maths::norm::Forward;
use callbox_maths::{
    Reduction, dot_rows, reduce_rows, rms_norm_rows, rms_norm_rows_gradient, softmax_rows,
};

use super::double::{Double, ulps};
use super::go_on;

fn ulps_of_f32(found: f32, exact: Double) -> f64 {
    let nearest = (exact.0 as f32).abs();
    let unit = f64::from(nearest.next_up()) - f64::from(nearest);
    (f64::from(found) - exact.0).abs() / unit
}

/// Numbers between -4 and 4 without a pattern.
fn numbers(count: usize, seed: u64) -> Vec<f64> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 11) as f64 / (1_u64 << 50) as f64 - 4.0
    };
    std::iter::repeat_with(next).take(count).collect()
}

fn floats(count: usize, seed: u64) -> Vec<f32> {
    numbers(count, seed).into_iter().map(|x| x as f32).collect()
}

const LENGTHS: [usize; 9] = [1, 2, 15, 31, 32, 33, 1000, 4096, 10_001];
const ROWS: usize = 3;

/// The reference has known values.
#[test]
fn the_reference_knows_e_and_its_root() {
    // OEIS A001113 and A019774, to 32 digits: the numbers and what F64 leaves of them.
    let e = Double(1.0, 0.0).exp();
    assert_eq!(e.0.to_bits(), std::f64::consts::E.to_bits());
    assert!((e.1 - 1.445_646_891_729_250_2e-16).abs() < 1e-28, "{e:?}");
    let root = e.root();
    assert!(ulps(root.0, Double(0.5, 0.0).exp()) <= 0.5, "{root:?}");
    let third = Double(1.0, 0.0).over(Double(3.0, 0.0));
    assert!((third.1 - 1.850_371_707_708_594e-17).abs() < 1e-30);
}

#[test]
fn softmax_of_f64_is_as_accurate_as_documented() {
    for columns in LENGTHS {
        let x = numbers(ROWS * columns, 3);
        let mut y = vec![0.0; x.len()];
        let Ok(()) = softmax_rows(Some(&x), columns, &mut y, &mut go_on);
        let mut in_place = x.clone();
        let Ok(()) = softmax_rows(None, columns, &mut in_place, &mut go_on);
        assert_eq!(y, in_place);
        for (x, y) in x.chunks(columns).zip(y.chunks(columns)) {
            let max = x.iter().copied().fold(f64::MIN, f64::max);
            let powers: Vec<Double> = x.iter().map(|x| Double::sum(*x, -max).exp()).collect();
            let sum: Double = powers.iter().copied().sum();
            for ((x, y), power) in x.iter().zip(y).zip(powers) {
                let allowed = 5.0 + (max - x) + columns as f64 / 64.0;
                let error = ulps(*y, power.over(sum));
                assert!(error <= allowed, "{columns}: {y} is off by {error} ULP");
            }
        }
    }
}

#[test]
fn softmax_of_f64_underflows_gradually() {
    let mut y = [0.0, -740.0, -800.0, f64::NEG_INFINITY];
    let Ok(()) = softmax_rows(None, 4, &mut y, &mut go_on);
    // Python: decimal.Decimal(-740).exp() is 84.78 times the smallest number.
    assert_eq!(y, [1.0, f64::from_bits(85), 0.0, 0.0]);
}

#[test]
fn reductions_of_f64_are_as_accurate_as_documented() {
    for columns in LENGTHS {
        let (a, b) = (numbers(ROWS * columns, 5), numbers(ROWS * columns, 6));
        let mut found = vec![[0.0; 4]; ROWS];
        let mut y = vec![0.0; ROWS];
        for (place, reduction) in Reduction::ALL.into_iter().enumerate() {
            let Ok(()) = reduce_rows(reduction, &a, columns, &mut y, &mut go_on);
            found.iter_mut().zip(&y).for_each(|(f, y)| f[place] = *y);
        }
        let Ok(()) = dot_rows(&a, &b, columns, &mut y, &mut go_on);
        found.iter_mut().zip(&y).for_each(|(f, y)| f[3] = *y);

        let rows = a.chunks(columns).zip(b.chunks(columns));
        for ((a, b), [sum, max, mean, dot]) in rows.zip(found) {
            let units = (140.0 + columns as f64 / 4096.0) * f64::EPSILON / 2.0;
            let near = |found: f64, terms: Vec<Double>| {
                let size: f64 = terms.iter().map(|term| term.0.abs()).sum();
                let exact: Double = terms.into_iter().sum();
                let error = ((found - exact.0) - exact.1).abs();
                assert!(error <= units * size, "{columns}: {error}");
            };
            near(sum, a.iter().map(|a| Double(*a, 0.0)).collect());
            let products = a.iter().zip(b).map(|(a, b)| Double::product(*a, *b));
            near(dot, products.collect());
            let most = a.iter().copied().fold(f64::MIN, f64::max);
            assert_eq!(max.to_bits(), most.to_bits());
            let squares: Double = a.iter().map(|a| Double::product(*a, *a)).sum();
            let exact = squares.over(Double(columns as f64, 0.0)).root();
            assert!(ulps(mean, exact) <= 140.0 + columns as f64 / 4096.0);
        }
    }
}

/// `1 / sqrt(mean(x^2) + eps)`.
fn scale(x: &[f32], eps: f32) -> Double {
    let square = |x: &f32| Double::product(f64::from(*x), f64::from(*x));
    let squares: Double = x.iter().map(square).sum();
    let mean = squares.over(Double(x.len() as f64, 0.0));
    Double(1.0, 0.0).over(mean.plus(Double(f64::from(eps), 0.0)).root())
}

fn wide(x: f32) -> Double {
    Double(f64::from(x), 0.0)
}

#[test]
fn normalised_rows_are_as_accurate_as_documented() {
    for columns in LENGTHS {
        let (mut x, weight) = (floats(ROWS * columns, 7), floats(columns, 8));
        // Squares of the second row overflow F32, and those of the third vanish.
        let sizes = [1.0, 1e30, 1e-30];
        for (x, size) in x.chunks_mut(columns).zip(sizes) {
            x.iter_mut().for_each(|x| *x *= size);
        }
        for eps in [0.0, 1e-5] {
            let mut y = vec![0.0; x.len()];
            let Ok(()) = rms_norm_rows(&x, &weight, eps, &mut y, &mut go_on);
            for (x, y) in x.chunks(columns).zip(y.chunks(columns)) {
                let scale = scale(x, eps);
                for ((x, y), weight) in x.iter().zip(y).zip(&weight) {
                    let exact = wide(*x).times(scale).times(wide(*weight));
                    let error = ulps_of_f32(*y, exact);
                    assert!(error <= 0.51, "{columns}: {y} is off by {error} ULP");
                }
            }
        }
    }
}

#[test]
fn gradients_are_the_derivative_and_are_added() {
    let eps = 0.25;
    for columns in LENGTHS {
        let (x, weight) = (floats(ROWS * columns, 9), floats(columns, 10));
        let dy = floats(ROWS * columns, 11);
        let (mut dx, before) = (vec![0.0; x.len()], numbers(columns, 12));
        let mut dweight = before.clone();
        let forward = Forward {
            x: &x,
            weight: &weight,
            eps,
        };
        let Ok(()) = rms_norm_rows_gradient(forward, &dy, &mut dx, &mut dweight, &mut go_on);
        let mut sums: Vec<Double> = before.into_iter().map(|x| Double(x, 0.0)).collect();
        let rows = x.chunks(columns).zip(dy.chunks(columns));
        for ((x, dy), dx) in rows.zip(dx.chunks(columns)) {
            let scale = scale(x, eps);
            let terms = x.iter().zip(dy).zip(&weight);
            let terms = terms.map(|((x, dy), w)| wide(*x).times(wide(*dy)).times(wide(*w)));
            let mean = terms.sum::<Double>().over(Double(columns as f64, 0.0));
            let along = scale.times(scale).times(scale).times(mean);
            for (i, dx) in dx.iter().enumerate() {
                let scaled = scale.times(wide(dy[i]));
                let (direct, back) = (scaled.times(wide(weight[i])), along.times(wide(x[i])));
                let exact = direct.plus(back.negated());
                // Rounding to F32, and the error of F64, which cancellation enlarges.
                let size = direct.0.abs() + back.0.abs();
                let allowed = exact.0.abs() * 2.0_f64.powi(-24) * 1.001 + size * 1e-12;
                assert!((f64::from(*dx) - exact.0).abs() <= allowed, "{columns}");
                sums[i] = sums[i].plus(scaled.times(wide(x[i])));
            }
        }
        for (found, exact) in dweight.iter().zip(sums) {
            assert!((found - exact.0).abs() <= 1e-12, "{columns}: {found}");
        }
    }
}

/// NaNs have one pattern of bits, whatever the operands' are.
#[test]
fn nans_are_canonical() {
    let nan = f32::from_bits(0xffc0_1234);
    let (inf, canonical) = (f32::INFINITY, 0x7fc0_0000_u32);
    for (x, weight) in [
        ([nan, 1.0], [1.0, 1.0]),
        ([inf, 1.0], [1.0, nan]),
        ([0.0, 0.0], [1.0, 2.0]),
        ([1.0, 0.0], [1.0, -inf]),
    ] {
        let mut y = [7.0_f32; 2];
        let Ok(()) = rms_norm_rows(&x, &weight, 0.0, &mut y, &mut go_on);
        assert!(y.iter().any(|y| y.is_nan()), "{x:?} {y:?}");
        let (mut dx, mut dweight) = ([7.0_f32; 2], [0.0, f64::from(nan)]);
        let forward = Forward {
            x: &x,
            weight: &weight,
            eps: 0.0,
        };
        let Ok(()) =
            rms_norm_rows_gradient(forward, &[1.0, -inf], &mut dx, &mut dweight, &mut go_on);
        for found in y.iter().chain(&dx).filter(|found| found.is_nan()) {
            assert_eq!(found.to_bits(), canonical, "{x:?}");
        }
        assert_eq!(dweight[1].to_bits(), 0x7ff8_0000_0000_0000);
    }
    let nan = f64::from(nan);
    let mut y = [0.0; 2];
    let Ok(()) = reduce_rows(Reduction::Max, &[nan, 1.0, 1.0, nan], 2, &mut y, &mut go_on);
    assert_eq!(y.map(f64::to_bits), [0x7ff8_0000_0000_0000; 2]);
}

#[test]
fn a_pause_can_stop_each_function() {
    let stop = &mut || Err("stopped");
    let (x, weight) = (floats(1 << 20, 1), floats(1 << 20, 2));
    let mut y = vec![0.0; 1 << 20];
    for columns in [1 << 20, 8] {
        let weight = &weight[..columns];
        assert_eq!(rms_norm_rows(&x, weight, 0.0, &mut y, stop), Err("stopped"));
        let forward = Forward {
            x: &x,
            weight,
            eps: 0.0,
        };
        let mut dweight = vec![0.0; columns];
        let stopped = rms_norm_rows_gradient(forward, &x, &mut y, &mut dweight, stop);
        assert_eq!(stopped, Err("stopped"));
    }
}
