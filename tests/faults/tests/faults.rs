//! Runs the suite under fault injection and checks the requirements in `src/lib.rs`.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

use std::collections::BTreeSet;

use callbox::wasm::faults::Kind;
use callbox_fault_injection::campaign::{self, Report};
use callbox_tests::discover;

/// Random runs per case. `cargo xtask faults --seeds N` runs more.
const SEEDS: u64 = 6;

/// Sorts of values that the cases must read, one for each way in which a guest passes data to the
/// host.
const SORTS: &[(Kind, &str)] = &[
    (Kind::Returned, "target"),
    (Kind::Returned, "cabi_realloc"),
    (Kind::Returned, "jax-ffi-api"),
    (Kind::Returned, "the constructor"),
    (Kind::Parameter, "set-failure"),
    (Kind::Parameter, "log"),
    (Kind::Parameter, "call-function"),
    (Kind::Parameter, "function-message"),
    (Kind::Parameter, "user-data"),
    (Kind::Parameter, "map"),
    (Kind::Parameter, "map-f64"),
    (Kind::Parameter, "convert"),
    (Kind::Parameter, "softmax-rows"),
    (Kind::Parameter, "reduce-rows"),
    (Kind::Parameter, "dot-rows"),
    (Kind::Parameter, "argsort-rows"),
    (Kind::Parameter, "argsort-rows-f64"),
    (Kind::Parameter, "softmax-rows-f64"),
    (Kind::Parameter, "reduce-rows-f64"),
    (Kind::Parameter, "dot-rows-f64"),
    (Kind::Parameter, "fft-rows"),
    (Kind::Parameter, "fft-rows-f64"),
    (Kind::Parameter, "rms-norm-rows"),
    (Kind::Parameter, "rms-norm-rows-gradient"),
    (Kind::Parameter, "gemm"),
    (Kind::Memory, "a result"),
    (Kind::Memory, "the state"),
    (Kind::Memory, "set-failure's message"),
    (Kind::Memory, "log's message"),
    (Kind::Memory, "user-data's name"),
    (Kind::Memory, "a buffer record"),
    (Kind::Memory, "a buffer's numbers"),
    (Kind::Memory, "an operand of call-function"),
    (Kind::Size, "the memory's size"),
    (Kind::Parameter, "a function of WASI"),
    (Kind::Memory, "memory for a function of WASI"),
    (Kind::Memory, "map's x"),
    (Kind::Memory, "map-f64's x"),
    (Kind::Memory, "convert's x"),
    (Kind::Memory, "softmax-rows' x"),
    (Kind::Memory, "reduce-rows' x"),
    (Kind::Memory, "dot-rows' a"),
    (Kind::Memory, "argsort-rows' x"),
    (Kind::Memory, "argsort-rows-f64's x"),
    (Kind::Memory, "dot-rows' b"),
    (Kind::Memory, "softmax-rows-f64's x"),
    (Kind::Memory, "reduce-rows-f64's x"),
    (Kind::Memory, "dot-rows-f64's a"),
    (Kind::Memory, "dot-rows-f64's b"),
    (Kind::Memory, "fft-rows' x"),
    (Kind::Memory, "fft-rows-f64's x"),
    (Kind::Memory, "rms-norm-rows' x"),
    (Kind::Memory, "rms-norm-rows' weight"),
    (Kind::Memory, "rms-norm-rows-gradient's x"),
    (Kind::Memory, "rms-norm-rows-gradient's weight"),
    (Kind::Memory, "rms-norm-rows-gradient's dy"),
    (Kind::Memory, "gemm's record"),
    (Kind::Memory, "gemm's a"),
    (Kind::Memory, "gemm's b"),
];

/// The least number of representative cases. It varies slightly with the speed of cases; fewer
/// means that cases are lost.
const REPRESENTATIVES: usize = 40;

fn check(report: &Report) {
    eprintln!("{}", report.tally);
    assert!(report.failures.is_empty(), "{}", report.failures.join("\n"));
}

#[test]
fn whatever_is_altered_comes_to_a_status_or_a_result() {
    let cases = discover::all().unwrap();
    let seeds = 0..SEEDS;
    let report = campaign::run(&cases, &|subject, took, runner| {
        campaign::each_seed(subject, took, &seeds, runner);
    });
    check(&report);
    for (kind, what) in SORTS {
        let sort = (*kind, (*what).to_owned());
        let is_read = report
            .observed
            .iter()
            .any(|case| case.sorts.contains(&sort));
        assert!(is_read, "no case reads {sort:?}");
    }
    let sorts = report.observed.iter().flat_map(|case| &case.sorts);
    let unlisted: BTreeSet<String> = sorts
        .filter(|(kind, what)| !SORTS.contains(&(*kind, what.as_str())))
        .map(|(kind, what)| format!("{kind:?} {what:?}"))
        .collect();
    assert!(unlisted.is_empty(), "not in the list: {unlisted:?}");
    let chosen = campaign::representatives(&report.observed);
    assert!(
        chosen.len() >= REPRESENTATIVES,
        "expected at least {REPRESENTATIVES} cases, found {}",
        chosen.len()
    );
    eprintln!("{} cases stand for all: {chosen:?}", chosen.len());
    let chosen: Vec<_> = cases
        .into_iter()
        .filter(|case| chosen.contains(&case.name))
        .collect();
    let report = campaign::run(&chosen, &|subject, _, runner| {
        campaign::each_read(subject, runner);
    });
    check(&report);
}
