//! The benchmarks' glue: `cargo xtask bench` runs it and prints ratios.

#![allow(missing_docs, reason = "criterion's macros make undocumented items")]

use criterion::{criterion_group, criterion_main};

criterion_group!(
    benches,
    callbox_benches::prepared_call::bench,
    callbox_benches::conventions::bench,
    callbox_benches::data_plane::bench,
    callbox_benches::instantiation::bench,
    callbox_benches::program::bench,
    callbox_benches::kernel::bench,
    callbox_benches::cold_start::bench,
);
criterion_main!(benches);
