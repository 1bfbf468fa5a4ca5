//! The accuracy of each function in units in the last place, beside functions in F64.
//!
//! The reference has an error of some 1e-16, a billionth of an F32's unit.

use callbox_maths::{
    Elementwise, Reduction, dot_rows, map, map_in_place, reduce_rows, softmax_rows,
};

use super::{go_on, numbers};

fn mapped(function: Elementwise, x: &[f32]) -> Vec<f32> {
    let mut y = vec![0.0; x.len()];
    map(function, x, &mut y, &mut go_on).unwrap();
    y
}

fn reference(function: Elementwise, x: f64) -> f64 {
    match function {
        Elementwise::Exp => libm::exp(x),
        Elementwise::Log => libm::log(x),
        Elementwise::Tanh => libm::tanh(x),
        Elementwise::Erf => libm::erf(x),
        Elementwise::Sigmoid if x < 0.0 => libm::exp(x) / (1.0 + libm::exp(x)),
        Elementwise::Sigmoid => 1.0 / (1.0 + libm::exp(-x)),
        Elementwise::Rsqrt => 1.0 / x.sqrt(),
        Elementwise::Sin => libm::sin(x),
        Elementwise::Cos => libm::cos(x),
    }
}

/// The documented error of each function.
fn allowed(function: Elementwise) -> f64 {
    match function {
        Elementwise::Exp => 1.1,
        Elementwise::Erf => 1.2,
        Elementwise::Log => 0.9,
        Elementwise::Tanh => 1.6,
        Elementwise::Sigmoid => 2.6,
        Elementwise::Rsqrt => 1.5,
        Elementwise::Sin | Elementwise::Cos => 0.6,
    }
}

/// The distance in units in the last place of the exact result.
fn ulps(found: f32, exact: f64) -> f64 {
    let rounded = exact as f32;
    if found == rounded || found.is_nan() && exact.is_nan() {
        return if exact.is_finite() && rounded.is_finite() {
            (f64::from(found) - exact).abs() / unit(exact)
        } else {
            0.0
        };
    }
    if !rounded.is_finite() || !found.is_finite() {
        // The largest number and infinity are neighbours.
        let clamped = |x: f64| x.clamp(-2.0_f64.powi(128), 2.0_f64.powi(128));
        return (clamped(f64::from(found)) - clamped(exact)).abs() / 2.0_f64.powi(104);
    }
    (f64::from(found) - exact).abs() / unit(exact)
}

/// The unit in the last place of F32 at a number.
fn unit(exact: f64) -> f64 {
    let exponent = (exact.abs().to_bits() >> 52) as i32 - 1023;
    2.0_f64.powi(exponent.clamp(-126, 127) - 23)
}

#[test]
fn elementwise_functions_are_as_accurate_as_documented() {
    // Every 1009th bit pattern, among them those of all exponents and signs.
    let x: Vec<f32> = (0..=u32::MAX).step_by(1009).map(f32::from_bits).collect();
    let mut problems = Vec::new();
    for function in Elementwise::ALL {
        let mut worst = (0.0, 0.0);
        for (&x, y) in x.iter().zip(mapped(function, &x)) {
            let exact = reference(function, f64::from(x));
            let error = ulps(y, exact);
            if error.is_nan() || error > worst.0 {
                worst = (error, x);
            }
        }
        println!("{function:?}: {:.3} ULP at {:e}", worst.0, worst.1);
        if worst.0.is_nan() || worst.0 > allowed(function) {
            problems.push((function, worst));
        }
    }
    assert!(problems.is_empty(), "{problems:?}");
}

#[test]
fn special_values_are_those_of_c() {
    let (inf, nan) = (f32::INFINITY, f32::NAN);
    let x = [0.0, -0.0, inf, -inf, nan, -nan, f32::MIN_POSITIVE / 8.0];
    let tiny = f32::MIN_POSITIVE / 8.0;
    for (function, expected) in [
        (Elementwise::Exp, [1.0, 1.0, inf, 0.0, nan, nan, 1.0]),
        (
            Elementwise::Log,
            [-inf, -inf, inf, nan, nan, nan, -89.415_985],
        ),
        (Elementwise::Tanh, [0.0, -0.0, 1.0, -1.0, nan, nan, tiny]),
        (Elementwise::Sigmoid, [0.5, 0.5, 1.0, 0.0, nan, nan, 0.5]),
        (
            Elementwise::Rsqrt,
            [inf, -inf, 0.0, nan, nan, nan, 2.608_763_6e19],
        ),
        (Elementwise::Sin, [0.0, -0.0, nan, nan, nan, nan, tiny]),
        (Elementwise::Cos, [1.0, 1.0, nan, nan, nan, nan, 1.0]),
    ] {
        let bits = |x: &[f32]| x.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
        assert_eq!(bits(&mapped(function, &x)), bits(&expected), "{function:?}");
    }
    let erf = mapped(Elementwise::Erf, &x);
    assert_eq!(erf[..4], [0.0, -0.0, 1.0, -1.0]);
    assert!(erf[1].is_sign_negative());
}

#[test]
fn large_angles_beside_small_ones_change_no_bits() {
    let small: Vec<f32> = (0..1000).map(|i| i as f32 * 0.37).collect();
    for function in [Elementwise::Sin, Elementwise::Cos] {
        let mut both = small.clone();
        both.push(1e30);
        let (alone, beside) = (mapped(function, &small), mapped(function, &both));
        assert_eq!(alone, beside[..1000]);
        assert_eq!(
            f64::from(beside[1000]),
            f64::from(reference(function, 1e30_f32.into()) as f32)
        );
    }
}

#[test]
fn every_length_has_the_bits_of_single_elements() {
    for function in Elementwise::ALL {
        for length in [0, 1, 3, 7, 8, 9, 31, 64, 65, 4095, 4096, 4097, 9000] {
            let x = numbers(length, 7);
            let mut single = x.clone();
            for x in single.chunks_mut(1) {
                map_in_place(function, x, &mut go_on).unwrap();
            }
            let bits = |x: &[f32]| x.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
            assert_eq!(
                bits(&mapped(function, &x)),
                bits(&single),
                "{function:?} {length}"
            );
        }
    }
}

/// Whether two numbers differ by at most `ulps` units of the second.
fn near(found: f32, exact: f64, ulps: f64) -> bool {
    (f64::from(found) - exact).abs() <= ulps * unit(exact)
}

#[test]
fn rows_are_as_accurate_as_documented() {
    for columns in [1, 2, 5, 63, 64, 65, 1000, 4096, 10_001] {
        let rows = 3;
        let (a, b) = (numbers(rows * columns, 3), numbers(rows * columns, 4));
        let mut y = vec![0.0; rows];
        let row = |x: &[f32], i: usize| -> Vec<f64> {
            x[i * columns..][..columns]
                .iter()
                .map(|&x| f64::from(x))
                .collect()
        };
        // Each partial sum has at most 64 terms, so that the error is at most 64 halves of a unit
        // of the sum of the magnitudes.
        let bound =
            |terms: &[f64]| terms.iter().map(|x| x.abs()).sum::<f64>() * 66.0 * 2.0_f64.powi(-24);
        reduce_rows(Reduction::Sum, &a, columns, &mut y, &mut go_on).unwrap();
        for i in 0..rows {
            let terms = row(&a, i);
            let exact: f64 = terms.iter().sum();
            assert!(
                (f64::from(y[i]) - exact).abs() <= bound(&terms),
                "{columns}"
            );
        }
        dot_rows(&a, &b, columns, &mut y, &mut go_on).unwrap();
        for i in 0..rows {
            let terms: Vec<f64> = row(&a, i)
                .iter()
                .zip(row(&b, i))
                .map(|(a, b)| a * b)
                .collect();
            let exact: f64 = terms.iter().sum();
            assert!(
                (f64::from(y[i]) - exact).abs() <= bound(&terms),
                "{columns}"
            );
        }
        reduce_rows(Reduction::Max, &a, columns, &mut y, &mut go_on).unwrap();
        for i in 0..rows {
            assert_eq!(
                f64::from(y[i]),
                row(&a, i).into_iter().fold(f64::MIN, f64::max)
            );
        }
        reduce_rows(Reduction::RootMeanSquare, &a, columns, &mut y, &mut go_on).unwrap();
        for i in 0..rows {
            let squares: f64 = row(&a, i).iter().map(|x| x * x).sum();
            assert!(
                near(y[i], (squares / columns as f64).sqrt(), 34.0),
                "{columns}"
            );
        }
        let mut y = vec![0.0; rows * columns];
        softmax_rows(Some(&a), columns, &mut y, &mut go_on).unwrap();
        let mut in_place = a.clone();
        softmax_rows(None, columns, &mut in_place, &mut go_on).unwrap();
        assert_eq!(y, in_place);
        for i in 0..rows {
            let x = row(&a, i);
            let max = x.iter().copied().fold(f64::MIN, f64::max);
            let sum: f64 = x.iter().map(|x| (x - max).exp()).sum();
            for (y, x) in y[i * columns..][..columns].iter().zip(x) {
                // The exponent is rounded: its error counts as much as the exponent is large.
                let allowed = 5.0 + (max - x);
                assert!(near(*y, (x - max).exp() / sum, allowed), "{columns}: {y}");
            }
        }
    }
}

#[test]
fn special_rows() {
    let (inf, nan) = (f32::INFINITY, f32::NAN);
    for (row, expected) in [
        ([0.0, nan, 1.0], [nan; 3]),
        ([0.0, inf, 1.0], [nan; 3]),
        ([-inf; 3], [nan; 3]),
        ([0.0, -inf, 0.0], [0.5, 0.0, 0.5]),
    ] {
        let mut y = row;
        softmax_rows(None, 3, &mut y, &mut go_on).unwrap();
        assert_eq!(y.map(f32::to_bits), expected.map(f32::to_bits), "{row:?}");
    }
    let mut y = [5.0; 2];
    for (reduction, expected) in [
        (Reduction::Sum, 0.0),
        (Reduction::Max, -inf),
        (Reduction::RootMeanSquare, nan),
    ] {
        reduce_rows(reduction, &[], 0, &mut y, &mut go_on).unwrap();
        assert_eq!(y.map(f32::to_bits), [expected; 2].map(f32::to_bits));
    }
    let mut y = [0.0];
    reduce_rows(Reduction::Max, &[1.0, nan, 2.0], 3, &mut y, &mut go_on).unwrap();
    assert!(y[0].is_nan());
}

#[test]
fn a_pause_can_stop_each_function() {
    let stop = &mut || Err("stopped");
    let (x, mut y) = (numbers(1 << 20, 1), vec![0.0; 1 << 20]);
    assert_eq!(map(Elementwise::Exp, &x, &mut y, stop), Err("stopped"));
    assert_eq!(map_in_place(Elementwise::Exp, &mut y, stop), Err("stopped"));
    assert_eq!(
        softmax_rows(Some(&x), 1 << 20, &mut y, stop),
        Err("stopped")
    );
    assert_eq!(softmax_rows(None, 4, &mut y, stop), Err("stopped"));
    // Rows without elements are work, too.
    assert_eq!(
        reduce_rows(Reduction::Max, &[], 0, &mut y, stop),
        Err("stopped")
    );
    assert_eq!(dot_rows(&x, &x, 8, &mut y, stop), Err("stopped"));
}
