//! Cold start: load, compile and first call of each sample guest, with and without the compile
//! cache.

use std::path::Path;
use std::sync::Arc;

use callbox::call::Signature;
use callbox::wasm::{Cache, CacheOptions, CacheOutcome, Config, Engine, Module};
use callbox::{CallSite, Shape};
use criterion::{BenchmarkId, Criterion};

use crate::{bytes, floats, guest};

/// Measures from a module's bytes to its first result. The engine exists beforehand, as in a
/// process that has already loaded a module.
pub fn bench(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("cold_start");
    group.sample_size(10);
    let folder = tempfile::tempdir().unwrap();
    let engine = Engine::new().unwrap();
    let with_cache = cached(&folder.path().join("cache"));
    let x = bytes(&floats(128));
    for name in ["broadcast_add", "add_n", "softmax", "faults"] {
        let wasm = guest(name);
        group.bench_function(BenchmarkId::new("callbox", name), |bencher| {
            bencher.iter(|| start(&engine, &wasm, name, &x));
        });
        start(&with_cache, &wasm, name, &x);
        group.bench_function(BenchmarkId::new("cached", name), |bencher| {
            bencher.iter(|| {
                let module = start(&with_cache, &wasm, name, &x);
                assert!(matches!(module.cache_outcome(), CacheOutcome::Hit));
            });
        });
    }
    group.finish();
}

/// Makes an engine whose compile cache is this directory.
fn cached(directory: &Path) -> Engine {
    let cache = Cache::open_ambient(directory, CacheOptions::default()).unwrap();
    Engine::with_config(Config {
        cache: Some(Arc::new(cache)),
        ..Config::default()
    })
    .unwrap()
}

/// Loads a module and calls its target `name`, or its first target if it has none of that name.
fn start(engine: &Engine, wasm: &[u8], name: &str, x: &[u8]) -> Arc<Module> {
    let module = engine.load(wasm).unwrap();
    let targets = &module.info().targets;
    let target = targets.iter().find(|target| target.name == name);
    first_call(&module, target.unwrap_or(&targets[0]), x);
    module
}

/// Calls a target with `f32[128]` operands, as many as it declares. The call may fail.
fn first_call(module: &Arc<Module>, target: &Signature, x: &[u8]) {
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
