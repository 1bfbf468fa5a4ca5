//! A program of 1,000 chained custom calls, beside 1,000 prepared calls.

use std::fmt::Write;

use callbox::program::{Executable, ExecuteOptions, Program};
use callbox::wasm::Engine;
use callbox::{CallSite, Literal, Platform, Registry};
use criterion::{Criterion, Throughput};

use crate::{EMPTY_KERNEL, floats, load_text};

/// Calls per program.
pub const CALLS: u64 = 1000;

/// Measures calls with an operand and a result of 512 bytes each.
pub fn bench(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("program");
    group.throughput(Throughput::Elements(CALLS));
    let module = load_text(&Engine::new().unwrap(), EMPTY_KERNEL);

    let shape = || "f32[128]".parse().unwrap();
    let call = module
        .prepare_call(CallSite::new("empty", vec![shape()], shape()))
        .unwrap();
    let x = vec![0; 512];
    let mut y = vec![0; 512];
    group.bench_function("prepared_calls", |bencher| {
        bencher.iter(|| (0..CALLS).for_each(|_| call.call(&[&x], &mut [&mut y]).unwrap()));
    });

    let mut registry = Registry::new();
    registry.register_module(module).unwrap();
    let program = Program::from_hlo_text(&chain()).unwrap();
    let executable = Executable::compile(&program, &registry, Platform::Host).unwrap();
    let argument = Literal::array(&[128], &floats(128)).unwrap();
    let options = ExecuteOptions::default();
    group.bench_function("callbox", |bencher| {
        bencher.iter(|| {
            executable
                .execute(0, std::slice::from_ref(&argument), &options)
                .unwrap()
        });
    });
    group.finish();
}

fn chain() -> String {
    let mut text = "HloModule chain\nENTRY main {\n  x.0 = f32[128] parameter(0)\n".to_owned();
    for i in 1..=CALLS {
        let root = if i == CALLS { "ROOT " } else { "" };
        let previous = i - 1;
        writeln!(
            text,
            "  {root}x.{i} = f32[128] custom-call(x.{previous}), custom_call_target=\"empty\", api_version=API_VERSION_TYPED_FFI"
        )
        .unwrap();
    }
    text.push('}');
    text
}
