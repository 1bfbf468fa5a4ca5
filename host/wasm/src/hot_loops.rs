//! Checks the machine code of the sample guests: their hot loops keep what they compute with in
//! registers. `cargo xtask guests` builds the guests.
//!
//! A hot loop is an innermost loop with packed floating-point arithmetic and without calls. The
//! guests are rewritten and compiled as for any call, with the settings of an engine's policy.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]
#![allow(
    clippy::disallowed_methods,
    reason = "the guests are files of the repository"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, OpKind, Register};

use callbox_core::policy::{Limits, Policy, Traps};

use crate::allocation::Allocation;
use crate::compiler::CompilerSettings;
use crate::file::ModuleFile;

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
    let settings = CompilerSettings::of(&policy, Allocation::Pooled);
    let engine = wasmtime::Engine::new(&settings.config()).unwrap();
    let file = ModuleFile::read(wasm.to_vec(), &Limits::default()).unwrap();
    let module = wasmtime::Module::from_binary(&engine, &file.rewritten().unwrap()).unwrap();
    let mut loops = Vec::new();
    for function in module.functions() {
        let name = function.name.unwrap_or_default();
        let name = format!("{:#}", rustc_demangle::demangle(&name));
        let code = &module.text()[function.offset..][..function.len];
        loops.extend(stack_accesses(code).into_iter().map(|n| (name.clone(), n)));
    }
    loops
}

/// The numbers of accesses to the stack in each hot loop of a function.
fn stack_accesses(code: &[u8]) -> Vec<usize> {
    let code: Vec<Instruction> = Decoder::new(64, code, DecoderOptions::NONE)
        .into_iter()
        .collect();
    let loops = innermost_loops(&code);
    let hot = loops.iter().filter(|body| {
        let calls = |&i: &usize| {
            matches!(
                code[i].flow_control(),
                FlowControl::Call | FlowControl::IndirectCall
            )
        };
        body.iter().any(|&i| is_packed_arithmetic(&code[i])) && !body.iter().any(calls)
    });
    hot.map(|body| body.iter().filter(|&&i| accesses_stack(&code[i])).count())
        .collect()
}

fn is_packed_arithmetic(instruction: &Instruction) -> bool {
    let name = format!("{:?}", instruction.mnemonic()).to_lowercase();
    let name = name.trim_start_matches('v');
    (name.ends_with("ps") || name.ends_with("pd"))
        && ["add", "sub", "mul", "div", "sqrt", "max", "min", "fm"]
            .iter()
            .any(|operation| name.starts_with(operation))
}

fn accesses_stack(instruction: &Instruction) -> bool {
    let has_memory = (0..instruction.op_count()).any(|i| instruction.op_kind(i) == OpKind::Memory);
    has_memory && matches!(instruction.memory_base(), Register::RSP | Register::RBP)
}

/// The loops that contain no other loop, each as the indices of its instructions.
fn innermost_loops(code: &[Instruction]) -> Vec<BTreeSet<usize>> {
    let index: BTreeMap<u64, usize> = code.iter().map(Instruction::ip).zip(0..).collect();
    let mut before: Vec<Vec<usize>> = vec![Vec::new(); code.len()];
    let mut back_edges = Vec::new();
    for (i, instruction) in code.iter().enumerate() {
        let target = index.get(&instruction.near_branch_target());
        let (jumps, falls) = match instruction.flow_control() {
            FlowControl::Next | FlowControl::Call | FlowControl::IndirectCall => (false, true),
            FlowControl::ConditionalBranch => (true, true),
            FlowControl::UnconditionalBranch => (true, false),
            _ => (false, false),
        };
        if jumps && let Some(&target) = target {
            before[target].push(i);
            if target <= i {
                back_edges.push((target, i));
            }
        }
        if falls && i + 1 < code.len() {
            before[i + 1].push(i);
        }
    }
    let mut loops: BTreeMap<usize, BTreeSet<usize>> = BTreeMap::new();
    for (head, latch) in back_edges {
        let body = loops.entry(head).or_default();
        body.insert(head);
        let mut reached = vec![latch];
        while let Some(i) = reached.pop() {
            if body.insert(i) {
                reached.extend(&before[i]);
            }
        }
    }
    let contains_another = |head: &usize| {
        let inner = |other: &usize| other != head && loops[head].contains(other);
        loops.keys().any(inner)
    };
    loops
        .iter()
        .filter(|(head, _)| !contains_another(head))
        .map(|(_, body)| body.clone())
        .collect()
}
