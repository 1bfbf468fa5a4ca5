//! Kernels alone, beside the same source built natively for the same CPU: `xtask bench` builds with `target-cpu=native`.

use callbox::CallSite;
use criterion::{BenchmarkId, Criterion, Throughput};
use std::hint::black_box;

use crate::data_plane::KernelAlone;
use crate::{bytes, floats};

const ELEMENTS: usize = (1 << 20) / 4;

/// 1 MiB of F32.
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

    group.bench_function(BenchmarkId::new("native", "softmax"), |bencher| {
        bencher.iter(|| softmax::kernel::softmax(black_box(&c), 1024, black_box(&mut a)));
    });
    let site = CallSite::new(
        "softmax",
        vec![shape("f32[256,1024]")],
        shape("f32[256,1024]"),
    );
    let mut kernel = KernelAlone::new(&site, &bytes(&c), &[]);
    group.bench_function(BenchmarkId::new("wasm", "softmax"), |bencher| {
        bencher.iter(|| kernel.call());
    });
    group.finish();
}
