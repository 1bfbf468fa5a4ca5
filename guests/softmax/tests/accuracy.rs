//! The accuracy that `Real::exp_scaled` states, against the C library's exponential in F64.
#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use softmax::real::Real;

fn f32_error(t: f32) -> f64 {
    let found = f64::from(f32::exp_scaled(t));
    let expected = f64::from(t).exp() * f64::from(f32::SCALE);
    let nearest = expected as f32;
    let unit = f64::from(nearest.next_up()) - f64::from(nearest);
    (found - expected).abs() / unit
}

fn f64_error(t: f64) -> f64 {
    let found = f64::exp_scaled(t) / f64::SCALE;
    let expected = t.exp();
    (found - expected).abs() / (expected.next_up() - expected)
}

/// Each 251st number from zero down to where the exponential rounds to zero.
#[test]
fn f32_is_within_one_unit_in_the_last_place() {
    let inputs = (0..=104.0_f32.to_bits()).step_by(251);
    let worst = inputs
        .map(|bits| f32_error(-f32::from_bits(bits)))
        .fold(0.0, f64::max);
    assert!(worst < 0.99, "{worst}");
}

/// A million numbers spread evenly, and a million spread evenly over the exponents.
#[test]
fn f64_is_within_one_unit_of_the_c_library() {
    let even = (0..1_000_000).map(|i| f64::from(i) * -708.0e-6);
    let by_exponent = (0..1_000_000).map(|i| -(f64::from(i) * 60.0e-6 - 50.0).exp2().min(708.0));
    let worst = even.chain(by_exponent).map(f64_error).fold(0.0, f64::max);
    assert!(worst <= 1.0, "{worst}");
}

#[test]
fn quotients_underflow_gradually() {
    let mut t = -87.0_f32;
    while t > -104.0 {
        let found = f64::from(f32::exp_scaled(t) / f32::SCALE);
        let smallest = f64::from(f32::from_bits(1));
        assert!(
            (found - f64::from(t).exp()).abs() / smallest < 1.5 || t > -88.0,
            "{t}"
        );
        t -= 0.01;
    }
    assert_eq!(f64::exp_scaled(-744.0) / f64::SCALE, (-744.0_f64).exp());
}

#[test]
fn special_values() {
    assert_eq!(f32::exp_scaled(0.0), f32::SCALE);
    assert_eq!(f64::exp_scaled(-0.0), f64::SCALE);
    for t in [-105.0, -128.0, -1e30, f32::NEG_INFINITY] {
        assert_eq!(f32::exp_scaled(t) / f32::SCALE, 0.0, "{t}");
    }
    for t in [-746.0, -768.0, -1e300, f64::NEG_INFINITY] {
        assert_eq!(f64::exp_scaled(t) / f64::SCALE, 0.0, "{t}");
    }
    assert!(f32::exp_scaled(f32::NAN).is_nan() && f64::exp_scaled(f64::NAN).is_nan());
}
