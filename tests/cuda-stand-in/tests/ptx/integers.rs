//! Integer instructions, checked against the PTX ISA document.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::device_memory::single::{B64, one, random, run, word};

#[test]
fn shifts_clamp() {
    assert_eq!(word("shl.b32 %d, %a, %b;", 1, 31, 0), 1 << 31);
    assert_eq!(word("shl.b32 %d, %a, %b;", u32::MAX, 32, 0), 0);
    assert_eq!(word("shl.b32 %d, %a, %b;", u32::MAX, u32::MAX, 0), 0);
    assert_eq!(word("shr.u32 %d, %a, %b;", u32::MAX, 32, 0), 0);
    assert_eq!(word("shr.s32 %d, %a, %b;", 0x8000_0000, 40, 0), u32::MAX);
    assert_eq!(
        one("b64 b32 b32 b64", "shr.s64 %d, %a, %b;", [1 << 63, 64, 0]),
        u64::MAX
    );
    assert_eq!(
        one("b64 b32 b32 b64", "shl.b64 %d, %a, %b;", [u64::MAX, 64, 0]),
        0
    );
    assert_eq!(
        one("b16 b32 b32 b16", "shl.b16 %d, %a, %b;", [0xffff, 8, 0]),
        0xff00
    );
    assert_eq!(
        one("b16 b32 b32 b16", "shr.s16 %d, %a, %b;", [0x8000, 20, 0]),
        0xffff
    );
}

#[test]
fn funnels_and_permutations() {
    let (low, high) = (0x89ab_cdef, 0x0123_4567);
    assert_eq!(
        word("shf.l.clamp.b32 %d, %a, %b, %c;", low, high, 8),
        0x2345_6789
    );
    assert_eq!(word("shf.l.clamp.b32 %d, %a, %b, %c;", low, high, 40), low);
    assert_eq!(
        word("shf.l.wrap.b32 %d, %a, %b, %c;", low, high, 40),
        0x2345_6789
    );
    assert_eq!(
        word("shf.r.clamp.b32 %d, %a, %b, %c;", low, high, 8),
        0x6789_abcd
    );
    assert_eq!(word("shf.r.clamp.b32 %d, %a, %b, %c;", low, high, 32), high);
    assert_eq!(word("shf.r.wrap.b32 %d, %a, %b, %c;", low, high, 32), low);
    let (a, b) = (0x3322_8100, 0x7766_5544);
    assert_eq!(word("prmt.b32 %d, %a, %b, %c;", a, b, 0x7531), 0x7755_3381);
    // The upper bit of a selector replicates the byte's sign.
    assert_eq!(word("prmt.b32 %d, %a, %b, %c;", a, b, 0x9810), 0xff00_8100);
    assert_eq!(word("prmt.b32.f4e %d, %a, %b, %c;", a, b, 3), 0x6655_4433);
    assert_eq!(word("prmt.b32.b4e %d, %a, %b, %c;", a, b, 1), 0x6677_0081);
    assert_eq!(word("prmt.b32.rc8 %d, %a, %b, %c;", a, b, 2), 0x2222_2222);
    assert_eq!(word("prmt.b32.ecl %d, %a, %b, %c;", a, b, 2), 0x3322_2222);
    assert_eq!(word("prmt.b32.ecr %d, %a, %b, %c;", a, b, 1), 0x8181_8100);
    assert_eq!(word("prmt.b32.rc16 %d, %a, %b, %c;", a, b, 1), 0x3322_3322);
}

/// The document's loops, bit by bit.
fn extracted(a: u64, position: u64, length: u64, msb: u64, is_signed: bool) -> u64 {
    let (position, length) = (position & 0xff, length & 0xff);
    let bit = |at: u64| a >> at & 1;
    let sign = if !is_signed || length == 0 {
        0
    } else {
        bit((position + length - 1).min(msb))
    };
    (0..=msb).fold(0, |d, i| {
        let is_field = i < length && position + i <= msb;
        d | (if is_field { bit(position + i) } else { sign }) << i
    })
}

fn inserted(a: u64, b: u64, position: u64, length: u64, msb: u64) -> u64 {
    let (position, length) = (position & 0xff, length & 0xff);
    (0..length)
        .take_while(|i| position + i <= msb)
        .fold(b, |f, i| {
            let at = position + i;
            f & !(1 << at) | (a >> i & 1) << at
        })
}

#[test]
fn fields_are_as_the_document_loops() {
    let mut cases = random(500, 3);
    for [_, b, c] in &mut cases {
        (*b, *c) = (*b % 70, *c % 70);
    }
    cases.extend([
        [u64::MAX, 255, 255],
        [1 << 31, 31, 1],
        [1 << 31, 4, 0],
        [1 << 63, 200, 3],
        [5, 0, 32],
        [5, 0, 64],
    ]);
    for (kind, msb, is_signed) in [
        ("u32", 31, false),
        ("s32", 31, true),
        ("u64", 63, false),
        ("s64", 63, true),
    ] {
        let bits = if msb == 31 { "b32" } else { "b64" };
        let found = run(
            &format!("{bits} b32 b32 {bits}"),
            &format!("bfe.{kind} %d, %a, %b, %c;"),
            &cases,
        );
        for ([a, b, c], found) in cases.iter().zip(found) {
            let a = if msb == 31 { *a & 0xffff_ffff } else { *a };
            assert_eq!(
                found,
                extracted(a, *b, *c, msb, is_signed),
                "bfe.{kind} of {a:#x}, {b}, {c}"
            );
        }
    }
    for (bits, msb, mask) in [("b32", 31, 0xffff_ffff), ("b64", 63, u64::MAX)] {
        let instruction = format!("bfi.{bits} %d, %a, 0x5a5a5a5a, %b, %c;");
        let found = run(&format!("{bits} b32 b32 {bits}"), &instruction, &cases);
        for ([a, b, c], found) in cases.iter().zip(found) {
            assert_eq!(
                found,
                inserted(*a & mask, 0x5a5a_5a5a, *b, *c, msb),
                "bfi.{bits} of {a:#x}, {b}, {c}"
            );
        }
    }
}

#[test]
fn logic_counts_and_finds() {
    // The table is the function of 0xf0, 0xcc and 0xaa.
    for (table, expected) in [
        (0x80, 0xf0 & 0xcc & 0xaa),
        (0xfe, 0xf0 | 0xcc | 0xaa),
        (0x96, 0xf0 ^ 0xcc ^ 0xaa),
        (0x1a, 0x1a),
    ] {
        let instruction = format!("lop3.b32 %d, %a, %b, %c, {table:#x};");
        assert_eq!(word(&instruction, 0xf0, 0xcc, 0xaa) & 0xff, expected);
    }
    assert_eq!(word("bfind.u32 %d, %a;", 0, 0, 0), u32::MAX);
    assert_eq!(word("bfind.u32 %d, %a;", 0x0001_0000, 0, 0), 16);
    assert_eq!(word("bfind.s32 %d, %a;", u32::MAX, 0, 0), u32::MAX);
    assert_eq!(word("bfind.s32 %d, %a;", -257_i32 as u32, 0, 0), 8);
    assert_eq!(word("bfind.shiftamt.u32 %d, %a;", 0x0001_0000, 0, 0), 15);
    assert_eq!(word("clz.b32 %d, %a;", 0, 0, 0), 32);
    assert_eq!(one("b64 b64 b64 b32", "clz.b64 %d, %a;", [0, 0, 0]), 64);
    assert_eq!(word("cnot.b32 %d, %a;", 0, 0, 0), 1);
    assert_eq!(word("cnot.b32 %d, %a;", 9, 0, 0), 0);
    assert_eq!(word("not.b32 %d, %a;", 9, 0, 0), !9);
    assert_eq!(
        word("mul24.hi.s32 %d, %a, %b;", 0xff80_0000, 0x007f_ffff, 0),
        ((-0x80_0000 * 0x7f_ffff_i64) >> 16) as u32
    );
    assert_eq!(
        word("mul24.lo.s32 %d, %a, %b;", 0x00ff_ffff, 5, 0),
        -5_i32 as u32
    );
    assert_eq!(
        word("mul24.hi.u32 %d, %a, %b;", 0x00ff_ffff, 0x00ff_ffff, 0),
        ((0xff_ffff_u64 * 0xff_ffff) >> 16) as u32
    );
    assert_eq!(word("mad24.lo.u32 %d, %a, %b, %c;", 3, 0x0100_0005, 7), 22);
    assert_eq!(
        word("dp4a.s32.s32 %d, %a, %b, %c;", 0xff02_0304, 0x0101_01ff, 10),
        (10 - 1 + 2 + 3 - 4) as u32
    );
    assert_eq!(
        word("dp4a.u32.u32 %d, %a, %b, %c;", 0xff02_0304, 0x0101_01ff, 10),
        10 + 255 + 2 + 3 + 4 * 255
    );
    assert_eq!(
        word("add.sat.s32 %d, %a, %b;", i32::MAX as u32, 1, 0),
        i32::MAX as u32
    );
    assert_eq!(
        word("sub.sat.s32 %d, %a, %b;", i32::MIN as u32, 1, 0),
        i32::MIN as u32
    );
    assert_eq!(
        word(
            "mad.hi.sat.s32 %d, %a, %b, %c;",
            i32::MAX as u32,
            i32::MAX as u32,
            i32::MAX as u32
        ),
        i32::MAX as u32
    );
    assert_eq!(word("mad.hi.u32 %d, %a, %b, %c;", u32::MAX, u32::MAX, 3), 1);
    assert_eq!(
        one(
            "b32 b32 b64 b64",
            "mad.wide.s32 %d, %a, %b, %c;",
            [u32::MAX.into(), 7, 3]
        ),
        -4_i64 as u64
    );
    assert_eq!(
        one(
            "b16 b16 b32 b32",
            "mul.wide.s16 %d, %a, %b;",
            [0xffff, 7, 0]
        ),
        u64::from(-7_i32 as u32)
    );
    assert_eq!(
        word("div.s32 %d, %a, %b;", i32::MIN as u32, u32::MAX, 0),
        i32::MIN as u32
    );
    assert_eq!(
        word("rem.s32 %d, %a, %b;", -7_i32 as u32, 4, 0),
        -3_i32 as u32
    );
}

#[test]
fn carries_chain() {
    let cases = random(200, 11);
    let wide = "mov.b64 {%r0, %r1}, %a; mov.b64 {%r2, %r3}, %b;";
    let sums = run(
        B64,
        &format!(
            "{wide} add.cc.u32 %r4, %r0, %r2; addc.u32 %r5, %r1, %r3; mov.b64 %d, {{%r4, %r5}};"
        ),
        &cases,
    );
    let differences = run(
        B64,
        &format!(
            "{wide} sub.cc.u32 %r4, %r0, %r2; subc.u32 %r5, %r1, %r3; mov.b64 %d, {{%r4, %r5}};"
        ),
        &cases,
    );
    let products = run(
        B64,
        &format!(
            "{wide} mul.lo.u32 %r4, %r0, %r2; mul.hi.u32 %r5, %r0, %r2; mad.lo.cc.u32 %r5, %r0, %r3, %r5;
            madc.hi.u32 %r6, %r0, %r3, 0; mad.lo.cc.u32 %r5, %r1, %r2, %r5; mov.b64 %d, {{%r4, %r5}};"
        ),
        &cases,
    );
    for (at, [a, b, _]) in cases.iter().enumerate() {
        assert_eq!(sums[at], a.wrapping_add(*b));
        assert_eq!(differences[at], a.wrapping_sub(*b));
        assert_eq!(products[at], a.wrapping_mul(*b));
    }
    // The carry out of the upper word.
    let carry = "add.cc.u64 %x0, %a, %b; addc.u64 %d, 0, 0;";
    assert_eq!(one(B64, carry, [u64::MAX, 1, 0]), 1);
    assert_eq!(one(B64, carry, [u64::MAX, 0, 0]), 0);
    let borrow = "sub.cc.u64 %x0, %a, %b; subc.u64 %d, 0, 0;";
    assert_eq!(one(B64, borrow, [0, 1, 0]), u64::MAX);
    assert_eq!(one(B64, borrow, [1, 1, 0]), 0);
}
