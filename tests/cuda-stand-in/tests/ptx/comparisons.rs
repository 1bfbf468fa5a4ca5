//! Comparisons and conversions, checked against the PTX ISA document.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::device_memory::single::{B32, B64, one, word};

#[test]
fn comparisons_know_nan() {
    let nan = f32::NAN;
    let holds = |comparison: &str, a: f32, b: f32| {
        let instructions = format!("setp.{comparison}.f32 %p, %a, %b; selp.u32 %d, 1, 0, %p;");
        one(
            "f32 f32 f32 b32",
            &instructions,
            [a.to_bits().into(), b.to_bits().into(), 0],
        ) == 1
    };
    for comparison in ["eq", "ne", "lt", "le", "gt", "ge", "num"] {
        assert!(
            !holds(comparison, nan, 1.0) && !holds(comparison, 1.0, nan),
            "{comparison}"
        );
    }
    for comparison in ["equ", "neu", "ltu", "leu", "gtu", "geu", "nan"] {
        assert!(
            holds(comparison, nan, 1.0) && holds(comparison, 1.0, nan),
            "{comparison}"
        );
    }
    assert!(
        holds("eq", 0.0, -0.0)
            && !holds("ne", 0.0, -0.0)
            && holds("num", 1.0, 2.0)
            && !holds("nan", 1.0, 2.0)
    );
    assert!(
        holds("lt", 1.0, 2.0)
            && !holds("ltu", 2.0, 2.0)
            && holds("leu", 2.0, 2.0)
            && holds("geu", 3.0, 2.0)
    );
    assert!(!holds("lt.ftz", 1e-40, 2e-40) && holds("lt", 1e-40, 2e-40));

    let compared = |instruction: &str, a: u32, b: u32| {
        word(&format!("{instruction} selp.u32 %d, 1, 0, %p;"), a, b, 0) == 1
    };
    assert!(
        compared("setp.lt.s32 %p, %a, %b;", u32::MAX, 0)
            && !compared("setp.lt.u32 %p, %a, %b;", u32::MAX, 0)
    );
    assert!(
        compared("setp.hi.u32 %p, %a, %b;", u32::MAX, 0)
            && !compared("setp.lo.u32 %p, %a, %b;", u32::MAX, 0)
    );
    // Two destinations: the comparison and its negation, each combined with a predicate.
    let both = |combined: &str, third: u32| {
        let instructions = format!(
            "setp.eq.u32 %q, %c, 1; setp.lt.{combined}.u32 %p|%q, %a, %b, %q;
            selp.u32 %r0, 1, 0, %p; selp.u32 %r1, 2, 0, %q; or.b32 %d, %r0, %r1;"
        );
        word(&instructions, 1, 2, third)
    };
    assert_eq!(
        [
            both("and", 1),
            both("and", 0),
            both("or", 1),
            both("or", 0),
            both("xor", 1),
            both("xor", 0)
        ],
        [1, 0, 3, 1, 2, 1]
    );
    assert_eq!(
        word(
            "setp.eq.u32 %q, %c, 1; setp.lt.and.u32 %p, %a, %b, !%q; selp.u32 %d, 1, 0, %p;",
            1,
            2,
            0
        ),
        1
    );
    assert_eq!(word("set.lt.u32.s32 %d, %a, %b;", 1, 2, 0), u32::MAX);
    assert_eq!(
        word("set.gt.f32.s32 %d, %a, %b;", 3, 2, 0),
        1.0_f32.to_bits()
    );
    assert_eq!(word("slct.u32.s32 %d, %a, %b, %c;", 1, 2, u32::MAX), 2);
    assert_eq!(
        one(
            "b32 b32 f32 b32",
            "slct.u32.f32 %d, %a, %b, %c;",
            [1, 2, (-0.0_f32).to_bits().into()]
        ),
        1
    );
    assert_eq!(
        one(
            "b32 b32 f32 b32",
            "slct.u32.f32 %d, %a, %b, %c;",
            [1, 2, nan.to_bits().into()]
        ),
        2
    );
}

#[test]
fn conversions_clamp_and_round() {
    let to = |instruction: &str, types: &str, a: u64| one(types, instruction, [a, 0, 0]);
    let bits = |x: f32| u64::from(x.to_bits());
    for (value, rni, rzi, rmi, rpi) in [
        (2.5, 2, 2, 2, 3),
        (-2.5, -2, -2, -3, -2),
        (3.5, 4, 3, 3, 4),
        (-0.7, -1, 0, -1, 0),
    ] {
        for (mode, expected) in [("rni", rni), ("rzi", rzi), ("rmi", rmi), ("rpi", rpi)] {
            let found = to(
                &format!("cvt.{mode}.s32.f32 %d, %a;"),
                "f32 f32 f32 b32",
                bits(value),
            );
            assert_eq!(found as i32, expected, "{mode} of {value}");
        }
    }
    let single = "f32 f32 f32 b32";
    let cases = [
        ("cvt.rzi.s32.f32 %d, %a;", 3e9, 0x7fff_ffff),
        ("cvt.rzi.s32.f32 %d, %a;", -3e9, 0x8000_0000),
        ("cvt.rzi.u32.f32 %d, %a;", -5.0, 0),
        ("cvt.rzi.u32.f32 %d, %a;", 5e9, 0xffff_ffff),
        ("cvt.rzi.s32.f32 %d, %a;", f32::NAN, 0),
        ("cvt.rzi.u32.f32 %d, %a;", f32::NAN, 0),
        (
            "cvt.rzi.u16.f32 %s0, %a; cvt.u32.u16 %d, %s0;",
            70000.0,
            0xffff,
        ),
        ("cvt.rzi.s8.f32 %d, %a;", -200.0, 0xffff_ff80),
        ("cvt.rzi.ftz.s32.f32 %d, %a;", 1e-40, 0),
    ];
    for (instruction, value, expected) in cases {
        assert_eq!(
            to(instruction, single, bits(value)),
            expected,
            "{instruction} of {value}"
        );
    }
    assert_eq!(
        to("cvt.rzi.s64.f32 %d, %a;", "f32 f32 f32 b64", bits(f32::NAN)),
        1 << 63
    );
    assert_eq!(
        to("cvt.rzi.u64.f64 %d, %a;", B64, f64::NAN.to_bits()),
        1 << 63
    );
    assert_eq!(
        to(
            "cvt.rzi.s32.f64 %d, %a;",
            "b64 b64 b64 b32",
            f64::NAN.to_bits()
        ),
        1 << 31
    );
    assert_eq!(
        to("cvt.rzi.u64.f64 %d, %a;", B64, 1e30_f64.to_bits()),
        u64::MAX
    );
    // Integers: truncated, extended, clamped.
    assert_eq!(to("cvt.u8.u32 %d, %a;", B32, 0x1ff), 0xff);
    assert_eq!(to("cvt.s8.u32 %d, %a;", B32, 0x1ff), 0xffff_ffff);
    assert_eq!(to("cvt.sat.u8.s32 %d, %a;", B32, 300), 255);
    assert_eq!(
        to("cvt.sat.u8.s32 %d, %a;", B32, u64::from(-3_i32 as u32)),
        0
    );
    assert_eq!(
        to("cvt.sat.s16.s32 %d, %a;", B32, u64::from(-40000_i32 as u32)),
        0xffff_8000
    );
    assert_eq!(
        to("cvt.s64.s32 %d, %a;", "b32 b32 b32 b64", 0xffff_fffe),
        -2_i64 as u64
    );
    assert_eq!(
        to("cvt.s32.s8 %d, %a;", "u8 b32 b32 b32", 0x80),
        0xffff_ff80
    );
    assert_eq!(to("mov.u32 %d, %a;", "s8 b32 b32 b32", 0x80), 0xff80);
    // To floating point.
    let wide = "b64 b64 b64 b32";
    for (mode, value, expected) in [
        ("rn", 0x0100_0001, 0x0100_0000 as f32),
        ("rp", 0x0100_0001, 0x0100_0002 as f32),
        ("rz", u64::MAX, (1_u64 << 63) as f32 * 2.0_f32.next_down()),
        ("rn", u64::MAX, 18_446_744_073_709_551_616.0),
    ] {
        let found = to(&format!("cvt.{mode}.f32.u64 %d, %a;"), wide, value);
        assert_eq!(f32::from_bits(found as u32), expected, "{mode} of {value}");
    }
    let found = to("cvt.rm.f32.s64 %d, %a;", wide, -0x0100_0001_i64 as u64);
    assert_eq!(f32::from_bits(found as u32), -(0x0100_0002 as f32));
    assert_eq!(
        to("cvt.rn.f64.s64 %d, %a;", B64, i64::MIN as u64),
        (i64::MIN as f64).to_bits()
    );
    assert_eq!(
        to("cvt.rz.f32.f64 %d, %a;", wide, 1e300_f64.to_bits()),
        bits(f32::MAX)
    );
    assert_eq!(
        to("cvt.rn.ftz.f32.f64 %d, %a;", wide, 1e-40_f64.to_bits()),
        0
    );
    assert_eq!(
        to("cvt.rn.f32.f64 %d, %a;", wide, f64::NAN.to_bits()),
        0x7fff_ffff
    );
    assert_eq!(
        to("cvt.rni.f32.f32 %d, %a;", single, bits(-0.4)),
        bits(-0.0)
    );
    assert_eq!(to("cvt.sat.f32.f32 %d, %a;", single, bits(1.5)), bits(1.0));
}
