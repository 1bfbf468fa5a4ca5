//! Faults of running kernels, and invalid PTX.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::Instant;

use crate::device_memory::{Device, Element, launch, module, parameter_block};
use callbox_cuda_stand_in::ptx::{FaultKind, Module, Shape, launch_within};

/// Returns the line of an instruction in a kernel's text.
fn line_of(kernel: &str, instruction: &str) -> usize {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/kernels/control.ptx");
    let text = std::fs::read_to_string(path).unwrap();
    let start = text
        .lines()
        .position(|line| line.contains(&format!(".entry {kernel}(")))
        .unwrap();
    start
        + 1
        + text
            .lines()
            .skip(start)
            .position(|line| line.contains(instruction))
            .unwrap()
}

#[test]
fn accesses_are_checked() {
    let module = module("control.ptx");
    let device = Device::with(&module);
    let values = device.buffer(&[0.0_f32; 8]);
    let fault = launch(&module, &device, "no_guard", (3, 4), &[values.to_bytes()]).unwrap_err();
    assert_eq!(fault.kind, FaultKind::IllegalAddress);
    let line = line_of("no_guard", "st.global");
    let expected = format!(
        "a store of 4 bytes at {:#x} at PTX line {line} in no_guard, thread (0,0,0), block (2,0,0): no buffer is there",
        values + 32
    );
    assert_eq!(fault.detail, expected);
    assert_eq!(device.read::<f32>(values), [1.0; 8]);

    let fault = launch(&module, &device, "misaligned", (1, 1), &[values.to_bytes()]).unwrap_err();
    assert_eq!(fault.kind, FaultKind::MisalignedAddress);
    assert!(
        fault
            .detail
            .contains(&format!("4 bytes at {:#x} at PTX line", values + 2)),
        "{fault}"
    );

    let fault = launch(
        &module,
        &device,
        "past_shared",
        (1, 8),
        &[values.to_bytes(), 3_i32.to_bytes()],
    )
    .unwrap_err();
    assert_eq!(fault.kind, FaultKind::IllegalAddress);
    assert!(fault.detail.contains("thread (5,0,0)"), "{fault}");
}

#[test]
fn asserts_and_traps() {
    let module = module("control.ptx");
    let device = Device::with(&module);
    let values = device.buffer(&[0_i32; 8]);
    let fault = launch(
        &module,
        &device,
        "asserts",
        (1, 8),
        &[values.to_bytes(), 5_i32.to_bytes()],
    )
    .unwrap_err();
    assert_eq!(fault.kind, FaultKind::Assert);
    let line = line_of("asserts", "call.uni");
    let expected = format!(
        "assertion `t < limit` failed in asserts (control.cu:3) at PTX line {line} in asserts, thread (5,0,0), block (0,0,0)"
    );
    assert_eq!(fault.detail, expected);
    launch(
        &module,
        &device,
        "asserts",
        (1, 8),
        &[values.to_bytes(), 8_i32.to_bytes()],
    )
    .unwrap();

    let fault = launch(&module, &device, "traps", (1, 8), &[6_i32.to_bytes()]).unwrap_err();
    assert_eq!(fault.kind, FaultKind::IllegalInstruction);
    assert!(fault.detail.contains("thread (6,0,0)"), "{fault}");
    launch(&module, &device, "traps", (1, 8), &[8_i32.to_bytes()]).unwrap();
}

#[test]
fn waits_end() {
    let module = module("control.ptx");
    let device = Device::with(&module);
    let values = device.buffer(&[0_i32; 8]);
    let entry = module.entry("divergent").unwrap();
    let shape = Shape {
        grid: [1, 1, 1],
        block: [8, 1, 1],
        shared_bytes: 0,
    };
    let block = parameter_block(entry, &[values.to_bytes()]);
    let fault = launch_within(&module, entry, shape, &block, &device, 1_000_000).unwrap_err();
    assert_eq!(fault.kind, FaultKind::Timeout);
    assert!(
        fault.detail.contains("more than 1000000 instructions"),
        "{fault}"
    );

    // Some threads wait at one barrier and the others at another.
    let text = ".version 9.0 .target sm_75 .address_size 64
        .visible .entry k() { .reg .pred %p; .reg .b32 %r; mov.u32 %r, %tid.x; setp.lt.u32 %p, %r, 32;
        @%p bar.sync 0;
        @!%p bar.sync 1;
        ret; }";
    let other = Module::parse(text).unwrap();
    let fault = launch(&other, &device, "k", (1, 64), &[]).unwrap_err();
    assert_eq!(fault.kind, FaultKind::Timeout);
    assert!(
        fault.detail.contains(
            "32 threads wait at PTX line 3, 32 threads wait at PTX line 4, and 0 are done"
        ),
        "{fault}"
    );

    let diverged = Module::parse(
        &text
            .replace("bar.sync 1", "bar.sync 0")
            .replace(", 32;", ", 8;"),
    )
    .unwrap();
    let fault = launch(&diverged, &device, "k", (1, 32), &[]).unwrap_err();
    assert_eq!(fault.kind, FaultKind::Timeout);
    assert!(
        fault.detail.contains("at another one, at PTX line 4"),
        "{fault}"
    );
    // Threads at an unaligned barrier may be at different instructions.
    let fine = text
        .replace("bar.sync 1", "barrier.sync 0")
        .replace("bar.sync 0", "barrier.sync 0")
        .replace(", 32;", ", 8;");
    launch(&Module::parse(&fine).unwrap(), &device, "k", (1, 32), &[]).unwrap();
}

fn refused(body: &str) -> String {
    let text = format!(
        ".version 9.0\n.target sm_75\n.address_size 64\n.visible .entry k(.param .u64 a) {{\n.reg .b32 %r<4>;\n.reg .pred %p;\n{body}\nret; }}"
    );
    Module::parse(&text).unwrap_err().to_string()
}

#[test]
fn what_is_not_known_is_an_error_with_its_line() {
    let cases = [
        (
            "wmma.load.a.sync.aligned.row.m16n16k16.f16 %r1, %r2;",
            "PTX line 7: `wmma.load.a.sync.aligned.row.m16n16k16.f16`: this instruction is not supported",
        ),
        (
            "add.s32.turbo %r1, %r2, %r3;",
            "PTX line 7: `add.s32.turbo`: `.turbo` is not supported here",
        ),
        (
            "\nadd.s32 %r1, %r2, %r7;",
            "PTX line 8: `%r7` is no register that is declared or known",
        ),
        (
            "add.s32 %r1, %r2;",
            "PTX line 7: `add.s32`: 3 operands were expected, and 2 found",
        ),
        ("bra $nowhere;", "PTX line 7: there is no label `$nowhere`"),
        (
            "call.uni unknown;",
            "PTX line 7: `unknown` is called, and no function of that name is declared before",
        ),
        (
            "mov.u32 %r1, 5",
            "PTX line 8: `;` was expected, and `ret` found",
        ),
        (
            "add.f32 %r1, %r2, 7;",
            "PTX line 7: `add.f32`: a floating-point number was expected, and the integer 7 found",
        ),
        (
            "ld.param.u32 %r1, [b];",
            "PTX line 7: `b` is no register and no variable that is declared",
        ),
        (
            "@%r1 mov.u32 %r1, 5;",
            "PTX line 7: `%r1` is not a predicate that is declared",
        ),
        (
            "cvt.s32.f32 %r1, %r2;",
            "PTX line 7: `cvt.s32.f32`: a rounding such as `.rzi` is missing",
        ),
        (
            "setp.lt.s32 %p, %r1, %r2 §",
            "PTX line 7: '§' is no character of PTX",
        ),
    ];
    for (body, expected) in cases {
        assert_eq!(refused(body), expected);
    }
    let undefined =
        ".version 9.0 .target sm_75 .address_size 64 .extern .func f;\n.entry k() {\ncall f;\n}";
    let expected = "PTX line 3: `f` is called, which has no body and is not known";
    assert_eq!(Module::parse(undefined).unwrap_err().to_string(), expected);
}

/// A truncated text, or one with a wrong byte, is either rejected or parsed, without a panic.
#[test]
fn broken_texts_do_no_harm() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/kernels/control.ptx");
    let text = std::fs::read_to_string(path).unwrap();
    let mut refused = 0;
    for mark in ["{", "[", "("] {
        for start in [
            ".global .u32 x = ",
            ".entry k() { ",
            ".entry k() { .reg .b32 %r; mov.u32 %r, ",
        ] {
            let deep = format!(".version 9.0 .target sm_75 {start}{}", mark.repeat(100_000));
            assert!(Module::parse(&deep).is_err());
        }
    }
    assert!(Module::parse(".version 9.0 .target sm_75 .global .b8 x[4000000000];").is_err());
    for at in (0..text.len()).step_by(211) {
        refused += usize::from(Module::parse(&text[..at]).is_err());
        for mark in ["%", "{", "}", "[", ";", "9999999999", ".", "<", "-"] {
            let broken = format!("{}{mark}{}", &text[..at], &text[at + 1..]);
            refused += usize::from(Module::parse(&broken).is_err());
        }
    }
    assert!(refused > 300, "{refused}");
}

#[test]
fn a_module_says_what_it_is() {
    let module = module("control.ptx");
    assert_eq!((module.target(), module.version()), ((7, 5), (9, 0)));
    let entry = module.entry("control").unwrap();
    assert_eq!(entry.parameters(), [(0, 8), (8, 8), (16, 24), (40, 1)]);
    let weights = module
        .globals()
        .iter()
        .find(|global| global.name == "weights")
        .unwrap();
    assert!(weights.is_constant && weights.size == 16 && weights.align == 4);
    assert_eq!(weights.initial[4..8], 1.5_f32.to_le_bytes());
    let pointers = module
        .globals()
        .iter()
        .find(|global| global.name == "pointers")
        .unwrap();
    let found: Vec<_> = pointers
        .addresses
        .iter()
        .map(|one| (one.offset, one.name.as_str(), one.addend))
        .collect();
    assert_eq!(found, [(0, "table", 4), (8, "table", 12)]);
}

/// Checks the speed, with a lower bound for debug builds.
#[test]
fn instructions_take_nanoseconds() {
    let module = module("control.ptx");
    let device = Device::with(&module);
    let values = device.buffer(&[1_u32, 2, 3, 4]);
    let start = Instant::now();
    launch(
        &module,
        &device,
        "spin",
        (1, 4),
        &[values.to_bytes(), 500_000_u32.to_bytes()],
    )
    .unwrap();
    let seconds = start.elapsed().as_secs_f64();
    // Eight or nine instructions per iteration, on four threads.
    let rate = 4.0 * 500_000.0 * 8.0 / seconds / 1e6;
    let mut expected = [1_u32, 2, 3, 4];
    for x in &mut expected {
        for _ in 0..500_000 {
            *x ^= *x << 13;
            *x ^= *x >> 17;
            *x ^= *x << 5;
        }
    }
    assert_eq!(device.read::<u32>(values), expected);
    eprintln!("{rate:.0} million instructions in a second");
    assert!(rate > 2.0, "{rate} million instructions in a second");
}

/// A store past a shared variable is a fault even though there is more shared memory.
#[test]
fn a_store_past_a_shared_variable_is_seen() {
    let text = |offset: u32| {
        format!(
            ".version 9.0 .target sm_75 .address_size 64 .visible .entry k() {{
            .shared .align 4 .b8 first[8]; .shared .align 4 .b8 second[8];
            st.shared.u32 [second], 1;
            st.shared.u32 [first+{offset}], 2; ret; }}"
        )
    };
    let run = |offset| {
        launch(
            &Module::parse(&text(offset)).unwrap(),
            &Device::default(),
            "k",
            (1, 1),
            &[],
        )
    };
    run(4).unwrap();
    let fault = run(8).unwrap_err();
    assert_eq!(fault.kind, FaultKind::IllegalAddress);
    assert!(
        fault.detail.contains("4 bytes at 0x8 at PTX line 4 in k"),
        "{fault}"
    );
}
