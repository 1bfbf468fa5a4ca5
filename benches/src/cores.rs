//! Whole calls in pieces on one thread and on two, beside the same source as a native loop on one
//! thread.

use std::hint::black_box;

use callbox::policy::Policy;
use callbox::wasm::{Config, Engine, Mapping, PreparedCall};
use callbox::{Attribute, CallOptions, CallSite, Literal, Shape};
use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, BenchmarkId, Criterion, Throughput};

use crate::{bytes, floats, guest};

/// The size of a piece, as in Python.
const PIECE_BYTES: usize = 64 << 10;

/// The rows of softmax and rms_norm, and their length.
const ROWS: usize = 4096;
const LENGTH: usize = 1024;

/// Measures `add_n` on 1 MiB and 64 MiB, and the kernels with rows on 16 MiB.
pub fn bench(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("cores");
    for size in [1 << 20, 64 << 20] {
        let (x, mut y) = (floats(size / 4), vec![0.0; size / 4]);
        let name = format!("add_n_{}MiB", size >> 20);
        group.throughput(Throughput::Bytes(size as u64));
        group.bench_function(BenchmarkId::new("native", &name), |bencher| {
            bencher.iter(|| add(black_box(&x), black_box(1.0), black_box(&mut y)));
        });
        let shape: Shape = format!("f32[{}]", size / 4).parse().unwrap();
        let site = CallSite::new("add_n", vec![shape.clone()], shape);
        ours(&mut group, &name, with_float(site, "n", 1.0), &[bytes(&x)]);
    }

    let (x, weight) = (floats(ROWS * LENGTH), floats(LENGTH));
    let mut y = vec![0.0; ROWS * LENGTH];
    let whole: Shape = format!("f32[{ROWS},{LENGTH}]").parse().unwrap();
    group.throughput(Throughput::Bytes((ROWS * LENGTH * 4) as u64));
    group.bench_function(BenchmarkId::new("native", "softmax"), |bencher| {
        bencher.iter(|| softmax::kernel::softmax(black_box(&x), LENGTH, black_box(&mut y)));
    });
    let site = CallSite::new("softmax", vec![whole.clone()], whole.clone());
    ours(&mut group, "softmax", site, &[bytes(&x)]);

    group.bench_function(BenchmarkId::new("native", "rms_norm"), |bencher| {
        bencher.iter(|| {
            rms_norm::kernel::rms_norm(black_box(&x), black_box(&weight), 1e-6, black_box(&mut y));
        });
    });
    let row: Shape = format!("f32[{LENGTH}]").parse().unwrap();
    let site = CallSite::new("rms_norm", vec![whole.clone(), row], whole);
    let site = with_float(site, "eps", 1e-6);
    ours(&mut group, "rms_norm", site, &[bytes(&x), bytes(&weight)]);
    group.finish();
}

fn add(x: &[f32], n: f32, y: &mut [f32]) {
    for (y, x) in y.iter_mut().zip(x) {
        *y = x + n;
    }
}

fn with_float(site: CallSite, name: &str, value: f32) -> CallSite {
    let value = Attribute::Scalar(Literal::array(&[], &[value]).unwrap());
    site.with_attributes([(name.to_owned(), value)].into_iter().collect())
}

/// Measures the call on one thread and on two.
fn ours(
    group: &mut BenchmarkGroup<'_, WallTime>,
    name: &str,
    site: CallSite,
    operands: &[Vec<u8>],
) {
    let call = prepare(site);
    let operands: Vec<&[u8]> = operands.iter().map(Vec::as_slice).collect();
    let mut y = vec![0; operands[0].len()];
    for (what, threads) in [("one_thread", 1), ("two_threads", 2)] {
        let options = CallOptions {
            threads: Some(threads),
            ..CallOptions::default()
        };
        group.bench_function(BenchmarkId::new(what, name), |bencher| {
            bencher.iter(|| call.call_with(&options, &operands, &mut [&mut y]).unwrap());
        });
    }
}

fn prepare(site: CallSite) -> PreparedCall {
    let mut policy = Policy::default();
    policy.limits.instances = 8;
    let engine = Engine::with_config(Config {
        policy,
        ..Config::default()
    });
    let mapping = Mapping {
        piece_bytes: Some(PIECE_BYTES),
        ..Mapping::default()
    };
    let module = engine.unwrap().load(&guest(&site.target)).unwrap();
    let call = module.prepare_mapped(site, &mapping).unwrap();
    assert!(call.is_cut());
    call
}
