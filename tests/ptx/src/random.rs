//! Random kernels, and random changes of real ones.

mod counting;
mod launches;
mod mutations;

pub use counting::{counting, counting_launch};
pub use launches::{changed_launch, launch};
pub use mutations::{alone, mutated};

/// A small generator of numbers (xorshift), so that a seed says all about a kernel.
pub struct Random(u64);

impl Random {
    /// The numbers of this seed.
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// The next number.
    pub fn number(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// A number below `count`, or 0.
    pub fn below(&mut self, count: usize) -> usize {
        (self.number() >> 33) as usize % count.max(1)
    }

    /// Whether something happens that has this chance in percent.
    pub fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    /// One of the choices.
    pub fn pick<'a>(&mut self, choices: &[&'a str]) -> &'a str {
        choices[self.below(choices.len())]
    }
}

/// Numbers at which something changes: lengths, warps, signs, words.
const NUMBERS: [i64; 36] = [
    0,
    1,
    2,
    3,
    4,
    7,
    8,
    12,
    15,
    16,
    31,
    32,
    33,
    60,
    63,
    64,
    100,
    124,
    127,
    128,
    252,
    255,
    256,
    508,
    512,
    1024,
    4096,
    65_535,
    65_536,
    0x7fff_ffff,
    -1,
    -2,
    -4,
    -8,
    -128,
    -0x8000_0000,
];

fn number(random: &mut Random) -> i64 {
    if random.chance(90) {
        NUMBERS[random.below(NUMBERS.len())]
    } else {
        random.number() as i64
    }
}

fn small(random: &mut Random) -> i64 {
    random.below(9) as i64
}

struct Generator<'r> {
    random: &'r mut Random,
    text: String,
    labels: usize,
    /// How likely an operand is a fresh number rather than a register.
    numbers: usize,
}

/// A kernel of straight runs, branches to anywhere, loops that count, and accesses.
pub fn kernel(random: &mut Random) -> String {
    let mut text = ".version 8.0\n.target sm_80\n.address_size 64\n".to_owned();
    text.push_str(".extern .shared .align 16 .b8 dynamic[];\n");
    text.push_str(".global .align 4 .b32 table[4] = {1, 2, 3, 4};\n");
    if random.chance(30) {
        text.push_str(".shared .align 4 .b8 without_a_name[96];\n");
    }
    text.push_str(".visible .entry k(.param .u64 a, .param .u64 b, .param .u64 c, .param .u32 n, .param .u64 m)\n{\n");
    text.push_str(".reg .pred %p<6>;\n.reg .b32 %r<10>;\n.reg .b64 %d<10>;\n.reg .f32 %f<4>;\n");
    text.push_str(".shared .align 8 .b8 fixed[200];\n.local .align 8 .b8 own[64];\n");
    let labels = 1 + random.below(5);
    let numbers = 20 + random.below(50);
    let mut generator = Generator {
        random,
        text,
        labels,
        numbers,
    };
    generator.beginning();
    // Short kernels are cheap, and most faults need few instructions.
    let most = if generator.random.chance(15) { 40 } else { 16 };
    let count = 4 + generator.random.below(most);
    let mut left = 0;
    for index in 0..count {
        if left < generator.labels && generator.random.below(count) <= index / 2 {
            generator.line(&format!("L{left}:"));
            left += 1;
        }
        generator.statement();
    }
    while left < generator.labels {
        generator.line(&format!("L{left}:"));
        left += 1;
        generator.statement();
    }
    generator.text.push_str("ret;\n}\n");
    generator.text
}

impl Generator<'_> {
    fn line(&mut self, line: &str) {
        self.text.push_str(line);
        self.text.push('\n');
    }

    fn r(&mut self) -> String {
        format!("%r{}", self.random.below(10))
    }

    fn d(&mut self) -> String {
        format!("%d{}", self.random.below(10))
    }

    fn p(&mut self) -> String {
        format!("%p{}", self.random.below(6))
    }

    fn value(&mut self, is_wide: bool) -> String {
        if self.random.below(100) < self.numbers {
            return number(self.random).to_string();
        }
        if is_wide { self.d() } else { self.r() }
    }

    fn guard(&mut self) -> String {
        let p = self.p();
        match self.random.below(5) {
            0 => format!("@{p} "),
            1 => format!("@!{p} "),
            _ => String::new(),
        }
    }

    fn beginning(&mut self) {
        let lines = [
            "ld.param.u64 %d0, [a];",
            "ld.param.u64 %d1, [b];",
            "ld.param.u64 %d2, [c];",
            "ld.param.u32 %r0, [n];",
            "ld.param.u64 %d3, [m];",
            "mov.u32 %r1, %tid.x;",
            "mov.u32 %r2, %ctaid.x;",
            "mov.u32 %r3, %ntid.x;",
            "mad.lo.s32 %r4, %r2, %r3, %r1;",
            "setp.lt.s32 %p0, %r4, %r0;",
            "mul.wide.s32 %d4, %r4, 4;",
            "add.s64 %d5, %d0, %d4;",
            "add.s64 %d6, %d1, %d4;",
            "mov.u32 %r5, fixed;",
            "mov.u64 %d7, own;",
            "mov.u32 %r6, dynamic;",
        ];
        for line in lines {
            if self.random.chance(92) {
                self.line(line);
            }
        }
    }

    fn statement(&mut self) {
        match self.random.below(20) {
            0..=6 => self.arithmetic(),
            7 | 8 => self.comparison(),
            9..=12 => self.access(),
            13 => self.shared_access(),
            14 => self.loop_that_counts(),
            15 => self.branch(),
            16 => self.meeting(),
            17 => self.guarded_access(),
            18 => self.walk(),
            _ => self.rare(),
        }
    }

    fn arithmetic(&mut self) {
        let guard = if self.random.chance(25) {
            self.guard()
        } else {
            String::new()
        };
        let is_wide = self.random.chance(40);
        let bits = if is_wide { 64 } else { 32 };
        let to = if is_wide { self.d() } else { self.r() };
        let from = if is_wide { self.d() } else { self.r() };
        let (a, b) = (self.value(is_wide), self.value(is_wide));
        let s = self.random.pick(&["s", "u"]);
        let by = small(self.random);
        let line = match self.random.below(20) {
            0..=3 => format!("add.{s}{bits} {to}, {from}, {a};"),
            4 | 5 => format!("sub.{s}{bits} {to}, {a}, {b};"),
            6 => format!("mul.lo.{s}{bits} {to}, {from}, {a};"),
            7 => format!("mad.lo.{s}{bits} {to}, {from}, {by}, {a};"),
            8 => format!("and.b{bits} {to}, {from}, {a};"),
            9 => format!("or.b{bits} {to}, {from}, {a};"),
            10 => format!("xor.b{bits} {to}, {from}, {a};"),
            11 => format!("shl.b{bits} {to}, {from}, {by};"),
            12 => format!("shr.{s}{bits} {to}, {from}, {by};"),
            13 => format!(
                "{}.{s}{bits} {to}, {from}, {a};",
                self.random.pick(&["min", "max"])
            ),
            14 => format!(
                "{}.{s}{bits} {to}, {from}, {};",
                self.random.pick(&["rem", "div"]),
                by + 1
            ),
            15 => format!("selp.b{bits} {to}, {a}, {from}, {};", self.p()),
            16 => format!("mov.b{bits} {to}, {a};"),
            17 => format!("bfe.{s}{bits} {to}, {from}, {by}, {};", by + 3),
            18 => format!("{}.b{bits} {to}, {from};", self.random.pick(&["not"])),
            _ => format!("neg.s{bits} {to}, {from};"),
        };
        self.line(&format!("{guard}{line}"));
        if self.random.chance(4) {
            self.carry();
        }
        if self.random.chance(25) {
            let (d, r) = (self.d(), self.r());
            let line = match self.random.below(5) {
                0 => format!("cvt.u64.u32 {d}, {r};"),
                1 => format!("cvt.s64.s32 {d}, {r};"),
                2 => format!("cvt.u32.u64 {r}, {d};"),
                3 => format!("mul.wide.{s}32 {d}, {r}, {};", number(self.random) as i32),
                _ => format!("mad.wide.{s}32 {d}, {r}, {by}, {d};"),
            };
            self.line(&line);
        }
    }

    /// A sum or a product, and a second one with its carry.
    fn carry(&mut self) {
        let (to, other, from) = (self.r(), self.r(), self.r());
        let (a, b) = (self.value(false), self.value(false));
        let lines = match self.random.below(3) {
            0 => format!("add.cc.u32 {to}, {from}, {a};\naddc.u32 {other}, {from}, {b};"),
            1 => format!("sub.cc.u32 {to}, {from}, {a};\nsubc.u32 {other}, 0, 0;"),
            _ => {
                format!("mad.lo.cc.u32 {to}, {from}, 1, {a};\nmadc.hi.u32 {other}, {from}, 1, {b};")
            }
        };
        self.line(&lines);
    }

    fn comparison(&mut self) {
        let order = self.random.pick(&["lt", "le", "gt", "ge", "eq", "ne"]);
        let is_wide = self.random.chance(30);
        let kind = match (is_wide, self.random.below(2)) {
            (true, 0) => "s64",
            (true, _) => "u64",
            (false, 0) => "s32",
            (false, _) => "u32",
        };
        let from = if is_wide { self.d() } else { self.r() };
        let (to, with, by) = (self.p(), self.p(), self.value(is_wide));
        let line = match self.random.below(11) {
            8 => format!("setp.{order}.{kind} _|{to}, {from}, {by};"),
            9 => format!("setp.{order}.{kind} {to}|{with}, {from}, {by};"),
            10 => format!("setp.{order}.and.{kind} _|{to}, {from}, {by}, !{with};"),
            0 => format!("setp.{order}.and.{kind} {to}, {from}, {by}, {with};"),
            1 => format!("setp.{order}.or.{kind} {to}, {from}, {by}, !{with};"),
            2 => format!("and.pred {to}, {with}, {to};"),
            3 => format!("not.pred {to}, {with};"),
            _ => format!("setp.{order}.{kind} {to}, {from}, {by};"),
        };
        self.line(&line);
    }

    fn offset(&mut self) -> String {
        match self.random.below(4) {
            0 => format!("+{}", self.random.below(300)),
            1 => format!("+{}", self.random.below(16) * 4),
            2 => format!("+-{}", self.random.below(5) * 4),
            _ => String::new(),
        }
    }

    fn access(&mut self) {
        let (guard, address, offset) = (self.guard(), self.d(), self.offset());
        let (r, f, d) = (self.r(), format!("%f{}", self.random.below(4)), self.d());
        let line = match self.random.below(9) {
            0 | 1 => format!("ld.global.u32 {r}, [{address}{offset}];"),
            2 => format!("ld.global.f32 {f}, [{address}{offset}];"),
            3 => format!("ld.global.u64 {d}, [{address}{offset}];"),
            4 => format!("ld.global.v4.f32 {{%f0, %f1, %f2, %f3}}, [{address}{offset}];"),
            5 | 6 => format!("st.global.u32 [{address}{offset}], {r};"),
            7 => format!("st.global.u8 [{address}{offset}], {r};"),
            _ => format!("atom.global.add.u32 {r}, [{address}{offset}], 1;"),
        };
        self.line(&format!("{guard}{line}"));
    }

    /// What compilers write: an index, its limit, and an access if it is below.
    fn guarded_access(&mut self) {
        let (index, limit, p) = (self.r(), self.value(false), self.p());
        let base = self.random.below(3);
        let scale = self.random.pick(&["1", "2", "4", "8"]);
        let s = self.random.pick(&["s", "u"]);
        let order = self.random_order();
        self.line(&format!("setp.{order}.{s}32 {p}, {index}, {limit};"));
        self.line(&format!("mul.wide.{s}32 %d8, {index}, {scale};"));
        self.line(&format!("add.s64 %d9, %d{base}, %d8;"));
        let offset = self.offset();
        let line = match self.random.below(3) {
            0 => format!("@{p} ld.global.u32 %r9, [%d9{offset}];"),
            1 => format!("@{p} st.global.u32 [%d9{offset}], {index};"),
            _ => format!("@!{p} st.global.u16 [%d9{offset}], {index};"),
        };
        self.line(&line);
    }

    fn random_order(&mut self) -> &'static str {
        ["lt", "le", "gt", "ge", "eq", "ne"][self.random.below(6)]
    }

    fn shared_access(&mut self) {
        let (guard, r, other, offset) = (self.guard(), self.r(), self.r(), self.offset());
        let name = self.random.pick(&["fixed", "dynamic"]);
        let from = self.d();
        let lines = match self.random.below(8) {
            0 => format!("ld.shared.u32 {r}, [{name}{offset}];"),
            1 => format!("st.shared.u32 [{name}{offset}], {r};"),
            2 => format!("ld.shared.u32 {r}, [{other}{offset}];"),
            3 => format!("st.shared.u32 [{other}{offset}], {r};"),
            4 => format!(
                "and.b32 {other}, {other}, 124;\nmov.u32 {r}, {name};\nadd.s32 {r}, {r}, {other};\nst.shared.u32 [{r}{offset}], {other};"
            ),
            5 => format!("cp.async.ca.shared.global [{name}{offset}], [{from}], 4, {r};"),
            6 => format!(
                "{guard}ld.global.u32 {r}, [{from}];\ncp.async.ca.shared.global [{other}], [{from}], 4;"
            ),
            _ => match self.random.below(4) {
                0 => format!("ld.local.u32 {r}, [own{offset}];"),
                1 => format!("ld.local.u32 {r}, [{from}{offset}];"),
                2 => format!("ld.local.u32 {r}, [{other}{offset}];"),
                _ => format!("ld.local.u32 {r}, [%d7{offset}];\nst.local.u32 [%d7+4], {r};"),
            },
        };
        let last = lines.rfind('\n').map_or(0, |at| at + 1);
        let (before, last) = lines.split_at(last);
        self.line(&format!("{before}{guard}{last}"));
    }

    fn loop_that_counts(&mut self) {
        let label = format!("C{}", self.text.len());
        let (r, p) = (self.r(), self.p());
        let [from, step, to] = [(); 3].map(|()| {
            if self.random.chance(70) {
                small(self.random).to_string()
            } else {
                self.value(false)
            }
        });
        let order = self.random_order();
        let s = self.random.pick(&["s", "u"]);
        self.line(&format!("mov.u32 {r}, {from};"));
        if self.random.chance(40) {
            self.line("mov.u64 %d8, %d1;");
        }
        self.line(&format!("{label}:"));
        for _ in 0..self.random.below(4) {
            match self.random.below(4) {
                0 => self.arithmetic(),
                1 => self.guarded_access(),
                2 => self.line("st.global.u32 [%d8], %r1;\nadd.s64 %d8, %d8, 4;"),
                _ => self.access(),
            }
        }
        self.line(&format!("add.{s}32 {r}, {r}, {step};"));
        self.line(&format!("setp.{order}.{s}32 {p}, {r}, {to};"));
        self.line(&format!("@{p} bra {label};"));
    }

    /// A loop with two joins that move together.
    fn walk(&mut self) {
        let label = format!("W{}", self.text.len());
        let (base, step, count) = (
            self.random.below(3),
            self.random.below(5) * 4,
            1 + self.random.below(40),
        );
        let (offset, from) = (self.random.below(9) * 4, self.random.below(4));
        self.line(&format!("add.s64 %d8, %d{base}, {offset};"));
        self.line(&format!("mov.u32 %r8, {from};\n{label}:"));
        let access = self
            .random
            .pick(&["ld.global.u32 %r9, [%d8];", "st.global.u32 [%d8], %r8;"]);
        self.line(access);
        self.line(&format!("add.s64 %d8, %d8, {step};\nadd.s32 %r8, %r8, 1;"));
        self.line(&format!(
            "setp.lt.s32 %p5, %r8, {count};\n@%p5 bra {label};"
        ));
    }

    fn branch(&mut self) {
        let (guard, label) = (self.guard(), self.random.below(self.labels));
        let is_guarded = !guard.is_empty() || self.random.chance(10);
        let guard = if is_guarded {
            guard
        } else {
            "@%p0 ".to_owned()
        };
        self.line(&format!("{guard}bra L{label};"));
    }

    fn meeting(&mut self) {
        let (r, p) = (self.r(), self.p());
        let line = match self.random.below(8) {
            0 | 1 => "bar.sync 0;".to_owned(),
            2 => format!("shfl.sync.bfly.b32 {r}, {r}, 1, 31, -1;"),
            3 => format!("vote.sync.any.pred {p}, {p}, -1;"),
            4 => "bar.warp.sync -1;".to_owned(),
            5 => format!("activemask.b32 {r};"),
            6 => format!("redux.sync.add.u32 {r}, {r}, -1;"),
            _ => format!("shr.u32 {r}, %r1, 5;\nsetp.eq.u32 {p}, {r}, 0;"),
        };
        self.line(&line);
    }

    fn rare(&mut self) {
        let (guard, r, d) = (self.guard(), self.r(), self.d());
        let line = match self.random.below(10) {
            6 => format!("mov.u64 {d}, table;"),
            7 => format!("mov.u32 {r}, table;"),
            8 => format!("ldmatrix.sync.aligned.m8n8.x1.b16 {{{r}}}, [{d}];"),
            9 => format!(
                "shfl.sync.idx.b32 {r}, {r}, {}, 31, -1;",
                number(self.random) & 31
            ),
            0 => "trap;".to_owned(),
            1 => "ret;".to_owned(),
            2 => format!("ld.param.u64 {d}, [a];"),
            3 => format!("cvta.to.global.u64 {d}, {d};"),
            4 => format!("mov.b64 {d}, {{{r}, {r}}};"),
            _ => "exit;".to_owned(),
        };
        self.line(&format!("{guard}{line}"));
    }
}
