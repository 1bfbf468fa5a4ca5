//! Checks the machine code of the sample guests: their hot loops keep what they compute with in
//! registers. `cargo xtask guests` builds the guests.
//!
//! A hot loop is an innermost loop with packed floating-point arithmetic and without calls.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]
#![allow(
    clippy::disallowed_methods,
    reason = "the guests are files of the repository"
)]

use callbox::policy::{Policy, Traps};
use callbox::wasm::{Config, Engine};

use super::*;

/// The accesses to the stack that a hot loop may have.
#[derive(Clone, Copy)]
struct Most {
    signals: usize,
    explicit: usize,
}

/// With explicit checks a loop reads the length of the memory, and keeps the address of that on the
/// stack.
const LENGTH: Most = Most {
    signals: 0,
    explicit: 1,
};

/// Each sample's functions with hot loops, by a part of their names, and the accesses to the stack
/// that are known. All others are an error.
const SAMPLES: [(&str, &[(&str, Most)]); 6] = [
    ("add_n", &[("add_n", LENGTH)]),
    (
        "broadcast_add",
        // 32 elements in each iteration are more addresses than registers.
        &[(
            "add_periods",
            Most {
                signals: 0,
                explicit: 5,
            },
        )],
    ),
    // The host computes these two.
    ("softmax", &[]),
    ("rms_norm", &[]),
    (
        "activation",
        &[
            // Masks for the limits of the function, which the loop reads.
            (
                "squareplus_grad",
                Most {
                    signals: 10,
                    explicit: 21,
                },
            ),
            ("squareplus", LENGTH),
        ],
    ),
    ("c_typed", &[("c_add_n", LENGTH), ("add_literal", LENGTH)]),
];

#[test]
fn samples_keep_their_hot_loops_in_registers() {
    let mut errors = String::new();
    for (traps, explicit) in [(Traps::Signals, false), (Traps::Explicit, true)] {
        for (sample, functions) in SAMPLES {
            let path = format!(
                "{}/../../target/guests/{sample}.wasm",
                env!("CARGO_MANIFEST_DIR")
            );
            let wasm = std::fs::read(&path).unwrap_or_else(|error| {
                panic_missing(&path, &error);
            });
            let loops = hot_loops(&wasm, traps);
            for (function, most) in functions {
                let is_here = |name: &str| {
                    let first = functions.iter().find(|(part, _)| name.contains(part));
                    first.is_some_and(|(part, _)| part == function)
                };
                let found: Vec<_> = loops.iter().filter(|(name, _)| is_here(name)).collect();
                if found.is_empty() {
                    let _ = writeln!(errors, "{sample}, {traps:?}: no loop in `{function}`");
                }
                let most = if explicit {
                    most.explicit
                } else {
                    most.signals
                };
                for (name, accesses) in found {
                    if *accesses > most {
                        let _ = writeln!(
                            errors,
                            "{sample}, {traps:?}: a loop of `{name}` accesses the stack {accesses} times, at most {most} expected"
                        );
                    }
                }
            }
            for (name, accesses) in &loops {
                let is_known = functions.iter().any(|(part, _)| name.contains(part));
                if !is_known && *accesses > 0 {
                    let _ = writeln!(
                        errors,
                        "{sample}, {traps:?}: a loop of `{name}` accesses the stack {accesses} times"
                    );
                }
            }
        }
    }
    assert!(errors.is_empty(), "{errors}");
}

#[expect(clippy::panic, reason = "a test fails by panicking")]
fn panic_missing(path: &str, error: &std::io::Error) -> ! {
    panic!("expected {path}, which `cargo xtask guests` builds: {error}")
}

/// The compiler spills a loop with more variables than the machine has registers.
#[test]
fn a_spill_is_found() {
    let sums = |count: usize| {
        let locals: String = (0..count).map(|_| " v128").collect();
        let add: String = (0..count)
            .map(|i| {
                format!(
                    "(local.set {} (f32x4.add (local.get {}) (v128.load offset={} (local.get 0))))",
                    i + 2,
                    i + 2,
                    16 * i
                )
            })
            .collect();
        let total = (0..count).fold("(v128.const i32x4 0 0 0 0)".to_owned(), |sum, i| {
            format!("(f32x4.add {sum} (local.get {}))", i + 2)
        });
        format!(
            r#"(module (memory (export "memory") 1)
              (func $sums (export "sums") (param i32 i32) (local{locals})
                (loop $next {add}
                  (local.set 0 (i32.add (local.get 0) (i32.const 512)))
                  (br_if $next (local.tee 1 (i32.sub (local.get 1) (i32.const 1)))))
                (v128.store (i32.const 0) {total})))"#
        )
    };
    for (count, spills) in [(4, false), (24, true)] {
        let wasm = wat::parse_str(sums(count)).unwrap();
        let loops = hot_loops(&wasm, Traps::Signals);
        assert_eq!(loops.len(), 1, "{loops:?}");
        assert_eq!(loops[0].1 > 0, spills, "{count} sums: {loops:?}");
    }
}

/// `addps` in a loop, without and with a store to the stack; and in a loop that calls.
#[test]
fn machine_code_is_judged_by_its_loops() {
    let clean = [0x0f, 0x58, 0xc1, 0x83, 0xe8, 1, 0x75, 0xf8, 0xc3];
    assert_eq!(stack_accesses(&clean), [0]);
    let spilled = [
        0x0f, 0x58, 0xc1, 0x0f, 0x29, 0x44, 0x24, 0x10, 0x83, 0xe8, 1, 0x75, 0xf3, 0xc3,
    ];
    assert_eq!(stack_accesses(&spilled), [1]);
    let calls = [
        0x0f, 0x58, 0xc1, 0xe8, 0, 0, 0, 0, 0x83, 0xe8, 1, 0x75, 0xf3, 0xc3,
    ];
    assert_eq!(stack_accesses(&calls), [0_usize; 0]);
}

/// Compiles a module. Returns the hot loops: the function's name and the accesses to the stack.
fn hot_loops(wasm: &[u8], traps: Traps) -> Vec<(String, usize)> {
    let policy = Policy {
        traps,
        ..Policy::default()
    };
    let config = Config {
        policy,
        ..Config::default()
    };
    let module = Engine::with_config(config).unwrap().load(wasm).unwrap();
    let mut loops = Vec::new();
    for function in module.machine_code() {
        let accesses = stack_accesses(&function.code).into_iter();
        loops.extend(accesses.map(|n| (function.name.clone(), n)));
    }
    loops
}

/// The numbers of accesses to the stack in each hot loop of a function.
fn stack_accesses(code: &[u8]) -> Vec<usize> {
    let mut hot = Vec::new();
    loops(code, |one| hot.push(one));
    hot.retain(|one| one.arithmetic == Arithmetic::FloatVectors);
    hot.iter().map(|one| one.stack_accesses).collect()
}

/// `addps`, a jump over `ud2`, and a store to the stack, which is followed by a jump back.
const SPILLED: [u8; 18] = [
    0x0f, 0x58, 0xc1, 0xeb, 2, 0x0f, 0x0b, 0x0f, 0x29, 0x44, 0x24, 0x10, 0x83, 0xe8, 1, 0x75, 0xef,
    0xc3,
];

fn function(name: &str, code: &[u8]) -> FunctionCode {
    FunctionCode {
        name: name.to_owned(),
        code: code.to_vec(),
    }
}

#[test]
fn the_hottest_loops_are_printed_with_those_of_targets_first() {
    // `addsd` and `paddd` in loops.
    let scalar = [0xf2, 0x0f, 0x58, 0xc1, 0x83, 0xe8, 1, 0x75, 0xf7, 0xc3];
    let integers = [0x66, 0x0f, 0xfe, 0xc1, 0x83, 0xe8, 1, 0x75, 0xf7, 0xc3];
    let functions = [
        function("first", &SPILLED[..3]),
        function("second", &integers),
        function("k::scale", &scalar),
        function("third", &SPILLED),
    ];
    let expected = [
        "asm: a loop of `third` with vectors of floating-point numbers: 5 instructions, 1 accesses \
         to the stack",
        "       0  addps xmm0, xmm1",
        "       3  jmp ",
        "          ...",
        "       7  movaps [rsp+0x10], xmm0",
        "       c  sub eax, 0x1",
        "       f  jne ",
    ];
    let shown = describe(&functions, &["scale"]);
    assert_eq!(shown.lines().count(), expected.len(), "{shown}");
    for (line, start) in shown.lines().zip(expected) {
        assert!(line.starts_with(start), "expected {start:?} in {shown}");
    }
    let shown = describe(&functions[..3], &["scale"]);
    assert!(
        shown.starts_with("asm: a loop of `second` with vectors of integers: 3 "),
        "{shown}"
    );
    let both = [function("other", &scalar), function("k::scale", &scalar)];
    let shown = describe(&both, &["scale"]);
    assert!(shown.starts_with("asm: a loop of `k::scale` with floating-point numbers and no"));
    assert_eq!(shown.matches("asm: ").count(), 2, "{shown}");
    let many = vec![function("f", &scalar); 6];
    let more = "asm: 2 more loops with floating-point numbers and no vectors\n";
    assert!(describe(&many, &[]).ends_with(more));
    assert_eq!(
        describe(&functions[..1], &[]),
        "asm: no loop without calls\n"
    );
}
