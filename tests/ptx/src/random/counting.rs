//! Random loops that count near the ends of their types, in one thread. What assemblers assume of
//! counters is wrong there, so that their results tell whether an assembler keeps PTX's meaning.

use callbox_ptx::verify::{Launch, Param};

use super::Random;

/// The bytes of the result.
const RESULT: u64 = 512;

/// Where numbers of 32 bits begin to differ: steps, limits, and both ends.
const ENDS: [i64; 22] = [
    0,
    1,
    2,
    3,
    5,
    17,
    64,
    100,
    -1,
    -2,
    -3,
    -64,
    0x7fff_ffff,
    0x7fff_fffe,
    0x7fff_fff0,
    -0x8000_0000,
    -0x7fff_ffff,
    -0x7fff_fff0,
    0x4000_0000,
    -0x4000_0000,
    0x3fff_ffff,
    0x5555_5555,
];

/// A launch of one thread with two numbers.
pub fn counting_launch(random: &mut Random) -> Launch {
    let number = |random: &mut Random| ENDS[random.below(ENDS.len())];
    let (n, m) = (number(random), number(random));
    Launch {
        grid: [1; 3],
        block: [1; 3],
        shared_bytes: 0,
        params: vec![
            Param::Buffer {
                bytes: RESULT,
                writable: true,
                align: 256,
            },
            Param::Value((n as i32).to_le_bytes().to_vec()),
            Param::Value((m as i32).to_le_bytes().to_vec()),
            Param::Value(n.to_le_bytes().to_vec()),
        ],
        has_clock: false,
    }
}

/// A kernel `k` of one to three loops, each with a counter, another number that it changes, and
/// stores at places that are computed from both.
pub fn counting(random: &mut Random) -> String {
    let mut text = ".version 8.0\n.target sm_80\n.address_size 64\n".to_owned();
    text.push_str(
        ".visible .entry k(.param .u64 a, .param .u32 n, .param .u32 m, .param .u64 w)\n{\n",
    );
    text.push_str(".reg .pred %p<4>;\n.reg .b32 %r<12>;\n.reg .b64 %d<8>;\n");
    text.push_str("ld.param.u64 %d0, [a];\nld.param.u32 %r0, [n];\nld.param.u32 %r1, [m];\n");
    text.push_str("ld.param.u64 %d1, [w];\nmov.u32 %r9, 0;\nmov.u32 %r3, 1;\n");
    for number in 0..1 + random.below(3) {
        one_loop(&mut text, random, number);
    }
    text.push_str("st.global.u32 [%d0], %r2;\nst.global.u32 [%d0+4], %r9;\n");
    text.push_str("st.global.u64 [%d0+8], %d2;\nst.global.u32 [%d0+16], %r3;\nret;\n}\n");
    text
}

fn operand(random: &mut Random) -> String {
    match random.below(3) {
        0 => "%r0".to_owned(),
        1 => "%r1".to_owned(),
        _ => ENDS[random.below(ENDS.len())].to_string(),
    }
}

fn one_loop(text: &mut String, random: &mut Random, number: usize) {
    let is_wide = random.chance(20);
    let s = random.pick(&["s", "u"]);
    let order = random.pick(&["lt", "le", "gt", "ge", "ne", "eq"]);
    let (bits, counter) = if is_wide { (64, "%d2") } else { (32, "%r2") };
    let step = match random.below(4) {
        0 => "1".to_owned(),
        1 => "-1".to_owned(),
        _ => ENDS[random.below(ENDS.len())].to_string(),
    };
    let (start, limit) = if is_wide {
        let ends = |random: &mut Random| match random.below(3) {
            0 => "%d1".to_owned(),
            _ => ENDS[random.below(ENDS.len())].to_string(),
        };
        (ends(random), ends(random))
    } else {
        (operand(random), operand(random))
    };
    let mut line = |line: String| {
        text.push_str(&line);
        text.push('\n');
    };
    line(format!("mov.b{bits} {counter}, {start};"));
    let tests_first = random.chance(40);
    if tests_first {
        line(format!("setp.{order}.{s}{bits} %p0, {counter}, {limit};"));
        line(format!("@!%p0 bra E{number};"));
    }
    line(format!("L{number}:"));
    // A turn more than some: the stand-in takes no endless loops.
    line("add.u32 %r9, %r9, 1;".to_owned());
    for _ in 0..random.below(4) {
        let by = random.below(29);
        let change = ENDS[random.below(ENDS.len())];
        let lines = match random.below(8) {
            // Multiples of the counter.
            6 if is_wide => {
                format!("shl.b64 %d3, %d2, {by};\ncvt.u32.u64 %r4, %d3;\nxor.b32 %r3, %r3, %r4;")
            }
            6 => format!("shl.b32 %r6, %r2, {by};\nxor.b32 %r3, %r3, %r6;"),
            7 if is_wide => format!(
                "mul.lo.s64 %d3, %d2, {change};\ncvt.u32.u64 %r4, %d3;\nadd.u32 %r3, %r3, %r4;"
            ),
            7 => format!("mul.lo.s32 %r6, %r2, {change};\nadd.u32 %r3, %r3, %r6;"),
            0 => format!("add.s32 %r3, %r3, {change};"),
            1 => format!("mad.lo.s32 %r3, %r3, {change}, %r9;"),
            2 if is_wide => "cvt.u32.u64 %r4, %d2;\nxor.b32 %r3, %r3, %r4;".to_owned(),
            2 => "xor.b32 %r3, %r3, %r2;".to_owned(),
            3 => format!(
                "shr.u32 %r5, %r3, {by};\nand.b32 %r5, %r5, 63;\nmul.wide.u32 %d4, %r5, 4;\nadd.s64 %d5, %d0, %d4;\nst.global.u32 [%d5+128], %r9;"
            ),
            // Places that only a check keeps in range.
            4 if is_wide => {
                "shl.b64 %d4, %d2, 2;\nadd.s64 %d5, %d0, %d4;\nst.global.u32 [%d5], %r3;".to_owned()
            }
            4 => "mul.wide.s32 %d4, %r2, 4;\nadd.s64 %d5, %d0, %d4;\nst.global.u32 [%d5], %r3;"
                .to_owned(),
            // Places that are in range as long as the counter is.
            _ => format!(
                "setp.lt.u32 %p1, {}, 100;\n@%p1 mul.wide.u32 %d6, {}, 4;\n@%p1 add.s64 %d7, %d0, %d6;\n@%p1 st.global.u32 [%d7+64], %r9;",
                if is_wide { "%r3" } else { "%r2" },
                if is_wide { "%r3" } else { "%r2" },
            ),
        };
        line(lines);
    }
    line(format!("add.{s}{bits} {counter}, {counter}, {step};"));
    line(format!("setp.{order}.{s}{bits} %p0, {counter}, {limit};"));
    if random.chance(50) {
        // Another end.
        line("setp.gt.u32 %p2, %r9, 40;".to_owned());
        line(format!("@%p2 bra E{number};"));
    }
    line(format!("@%p0 bra L{number};"));
    line(format!("E{number}:"));
}
