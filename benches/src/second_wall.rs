//! A call in a worker process (the second wall), beside the same call in this process, and the time
//! that a worker takes to start.

use std::ffi::OsStr;

use callbox::CallSite;
use callbox::process::{Sandbox, SandboxConfig, Worker};
use callbox::wasm::Engine;
use criterion::{BenchmarkId, Criterion, Throughput};

use crate::EMPTY_KERNEL;

/// The first argument that starts this program as a worker.
pub const WORKER: &str = "worker";

/// Returns whether this program was started as a worker.
#[must_use]
pub fn is_worker() -> bool {
    std::env::args_os().nth(1).as_deref() == Some(OsStr::new(WORKER))
}

/// Measures an empty kernel with one operand and one result, of 1 KiB and of 1 MiB.
pub fn bench(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("second_wall");
    let wasm = wat::parse_str(EMPTY_KERNEL).unwrap();
    let sandbox = Sandbox::new(SandboxConfig::new(Worker::this_program([WORKER]))).unwrap();
    let apart = sandbox.load(&wasm).unwrap();
    let here = Engine::new().unwrap().load(&wasm).unwrap();
    for size in [1 << 10, 1 << 20] {
        let shape: callbox::Shape = format!("u8[{size}]").parse().unwrap();
        let site = CallSite::new("empty", vec![shape.clone()], shape);
        let name = format!("{}KiB", size >> 10);
        let operand = vec![1; size];
        let mut result = vec![0; size];
        group.throughput(Throughput::Bytes(size as u64));
        let call = here.prepare_call(site.clone()).unwrap();
        group.bench_function(BenchmarkId::new("wasm", &name), |bencher| {
            bencher.iter(|| call.call(&[&operand], &mut [&mut result]).unwrap());
        });
        let call = apart.prepare_call(site).unwrap();
        group.bench_function(BenchmarkId::new("process", &name), |bencher| {
            bencher.iter(|| call.call(&[&operand], &mut [&mut result]).unwrap());
        });
    }
    group.finish();
    let mut group = criterion.benchmark_group("second_wall_start");
    group.sample_size(20);
    // Starts the process, its engine and its filter, and compiles the smallest module.
    group.bench_function("load", |bencher| {
        bencher.iter(|| sandbox.load(&wasm).unwrap());
    });
    group.finish();
}
