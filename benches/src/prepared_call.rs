//! A prepared call of an empty kernel: the overhead of a call.

use std::time::Duration;

use callbox::call::Deadline;
use callbox::wasm::Engine;
use callbox::{CallOptions, CallSite};
use criterion::Criterion;

use crate::{EMPTY_KERNEL, load_text, raw};

/// Measures a call with two operands and a result of 512 bytes each and a deadline, beside a raw
/// call that copies nothing.
pub fn bench(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("prepared_call");

    let pre = raw::module(&raw::engine(), &wat::parse_str(EMPTY_KERNEL).unwrap());
    let mut guest = raw::Guest::new(&pre);
    let empty = guest.target("empty");
    group.bench_function("raw_wasmtime", |bencher| {
        bencher.iter(|| empty.call(&mut guest.store, 0).unwrap());
    });

    let engine = Engine::new().unwrap();
    let shape = || "f32[128]".parse().unwrap();
    let site = CallSite::new("empty", vec![shape(), shape()], shape());
    let call = load_text(&engine, EMPTY_KERNEL).prepare_call(site).unwrap();
    let (x, y) = (vec![1; 512], vec![2; 512]);
    let mut z = vec![0; 512];
    let options = CallOptions {
        deadline: Some(Deadline::After(Duration::from_secs(10))),
        ..CallOptions::default()
    };
    group.bench_function("callbox", |bencher| {
        bencher.iter(|| call.call_with(&options, &[&x, &y], &mut [&mut z]).unwrap());
    });
    group.finish();
}
