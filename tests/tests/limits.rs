//! Limits that no case reaches: the time of compilation, and the number of an executable's
//! instances.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fmt::Write;
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Duration;

use callbox::policy::{Grants, Isolation, Limits, Policy};
use callbox::wasm::{Config, Engine, ModuleFile, PreparedCall};
use callbox::{Blame, CallSite, Deadline, Result, Shape, StatusCode};

fn engine(limits: Limits, isolation: Isolation) -> Engine {
    let policy = Policy {
        limits,
        isolation,
        ..Policy::default()
    };
    Engine::with_config(Config {
        policy,
        ..Config::default()
    })
    .unwrap()
}

fn nothing() -> Shape {
    Shape::tuple(Vec::new()).unwrap()
}

/// Returns a module of many different functions, which takes a while to compile.
fn large() -> Vec<u8> {
    let mut text = r#"(module (memory (export "memory") 1) (func (export "f") (param i32) (result i32) (i32.const 0))"#.to_owned();
    for i in 0..120 {
        write!(
            text,
            "(func (param i32) (result i32) (local i32) (local.get 0)"
        )
        .unwrap();
        for j in 0..40 {
            write!(text, "(local.tee 1) (i32.const {}) (i32.mul) (local.get 1) (i32.xor) (i32.const {j}) (i32.rotl)", i + j).unwrap();
        }
        text.push(')');
    }
    text.push(')');
    wat::parse_str(text).unwrap()
}

#[test]
fn a_compilation_past_its_limit_is_left_to_itself() {
    let wasm = large();
    let limits = Limits {
        compile_time: Some(Duration::ZERO),
        compile_refusal: None,
        instances: 8,
        ..Limits::default()
    };
    // The time is for compiling alone if the file was read before.
    let file = ModuleFile::read(wasm.clone(), &Limits::default()).unwrap();
    let strict = engine(limits, Isolation::Executable);
    let load = || strict.load_file(&file, &Grants::default()).unwrap_err();
    // Once the maximum number of background compilations is running, no more are started.
    let statuses: Vec<_> = (0..48).map(|_| load()).collect();
    assert_eq!(
        statuses[0].to_string(),
        "DEADLINE_EXCEEDED: expected the module to compile within 0ns (`compile_time_ms`), found that it takes longer"
    );
    assert_eq!(statuses[0].blame(), Blame::Guest);
    let full = statuses
        .iter()
        .find(|status| status.code() == StatusCode::ResourceExhausted);
    assert_eq!(
        full.unwrap().to_string(),
        "RESOURCE_EXHAUSTED: expected one of 8 places to compile in within 0ns, found them taken by other modules"
    );
    assert_eq!(full.unwrap().blame(), Blame::Caller);
    // There is room again when they have ended.
    while load().code() == StatusCode::ResourceExhausted {
        thread::sleep(Duration::from_millis(10));
    }

    for compile_time in [Some(Duration::from_secs(60)), None] {
        let limits = Limits {
            compile_time,
            instances: 8,
            ..Limits::default()
        };
        let patient = engine(limits, Isolation::Executable);
        let call = patient.load(&wasm).unwrap();
        let call = call.prepare_call(CallSite::new("f", Vec::new(), nothing()));
        call.unwrap().call(&[], &mut []).unwrap();
    }
}

const LOOP: &str = r#"(module
  (memory (export "memory") 1)
  (func (export "f") (param i32) (result i32) (loop $on (br $on)) (unreachable)))"#;

/// Runs `count` concurrent calls and returns their outcomes.
fn at_one_time(call: &PreparedCall, count: usize) -> Vec<Result<()>> {
    let options = callbox::CallOptions {
        deadline: Some(Deadline::After(Duration::from_millis(300))),
        ..callbox::CallOptions::default()
    };
    let begin = Barrier::new(count);
    thread::scope(|scope| {
        let calls: Vec<_> = (0..count)
            .map(|_| {
                scope.spawn(|| {
                    begin.wait();
                    call.call_with(&options, &[], &mut [])
                })
            })
            .collect();
        calls.into_iter().map(|call| call.join().unwrap()).collect()
    })
}

fn codes(outcomes: &[Result<()>]) -> Vec<StatusCode> {
    let mut codes: Vec<_> = outcomes
        .iter()
        .map(|outcome| outcome.as_ref().unwrap_err().code())
        .collect();
    codes.sort();
    codes
}

#[test]
fn an_executable_has_no_more_instances_than_it_may() {
    use StatusCode::{DeadlineExceeded, ResourceExhausted};
    for isolation in [Isolation::Executable, Isolation::Fresh] {
        let limits = Limits {
            executable_instances: 3,
            instances: 16,
            ..Limits::default()
        };
        let engine = engine(limits, isolation);
        let module = engine.load(&wat::parse_str(LOOP).unwrap()).unwrap();
        let prepare = || {
            let site = CallSite::new("f", Vec::new(), nothing());
            module.prepare_call(site).unwrap()
        };
        let (call, other) = (prepare(), prepare());
        assert_eq!(codes(&at_one_time(&call, 3)), [DeadlineExceeded; 3]);
        let outcomes = at_one_time(&call, 4);
        assert_eq!(
            codes(&outcomes),
            [
                DeadlineExceeded,
                DeadlineExceeded,
                DeadlineExceeded,
                ResourceExhausted
            ]
        );
        let refused = outcomes
            .into_iter()
            .map(Result::unwrap_err)
            .find(|status| status.code() == ResourceExhausted);
        let refused = refused.unwrap();
        assert_eq!(refused.blame(), Blame::Caller);
        assert_eq!(
            refused.message(),
            "expected at most 3 instances of a module at one time for one executable, found one more execution"
        );
        // Another executable has instances of its own.
        assert_eq!(codes(&at_one_time(&other, 3)), [DeadlineExceeded; 3]);
    }
}

const GROW: &str = r#"(module
  (memory (export "memory") 1)
  (func (export "f") (param i32) (result i32)
    (local $end i64)
    (if (i32.eq (memory.grow (i32.const 16)) (i32.const -1)) (then (unreachable)))
    (loop $on (local.set $end (i64.add (local.get $end) (i64.const 1))) (br_if $on (i64.lt_u (local.get $end) (i64.const 400000000))))
    (i32.const 0)))"#;

#[test]
fn instances_of_an_executable_share_its_memory_limit() {
    // Each instance has one page, one for the arena, and grows by sixteen: 18 pages of 64 KiB. Two
    // of them fit the limit, three do not.
    let limits = Limits {
        executable_memory_bytes: 40 << 16,
        instances: 16,
        ..Limits::default()
    };
    let engine = engine(limits, Isolation::Fresh);
    let module = engine.load(&wat::parse_str(GROW).unwrap()).unwrap();
    let call = module.prepare_call(CallSite::new("f", Vec::new(), nothing()));
    let call = Arc::new(call.unwrap());
    let options = callbox::CallOptions::default();
    let begin = Barrier::new(3);
    let outcomes: Vec<_> = thread::scope(|scope| {
        let calls: Vec<_> = (0..3)
            .map(|_| {
                scope.spawn(|| {
                    begin.wait();
                    call.call_with(&options, &[], &mut [])
                })
            })
            .collect();
        calls.into_iter().map(|call| call.join().unwrap()).collect()
    });
    let failures: Vec<_> = outcomes.into_iter().filter_map(Result::err).collect();
    assert_eq!(failures.len(), 1, "{failures:?}");
    assert_eq!(failures[0].code(), StatusCode::ResourceExhausted);
    assert!(
        failures[0]
            .message()
            .contains("the limit for all instances of the module outside programs is 2621440"),
        "{}",
        failures[0]
    );
    // The memory of the three is released.
    call.call(&[], &mut []).unwrap();
}

#[test]
fn idle_instances_of_a_module_give_way_to_one_that_grows() {
    // One instance fits, with 18 pages of 64 KiB.
    let limits = Limits {
        executable_memory_bytes: 20 << 16,
        ..Limits::default()
    };
    let engine = engine(limits, Isolation::Executable);
    let file = wat::parse_str(GROW).unwrap();
    // Two loads of a file count together.
    let modules = [engine.load(&file).unwrap(), engine.load(&file).unwrap()];
    let calls = modules.map(|module| {
        let call = module.prepare_call(CallSite::new("f", Vec::new(), nothing()));
        call.unwrap()
    });
    let held = || {
        let bytes = calls.each_ref().map(|call| call.memory().unwrap().bytes());
        bytes.map(|bytes| bytes >> 16)
    };
    calls[0].call(&[], &mut []).unwrap();
    assert_eq!(held(), [18, 0]);
    calls[1].call(&[], &mut []).unwrap();
    assert_eq!(held(), [0, 18]);
    calls[0].call(&[], &mut []).unwrap();
    assert_eq!(held(), [18, 0]);
}
