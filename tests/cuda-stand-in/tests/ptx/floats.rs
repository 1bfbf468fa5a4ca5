//! Floating-point instructions, checked against the PTX ISA document.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::device_memory::single::{B32, B64, one, random, run, single};
use half::{bf16, f16};

#[test]
fn extremes_and_modes_of_singles() {
    assert_eq!(single("min.f32 %d, %a, %b;", f32::NAN, 3.0, 0.0), 3.0);
    assert_eq!(single("max.f32 %d, %a, %b;", 3.0, f32::NAN, 0.0), 3.0);
    assert_eq!(
        single("max.f32 %d, %a, %b;", f32::NAN, -f32::NAN, 0.0).to_bits(),
        0x7fff_ffff
    );
    assert_eq!(
        single("max.NaN.f32 %d, %a, %b;", 3.0, f32::NAN, 0.0).to_bits(),
        0x7fff_ffff
    );
    assert_eq!(
        single("min.f32 %d, %a, %b;", 0.0, -0.0, 0.0).to_bits(),
        1 << 31
    );
    assert_eq!(single("max.f32 %d, %a, %b;", -0.0, 0.0, 0.0).to_bits(), 0);
    assert_eq!(
        single("sub.f32 %d, %a, %b;", f32::INFINITY, f32::INFINITY, 0.0).to_bits(),
        0x7fff_ffff
    );
    assert_eq!(
        single("add.ftz.f32 %d, %a, %b;", 1e-40, -0.0, 0.0).to_bits(),
        0
    );
    assert_eq!(
        single("mul.ftz.f32 %d, %a, %b;", 1e-30, -1e-10, 0.0).to_bits(),
        1 << 31
    );
    assert_eq!(
        single("mul.f32 %d, %a, %b;", 1e-30, -1e-10, 0.0),
        1e-30 * -1e-10
    );
    assert_eq!(single("add.sat.f32 %d, %a, %b;", 0.75, 0.5, 0.0), 1.0);
    assert_eq!(
        single("add.sat.f32 %d, %a, %b;", -0.75, 0.5, 0.0).to_bits(),
        0
    );
    assert_eq!(
        single("add.sat.f32 %d, %a, %b;", f32::NAN, 0.5, 0.0).to_bits(),
        0
    );
    assert_eq!(single("copysign.f32 %d, %a, %b;", -1.0, 5.0, 0.0), -5.0);
    assert_eq!(
        single("ex2.approx.ftz.f32 %d, %a;", -10.0, 0.0, 0.0),
        1.0 / 1024.0
    );
    assert_eq!(
        single("lg2.approx.f32 %d, %a;", 0.0, 0.0, 0.0),
        f32::NEG_INFINITY
    );
    assert_eq!(
        single("rsqrt.approx.f32 %d, %a;", 0.0, 0.0, 0.0),
        f32::INFINITY
    );
    assert_eq!(
        single("rcp.approx.f32 %d, %a;", -0.0, 0.0, 0.0),
        f32::NEG_INFINITY
    );
    assert_eq!(single("tanh.approx.f32 %d, %a;", 100.0, 0.0, 0.0), 1.0);
    let tested = |name: &str, a: f32| {
        single(
            &format!("testp.{name}.f32 %p, %a; selp.f32 %d, 0f3F800000, 0f00000000, %p;"),
            a,
            0.0,
            0.0,
        ) == 1.0
    };
    assert!(
        tested("subnormal", 1e-40)
            && !tested("normal", 1e-40)
            && tested("finite", 0.0)
            && !tested("normal", 0.0)
    );
    assert!(
        tested("notanumber", f32::NAN)
            && !tested("number", f32::NAN)
            && tested("infinite", f32::INFINITY)
    );
    // Rounded down and up.
    let third = 1.0_f32 / 3.0;
    assert_eq!(
        single("div.rm.f32 %d, %a, %b;", 1.0, 3.0, 0.0),
        third.next_down()
    );
    assert_eq!(
        single("div.rz.f32 %d, %a, %b;", -1.0, 3.0, 0.0),
        -third.next_down()
    );
    assert_eq!(single("div.rp.f32 %d, %a, %b;", 1.0, 3.0, 0.0), third);
    assert_eq!(
        single("sqrt.rm.f32 %d, %a;", 2.0, 0.0, 0.0),
        std::f32::consts::SQRT_2
    );
    assert_eq!(
        single("sqrt.rp.f32 %d, %a;", 2.0, 0.0, 0.0),
        std::f32::consts::SQRT_2.next_up()
    );
    assert_eq!(
        single("add.rp.f32 %d, %a, %b;", 1.0, 1e-30, 0.0),
        1.0_f32.next_up()
    );
    assert_eq!(
        single("add.rz.f32 %d, %a, %b;", 1.0, -1e-30, 0.0),
        1.0_f32.next_down()
    );
    assert_eq!(
        single("add.rm.f32 %d, %a, %b;", 1.0, -1.0, 0.0).to_bits(),
        1 << 31
    );
    assert_eq!(
        single("mul.rz.f32 %d, %a, %b;", f32::MAX, 2.0, 0.0),
        f32::MAX
    );
    assert_eq!(
        single("mul.rp.f32 %d, %a, %b;", -f32::MAX, 2.0, 0.0),
        -f32::MAX
    );
    assert_eq!(
        single("mul.rm.f32 %d, %a, %b;", -f32::MAX, 2.0, 0.0),
        f32::NEG_INFINITY
    );
    assert_eq!(
        single("fma.rp.f32 %d, %a, %b, %c;", 3.0, 5.0, 1e-20),
        15.0_f32.next_up()
    );
    assert_eq!(
        single("fma.rn.sat.f32 %d, %a, %b, %c;", 3.0, 5.0, 1e-20),
        1.0
    );
}

/// Converts a positive integer of up to 106 bits to f64, rounded down or up.
fn directed(value: u128, up: bool) -> f64 {
    let extra = (128 - value.leading_zeros()).saturating_sub(53);
    let kept = value >> extra;
    let kept = if up && kept << extra != value {
        kept + 1
    } else {
        kept
    };
    kept as f64 * 2.0_f64.powi(extra as i32)
}

#[test]
fn doubles_round_as_they_are_told() {
    let cases: Vec<[u64; 3]> = random(300, 21)
        .into_iter()
        .map(|x| x.map(|x| x >> 11))
        .collect();
    let inputs: Vec<[u64; 3]> = cases
        .iter()
        .map(|x| x.map(|x| (x as f64).to_bits()))
        .collect();
    for (mode, up) in [("rz", false), ("rm", false), ("rp", true)] {
        let products = run(B64, &format!("mul.{mode}.f64 %d, %a, %b;"), &inputs);
        let sums = run(B64, &format!("add.{mode}.f64 %d, %a, %b;"), &inputs);
        let both = run(B64, &format!("fma.{mode}.f64 %d, %a, %b, %c;"), &inputs);
        let quotients = run(B64, &format!("div.{mode}.f64 %d, %a, %b;"), &inputs);
        let roots = run(B64, &format!("sqrt.{mode}.f64 %d, %a;"), &inputs);
        for (at, [a, b, c]) in cases.iter().enumerate() {
            let [wide_a, wide_b, wide_c] = [*a, *b, *c].map(u128::from);
            assert_eq!(
                f64::from_bits(products[at]),
                directed(wide_a * wide_b, up),
                "{a} * {b} {mode}"
            );
            assert_eq!(
                f64::from_bits(sums[at]),
                directed(wide_a + wide_b, up),
                "{a} + {b} {mode}"
            );
            assert_eq!(
                f64::from_bits(both[at]),
                directed(wide_a * wide_b + wide_c, up),
                "{a} * {b} + {c} {mode}"
            );
            // The quotient is right if the exact value lies between it and its neighbour.
            let quotient = f64::from_bits(quotients[at]);
            let neighbour = if up {
                quotient.next_down()
            } else {
                quotient.next_up()
            };
            let side = |q: f64| q.mul_add(-(*b as f64), *a as f64);
            assert!(if up {
                side(quotient) <= 0.0 && side(neighbour) > 0.0
            } else {
                side(quotient) >= 0.0 && side(neighbour) < 0.0
            });
            let root = f64::from_bits(roots[at]);
            let neighbour = if up { root.next_down() } else { root.next_up() };
            let side = |r: f64| r.mul_add(-r, *a as f64);
            assert!(if up {
                side(root) <= 0.0 && side(neighbour) > 0.0
            } else {
                side(root) >= 0.0 && side(neighbour) < 0.0
            });
        }
    }
    assert_eq!(
        one(B64, "sqrt.rn.f64 %d, %a;", [(-1.0_f64).to_bits(), 0, 0]),
        0xfff8_0000_0000_0000
    );
    assert_eq!(
        one(
            B64,
            "mul.rz.f64 %d, %a, %b;",
            [f64::MAX.to_bits(), 2.0_f64.to_bits(), 0]
        ),
        f64::MAX.to_bits()
    );
}

#[test]
fn halves_round_once() {
    let all: Vec<u64> = (0..=0xffff_u64).collect();
    let inputs: Vec<[u64; 3]> = all
        .iter()
        .map(|&x| {
            [
                x,
                x.wrapping_mul(40503) & 0xffff,
                x.wrapping_mul(7919) >> 3 & 0xffff,
            ]
        })
        .collect();
    let types = "b16 b16 b16 b16";
    let is_same = |found: u64, expected: f16| {
        if expected.is_nan() {
            found == 0x7fff
        } else {
            found == u64::from(expected.to_bits())
        }
    };
    type Operation = fn(f16, f16) -> f16;
    let operations: [(&str, Operation); 3] = [
        ("add", |a, b| a + b),
        ("sub", |a, b| a - b),
        ("mul", |a, b| a * b),
    ];
    for (name, operation) in operations {
        let found = run(types, &format!("{name}.f16 %d, %a, %b;"), &inputs);
        for ([a, b, _], found) in inputs.iter().zip(found) {
            let expected = operation(f16::from_bits(*a as u16), f16::from_bits(*b as u16));
            assert!(
                is_same(found, expected),
                "{name} of {a:#x} and {b:#x}: {found:#x}, not {expected:?}"
            );
        }
    }
    // A conversion to f32 and back preserves the value.
    let back = run(
        types,
        "cvt.f32.f16 %r0, %a; cvt.rn.f16.f32 %d, %r0;",
        &inputs,
    );
    assert!(
        all.iter()
            .zip(back)
            .all(|(&x, found)| is_same(found, f16::from_bits(x as u16)))
    );
    let words: Vec<[u64; 3]> = random(3000, 77)
        .into_iter()
        .map(|[a, b, c]| [a, (b >> 40) % (1 << 31) + 0x3300_0000, c])
        .collect();
    let to_half = run("f32 f32 f32 b16", "cvt.rn.f16.f32 %d, %b;", &words);
    let to_brain = run("f32 f32 f32 b16", "cvt.rn.bf16.f32 %d, %a;", &words);
    let packed = run("f32 f32 f32 b32", "cvt.rn.f16x2.f32 %d, %b, %b;", &words);
    for (at, [a, b, _]) in words.iter().enumerate() {
        let (a, b) = (f32::from_bits(*a as u32), f32::from_bits(*b as u32));
        assert!(is_same(to_half[at], f16::from_f32(b)), "{b:e}");
        assert_eq!(packed[at], to_half[at] * 0x1_0001);
        let brain = if a.is_nan() {
            0x7fff
        } else {
            u64::from(bf16::from_f32(a).to_bits())
        };
        assert_eq!(to_brain[at], brain, "{a:e}");
    }
    let half = |x: f32| u64::from(f16::from_f32(x).to_bits());
    // 1 + 2^-11 is a tie that the product's last bit decides. Rounding twice would lose it.
    let tie = [half(1.0 + 1.0 / 1024.0), half(1.0), half(2.0_f32.powi(-11))];
    assert_eq!(
        one(types, "fma.rn.f16 %d, %a, %b, %c;", tie),
        half(1.0 + 2.0 / 1024.0)
    );
    // 17/16 squared is a tie, and the addend is far below an f64's last bit.
    let brain = |x: f32| u64::from(bf16::from_f32(x).to_bits());
    for (added, expected) in [
        (0.0, 1.125),
        (2.0_f32.powi(-100), 1.132_812_5),
        (-2.0_f32.powi(-100), 1.125),
    ] {
        let operands = [brain(1.0625), brain(1.0625), brain(added)];
        assert_eq!(
            one(types, "fma.rn.bf16 %d, %a, %b, %c;", operands),
            brain(expected)
        );
    }
    // Pairs.
    let pair = |low: f32, high: f32| half(low) | half(high) << 16;
    let b32 = |instruction: &str, a, b, c| one(B32, instruction, [a, b, c]);
    assert_eq!(
        b32("add.f16x2 %d, %a, %b;", pair(1.0, -2.0), pair(0.5, 8.0), 0),
        pair(1.5, 6.0)
    );
    assert_eq!(
        b32(
            "fma.rn.f16x2 %d, %a, %b, %c;",
            pair(2.0, 3.0),
            pair(4.0, 5.0),
            pair(1.0, -1.0)
        ),
        pair(9.0, 14.0)
    );
    assert_eq!(
        b32(
            "fma.rn.relu.f16x2 %d, %a, %b, %c;",
            pair(2.0, 3.0),
            pair(-4.0, 5.0),
            pair(1.0, -1.0)
        ),
        pair(0.0, 14.0)
    );
    assert_eq!(
        b32(
            "max.f16x2 %d, %a, %b;",
            pair(2.0, f32::NAN),
            pair(-4.0, 5.0),
            0
        ),
        pair(2.0, 5.0)
    );
    assert_eq!(
        b32("neg.f16x2 %d, %a;", pair(2.0, -3.0), 0, 0),
        pair(-2.0, 3.0)
    );
    assert_eq!(
        b32(
            "mov.b32 {%s0, %s1}, %a; mov.b32 %d, {%s1, %s0};",
            pair(2.0, -3.0),
            0,
            0
        ),
        pair(-3.0, 2.0)
    );
    let compared = "setp.gt.f16x2 %p|%q, %a, %b; selp.u32 %r0, 1, 0, %p; selp.u32 %r1, 2, 0, %q; or.b32 %d, %r0, %r1;";
    assert_eq!(b32(compared, pair(1.0, 5.0), pair(2.0, 4.0), 0), 2);
}
