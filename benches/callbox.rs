//! Criterion entry point of the benchmarks. Run it through `cargo xtask bench`, which prints the
//! ratios.

#![allow(missing_docs, reason = "criterion's macros make undocumented items")]

use std::process::ExitCode;

use callbox_benches::second_wall;
use criterion::{Criterion, criterion_group};

criterion_group!(
    benches,
    callbox_benches::prepared_call::bench,
    callbox_benches::conventions::bench,
    callbox_benches::cores::bench,
    callbox_benches::data_plane::bench,
    callbox_benches::fence::bench,
    callbox_benches::instantiation::bench,
    callbox_benches::program::bench,
    callbox_benches::kernel::bench,
    callbox_benches::cold_start::bench,
    callbox_benches::second_wall::bench,
    callbox_benches::traps::bench,
);

fn main() -> ExitCode {
    if second_wall::is_worker() {
        return callbox::process::worker_main();
    }
    benches();
    Criterion::default().configure_from_args().final_summary();
    ExitCode::SUCCESS
}
