//! Cold start: load, compile and first call of each sample guest; and the same where the compiled module is in the cache.

use std::path::Path;
use std::sync::Arc;

use callbox::call::Signature;
use callbox::wasm::{Cache, CacheOptions, CacheOutcome, Config, Engine, Module};
use callbox::{CallSite, Shape};
use criterion::{BenchmarkId, Criterion};

use crate::{bytes, floats, guest};

/// From a module's bytes to its first result; the engine is there already, as it is in a process that has loaded one module.
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

/// An engine with a cache in this directory.
fn cached(directory: &Path) -> Engine {
    let cache = Cache::open_ambient(directory, CacheOptions::default()).unwrap();
    Engine::with_config(Config {
        cache: Some(Arc::new(cache)),
        ..Config::default()
    })
    .unwrap()
}

/// Loads a module and calls its target of this name, or its first.
fn start(engine: &Engine, wasm: &[u8], name: &str, x: &[u8]) -> Arc<Module> {
    let module = engine.load(wasm).unwrap();
    let targets = &module.info().targets;
    let target = targets.iter().find(|target| target.name == name);
    first_call(&module, target.unwrap_or(&targets[0]), x);
    module
}

/// Calls a target with as many `f32[128]` operands as it declares. What it makes of them does not matter here.
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
