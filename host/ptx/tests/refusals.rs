//! What is not PTX, or not in the table, is refused with its place and the reason.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]
#![allow(
    clippy::disallowed_methods,
    reason = "a test reads the repository's files"
)]

use std::time::Instant;

use callbox_ptx::ast::Statement;
use callbox_ptx::verify::{self, Budget, Launch, Param, Rule, verify, verify_within};
use callbox_ptx::{Limits, print, read, read_one_of, table};

const HEAD: &str = ".version 8.0\n.target sm_80\n.address_size 64\n";

fn module_error(text: &str) -> String {
    let text = format!("{HEAD}{text}");
    read(&text, "k.ptx", &Limits::default())
        .unwrap_err()
        .to_string()
}

fn entry(body: &str) -> String {
    format!(
        "{HEAD}.visible .entry k(.param .u64 .ptr .global .align 16 a) {{\n\
        .reg .b32 %r<10>; .reg .b64 %d<4>; .reg .pred %p, %q; .shared .align 16 .b8 s[64];\n{body}\nret; }}"
    )
}

#[test]
fn errors_name_file_line_column_and_reason() {
    let bodies = [
        (
            "frobnicate.b32 %r1, %r2;",
            "k.ptx:6:1: `frobnicate.b32`: this instruction is not supported",
        ),
        (
            "  add.s32.turbo %r1, %r2, %r3;",
            "k.ptx:6:3: `add.s32.turbo`: `.turbo` is not supported here",
        ),
        (
            "add.s32 %r1, %r2, %r10;",
            "k.ptx:6:19: `%r10` is no register that is declared or known",
        ),
        (
            "add.s32 %r1, %r2, %r01;",
            "k.ptx:6:19: `%r01` is no register that is declared or known",
        ),
        (
            "tex.2d.v4.f32.s32 {%r1, %r2, %r3, %r4}, [a];",
            "k.ptx:6:1: `tex.2d.v4.f32.s32`: textures and surfaces are accessed by handles, which any integer can forge; load from global memory instead",
        ),
        ("bra nowhere;", "k.ptx:6:5: there is no label `nowhere`"),
        (
            "{ inner: } bra inner;",
            "k.ptx:6:16: there is no label `inner`",
        ),
        (
            "x: x: bra x;",
            "k.ptx:6:4: label `x` stands here a second time",
        ),
        (
            "{ .reg .b32 %t; } mov.b32 %t, 1;",
            "k.ptx:6:27: `%t` is no register that is declared or known",
        ),
        (
            "mov.b32 %r1, 99999999999999999999;",
            "k.ptx:6:14: an integer of 64 bits or a floating-point number was expected, and `99999999999999999999` found",
        ),
        (
            "mov.b32 %r1, 0f3F80;",
            "k.ptx:6:14: an integer of 64 bits or a floating-point number was expected, and `0f3F80` found",
        ),
        (
            "mov.b32 %r1, {{%r2}};",
            "k.ptx:6:15: an operand was expected, and `{` found",
        ),
        (
            "ld.global.b32 %r1, [[%d1]];",
            "k.ptx:6:21: an operand was expected, and `[` found",
        ),
        (
            "@%r1 bra x; x:",
            "k.ptx:6:2: `%r1` is not a predicate that is declared",
        ),
        (
            "brx.idx %r1, table;",
            "k.ptx:6:14: there is no `.branchtargets` of the name `table`",
        ),
        (
            "call (%r1), k, (%r2);",
            "k.ptx:6:7: `%r1` is no `.param` that is declared here",
        ),
        (
            "call %d1, p;",
            "k.ptx:6:6: `%d1` is called, and no function of that name is declared before",
        ),
        (
            ".local .align 3 .b8 x[4];",
            "k.ptx:6:15: 3 is not a power of two, which an alignment must be",
        ),
        (
            ".global .b32 x;",
            "k.ptx:6:1: `.global` is not supported in a body",
        ),
        ("/* no end", "k.ptx:6:1: this comment has no end"),
        (
            ".pragma \"no end;",
            "k.ptx:6:9: this string has no end in its line, or a `\\`",
        ),
        ("mov.b32 %r1, é;", "k.ptx:6:14: 'é' is no character of PTX"),
    ];
    for (body, expected) in bodies {
        let error = read(&entry(body), "k.ptx", &Limits::default()).unwrap_err();
        assert_eq!(error.to_string(), expected);
    }
    let modules = [
        (
            ".entry k() { ret; } .entry k() { ret; }",
            "k.ptx:4:40: `k` is defined a second time",
        ),
        (
            ".global .b32 x; .global .b32 x;",
            "k.ptx:4:30: `x` is declared a second time",
        ),
        (".alias f, g;", "k.ptx:4:1: `.alias` is not supported here"),
        (
            ".global .texref t;",
            "k.ptx:4:9: a type was expected, and `.texref` found",
        ),
        (
            ".global .attribute(.managed) .b32 x;",
            "k.ptx:4:9: a type was expected, and `.attribute` found",
        ),
        (
            ".entry k(.reg .b32 r) { ret; }",
            "k.ptx:4:10: `.param` (parameters in registers are not supported) was expected, and `.reg` found",
        ),
        (
            ".entry k() .explicitcluster { ret; }",
            "k.ptx:4:12: a body in braces was expected, and `.explicitcluster` found",
        ),
        (
            ".entry %k() { ret; }",
            "k.ptx:4:10: `%k` is not a name of at most 4096 letters, digits, `_` and `$`",
        ),
        (
            ".entry k() {",
            "k.ptx:4:13: an instruction, directive or label was expected, and the end of the text found",
        ),
    ];
    for (text, expected) in modules {
        assert_eq!(module_error(text), expected);
    }
}

#[test]
fn limits_are_named() {
    let limits = Limits::default();
    let error = |text: &str| read(text, "k.ptx", &limits).unwrap_err().message;
    let long = " ".repeat(limits.text_bytes + 1);
    assert!(error(&long).contains("(`text_bytes`)"));
    assert!(error(&";".repeat(limits.tokens + 1)).contains("(`tokens`)"));
    assert!(error(&entry(&"{".repeat(100_000))).contains("(`scopes`)"));
    let wide = format!("mov.b32 {{{}%r1}}, %r1;", "%r1, ".repeat(300));
    assert!(error(&entry(&wide)).contains("(`operands`)"));
    let kernels = |count: usize| -> String {
        (0..count)
            .map(|n| format!(".entry k{n}() {{ ret; }}\n"))
            .collect()
    };
    let most = format!("{HEAD}{}", kernels(limits.functions));
    assert!(read(&most, "k.ptx", &limits).is_ok());
    let more = format!("{HEAD}{}", kernels(limits.functions + 1));
    assert!(error(&more).contains("(`functions`)"));
}

fn launch() -> Launch {
    Launch {
        grid: [1; 3],
        block: [32, 1, 1],
        shared_bytes: 0,
        params: vec![Param::Buffer {
            bytes: 1024,
            writable: true,
            align: 256,
        }],
        has_clock: false,
    }
}

/// Each condition names the one before twice: taking them apart doubles the work at each level.
#[test]
fn conditions_of_conditions_take_bounded_work() {
    let body = format!(
        "ld.param.u64 %d1, [a]; mov.u32 %r1, %tid.x; setp.lt.u32 %p, %r1, 16;\n{}\
         mul.wide.u32 %d2, %r1, 4; add.s64 %d3, %d1, %d2;\n{}",
        "and.pred %p, %p, %p;\n".repeat(64),
        "@%p ld.global.u32 %r2, [%d3];\n".repeat(64)
    );
    let module = read(&entry(&body), "k.ptx", &Limits::default()).unwrap();
    let start = Instant::now();
    assert!(verify(&module, "k", &launch(), &verify::Limits::default()).is_ok());
    assert!(start.elapsed().as_secs() < 20);
}

/// Loops whose exits are each doubted only after the one before it: if each took a pass, this would
/// take minutes.
#[test]
fn chains_of_doubted_loops_take_bounded_work() {
    let loops: String = (1..400)
        .map(|n| {
            let before = n - 1;
            format!(
                "mov.u32 %i{n}, 0;\nH{n}: setp.ne.s32 %q, %i{before}, 7;\n\
                 setp.lt.and.u32 %p{n}, %i{n}, 100, %q; @!%p{n} bra E{n};\n\
                 add.s32 %i{n}, %i{n}, 1; bra H{n};\nE{n}:\n"
            )
        })
        .collect();
    let ways: String = (0..200)
        .map(|n| format!("setp.eq.u32 %q, %v, {n}; @%q bra J; add.u32 %h, %h, %v;\n"))
        .collect();
    let text = format!(
        "{HEAD}.visible .entry k(.param .u64 .ptr .global .align 16 a) {{\n\
         .reg .b64 %x; .reg .b32 %v, %j, %h, %i<400>; .reg .pred %q, %p<400>;\n\
         ld.param.u64 %x, [a]; ld.global.u32 %v, [%x]; mov.u32 %j, %v; mov.u32 %i0, 0;\n\
         H0: setp.ne.u32 %q, %j, 77; setp.lt.and.u32 %p0, %i0, 100, %q; @!%p0 bra E0;\n\
         add.s32 %i0, %i0, 1; mul.lo.u32 %j, %j, %j; bra H0;\nE0:\n{loops}\
         mov.u32 %h, %v;\n{ways}J: st.global.u32 [%x+4], %h;\n\
         st.global.u32 [%x], %i399;\nret; }}"
    );
    let module = read(&text, "k.ptx", &Limits::default()).unwrap();
    let start = Instant::now();
    let _ = verify(&module, "k", &launch(), &verify::Limits::default());
    assert!(start.elapsed().as_secs() < 30);
}

#[test]
fn scopes_are_limited() {
    let with = |count: usize| entry(&"{}".repeat(count));
    assert!(read(&with(10_000), "k.ptx", &Limits::default()).is_ok());
    let error = read(&with(10_001), "k.ptx", &Limits::default()).unwrap_err();
    assert!(
        error
            .to_string()
            .ends_with("the function has more than 10000 scopes"),
        "{error}"
    );
}

/// Kernels that are verified one after another share a budget.
#[test]
fn a_budget_bounds_the_work_of_all_kernels() {
    let module = read(&entry("add.s32 %r1, %r1, 1;"), "k.ptx", &Limits::default()).unwrap();
    let limits = verify::Limits::default();
    let budget = Budget::new(10_000);
    let verified = || verify_within(&module, "k", &launch(), &limits, &budget);
    let count = (0..1_000).take_while(|_| verified().is_ok()).count();
    assert!((1..100).contains(&count), "{count}");
    let refusals = verified().unwrap_err();
    assert_eq!(refusals.len(), 1);
    assert_eq!(refusals[0].rule, Rule::Size);
    let reason =
        "verifying it and what was verified before it takes more than 10000 steps (`work`)";
    assert_eq!(refusals[0].reason, reason);
    // Another budget has its own steps.
    assert!(verify(&module, "k", &launch(), &limits).is_ok());
}

/// Nested loops: each block is in all loops around it.
#[test]
fn blocks_of_nested_loops_are_limited() {
    let nest = |count: usize| {
        let heads: String = (0..count)
            .map(|n| format!("l{n}: add.s32 %r1, %r1, 1;\n"))
            .collect();
        let latches: String = (0..count)
            .map(|n| format!("@%p bra l{n};\n"))
            .rev()
            .collect();
        entry(&format!("{heads}{latches}"))
    };
    let verified = |count| {
        let module = read(&nest(count), "k.ptx", &Limits::default()).unwrap();
        verify(&module, "k", &launch(), &verify::Limits::default())
    };
    assert!(verified(100).is_ok());
    let refusals = verified(1_000).unwrap_err();
    assert_eq!(refusals.len(), 1);
    assert_eq!(refusals[0].rule, Rule::Size);
    assert!(
        refusals[0].reason.contains("(`loop_blocks`)"),
        "{}",
        refusals[0].reason
    );
}

/// Texts that would take quadratic time if a part of the reader did.
#[test]
fn long_texts_take_time_in_proportion() {
    let texts = [
        "/**/".repeat(1 << 20),
        "x".repeat(1 << 22),
        format!(".entry k() {{ {} }}", "mov.b32 %r1, %r2; ".repeat(1 << 16)),
        entry(&"{ l: bra l; }".repeat(1 << 16)),
        entry(
            &(0..1 << 16)
                .map(|n| format!("l{n}: bra l{n};"))
                .collect::<String>(),
        ),
        entry(&format!(
            "t: .branchtargets {}; {}",
            vec!["l"; 1 << 12].join(", "),
            "brx.idx %r1, t; ".repeat(1 << 14)
        )),
    ];
    for text in texts {
        let start = Instant::now();
        // Whether it is refused does not matter here.
        let outcome = read(&text, "k.ptx", &Limits::default()).is_ok();
        assert!(start.elapsed().as_secs() < 20, "{outcome}: {:.60}", text);
    }
}

/// A text with a wrong byte is refused or read, without a panic, and prints as what can be read.
#[test]
fn broken_texts_do_no_harm() {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../guests/triton/softmax/softmax.ptx"
    );
    let text = std::fs::read_to_string(path).unwrap();
    let (mut refused, mut accepted) = (0, 0);
    for at in (0..text.len()).step_by(13) {
        for mark in [
            "%", "{", "}", "[", ";", "9", ".", "<", "-", "|", ":", "\n", "\u{e9}",
        ] {
            let broken = format!("{}{mark}{}", &text[..at], &text[at + 1..]);
            let Ok(module) = read(&broken, "broken", &Limits::default()) else {
                refused += 1;
                continue;
            };
            accepted += 1;
            for function in &module.functions {
                for statement in function.body.iter().flatten() {
                    if let Statement::Instruction(instruction) = statement {
                        // A refusal is as good as a form.
                        drop(table::form(&module, function, instruction));
                    }
                }
            }
            let printed = print(&module);
            let mut again = read(&printed, "printed", &Limits::default())
                .unwrap_or_else(|error| panic!("{error}\n{printed}"));
            again.version = module.version;
            assert_eq!(again, module);
        }
    }
    assert!(refused > 1000 && accepted > 100, "{refused} {accepted}");
}

/// Texts as compilers write them, and hand-written ones that confuse simple lexers.
#[test]
fn unusual_texts_are_read() {
    let bodies = [
        "{ .reg .b32 %r1; mov.b32 %r1, 1; { .reg .b32 %r1; mov.b32 %r1, 2; } }",
        "ld.param::entry.b64 %d1, [a]; ld.param.u64 %d2, [a+0];",
        "elect.sync %r1|%p, 0xffffffff; @!%p bra $x; $x: // comment",
        "mov.b32 %r1, 0f3F800000; mov.b64 %d1, 0d3FF0000000000000; mov.b32 %r2, 1.5e-3;",
        "mov.b32 %r1, 0x1e; add.s32 %r1, %r1, -0x1E; mov.b32 %r2, 0b101; mov.b32 %r3, 017U;",
        "mov.b64 {%r1, %r2}, %d1; mov.b64 {_, %r2}, %d1; mov.b64 %d1, {%r1, 0};",
        "/* ; } */ mov.b32 %r1, %r2 ; /* { */ ; ; .pragma \"nounroll\";",
        ".loc 1 2 3 , function_name $s+4, inlined_at 1 2 3 \n.loc 1 2 3 mov.b32 %r1, 7;",
        "setp.lt.and.s32 %p|%q, %r1, %r2, !%p; @%p ld.shared.v4.b32 {%r1,%r2,%r3,%r4}, [s+16];",
        "t: .branchtargets a1, b1; brx.idx %r1, t; a1: b1: ret;",
        "@%p { .reg .b32 %z; }",
        "cp.async.cg.shared.global.L2::128B [ %r1 + 0 ], [ %d1 + -16 ], 0x10, %r2;",
    ];
    for (index, body) in bodies.iter().enumerate() {
        let result = read(&entry(body), "k.ptx", &Limits::default());
        // A guard in front of a scope is not PTX.
        assert_eq!(result.is_ok(), index != 10, "{body}: {result:?}");
        if let Ok(module) = result {
            let mut again = read(&print(&module), "printed", &Limits::default()).unwrap();
            again.version = module.version;
            assert_eq!(again, module, "{body}");
        }
    }
}

#[test]
fn several_texts_share_their_tokens() {
    let text = entry(&"ret; ".repeat(100));
    let mut limits = Limits {
        tokens: 700,
        ..Limits::default()
    };
    read_one_of(&text, "a.ptx", &mut limits).unwrap();
    let left = limits.tokens;
    assert!((400..500).contains(&left), "{left}");
    read_one_of(&text, "b.ptx", &mut limits).unwrap();
    let error = read_one_of(&text, "c.ptx", &mut limits)
        .unwrap_err()
        .to_string();
    let message = format!("the text has more than {} tokens", limits.tokens);
    assert!(error.contains(&message), "{error}");
}
