//! Rows of softmax: their values, and those of `jax.nn.softmax` for infinities and NaN.
#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use softmax::kernel::softmax;

/// The definition in F64, for the differences `x - max` as the type rounds them.
fn reference(differences: impl Iterator<Item = f64>) -> Vec<f64> {
    let exponentials: Vec<f64> = differences.map(f64::exp).collect();
    let sum: f64 = exponentials.iter().sum();
    exponentials.iter().map(|e| e / sum).collect()
}

/// Returns numbers from -20 to 20 without a pattern.
fn numbers(count: usize) -> Vec<f64> {
    let mut state = 1_u32;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        f64::from(state >> 8) / f64::from(1_u32 << 24) * 40.0 - 20.0
    };
    (0..count).map(|_| next()).collect()
}

fn of_f32(row: &[f32]) -> Vec<f32> {
    let mut y = vec![7.0; row.len()];
    softmax(row, row.len(), &mut y);
    y
}

/// Lengths around the kernel's lanes and blocks.
#[test]
fn rows_of_every_length_are_the_definition() {
    let lengths = (1..70).chain([127, 1000, 1023, 1024, 1025, 2048 + 37]);
    for length in lengths {
        let x = numbers(3 * length);
        let x32: Vec<f32> = x.iter().map(|&x| x as f32).collect();
        let (mut y, mut y32) = (vec![0.0; x.len()], vec![0.0; x.len()]);
        softmax(&x, length, &mut y);
        softmax(&x32, length, &mut y32);
        for row in 0..3 {
            let row = row * length..(row + 1) * length;
            let (x, x32) = (&x[row.clone()], &x32[row.clone()]);
            let max = x.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            assert_near(
                &y[row.clone()],
                &reference(x.iter().map(|x| x - max)),
                5e-15,
            );
            let found: Vec<f64> = y32[row].iter().map(|&y| f64::from(y)).collect();
            let differences = x32.iter().map(|x| f64::from(x - max as f32));
            assert_near(&found, &reference(differences), 3e-7);
        }
    }
}

fn assert_near(found: &[f64], expected: &[f64], relative: f64) {
    for (&y, &exact) in found.iter().zip(expected) {
        let error = (y - exact).abs() / exact;
        assert!(error <= relative, "{y} {exact} {error} in {}", found.len());
    }
}

#[test]
fn a_large_element_does_not_overflow() {
    assert_eq!(of_f32(&[1e38, 1e38]), [0.5, 0.5]);
    assert_eq!(of_f32(&[3e38, -3e38]), [1.0, 0.0]);
    assert_eq!(of_f32(&[-3e38]), [1.0]);
}

#[test]
fn minus_infinity_is_left_out() {
    let inf = f32::INFINITY;
    assert_eq!(of_f32(&[-inf, 0.0, -inf, 0.0]), [0.0, 0.5, 0.0, 0.5]);
    let mut long = vec![-inf; 100];
    long[99] = 3.0;
    let y = of_f32(&long);
    assert!(y[..99].iter().all(|&y| y == 0.0) && y[99] == 1.0);
}

#[test]
fn nan_and_infinities_fill_the_row() {
    let (inf, nan) = (f32::INFINITY, f32::NAN);
    for length in [1, 2, 5, 16, 17, 40] {
        for place in 0..length {
            for poison in [nan, inf] {
                let mut row = vec![1.0; length];
                row[place] = poison;
                assert!(of_f32(&row).iter().all(|y| y.is_nan()), "{row:?}");
            }
        }
        assert!(of_f32(&vec![-inf; length]).iter().all(|y| y.is_nan()));
        assert!(of_f32(&vec![nan; length]).iter().all(|y| y.is_nan()));
    }
}

#[test]
fn rows_do_not_touch_each_other() {
    let x = [0.0, f32::NAN, 0.0, 0.0];
    let mut y = [0.0; 4];
    softmax(&x, 2, &mut y);
    assert!(y[0].is_nan() && y[1].is_nan());
    assert_eq!(y[2..], [0.5, 0.5]);
}

#[test]
fn no_elements_are_no_work() {
    softmax::<f32>(&[], 0, &mut []);
    softmax::<f64>(&[], 3, &mut []);
}
