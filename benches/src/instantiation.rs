//! A fresh instance per call, beside raw pooled instantiation of the same module, and beside a raw
//! call in a fresh instance with everything that it needs.

use callbox::CallSite;
use callbox::frame::ArenaLayout;
use callbox::policy::{Isolation, Policy};
use callbox::wasm::{Config, Engine};
use criterion::Criterion;

use crate::data_plane::KernelAlone;
use crate::{bytes, floats, guest, raw};

/// Measures `broadcast_add` on 512 bytes.
pub fn bench(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("fresh_instance");
    let pre = raw::module(&raw::engine(), &guest("broadcast_add"));
    group.bench_function("raw_wasmtime", |bencher| {
        bencher.iter(|| raw::Guest::new(&pre));
    });

    let shape = || "f32[128]".parse().unwrap();
    let site = CallSite::new("broadcast_add", vec![shape(), shape()], shape());
    let layout = ArenaLayout::new(&site, 1 << 30).unwrap();
    let x = bytes(&floats(128));
    let mut y = vec![0; 512];
    group.bench_function("raw_wasmtime_with_call", |bencher| {
        bencher.iter(|| {
            let mut kernel = KernelAlone::instantiate(&pre, "broadcast_add", &layout, [&x, &x]);
            kernel.call();
            kernel.copy_result(&mut y);
        });
    });

    let config = Config {
        policy: Policy {
            isolation: Isolation::Fresh,
            ..Policy::default()
        },
        ..Config::default()
    };
    let module = Engine::with_config(config)
        .unwrap()
        .load(&guest("broadcast_add"))
        .unwrap();
    let call = module.prepare_call(site).unwrap();
    group.bench_function("callbox", |bencher| {
        bencher.iter(|| call.call(&[&x, &x], &mut [&mut y]).unwrap());
    });
    group.finish();
}
