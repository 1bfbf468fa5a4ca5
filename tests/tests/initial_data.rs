//! Modules with much data, which wasmtime copies into the memory of each new instance.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Duration;

use callbox::policy::{Limits, Policy};
use callbox::wasm::{Config, Engine, Module, PreparedCall};
use callbox::{Blame, CallOptions, CallSite, CancelToken, Deadline, Shape, Status, StatusCode};
use wasm_encoder::{
    CodeSection, ConstExpr, DataSection, ExportKind, ExportSection, Function, FunctionSection,
    MemorySection, MemoryType, TypeSection, ValType,
};

/// Copying this much takes many times [`SHORT`].
const BYTES: usize = 48 << 20;

/// The pages of the module's memory. The data are too sparse in it for an image.
const PAGES: u64 = 2048;

/// The last byte of the memory.
const LAST: i32 = (PAGES << 16) as i32 - 1;

const SHORT: Duration = Duration::from_millis(2);

/// A module whose target `f` stores the last byte of the memory.
fn module(data: &DataSection) -> Vec<u8> {
    let mut types = TypeSection::new();
    types.ty().function([ValType::I32], [ValType::I32]);
    let mut functions = FunctionSection::new();
    functions.function(0);
    let mut memories = MemorySection::new();
    memories.memory(MemoryType {
        minimum: PAGES,
        maximum: None,
        memory64: false,
        shared: false,
        page_size_log2: None,
    });
    let mut exports = ExportSection::new();
    exports.export("memory", ExportKind::Memory, 0);
    exports.export("f", ExportKind::Func, 0);
    let at = |offset, align| wasm_encoder::MemArg {
        offset,
        align,
        memory_index: 0,
    };
    let mut code = CodeSection::new();
    let mut f = Function::new([]);
    f.instructions()
        .local_get(0)
        .i32_load(at(16, 2))
        .i32_load(at(0, 2))
        .i32_const(LAST)
        .i32_load8_u(at(0, 0))
        .i32_store(at(0, 2))
        .i32_const(0)
        .end();
    code.function(&f);
    let mut module = wasm_encoder::Module::new();
    module
        .section(&types)
        .section(&functions)
        .section(&memories)
        .section(&exports)
        .section(&code)
        .section(data);
    module.finish()
}

/// Data at both ends of the memory, which start-up code copies.
fn much_data() -> DataSection {
    let mut data = DataSection::new();
    data.active(0, &ConstExpr::i32_const(0), vec![1; BYTES]);
    data.active(0, &ConstExpr::i32_const(LAST), [7]);
    data
}

/// The module, within limits that let start-up code copy as much as it likes.
fn load(data: &DataSection) -> Arc<Module> {
    let limits = Limits {
        function_work: u64::MAX,
        ..Limits::default()
    };
    let engine = Engine::with_config(Config {
        policy: Policy {
            limits,
            ..Policy::default()
        },
        ..Config::default()
    });
    engine.unwrap().load(&module(data)).unwrap()
}

fn prepare(module: &Arc<Module>) -> PreparedCall {
    let shape: Shape = "s32[]".parse().unwrap();
    module
        .prepare_call(CallSite::new("f", Vec::new(), shape))
        .unwrap()
}

fn call(call: &PreparedCall, options: &CallOptions) -> Result<i32, Status> {
    let mut result = [0; 4];
    call.call_with(options, &[], &mut [&mut result])?;
    Ok(i32::from_le_bytes(result))
}

#[test]
fn a_deadline_holds_while_data_are_copied() {
    let prepared = prepare(&load(&much_data()));
    // Its time begins with the copying.
    let options = CallOptions {
        deadline: Some(Deadline::After(SHORT)),
        ..CallOptions::default()
    };
    let status = call(&prepared, &options).unwrap_err();
    assert_eq!(
        (status.code(), status.blame()),
        (StatusCode::DeadlineExceeded, Blame::Guest)
    );
    let end = ": the module's start ran past its deadline of 2ms";
    assert!(status.message().ends_with(end), "{status}");
    // Nothing of the guest has run, and there is time now.
    assert_eq!(call(&prepared, &CallOptions::default()), Ok(7));
}

/// A start function that asks for memory has run, also where there was no page of memory before.
#[test]
fn a_start_without_memory_is_blamed_for_its_time() {
    let mut policy = Policy::default();
    policy.limits.executable_memory_bytes = 100 << 20;
    policy.limits.deadline = Some(Duration::from_millis(100));
    let engine = Engine::with_config(Config {
        policy,
        ..Config::default()
    });
    let text = r#"(module
      (memory (export "memory") 0)
      (func $start (loop $on (drop (memory.grow (i32.const 16000))) (br $on)))
      (start $start)
      (func (export "f") (param i32) (result i32) (i32.const 0)))"#;
    let wasm = wat::parse_str(text).unwrap();
    let prepared = prepare(&engine.unwrap().load(&wasm).unwrap());
    let status = call(&prepared, &CallOptions::default()).unwrap_err();
    assert_eq!(
        (status.code(), status.blame()),
        (StatusCode::DeadlineExceeded, Blame::Guest),
        "{status}"
    );
}

#[test]
fn a_token_holds_while_data_are_copied() {
    let prepared = prepare(&load(&much_data()));
    let cancel = CancelToken::new();
    let options = CallOptions {
        cancel: Some(cancel.clone()),
        ..CallOptions::default()
    };
    let ready = Barrier::new(2);
    let status = thread::scope(|scope| {
        let calling = scope.spawn(|| {
            ready.wait();
            call(&prepared, &options)
        });
        ready.wait();
        cancel.cancel();
        calling.join().unwrap().unwrap_err()
    });
    assert_eq!(
        (status.code(), status.blame()),
        (StatusCode::Cancelled, Blame::Caller)
    );
    assert_eq!(call(&prepared, &CallOptions::default()), Ok(7));
}

/// Its time ends between the look before its memory is made and the one after.
#[test]
fn a_module_without_data_is_not_blamed() {
    let options = CallOptions {
        deadline: Some(Deadline::After(Duration::from_nanos(1))),
        ..CallOptions::default()
    };
    let status = call(&prepare(&load(&DataSection::new())), &options).unwrap_err();
    assert_eq!(
        (status.code(), status.blame()),
        (StatusCode::DeadlineExceeded, Blame::Caller)
    );
    let end = ": the module was not called: its deadline had passed";
    assert!(status.message().ends_with(end), "{status}");
}
