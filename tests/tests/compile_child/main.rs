//! Compiling in child processes: modules that take too long or too much memory, children that are
//! killed or missing, and what is left of them.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]
#![cfg(target_os = "linux")]

use std::fmt::Write;
use std::fs;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use callbox::policy::{CompileIn, Limits, Policy, Traps};
use callbox::process::{CompilerProcess, Worker};
use callbox::wasm::{Cache, CacheOptions, CompiledIn, Compiler, Config, Engine, Module};
use callbox::{Blame, CallSite, Shape, Status, StatusCode};
use callbox_tests::worker::{COMPILER, HOSTILE, PROBES, TALKATIVE, WORKER};
use rustix::process::Signal;

mod beside;
mod limits;
mod processes;
#[path = "../workers/mod.rs"]
#[allow(dead_code, reason = "other tests use the rest")]
mod workers;

use workers::{
    PROGRAM, alone, assert_confined, children, descriptors, facts, is_zombie, kill, probe, send,
    slow, until, worked,
};

fn compiler() -> Arc<CompilerProcess> {
    Arc::new(CompilerProcess::new(Worker::new(PROGRAM, [WORKER])).unwrap())
}

/// An engine that compiles nothing in this process.
fn engine(compiler: &Arc<CompilerProcess>, limits: Limits) -> Engine {
    let policy = Policy {
        limits,
        compile: CompileIn::Process,
        ..Policy::default()
    };
    engine_with(compiler, policy)
}

fn engine_with(compiler: &Arc<CompilerProcess>, policy: Policy) -> Engine {
    let compiler = Arc::clone(compiler) as Arc<dyn Compiler>;
    Engine::with_config(Config {
        policy,
        compiler: Some(compiler),
        ..Config::default()
    })
    .unwrap()
}

/// A module whose target `f` stores `number`. Different numbers make different modules.
fn healthy(number: usize) -> Vec<u8> {
    let text = format!(
        r#"(module (memory (export "memory") 1)
            (func (export "f") (param $frame i32) (result i32)
              (i32.store (i32.load (i32.load offset=16 (local.get $frame))) (i32.const {number}))
              (i32.const 0)))"#
    );
    wat::parse_str(text).unwrap()
}

fn call(module: &Arc<Module>) -> Result<i32, Status> {
    let shape: Shape = "s32[]".parse().unwrap();
    let call = module.prepare_call(CallSite::new("f", Vec::new(), shape))?;
    let mut result = [0; 4];
    call.call(&[], &mut [&mut result])?;
    Ok(i32::from_le_bytes(result))
}

/// Nested blocks with many results, and branches to all of them that carry these: a few kilobytes
/// that take gigabytes to compile.
fn large(number: usize) -> Vec<u8> {
    const DEPTH: usize = 800;
    const RESULTS: usize = 1000;
    let mut text = format!(
        r#"(module (memory (export "memory") 1)
            (type $many (func (result {})))
            (func (export "f") (param i32) (result i32)"#,
        "i32 ".repeat(RESULTS)
    );
    text.push_str(&" block (type $many)".repeat(DEPTH));
    text.push_str(&format!(" i32.const {number}").repeat(RESULTS));
    text.push_str(" local.get 0 br_table");
    for depth in 0..DEPTH {
        write!(text, " {depth}").unwrap();
    }
    text.push_str(&" end".repeat(DEPTH));
    text.push_str(&" drop".repeat(RESULTS));
    text.push_str(" i32.const 0))");
    wat::parse_str(text).unwrap()
}

/// Limits that leave it to the compiler to find out what a module costs.
fn limits() -> Limits {
    Limits {
        function_work: u64::MAX,
        module_work: u64::MAX,
        type_values: 1000,
        ..Limits::default()
    }
}

const SECOND: Duration = Duration::from_secs(1);

fn refused(engine: &Engine, wasm: &[u8]) -> Status {
    engine.load(wasm).unwrap_err()
}

#[test]
fn a_module_is_compiled_in_a_child() {
    let _alone = alone();
    let compiler = compiler();
    for traps in [Traps::Signals, Traps::Explicit] {
        for deterministic in [false, true] {
            let policy = Policy {
                compile: CompileIn::Process,
                traps,
                deterministic,
                ..Policy::default()
            };
            let engine = engine_with(&compiler, policy);
            let module = engine.load(&healthy(42)).unwrap();
            assert!(matches!(module.compiled_in(), CompiledIn::Process));
            assert_eq!(call(&module), Ok(42));
        }
    }
}

#[test]
fn the_code_is_the_same_as_in_this_process() {
    let _alone = alone();
    let compiler = compiler();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cache");
    let cache = Arc::new(Cache::open_ambient(&path, CacheOptions::default()).unwrap());
    let wasm = callbox_tests::module::read_guest("add_n").unwrap();
    let mut entries = [CompileIn::Process, CompileIn::ThisProcess].map(|compile| {
        let engine = Engine::with_config(Config {
            policy: Policy {
                compile,
                ..Policy::default()
            },
            cache: Some(Arc::clone(&cache)),
            compiler: Some(Arc::clone(&compiler) as Arc<dyn Compiler>),
            ..Config::default()
        })
        .unwrap();
        engine.load(&wasm).unwrap();
        assert!(engine.is_cached(&wasm).unwrap());
        let cached = engine.load(&wasm).unwrap();
        assert!(matches!(cached.compiled_in(), CompiledIn::Cache));
        let files = fs::read_dir(&path)
            .unwrap()
            .map(|file| file.unwrap().path());
        let entry = files
            .filter(|file| file.extension().is_some_and(|end| end == "callbox-module"))
            .collect::<Vec<_>>();
        assert_eq!(entry.len(), 1);
        let bytes = fs::read(&entry[0]).unwrap();
        fs::remove_file(&entry[0]).unwrap();
        bytes
    });
    let [here, there] = &mut entries;
    assert!(here == there, "expected the same {} bytes", here.len());
}

#[test]
fn a_child_that_is_killed_costs_one_load() {
    let _alone = alone();
    let compiler = compiler();
    let engine = engine(&compiler, limits());
    // While it is idle, none.
    for number in 0..3 {
        assert_eq!(
            call(&engine.load(&healthy(number)).unwrap()),
            Ok(number as i32)
        );
        let idle = children();
        assert!(!idle.is_empty());
        idle.into_iter().for_each(kill);
        until("the child to end", || children().iter().all(is_zombie));
    }
    let wasm = slow(0);
    // Daemons that watch the memory of a machine begin with SIGTERM.
    for signal in [Signal::KILL, Signal::TERM] {
        let status = thread::scope(|scope| {
            let load = scope.spawn(|| refused(&engine, &wasm));
            // Past the start, and in the middle of the compilation.
            until("the child to compile", || {
                children()
                    .iter()
                    .any(|pid| !is_zombie(pid) && worked(*pid) >= 100)
            });
            children().into_iter().for_each(|pid| send(pid, signal));
            load.join().unwrap()
        });
        // The module may not have been the reason, so that it is not refused at once.
        assert_eq!(
            facts(&status),
            (StatusCode::ResourceExhausted, Blame::Guest)
        );
        assert!(status.recoverable());
        assert!(status.message().contains("was killed"), "{status}");
    }
    assert_eq!(call(&engine.load(&healthy(9)).unwrap()), Ok(9));
}

/// A worker that begins as a shell, which runs this program first.
fn after(program: &str) -> Worker {
    let program = format!("{program}; exec \"$0\" \"$@\"");
    Worker::new("/bin/sh", ["-c", &program, PROGRAM, WORKER])
}

/// What ended it may end no other one.
#[test]
fn another_child_starts_where_the_first_is_killed() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let flag = folder.path().join("started");
    let worker = after(&format!(
        "/bin/mkdir {} 2>&- && kill -KILL $$",
        flag.display()
    ));
    let engine = engine(&Arc::new(CompilerProcess::new(worker).unwrap()), limits());
    assert_eq!(call(&engine.load(&healthy(0)).unwrap()), Ok(0));
    assert!(flag.exists());
}

/// Such as those that may start no thread at that moment.
#[test]
fn where_children_have_worked_one_that_fails_keeps_no_other_from_starting() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let flag = folder.path().join("fails");
    let worker = after(&format!("[ -e {} ] && exit 1", flag.display()));
    let engine = engine(&Arc::new(CompilerProcess::new(worker).unwrap()), limits());
    assert_eq!(call(&engine.load(&healthy(0)).unwrap()), Ok(0));
    fs::write(&flag, "").unwrap();
    children().into_iter().for_each(kill);
    until("the child to end", || children().iter().all(is_zombie));
    let status = refused(&engine, &healthy(1));
    assert_eq!(facts(&status), (StatusCode::ResourceExhausted, Blame::Host));
    assert!(status.message().contains("can be started now"), "{status}");
    fs::remove_file(&flag).unwrap();
    assert_eq!(call(&engine.load(&healthy(1)).unwrap()), Ok(1));
}

#[test]
fn without_a_child_the_policy_decides() {
    let _alone = alone();
    for worker in [
        Worker::new("/no/such/program", [WORKER]),
        Worker::new("/bin/true", [WORKER]),
        Worker::new("/bin/cat", [] as [&str; 0]),
    ] {
        let compiler = Arc::new(CompilerProcess::new(worker).unwrap());
        let strict = engine(&compiler, limits());
        for _ in 0..2 {
            let status = refused(&strict, &healthy(0));
            assert_eq!(facts(&status), (StatusCode::Unavailable, Blame::Host));
        }
        let reports = Arc::new(Mutex::new(Vec::new()));
        let sink = Arc::clone(&reports);
        let lenient = Engine::with_config(Config {
            compiler: Some(compiler),
            compile_report: Some(Arc::new(move |status| {
                sink.lock().unwrap().push(status.clone());
            })),
            ..Config::default()
        })
        .unwrap();
        for number in 0..2 {
            let module = lenient.load(&healthy(number)).unwrap();
            let reason = match module.compiled_in() {
                CompiledIn::ThisProcess(Some(reason)) => reason,
                other => panic!("expected this process, found {other:?}"),
            };
            assert_eq!(facts(reason), (StatusCode::Unavailable, Blame::Host));
            assert_eq!(call(&module), Ok(number as i32));
        }
        assert_eq!(reports.lock().unwrap().len(), 1);
    }
    let bare = Engine::with_config(Config {
        policy: Policy {
            compile: CompileIn::Process,
            ..Policy::default()
        },
        ..Config::default()
    })
    .unwrap();
    let status = refused(&bare, &healthy(0));
    assert_eq!(facts(&status), (StatusCode::Unavailable, Blame::Host));
}

#[test]
fn children_that_are_never_idle_are_given_up() {
    let _alone = alone();
    let worker = Worker::new(PROGRAM, [HOSTILE, TALKATIVE]);
    let engine = engine(&Arc::new(CompilerProcess::new(worker).unwrap()), limits());
    for number in 0..2 {
        let status = refused(&engine, &healthy(number));
        assert_eq!(facts(&status), (StatusCode::Unavailable, Blame::Host));
        // A few of them were tried, and not one after the other until the time to start was over.
        assert!(status.message().contains("sent something"), "{status}");
    }
}

#[test]
fn children_and_descriptors_do_not_grow() {
    let _alone = alone();
    let before = descriptors();
    {
        let compiler = compiler();
        let engine = engine(
            &compiler,
            Limits {
                compile_time: Some(Duration::from_millis(300)),
                compile_memory_bytes: 64 << 20,
                ..limits()
            },
        );
        let mut most = (0, 0);
        for number in 0..8 {
            let modules = [healthy(number), slow(number), large(number)];
            thread::scope(|scope| {
                for wasm in &modules {
                    let engine = &engine;
                    scope.spawn(move || drop(engine.load(wasm)));
                }
            });
            most = (most.0.max(children().len()), most.1.max(descriptors()));
        }
        // Those that were killed are reaped in the background.
        assert!(most.0 <= 12, "{most:?}");
        assert!(most.1 <= before + 40, "{most:?}");
    }
    until("all children to be gone", || children().is_empty());
    until("all descriptors to be closed", || descriptors() <= before);
}

/// `second_wall/confinement.rs` checks that each attempt works without a filter.
#[test]
fn a_compiler_reaches_nothing() {
    let _alone = alone();
    for what in PROBES {
        assert_confined(what, &probe(&[what, COMPILER]));
    }
}
