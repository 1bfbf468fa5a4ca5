//! Cold start: load, compile and first call of each sample guest.

use callbox::call::Signature;
use callbox::wasm::Engine;
use callbox::{CallSite, Shape};
use criterion::{BenchmarkId, Criterion};

use crate::{bytes, floats, guest};

/// From a module's bytes to its first result; the engine is there already, as it is in a process that has loaded one module.
pub fn bench(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("cold_start");
    group.sample_size(10);
    let engine = Engine::new().unwrap();
    let x = bytes(&floats(128));
    for name in ["broadcast_add", "add_n", "softmax", "faults"] {
        let wasm = guest(name);
        group.bench_function(BenchmarkId::new("callbox", name), |bencher| {
            bencher.iter(|| {
                let module = engine.load(&wasm).unwrap();
                let targets = &module.info().targets;
                let target = targets
                    .iter()
                    .find(|t| t.name == name)
                    .unwrap_or(&targets[0]);
                first_call(&module, target, &x);
            });
        });
    }
    group.finish();
}

/// Calls a target with as many `f32[128]` operands as it declares. What it makes of them does not matter here.
fn first_call(module: &std::sync::Arc<callbox::wasm::Module>, target: &Signature, x: &[u8]) {
    let shape: Shape = "f32[128]".parse().unwrap();
    let operands = target.operands.as_ref().map_or(1, Vec::len);
    let mut site = CallSite::new(&target.name, vec![shape.clone(); operands], shape);
    if target.name == "add_n" {
        site.attributes
            .insert("n".into(), callbox::Attribute::scalar(4.0_f32));
    }
    let call = module.prepare_call(site).unwrap();
    let mut y = vec![0; 512];
    drop(call.call(&vec![x; operands], &mut [&mut y]));
}
