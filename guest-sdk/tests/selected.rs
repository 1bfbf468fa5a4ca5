//! `max`, `min` and `round` give the numbers of the standard library's functions.

use callbox_guest::maths;

const NUMBERS: [f32; 21] = [
    0.0,
    -0.0,
    0.49999997,
    -0.49999997,
    0.5,
    -0.5,
    0.50000006,
    1.5,
    -2.5,
    3.4999998,
    8_388_607.5,
    -8_388_608.0,
    8_388_609.0,
    16_777_217.0,
    f32::MIN_POSITIVE,
    1e-45,
    f32::MAX,
    f32::MIN,
    f32::INFINITY,
    f32::NEG_INFINITY,
    f32::NAN,
];

#[test]
fn rounded_numbers_have_the_bits_of_the_standard_library() {
    for x in NUMBERS {
        let (found, expected) = (maths::round(x), x.round());
        assert!(
            found.to_bits() == expected.to_bits() || x.is_nan() && found.is_nan(),
            "{x}: {found}, {expected}"
        );
        for x in [f64::from(x), f64::from(x) / 3.0, f64::from(x) * 1e9] {
            let (found, expected) = (maths::round(x), x.round());
            assert!(
                found.to_bits() == expected.to_bits() || x.is_nan() && found.is_nan(),
                "{x}: {found}, {expected}"
            );
        }
    }
}

#[test]
fn the_greater_and_the_smaller_are_those_of_the_standard_library() {
    for a in NUMBERS {
        for b in NUMBERS {
            let found = [maths::max(a, b), maths::min(a, b)];
            let wide = [
                maths::max(f64::from(a), b.into()),
                maths::min(f64::from(a), b.into()),
            ];
            for ((found, wide), expected) in found.iter().zip(wide).zip([a.max(b), a.min(b)]) {
                let is_same = |found: f64| {
                    found == f64::from(expected) || found.is_nan() && expected.is_nan()
                };
                assert!(
                    is_same(f64::from(*found)) && is_same(wide),
                    "{a}, {b}: {found}, {wide}"
                );
            }
        }
    }
}
