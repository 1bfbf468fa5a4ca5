//! The suite under fault injection: what `src/lib.rs` says of a run holds of each.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

use callbox::wasm::faults::Kind;
use callbox_fault_injection::campaign::{self, Report};
use callbox_tests::discover;

/// Random runs of each case. More by `cargo xtask faults --seeds N`.
const SEEDS: u64 = 6;

/// Sorts of values that cases must read, or else nothing of the kind is altered: one for each way out of a guest.
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
];

/// Fewer would mean that cases are lost. How many there are depends a little on how quick they are.
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
    for (kind, what) in report.observed.iter().flat_map(|case| &case.sorts) {
        assert!(
            SORTS.contains(&(*kind, what.as_str())),
            "{kind:?} {what:?} is read, and not in the list"
        );
    }
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
