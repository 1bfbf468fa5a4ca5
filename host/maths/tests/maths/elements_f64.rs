//! The accuracy of elementwise functions of F64, against computations with twice its digits.

use callbox_maths::{Elementwise, map, map_in_place};

use super::double::{Double, ulps};
use super::go_on;

const LN_2: Double = Double(std::f64::consts::LN_2, 2.319_046_813_846_299_6e-17);
const TWO_OVER_ROOT_PI: Double =
    Double(std::f64::consts::FRAC_2_SQRT_PI, 1.533_545_961_316_588e-17);
/// `pi / 2` in three parts.
const QUARTER: [f64; 3] = [
    std::f64::consts::FRAC_PI_2,
    6.123_233_995_736_766e-17,
    -1.497_384_904_859_169_8e-33,
];

fn one(x: f64) -> Double {
    Double(x, 0.0)
}

/// The sum of a series, term by term from the first one, until a term changes nothing.
fn series(first: Double, mut next: impl FnMut(Double, f64) -> Double) -> Double {
    let (mut term, mut sum) = (first, first);
    for n in 1..1000 {
        term = next(term, f64::from(n));
        if term.0.abs() <= sum.0.abs() * 1e-34 {
            break;
        }
        sum = sum.plus(term);
    }
    sum
}

/// `e^x - 1`.
fn exp_less_one(x: Double) -> Double {
    if x.0.abs() > 0.5 {
        return x.exp().plus(one(-1.0));
    }
    series(x, |term, n| term.times(x).over(one(n + 1.0)))
}

/// The logarithm: `2 atanh((m - 1) / (m + 1)) + k ln 2` of `m 2^k`.
fn log(x: f64) -> Double {
    let (x, shift) = if x < f64::MIN_POSITIVE {
        (x * 2.0_f64.powi(60), -60.0)
    } else {
        (x, 0.0)
    };
    let exponent = (x.to_bits() >> 52) as i32 - 1023;
    let (mut m, mut k) = (
        f64::from_bits(x.to_bits() << 12 >> 12 | 1023 << 52),
        exponent,
    );
    if m > std::f64::consts::SQRT_2 {
        (m, k) = (m / 2.0, k + 1);
    }
    let s = one(m - 1.0).over(Double::sum(m, 1.0));
    let square = s.times(s);
    let mut power = s;
    let sum = series(s, |_, n| {
        power = power.times(square);
        power.over(one(2.0 * n + 1.0))
    });
    sum.plus(sum).plus(LN_2.times(one(f64::from(k) + shift)))
}

/// `e^(-x^2)` times a series of positive terms.
fn erf(x: f64) -> Double {
    let square = Double::product(x, x);
    let twice = square.plus(square);
    let sum = series(one(x), |term, n| term.times(twice).over(one(2.0 * n + 1.0)));
    sum.times(TWO_OVER_ROOT_PI).times(square.negated().exp())
}

/// The sine of an angle below a million, plus quarter turns.
fn sine(x: f64, quarters: i64) -> Double {
    let k = (x * std::f64::consts::FRAC_2_PI).round();
    let r = QUARTER
        .iter()
        .fold(one(x), |r, part| r.plus(Double::product(-k, *part)));
    let square = r.times(r).negated();
    let odd = (k as i64 + quarters).rem_euclid(4);
    let (first, less) = if odd & 1 == 0 {
        (r, 0.0)
    } else {
        (one(1.0), 1.0)
    };
    let sum = series(first, |term, n| {
        let n = 2.0 * n - less;
        term.times(square).over(one(n * (n + 1.0)))
    });
    if odd < 2 { sum } else { sum.negated() }
}

/// The exact result, and the number of doublings by which it is larger than the function's. `None`
/// if the result is subnormal or not finite, or the angle is too large.
fn reference(function: Elementwise, x: f64) -> Option<(Double, i32)> {
    let power = |x: f64| {
        let doublings = if x < -500.0 { 500 } else { 0 };
        let x = one(x).plus(LN_2.times(one(f64::from(doublings))));
        (x.exp(), doublings)
    };
    let exact = match function {
        Elementwise::Exp if (-708.0..709.5).contains(&x) => return Some(power(x)),
        Elementwise::Log if x > 0.0 && x.is_finite() => log(x),
        Elementwise::Tanh => {
            let e = exp_less_one(one(2.0 * x.clamp(-40.0, 40.0)));
            e.over(e.plus(one(2.0)))
        }
        Elementwise::Erf => erf(x.clamp(-6.5, 6.5)),
        Elementwise::Sigmoid if (-708.0..0.0).contains(&x) => {
            let (e, doublings) = power(x);
            let less = if doublings > 0 {
                one(1.0)
            } else {
                e.plus(one(1.0))
            };
            return Some((e.over(less), doublings));
        }
        Elementwise::Sigmoid if x >= 0.0 => {
            let e = one(-x.min(100.0)).exp();
            one(1.0).over(e.plus(one(1.0)))
        }
        Elementwise::Rsqrt if x > 1e-250 && x < 1e250 => one(1.0).over(one(x).root()),
        Elementwise::Sin if x.abs() < 1e6 => sine(x, 0),
        Elementwise::Cos if x.abs() < 1e6 => sine(x, 1),
        _ => return None,
    };
    Some((exact, 0))
}

/// The documented error of each function.
fn allowed(function: Elementwise) -> f64 {
    match function {
        Elementwise::Tanh => 2.0,
        Elementwise::Sigmoid => 2.5,
        Elementwise::Rsqrt => 1.5,
        _ => 1.0,
    }
}

/// Numbers of every size, and many between -8 and 8.
fn inputs() -> impl Iterator<Item = f64> {
    let sizes = (0..u64::MAX)
        .step_by(1_500_450_271_000_003)
        .map(f64::from_bits);
    let near = (0..10_000).map(|i| f64::from(i).mul_add(0.001_6, -8.0) * 1.000_000_123_4);
    let far = (0..4_000).map(|i| f64::from(i).mul_add(0.37, -740.0));
    sizes
        .chain(near)
        .chain(far)
        .filter(|x| !x.is_nan() && x.abs() > 1e-280)
}

#[test]
fn functions_of_f64_are_as_accurate_as_documented() {
    let x: Vec<f64> = inputs().collect();
    let mut problems = Vec::new();
    for function in Elementwise::ALL {
        let mut y = vec![0.0; x.len()];
        let Ok(()) = map(function, &x, &mut y, &mut go_on);
        let mut in_place = x.clone();
        let Ok(()) = map_in_place(function, &mut in_place, &mut go_on);
        let bits = |y: &[f64]| y.iter().map(|y| y.to_bits()).collect::<Vec<_>>();
        assert_eq!(bits(&y), bits(&in_place));
        let (mut worst, mut count) = ((0.0, 0.0), 0);
        for (&x, y) in x.iter().zip(y) {
            let Some((exact, doublings)) = reference(function, x) else {
                continue;
            };
            count += 1;
            let error = ulps(y * 2.0_f64.powi(doublings), exact);
            if error.is_nan() || error > worst.0 {
                worst = (error, x);
            }
        }
        println!(
            "{function:?}: {:.3} ULP at {:e} of {count}",
            worst.0, worst.1
        );
        if count < 5_000 || worst.0.is_nan() || worst.0 > allowed(function) {
            problems.push((function, worst, count));
        }
    }
    assert!(problems.is_empty(), "{problems:?}");
}

#[test]
fn large_angles_and_special_values() {
    // Python, with 400 digits of pi.
    for (x, sin, cos) in ANGLES {
        let mut y = [x, x];
        let Ok(()) = map_in_place(Elementwise::Sin, &mut y[..1], &mut go_on);
        let Ok(()) = map_in_place(Elementwise::Cos, &mut y[1..], &mut go_on);
        assert!((y[0] - sin).abs() <= f64::EPSILON / 2.0, "{x}: {y:?}");
        assert!((y[1] - cos).abs() <= f64::EPSILON / 2.0, "{x}: {y:?}");
    }
    let (inf, nan) = (f64::INFINITY, f64::from_bits(0x7ff8_0000_0000_0000));
    let x = [0.0, -0.0, inf, -inf, -f64::from_bits(0x7ff8_0000_0000_1234)];
    for (function, expected) in [
        (Elementwise::Exp, [1.0, 1.0, inf, 0.0, nan]),
        (Elementwise::Log, [-inf, -inf, inf, nan, nan]),
        (Elementwise::Tanh, [0.0, -0.0, 1.0, -1.0, nan]),
        (Elementwise::Erf, [0.0, -0.0, 1.0, -1.0, nan]),
        (Elementwise::Sigmoid, [0.5, 0.5, 1.0, 0.0, nan]),
        (Elementwise::Rsqrt, [inf, -inf, 0.0, nan, nan]),
        (Elementwise::Sin, [0.0, -0.0, nan, nan, nan]),
        (Elementwise::Cos, [1.0, 1.0, nan, nan, nan]),
    ] {
        let mut y = x;
        let Ok(()) = map_in_place(function, &mut y, &mut go_on);
        assert_eq!(
            y.map(f64::to_bits),
            expected.map(f64::to_bits),
            "{function:?}"
        );
    }
}

/// Angles with their sines and cosines.
const ANGLES: [(f64, f64, f64); 9] = [
    (1_000_000.5, 0.141_954_699_000_744, 0.989_873_155_223_237_8),
    (
        10_000_000_000.0,
        -0.487_506_025_087_510_7,
        0.873_119_622_676_856,
    ),
    (
        -1_500_000_000_000_000.0,
        -0.022_952_506_240_307_438,
        0.999_736_556_527_412_7,
    ),
    (
        9_007_199_254_740_992.0,
        -0.848_925_964_814_655,
        -0.528_511_784_413_088_7,
    ),
    (1.0e22, -0.852_200_849_767_188_8, 0.523_214_785_395_139),
    (1.0e100, -0.380_637_731_005_028_7, 0.924_724_238_751_933_8),
    (-1.0e300, 0.817_881_912_115_908_5, -0.575_386_111_957_549_1),
    (
        1.797_693_134_862_315_7e308,
        0.004_961_954_789_184_062,
        -0.999_987_689_426_559_9,
    ),
    (5.319_372_648_326_541e255, 1.0, -4.687_165_924_254_628e-19),
];
