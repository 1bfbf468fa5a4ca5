use super::*;
use crate::evaluate::tests::assert_same;

const INFINITY: f64 = f64::INFINITY;
const NAN: f64 = f64::NAN;

fn c(re: f64, im: f64) -> C {
    C::new(re, im)
}

fn check(what: &str, found: C, expected: (f64, f64)) {
    assert_same(&[found.re, found.im], &[expected.0, expected.1], what);
}

/// From XLA:CPU of JAX 0.10.2.
#[test]
fn corners_are_xlas() {
    check("log 0", ln(c(0.0, 0.0)), (-INFINITY, 0.0));
    check("log inf", ln(c(INFINITY, 1.0)), (INFINITY, 0.0));
    check("log1p -1", ln_1p(c(-1.0, 0.0)), (-INFINITY, 0.0));
    check("exp -inf", exp(c(-INFINITY, 1.0)), (0.0, 0.0));
    check("exp inf", exp(c(INFINITY, 1.0)), (INFINITY, INFINITY));
    check("exp 1+inf", exp(c(1.0, INFINITY)), (NAN, NAN));
    check("expm1 -inf", exp_m1(c(-INFINITY, 1.0)), (-1.0, 0.0));
    check("logistic -inf", logistic(c(-INFINITY, 1.0)), (0.0, 0.0));
    check("logistic 0", logistic(c(0.0, 0.0)), (0.5, 0.0));
    check("sign 0", sign(c(-0.0, 0.0)), (-0.0, 0.0));
    check("sign inf", sign(c(INFINITY, 1.0)), (NAN, 0.0));
    check("sqrt -1", sqrt(c(-1.0, 0.0)), (0.0, 1.0));
    check("sqrt -0", sqrt(c(-0.0, 0.0)), (0.0, 0.0));
    check("sqrt inf", sqrt(c(INFINITY, 1.0)), (INFINITY, 0.0));
    check("sqrt -inf", sqrt(c(-INFINITY, 1.0)), (0.0, INFINITY));
    check("sqrt 1+inf", sqrt(c(1.0, INFINITY)), (INFINITY, INFINITY));
    check("rsqrt 0", rsqrt(c(0.0, 0.0)), (INFINITY, NAN));
    check("tanh inf", tanh(c(INFINITY, 1.0)), (1.0, 0.0));
    check("tan 1+inf", tan(c(1.0, INFINITY)), (0.0, 1.0));
    check("sin 1+inf", sin(c(1.0, INFINITY)), (INFINITY, INFINITY));
    check("cos 1+inf", cos(c(1.0, INFINITY)), (INFINITY, -INFINITY));
    check("cos i", cos(c(0.0, 1.0)), (libm::cosh(1.0), -0.0));
    check("sqrt nan", sqrt(c(NAN, 1.0)), (NAN, NAN));
    assert_eq!(abs(c(1.0, -INFINITY)), INFINITY);
}

/// From XLA:CPU of JAX 0.10.2.
#[test]
fn quotients_and_powers_have_xlas_corners() {
    let quotients = [
        ((1.0, 0.0), (0.0, 0.0), (INFINITY, NAN)),
        ((0.0, 0.0), (0.0, 0.0), (NAN, NAN)),
        ((1.0, 1.0), (0.0, 0.0), (INFINITY, INFINITY)),
        ((INFINITY, 1.0), (1.0, 1.0), (INFINITY, -INFINITY)),
        ((1.0, 0.0), (INFINITY, INFINITY), (0.0, -0.0)),
        ((1e30, 1e30), (1e30, 1e30), (1.0, 0.0)),
        ((3.0, 4.0), (1.0, -2.0), (-1.0, 2.0)),
        ((NAN, 0.0), (1.0, 0.0), (NAN, NAN)),
        ((-1.0, -1.0), (-0.0, 0.0), (INFINITY, INFINITY)),
    ];
    for (x, y, expected) in quotients {
        check(
            &format!("{x:?} / {y:?}"),
            divide(c(x.0, x.1), c(y.0, y.1)),
            expected,
        );
    }
    // Intermediate results neither overflow nor underflow.
    check(
        "large",
        divide(c(1e308, 1e308), c(1e308, 1e308)),
        (1.0, 0.0),
    );
    check("small", divide(c(3e-320, 0.0), c(3e-320, 0.0)), (1.0, 0.0));
    let powers = [
        ((0.0, 0.0), (0.0, 0.0), (1.0, 0.0)),
        ((0.0, 0.0), (2.0, 0.0), (0.0, 0.0)),
        ((0.0, 0.0), (-1.0, 0.0), (NAN, NAN)),
        ((0.0, 0.0), (0.0, 1.0), (NAN, NAN)),
        ((0.0, 0.0), (2.0, 1.0), (NAN, NAN)),
        ((1.0, 0.0), (NAN, 0.0), (1.0, 0.0)),
        ((1.0, 1.0), (0.0, 0.0), (1.0, 0.0)),
        ((2.0, 0.0), (3.0, 0.0), (8.0, 0.0)),
    ];
    for (x, y, expected) in powers {
        check(
            &format!("{x:?} ^ {y:?}"),
            power(c(x.0, x.1), c(y.0, y.1)),
            expected,
        );
    }
}

/// Each part is accurate, even if it is much smaller than the other one. The expected values are
/// leading terms.
#[test]
fn small_parts_are_not_lost() {
    let near =
        |found: f64, exact: f64| assert!((found / exact - 1.0).abs() < 1e-15, "{found} {exact}");
    near(sqrt(c(-4.0, 1e-20)).re, 2.5e-21);
    near(sqrt(c(1e300, 1e-5)).im, 5e-156);
    near(ln(c(1.0, 1e-8)).re, 5e-17);
    near(ln_1p(c(1e-20, 1e-30)).re, 1e-20);
    near(exp_m1(c(1e-20, 1e-30)).re, 1e-20);
    near(
        tanh(c(50.0, 0.5)).im,
        2.0 * libm::sin(1.0) * libm::exp(-100.0),
    );
    near(
        exp(c(710.0, 1e-10)).im,
        libm::exp(355.0) * 1e-10 * libm::exp(355.0),
    );
    assert_eq!(abs(sqrt(c(1e-320, 1e-320))), sqrt(c(1e-320, 1e-320)).norm());
}
