//! Kernels alone, beside the same source built natively. `cargo xtask bench` builds both with
//! `target-cpu=native`.

use callbox::CallSite;
use callbox::wasm::Engine;
use criterion::{BenchmarkId, Criterion, Throughput};
use std::hint::black_box;

use crate::data_plane::KernelAlone;
use crate::{bytes, floats, guest};

const ELEMENTS: usize = (1 << 20) / 4;

/// Measures kernels on 1 MiB of F32.
pub fn bench(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("kernel");
    group.throughput(Throughput::Bytes(1 << 20));

    let (b, c) = (floats(128), floats(ELEMENTS));
    let mut a = vec![0.0; ELEMENTS];
    group.bench_function(BenchmarkId::new("native", "broadcast_add"), |bencher| {
        bencher.iter(|| {
            broadcast_add::kernel::broadcast_add(black_box(&b), black_box(&c), black_box(&mut a))
        });
    });
    let shape = |text: &str| text.parse().unwrap();
    let site = CallSite::new(
        "broadcast_add",
        vec![shape("f32[128]"), shape("f32[262144]")],
        shape("f32[262144]"),
    );
    let mut kernel = KernelAlone::new(&site, &bytes(&b), &bytes(&c));
    group.bench_function(BenchmarkId::new("wasm", "broadcast_add"), |bencher| {
        bencher.iter(|| kernel.call());
    });

    // The host computes softmax, so that the whole call is measured, with its copies.
    let mut copy = vec![0.0; ELEMENTS];
    group.bench_function(
        BenchmarkId::new("native_and_copies", "softmax"),
        |bencher| {
            bencher.iter(|| {
                copy.copy_from_slice(black_box(&c));
                softmax::kernel::softmax(&copy, 1024, black_box(&mut a));
                copy.copy_from_slice(&a);
            });
        },
    );
    let site = CallSite::new(
        "softmax",
        vec![shape("f32[256,1024]")],
        shape("f32[256,1024]"),
    );
    let module = Engine::new().unwrap().load(&guest("softmax")).unwrap();
    let call = module.prepare_call(site).unwrap();
    let (c, mut a) = (bytes(&c), vec![0; 4 * ELEMENTS]);
    group.bench_function(BenchmarkId::new("callbox", "softmax"), |bencher| {
        bencher.iter(|| call.call(&[&c], &mut [&mut a]).unwrap());
    });
    group.finish();
}
