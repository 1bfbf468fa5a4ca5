//! How much work a thread does between two looks at the stop word.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

use callbox_ptx::fence::fence;
use callbox_ptx::verify::{self, Launch, LoopEnd, Param, Proof, Refusal, Rule, verify};
use callbox_ptx::{Limits, print, read};

fn text_of(body: &str) -> String {
    format!(
        ".version 8.0\n.target sm_80\n.address_size 64\n\
         .visible .entry k(.param .u64 a) {{\n\
         .reg .b32 %i, %x; .reg .b16 %h; .reg .b64 %a; .reg .pred %p;\n\
         ld.param.u64 %a, [a];\n{body}\nret; }}"
    )
}

/// Verifies a body for a grid of warps.
fn verified(body: &str, grid: u32) -> Result<Proof, Vec<Refusal>> {
    launched(body, grid, 32)
}

fn launched(body: &str, grid: u32, block: u32) -> Result<Proof, Vec<Refusal>> {
    let module = read(&text_of(body), "k.ptx", &Limits::default()).unwrap();
    let launch = Launch {
        grid: [grid, 1, 1],
        block: [block, 1, 1],
        shared_bytes: 0,
        params: vec![Param::Buffer {
            bytes: 1024,
            writable: true,
            align: 256,
        }],
        has_clock: false,
    };
    verify(&module, "k", &launch, &verify::Limits::default())
}

/// A loop of so many turns.
fn counted(name: usize, turns: u32, body: &str) -> String {
    format!(
        "mov.u32 %i, 0;\nL{name}: {body}\nadd.u32 %i, %i, 1; setp.lt.u32 %p, %i, {turns}; @%p bra L{name};\n"
    )
}

/// For each loop the number of turns between its looks, or `None` if it does not look.
fn looks(proof: &Proof) -> Vec<Option<u32>> {
    let looks = proof.loops.iter().map(|one| match one.end {
        LoopEnd::Proved { .. } => None,
        LoopEnd::StopWord { every } => Some(every),
    });
    looks.collect()
}

#[test]
fn short_loops_need_no_look() {
    let body = counted(0, 60_000, "") + &counted(1, 1000, "ld.global.u32 %x, [%a];");
    let proof = verified(&body, 4).unwrap();
    assert_eq!(looks(&proof), [None, None]);
    assert!(!proof.blocks_look);
}

#[test]
fn short_loops_that_take_long_together_look() {
    let body: String = (0..200).map(|name| counted(name, 60_000, "")).collect();
    let proof = verified(&body, 4).unwrap();
    let looking = looks(&proof).into_iter().flatten().count();
    assert!(looking > 100, "{looking}");
}

#[test]
fn turns_with_costly_instructions_are_fewer() {
    let adds = "add.u32 %x, %x, 1;\n".repeat(100_000);
    for (body, most) in [
        ("atom.global.add.u32 %x, [%a], 1;", 1024),
        (&"atom.global.add.u32 %x, [%a], 1;\n".repeat(1000), 1),
        (&adds, 16),
    ] {
        let endless = format!("L0: {body}\nbra L0;\n");
        let every = looks(&verified(&endless, 4).unwrap());
        assert!(every[0].is_some_and(|every| every <= most), "{every:?}");
    }
}

#[test]
fn each_turn_of_an_outer_loop_counts_its_inner_one() {
    let inner = counted(1, 1000, "ld.global.u32 %x, [%a];");
    let body = format!("L0: {inner} bra L0;\n");
    let every = looks(&verified(&body, 4).unwrap());
    assert_eq!(every[1], None);
    // A turn is some 70,000 units, of which a million may pass.
    assert!(
        every[0].is_some_and(|every| (2..100).contains(&every)),
        "{every:?}"
    );
}

#[test]
fn work_that_cannot_be_interrupted_is_refused() {
    let atomics = "atom.global.add.u32 %x, [%a], 1;\n".repeat(5000);
    let refusals = verified(&atomics, 4).unwrap_err();
    assert_eq!(refusals[0].rule, Rule::Size);
    assert!(
        refusals[0]
            .reason
            .contains("units of work between two looks"),
        "{refusals:?}"
    );
}

#[test]
fn blocks_of_a_grid_with_much_work_look() {
    let atomics = "atom.global.add.u32 %x, [%a], 1;\n".repeat(64);
    assert!(!verified(&atomics, 64).unwrap().blocks_look);
    assert!(verified(&atomics, 1 << 20).unwrap().blocks_look);
}

/// Of all threads that try, one succeeds, and the others try again.
#[test]
fn atomic_operations_that_are_loops_count_as_such() {
    let refused = verified("red.global.add.noftz.f16 [%a], %h;\n", 4).unwrap_err();
    assert_eq!(refused[0].rule, Rule::Instruction);
    assert!(refused[0].reason.contains("16 bits"), "{refused:?}");
    assert!(verified("red.global.add.noftz.f16x2 [%a], %x;\n", 4).is_ok());
    let shared = |kind: &str, count: usize| {
        let one = format!("atom.shared.add.{kind} %x, [s], %x;\n");
        format!(".shared .align 4 .b8 s[64];\n{}", one.repeat(count))
    };
    let of = |text: &str| launched(text, 1, 1024);
    assert!(of(&shared("u32", 1000)).is_ok());
    assert!(of(&shared("f32", 100)).is_ok());
    assert_eq!(of(&shared("f32", 1000)).unwrap_err()[0].rule, Rule::Size);
}

/// Few of them run at a time.
#[test]
fn blocks_with_much_shared_memory_look_in_a_smaller_grid() {
    let shared = |bytes: usize| {
        let atomics = "atom.global.add.u32 %x, [%a], 1;\n".repeat(64);
        format!(".shared .align 4 .b8 s[{bytes}];\nld.shared.u32 %x, [s];\n{atomics}")
    };
    assert!(!verified(&shared(64), 2500).unwrap().blocks_look);
    assert!(verified(&shared(98_304), 2500).unwrap().blocks_look);
}

/// Each thread of a grid that is stopped would make an atomic operation on the host's memory.
#[test]
fn threads_read_the_record_before_they_claim_it() {
    let body = "ld.global.u32 %x, [%a+4096];\n";
    let module = read(&text_of(body), "k.ptx", &Limits::default()).unwrap();
    let text = print(&fence(&module, &verified(body, 4).unwrap()).module);
    let place = |what: &str| text.find(what).unwrap_or_else(|| panic!("{what}\n{text}"));
    assert!(
        place("ld.volatile.global.u32") < place("atom.global.cas"),
        "{text}"
    );
}

/// Threads that left one by one would leave their part of shared memory as it was.
#[test]
fn a_block_leaves_together_before_it_sets_shared_memory_to_zero() {
    let body = format!(
        ".shared .align 4 .b8 s[256];\nld.shared.u32 %x, [s];\n{}",
        "atom.global.add.u32 %x, [%a], 1;\n".repeat(64)
    );
    let proof = verified(&body, 1 << 20).unwrap();
    assert!(proof.blocks_look);
    let module = read(&text_of(&body), "k.ptx", &Limits::default()).unwrap();
    let text = print(&fence(&module, &proof).module);
    let place = |what: &str| text.find(what).unwrap_or_else(|| panic!("{what}\n{text}"));
    assert!(place("barrier.red") < place("st.shared"), "{text}");
}

#[test]
fn checks_that_would_be_many_are_refused() {
    let loads = "ld.global.u64 %a, [%a];\n".repeat(40_000);
    let refusals = verified(&loads, 1).unwrap_err();
    assert_eq!(refusals[0].rule, Rule::Size);
    assert!(
        refusals[0].reason.contains("`fenced_instructions`"),
        "{refusals:?}"
    );
}

/// Each `selp` chooses what the one before it chose.
#[test]
fn chains_of_choices_take_no_stack() {
    let chain = "selp.b32 %x, %x, %i, %p;\n".repeat(20_000);
    let body = format!(
        "mov.u32 %i, %tid.x; mov.u32 %x, 5; setp.lt.u32 %p, %i, 7;\n{chain}st.global.u32 [%a], %x;"
    );
    verified(&body, 1).unwrap();
}
