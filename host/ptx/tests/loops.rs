//! Which loops the verifier counts, and which comparisons the fence hides from the assembler.
//!
//! Assemblers count a loop's turns as if no integer wrapped. On the stand-in, where integers do
//! wrap, a loop that is counted wrongly runs as it should, so these cases look at the proof and at
//! the fenced text. `host/ptx/src/verify/doubts.rs` has the rules.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

use callbox_ptx::fence::fence;
use callbox_ptx::verify::{self, Launch, LoopEnd, Param, verify};
use callbox_ptx::{Limits, print, read};

struct Case {
    name: &'static str,
    /// The loop's text, with `n` in `%n`.
    text: &'static str,
    n: u32,
    /// The most turns of each loop, in the order of the text, or `None` for a loop that looks at
    /// the stop word.
    turns: &'static [Option<u64>],
    /// The number of registers of comparisons that are hidden.
    hidden: usize,
}

const CASES: &[Case] = &[
    Case {
        name: "a counter from zero to a small limit is counted",
        text: "mov.u32 %i, 0;
            AGAIN: add.u32 %i, %i, 1; setp.lt.u32 %p, %i, %n; @%p bra AGAIN;",
        n: 64,
        turns: &[Some(63)],
        hidden: 0,
    },
    Case {
        name: "a counter down to zero is counted",
        text: "mov.u32 %i, %n;
            AGAIN: add.s32 %i, %i, -1; setp.gt.s32 %p, %i, 0; @%p bra AGAIN;",
        n: 64,
        turns: &[Some(63)],
        hidden: 0,
    },
    Case {
        name: "the counter wraps over the top bit",
        text: "mov.u32 %i, -1;
            AGAIN: add.u32 %i, %i, -2147483648; setp.ge.u32 %p, %i, 64; @%p bra AGAIN;",
        n: 64,
        turns: &[None],
        hidden: 1,
    },
    Case {
        name: "the distance from the counter to the limit wraps",
        text: "mov.u32 %i, %tid.x;
            AGAIN: add.s32 %i, %i, 1; setp.lt.s32 %p, %i, %n; @%p bra AGAIN;",
        n: 0x8000_0001,
        turns: &[None],
        hidden: 2,
    },
    Case {
        name: "the step is as large as the type",
        text: "mov.u32 %i, %n;
            AGAIN: add.s32 %i, %i, -1073741824; setp.ge.s32 %p, %i, %n; @%p bra AGAIN;",
        n: 1,
        turns: &[None],
        hidden: 2,
    },
    Case {
        name: "a step of 2^24 is too large to be unrolled",
        text: "mov.u32 %i, 0;
            AGAIN: add.s32 %i, %i, 33554432; setp.lt.s32 %p, %i, 67108864; @%p bra AGAIN;",
        n: 0,
        turns: &[None],
        hidden: 1,
    },
    Case {
        name: "a multiple of the counter wraps beside it",
        text: "mov.u32 %i, 0;
            AGAIN: shl.b32 %j, %i, 20; add.s32 %i, %i, 1; setp.lt.s32 %p, %i, %n; @%p bra AGAIN;",
        n: 5000,
        turns: &[Some(4999)],
        hidden: 2,
    },
    Case {
        name: "only the outer loop's counter is far from zero",
        text: "mov.u32 %j, -1;
            OUTER: mov.u32 %i, 0;
            AGAIN: add.u32 %i, %i, 1; setp.lt.u32 %p, %i, 8; @%p bra AGAIN;
            add.u32 %j, %j, -2147483648; setp.ge.u32 %q, %j, %n; @%q bra OUTER;",
        n: 64,
        turns: &[None, Some(7)],
        hidden: 2,
    },
];

fn module_text(body: &str) -> String {
    format!(
        ".version 8.0\n.target sm_80\n.address_size 64\n\
         .visible .entry k(.param .u64 a, .param .u32 n) {{\n\
         .reg .b32 %i, %j, %n; .reg .pred %p, %q;\n\
         ld.param.u32 %n, [n];\n{body}\nret; }}"
    )
}

#[test]
fn loops_that_may_wrap_are_neither_counted_nor_shown() {
    for case in CASES {
        let module = read(&module_text(case.text), "k.ptx", &Limits::default()).unwrap();
        let launch = Launch {
            grid: [1; 3],
            block: [32, 1, 1],
            shared_bytes: 0,
            params: vec![
                Param::Buffer {
                    bytes: 1024,
                    writable: true,
                    align: 256,
                },
                Param::Value(case.n.to_le_bytes().to_vec()),
            ],
            has_clock: false,
        };
        let proof = verify(&module, "k", &launch, &verify::Limits::default())
            .unwrap_or_else(|refusals| panic!("{}: {refusals:?}", case.name));
        let turns: Vec<_> = proof.loops.iter().map(|one| one.end).map(turns).collect();
        assert_eq!(turns, case.turns, "{}", case.name);

        // The kernels have no exclusive or of their own, and nothing else of a fence has one.
        let text = print(&fence(&module, &proof).module);
        assert_eq!(
            text.matches("xor.b32").count(),
            case.hidden,
            "{}:\n{text}",
            case.name
        );
    }
}

fn turns(end: LoopEnd) -> Option<u64> {
    match end {
        LoopEnd::Proved { turns } => Some(turns),
        LoopEnd::StopWord { .. } => None,
    }
}
