//! Explicit bounds checks, and the deterministic mode with its fuel, beside the processor's
//! signals, for a kernel on large buffers and for an empty kernel.

use callbox::policy::{Policy, Traps};
use callbox::wasm::{Config, Engine};
use callbox::{CallSite, Shape};
use criterion::{BenchmarkId, Criterion};

use crate::{EMPTY_KERNEL, bytes, floats, guest};

/// Measures `broadcast_add` on 1 MiB, copies included, and an empty kernel with two operands and a
/// result of 512 bytes.
pub fn bench(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("traps");
    let shape = |text: &str| text.parse::<Shape>().unwrap();
    let [small, large] = ["f32[128]", "f32[262144]"].map(shape);
    let broadcast_add = CallSite::new(
        "broadcast_add",
        vec![small.clone(), large.clone()],
        large.clone(),
    );
    let empty = CallSite::new("empty", vec![small.clone(), small.clone()], small);
    let modules = [
        (broadcast_add, guest("broadcast_add")),
        (empty, wat::parse_str(EMPTY_KERNEL).unwrap()),
    ];
    for (site, wasm) in &modules {
        let [first, second] =
            [0, 1].map(|i| bytes(&floats(site.operands[i].leaves()[0].byte_size() / 4)));
        let mut result = vec![0; site.result.leaves()[0].byte_size()];
        for (name, traps, deterministic) in [
            ("signals", Traps::Signals, false),
            ("explicit", Traps::Explicit, false),
            ("fuel", Traps::Signals, true),
        ] {
            let config = Config {
                policy: Policy {
                    traps,
                    deterministic,
                    ..Policy::default()
                },
                ..Config::default()
            };
            let module = Engine::with_config(config).unwrap().load(wasm).unwrap();
            let call = module.prepare_call(site.clone()).unwrap();
            group.bench_function(BenchmarkId::new(name, &site.target), |bencher| {
                bencher.iter(|| call.call(&[&first, &second], &mut [&mut result]).unwrap());
            });
        }
    }
    group.finish();
}
