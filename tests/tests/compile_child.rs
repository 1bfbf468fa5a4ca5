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
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use callbox::policy::{CompileIn, Limits, Policy, Traps};
use callbox::process::{CompilerProcess, Worker};
use callbox::wasm::{Cache, CacheOptions, CompiledIn, Compiler, Config, Engine, Module};
use callbox::{Blame, CallSite, Shape, Status, StatusCode};
use callbox_tests::worker::{COMPILER, PROBE, PROBES, WORKER};

#[allow(dead_code, reason = "other tests use the rest")]
mod workers;

use workers::{PROGRAM, alone, children, descriptors, facts, is_zombie, kill, until};

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

/// Nested loops that set each other's locals: a few kilobytes that take minutes to compile.
fn slow(number: usize) -> Vec<u8> {
    const DEPTH: usize = 1600;
    const LOCALS: usize = 200;
    let mut text = format!(
        r#"(module (memory (export "memory") 1) (func (export "f") (param i32) (result i32)
            (local {}) (local.set 1 (i32.const {number}))"#,
        "i32 ".repeat(LOCALS)
    );
    let local = |number: usize| 1 + number % LOCALS;
    for depth in 0..DEPTH {
        let (to, from) = (local(depth), local(depth * 7 + 3));
        write!(
            text,
            " (loop (local.set {to} (i32.add (local.get {to}) (local.get {from})))"
        )
        .unwrap();
    }
    for depth in 0..DEPTH {
        write!(text, " (br_if 0 (local.get {})))", local(depth)).unwrap();
    }
    text.push_str(" (i32.const 0)))");
    wat::parse_str(text).unwrap()
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
fn a_module_that_compiles_too_long_is_refused_for_a_while() {
    let _alone = alone();
    let compiler = compiler();
    let time = Duration::from_millis(500);
    let engine = engine(
        &compiler,
        Limits {
            compile_time: Some(time),
            compile_refusal: Some(3 * SECOND),
            ..limits()
        },
    );
    let wasm = slow(0);
    assert!(wasm.len() < 32 << 10);
    let first = refused_and_blamed(&engine, &wasm, time);
    assert_eq!(
        first.to_string(),
        "DEADLINE_EXCEEDED: expected the module to compile within 500ms (`compile_time_ms`), found that it takes longer"
    );
    assert_eq!(first.blame(), Blame::Guest);
    // The place is free again at once, also for a healthy module.
    assert_eq!(call(&engine.load(&healthy(1)).unwrap()), Ok(1));
    let began = Instant::now();
    assert_eq!(refused(&engine, &wasm), first);
    assert!(began.elapsed() < time / 2, "{:?}", began.elapsed());
    // Afterwards it is compiled again, which takes its time.
    thread::sleep(3 * SECOND);
    let began = Instant::now();
    let again = refused(&engine, &wasm);
    assert_eq!(again.code(), first.code(), "{again}");
    assert!(began.elapsed() >= time);
}

/// The status of a module that takes too long. On a busy machine it shows that only when it gets
/// the processors.
fn refused_and_blamed(engine: &Engine, wasm: &[u8], time: Duration) -> Status {
    for _ in 0..100 {
        let begun = Instant::now();
        let status = refused(engine, wasm);
        assert!(begun.elapsed() < 10 * time, "{:?}", begun.elapsed());
        assert_eq!(status.code(), StatusCode::DeadlineExceeded, "{status}");
        if status.blame() == Blame::Guest {
            return status;
        }
        assert!(status.message().contains("other work"), "{status}");
    }
    panic!("expected the module to be blamed after some attempts");
}

/// Takes the processors from a process until it is killed.
fn stop(pid: i32) {
    let pid = rustix::process::Pid::from_raw(pid).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::STOP).unwrap();
}

#[test]
fn a_module_that_gets_no_processor_is_not_blamed() {
    let _alone = alone();
    let compiler = compiler();
    let time = 5 * SECOND;
    let engine = engine(
        &compiler,
        Limits {
            compile_time: Some(time),
            ..limits()
        },
    );
    engine.load(&healthy(0)).unwrap();
    children().into_iter().for_each(stop);
    let began = Instant::now();
    let status = refused(&engine, &healthy(1));
    assert!(began.elapsed() >= time);
    assert_eq!(
        facts(&status),
        (StatusCode::DeadlineExceeded, Blame::Caller)
    );
    assert!(
        status
            .message()
            .contains("other work took the processors, of which its process got 0"),
        "{status}"
    );
    // It is not refused, and another process compiles it.
    assert_eq!(call(&engine.load(&healthy(1)).unwrap()), Ok(1));
}

#[test]
fn a_module_that_compiles_to_too_much_memory_is_refused() {
    let _alone = alone();
    let compiler = compiler();
    let engine = engine(
        &compiler,
        Limits {
            compile_memory_bytes: 64 << 20,
            ..limits()
        },
    );
    let wasm = large(0);
    assert!(wasm.len() < 32 << 10);
    let first = refused(&engine, &wasm);
    assert_eq!(
        first.to_string(),
        "RESOURCE_EXHAUSTED: expected the module to compile in 67108864 bytes of memory (`compile_memory_bytes`), found that it takes more"
    );
    assert_eq!(first.blame(), Blame::Guest);
    assert_eq!(refused(&engine, &wasm), first);
    assert_eq!(call(&engine.load(&healthy(2)).unwrap()), Ok(2));
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
    for _ in 0..2 {
        let status = thread::scope(|scope| {
            let load = scope.spawn(|| refused(&engine, &wasm));
            // Past the start, and in the middle of the compilation.
            thread::sleep(SECOND);
            children().into_iter().for_each(kill);
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

/// The most that a load takes: its time, as much again if its process hardly ran, and the start of
/// a process.
fn most(compile_time: Duration) -> Duration {
    2 * compile_time + 10 * SECOND
}

/// The status of a module that is not loaded, within the time that a load may take.
fn refused_within(engine: &Engine, wasm: &[u8]) -> Status {
    let began = Instant::now();
    let status = refused(engine, wasm);
    let limit = engine.policy().limits.compile_time.unwrap();
    assert!(began.elapsed() < most(limit), "{:?}", began.elapsed());
    status
}

/// Loads hostile modules and healthy ones beside them, which must load. Returns the statuses of the
/// hostile ones. The benchmark `loads` measures how long the healthy loads take.
fn load_beside(engine: &Engine, hostile: usize, round: usize) -> Vec<Status> {
    thread::scope(|scope| {
        let load =
            |number| scope.spawn(move || refused_within(engine, &slow(hostile * round + number)));
        let hostile: Vec<_> = (0..hostile).map(load).collect();
        thread::sleep(SECOND);
        for number in 0..10 {
            engine.load(&healthy(100 * (round + 1) + number)).unwrap();
        }
        let statuses = hostile.into_iter().map(|load| load.join().unwrap());
        statuses.collect()
    })
}

fn engine_for_hostile(compiler: &Arc<CompilerProcess>) -> Engine {
    let compile_time = Some(6 * SECOND);
    let engine = engine(
        compiler,
        Limits {
            compile_time,
            ..limits()
        },
    );
    engine.load(&healthy(0)).unwrap();
    engine
}

#[test]
fn eight_hostile_modules_do_not_keep_others_from_loading() {
    let _alone = alone();
    let compiler = compiler();
    let engine = engine_for_hostile(&compiler);
    for round in 0..2 {
        for status in load_beside(&engine, 8, round) {
            // On a busy machine, eight get too little to show what they take.
            assert_eq!(status.code(), StatusCode::DeadlineExceeded, "{status}");
            assert!(
                status.blame() == Blame::Guest || status.message().contains("processors"),
                "{status}"
            );
        }
    }
}

#[test]
fn more_hostile_modules_than_places_do_not_either() {
    let _alone = alone();
    let compiler = compiler();
    let engine = engine_for_hostile(&compiler);
    // Those that gave way to others ran out of time as well.
    for status in load_beside(&engine, 40, 0) {
        match status.blame() {
            Blame::Guest => assert_eq!(status.code(), StatusCode::DeadlineExceeded, "{status}"),
            Blame::Caller => assert!(status.message().contains("other"), "{status}"),
            Blame::Host => panic!("expected another status, found {status}"),
        }
    }
    // The processes of all of them are gone.
    until("children to end", || children().len() <= 3);
    assert_eq!(call(&engine.load(&healthy(1)).unwrap()), Ok(1));
}

#[test]
fn concurrent_loads_of_a_file_compile_it_once() {
    let _alone = alone();
    let compiler = compiler();
    let engine = engine(
        &compiler,
        Limits {
            compile_time: Some(2 * SECOND),
            compile_refusal: None,
            ..limits()
        },
    );
    engine.load(&healthy(0)).unwrap();
    let wasm = slow(0);
    thread::scope(|scope| {
        let loads: Vec<_> = (0..8)
            .map(|_| scope.spawn(|| refused_within(&engine, &wasm)))
            .collect();
        thread::sleep(SECOND);
        // One compiles, and one waits for the next module.
        let count = children().iter().filter(|child| !is_zombie(child)).count();
        assert!(count <= 3, "{count} children");
        for load in loads {
            let status = load.join().unwrap();
            assert_eq!(status.code(), StatusCode::DeadlineExceeded, "{status}");
        }
    });
    // A module that is in use is not compiled again.
    let first = engine.load(&healthy(1)).unwrap();
    children().into_iter().for_each(kill);
    let second = engine.load(&healthy(1)).unwrap();
    assert_eq!((call(&first), call(&second)), (Ok(1), Ok(1)));
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

/// Returns what a probe prints that is confined as a compiler is, or the signal that ends it.
fn probe(what: &str) -> String {
    let mut command = Command::new(PROGRAM);
    let output = command.args([PROBE, what, COMPILER]).output().unwrap();
    if output.status.success() {
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    } else {
        output.status.to_string()
    }
}

/// `second_wall.rs` checks that each attempt works without a filter.
#[test]
fn a_compiler_reaches_nothing() {
    let _alone = alone();
    let refused = libc::EPERM.to_string();
    for what in PROBES {
        let found = probe(what);
        match what {
            "memory" => assert_eq!(found, "done", "{what}"),
            // The limit on address space.
            "read_only" => assert_eq!(found, libc::ENOMEM.to_string(), "{what}"),
            // libc goes on without an answer only on this number.
            "affinity" => assert_eq!(found, libc::ENOSYS.to_string(), "{what}"),
            "socket" | "listen" | "udp" | "exec" | "kill" => {
                assert!(found.contains("SIGSYS"), "{what}: {found}");
            }
            _ => assert!(
                found == refused || found.contains("SIGSYS"),
                "{what}: {found}"
            ),
        }
    }
}
