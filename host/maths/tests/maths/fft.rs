//! Fourier transforms, beside sums of their definition with more digits.

use callbox_maths::fft::{MOST_POINTS, Rows, TooLong, Transform};
use callbox_maths::rows::Element;

use super::double::Double;
use super::{go_on, numbers};

/// Lengths with every kind of factor and without.
const LENGTHS: [usize; 22] = [
    1, 2, 3, 4, 5, 6, 7, 8, 11, 12, 15, 16, 30, 37, 45, 64, 97, 100, 243, 255, 257, 400,
];

fn transformed<T: Element>(transform: Transform, points: usize, x: &[T]) -> Vec<T> {
    let rows = Rows::new(transform, points).unwrap();
    let count = x.len() / rows.columns_of_x();
    let mut y = vec![T::from_f64(7.0); count * rows.columns_of_y()];
    let Ok(()) = rows.transform(x, &mut y, &mut go_on);
    y
}

/// `e^(2 pi i k / n)` with twice the digits of F64, by Taylor's series of an angle below an eighth
/// turn.
fn root(k: usize, n: usize) -> [Double; 2] {
    let pi = Double(std::f64::consts::PI, 1.224_646_799_147_353_2e-16);
    let one = Double(1.0, 0.0);
    let quarters = (8 * k / n).div_ceil(2);
    let rest = 4.0 * k as f64 - (quarters * n) as f64;
    let angle = pi
        .times(Double(rest / 2.0, 0.0))
        .over(Double(n as f64, 0.0));
    let square = angle.times(angle).negated();
    let series = |first: Double, from: f64| {
        let (mut term, mut sum) = (first, first);
        for step in 0..20 {
            let n = from + 2.0 * f64::from(step);
            term = term.times(square).over(Double(n * (n + 1.0), 0.0));
            sum = sum.plus(term);
        }
        sum
    };
    let (cos, sin) = (series(one, 1.0), series(angle, 2.0));
    match quarters % 4 {
        0 => [cos, sin],
        1 => [sin.negated(), cos],
        2 => [cos.negated(), sin.negated()],
        _ => [sin, cos.negated()],
    }
}

/// The transform by its definition.
fn defined(x: &[f64], is_inverse: bool) -> Vec<f64> {
    let n = x.len() / 2;
    let roots: Vec<[Double; 2]> = (0..n).map(|k| root(k, n)).collect();
    let mut y = Vec::new();
    for k in 0..n {
        let (mut re, mut im) = (Double(0.0, 0.0), Double(0.0, 0.0));
        for j in 0..n {
            let [cos, mut sin] = roots[j * k % n];
            if !is_inverse {
                sin = sin.negated();
            }
            let (a, b) = (Double(x[2 * j], 0.0), Double(x[2 * j + 1], 0.0));
            re = re.plus(a.times(cos)).plus(b.times(sin).negated());
            im = im.plus(a.times(sin)).plus(b.times(cos));
        }
        let scale = Double(if is_inverse { n as f64 } else { 1.0 }, 0.0);
        y.extend([re.over(scale).0, im.over(scale).0]);
    }
    y
}

/// The root of the sum of the squared errors, to that of the squared numbers.
fn error<T: Element>(found: &[T], exact: &[f64]) -> f64 {
    assert_eq!(found.len(), exact.len());
    let norm = |x: &mut dyn Iterator<Item = f64>| x.map(|x| x * x).sum::<f64>().sqrt();
    let errors = &mut found.iter().zip(exact).map(|(x, y)| {
        let x: f64 = (*x).into();
        x - y
    });
    norm(errors) / norm(&mut exact.iter().copied()).max(f64::MIN_POSITIVE)
}

/// The documented errors, in units of the type's rounding.
const ALLOWED: f64 = 8.0;

fn check_lengths<T: Element>(unit: f64) {
    let mut worst = (0.0, 0);
    for n in LENGTHS {
        let x = numbers(4 * n, n as u32);
        let x: Vec<T> = x.into_iter().map(|x| T::from_f64(f64::from(x))).collect();
        let wide: Vec<f64> = x.iter().map(|x| (*x).into()).collect();
        for (transform, is_inverse) in [(Transform::Forward, false), (Transform::Inverse, true)] {
            let y = transformed(transform, n, &x);
            for (y, x) in y.chunks(2 * n).zip(wide.chunks(2 * n)) {
                let error = error(y, &defined(x, is_inverse)) / unit;
                assert!(error <= ALLOWED, "{n} {transform:?}: {error}");
                worst = if error > worst.0 { (error, n) } else { worst };
            }
        }
        // Four rows of real numbers, and back.
        let y = transformed(Transform::RealForward, n, &x);
        let half = 2 * (n / 2 + 1);
        assert_eq!(y.len(), 4 * half);
        for (y, x) in y.chunks(half).zip(wide.chunks(n)) {
            let complex: Vec<f64> = x.iter().flat_map(|x| [*x, 0.0]).collect();
            let error = error(y, &defined(&complex, false)[..half]) / unit;
            assert!(error <= ALLOWED, "{n} real: {error}");
        }
        let back = transformed(Transform::RealInverse, n, &y);
        let error = error(&back, &wide) / unit;
        assert!(error <= 2.0 * ALLOWED, "{n} back: {error}");
    }
    println!("{} units with {} points", worst.0, worst.1);
}

#[test]
fn transforms_of_every_length_are_as_accurate_as_documented() {
    check_lengths::<f32>(f64::from(f32::EPSILON) / 2.0);
    check_lengths::<f64>(f64::EPSILON / 2.0);
}

/// Long transforms of F32 beside those of F64, and those of F64 forth and back.
#[test]
fn long_transforms_are_as_accurate_as_documented() {
    for n in [4096, 10_000, 32_768, 59_049, MOST_POINTS - 15, MOST_POINTS] {
        let x = numbers(2 * n, n as u32);
        let wide: Vec<f64> = x.iter().map(|x| f64::from(*x)).collect();
        let y = transformed(Transform::Forward, n, &wide);
        let units =
            error(&transformed(Transform::Forward, n, &x), &y) * 2.0 / f64::from(f32::EPSILON);
        let back = error(&transformed(Transform::Inverse, n, &y), &wide) * 2.0 / f64::EPSILON;
        println!("{n} points: {units} units of F32, {back} of F64 forth and back");
        assert!(
            units <= ALLOWED && back <= 2.0 * ALLOWED,
            "{n}: {units} {back}"
        );
    }
}

/// The inverse of a transform of real numbers ignores what such a transform cannot have.
#[test]
fn imaginary_parts_of_real_points_have_no_influence() {
    for n in [1, 2, 5, 6] {
        let half = n / 2 + 1;
        let mut x = numbers(2 * half, 3);
        let before = transformed(Transform::RealInverse, n, &x);
        x[1] = 1e9;
        if n % 2 == 0 {
            x[2 * half - 1] = f32::NAN;
        }
        let after = transformed(Transform::RealInverse, n, &x);
        let bits = |x: &[f32]| x.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
        assert_eq!(bits(&before), bits(&after), "{n}");
    }
}

#[test]
fn limits_and_special_numbers() {
    let too_long = Rows::new(Transform::RealForward, MOST_POINTS + 1).unwrap_err();
    assert_eq!(too_long, TooLong(65_537));
    let message = "expected a transform of at most 65536 points, found 65537";
    assert_eq!(too_long.to_string(), message);
    let nothing = Rows::new(Transform::RealForward, 0).unwrap();
    assert_eq!((nothing.columns_of_x(), nothing.columns_of_y()), (0, 0));
    let mut y = [7.0_f32];
    let Ok(()) = nothing.transform(&[1.0], &mut y, &mut go_on);
    assert_eq!(y, [7.0]);
    // A row with NaN has no influence on its neighbour.
    let nan = f32::from_bits(0xffc0_1234);
    let y = transformed(Transform::RealForward, 2, &[nan, 1.0, 1.0, 1.0]);
    let canonical = 0x7fc0_0000;
    assert_eq!(y[0].to_bits(), canonical);
    assert_eq!(y[4..], [2.0, 0.0, 0.0, 0.0]);
}

#[test]
fn a_pause_can_stop_transforms() {
    for points in [1, 3, 1000, 1009, MOST_POINTS] {
        let x = vec![1.0_f32; 2 * MOST_POINTS];
        let mut y = x.clone();
        let rows = Rows::new(Transform::Forward, points).unwrap();
        let mut pauses = 0;
        let stopped = rows.transform(&x, &mut y, &mut || {
            pauses += 1;
            if pauses == 2 { Err("stopped") } else { Ok(()) }
        });
        assert_eq!(stopped, Err("stopped"), "{points}");
    }
}
