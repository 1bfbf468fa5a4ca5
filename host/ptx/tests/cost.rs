//! Texts whose verification would take quadratic or cubic time.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fmt::Write;

use callbox_ptx::verify::{Launch, Limits, Rule, verify};
use callbox_ptx::{ast::Module, read};

/// A kernel with these registers of 32 bits, without parameters.
fn kernel(registers: usize, body: &str) -> Module {
    let text = format!(
        ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k() {{\n\
        .reg .b32 %r<{registers}>; .reg .pred %p;\n{body}\nret; }}"
    );
    read(&text, "k.ptx", &callbox_ptx::Limits::default()).unwrap()
}

fn launch() -> Launch {
    Launch {
        grid: [1; 3],
        block: [32, 1, 1],
        shared_bytes: 0,
        params: Vec::new(),
        has_clock: false,
    }
}

/// Verifies a kernel. Returns whether this amount of work suffices.
fn suffices(module: &Module, work: u64) -> bool {
    let limits = Limits {
        work,
        ..Limits::default()
    };
    match verify(module, "k", &launch(), &limits) {
        Ok(_) => true,
        Err(refusals) => {
            assert_eq!(refusals.len(), 1, "{refusals:?}");
            assert_eq!(refusals[0].rule, Rule::Size);
            assert_eq!(
                refusals[0].reason,
                format!("verifying it takes more than {work} steps (`work`)")
            );
            false
        }
    }
}

/// Each turn of the loop moves what is known of a register to the one before it.
fn chain(count: usize) -> Module {
    let moves: String = (0..count)
        .map(|n| format!("mov.b32 %r{n}, %r{};\n", n + 1))
        .collect();
    let body = format!(
        "l: {moves} add.s32 %r{count}, %r{count}, %tid.x;\n\
        setp.lt.u32 %p, %r0, 1000; @%p bra l;"
    );
    kernel(count + 1, &body)
}

/// Each pass over the flow finds the dominator of one more block, and looks at all dominators of
/// the blocks that lead to each.
fn ladder(count: usize) -> Module {
    let mut body = String::from("@%p bra a; bra z;\na: @%p bra f1; bra b1;\n");
    for n in 1..=count {
        writeln!(body, "b{n}: @%p bra f{n}; bra b{};", n + 1).unwrap();
    }
    writeln!(body, "b{}: ret;", count + 1).unwrap();
    for n in 1..=count {
        let before = if n > 1 { n - 1 } else { 1 };
        let after = if n < count {
            format!("f{}", n + 1)
        } else {
            "z".to_owned()
        };
        writeln!(body, "f{n}: @%p bra {after}; bra f{before};").unwrap();
    }
    writeln!(body, "z: @%p bra f{count};").unwrap();
    kernel(1, &body)
}

/// Every block of a chain leads to a block of another chain: the frontier of each block is the rest
/// of the other chain.
fn frontiers(count: usize) -> Module {
    let first = (0..count).map(|n| format!("mov.b32 %r1, {n}; @%p bra d{n};\n"));
    let second = (0..count).map(|n| format!("d{n}: add.s32 %r2, %r1, %r2;\n"));
    kernel(3, &first.chain(second).collect::<String>())
}

/// What each loop contains is looked for among all others.
fn loops_in_a_row(count: usize) -> Module {
    kernel(
        1,
        &(0..count)
            .map(|n| format!("l{n}: @%p bra l{n};\n"))
            .collect::<String>(),
    )
}

#[test]
fn more_work_than_the_limit_is_refused() {
    for (name, small, large) in [
        ("chain", chain(20), chain(500)),
        ("ladder", ladder(20), ladder(400)),
        ("frontiers", frontiers(20), frontiers(500)),
        ("loops", loops_in_a_row(20), loops_in_a_row(2000)),
    ] {
        assert!(suffices(&small, 1_000_000), "{name}");
        assert!(!suffices(&large, 1_000_000), "{name}");
    }
}

/// Compiled kernels take less than half a million steps.
#[test]
fn ordinary_loops_are_within_the_default() {
    assert!(suffices(&chain(500), Limits::default().work));
    assert!(suffices(&frontiers(500), Limits::default().work));
}
