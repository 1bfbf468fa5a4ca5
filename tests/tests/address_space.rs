//! Engines of processes with little address space, with few threads, or with very many engines.
//! Each scene is played by a process of its own, because limits and engines count for a process.
#![cfg(target_os = "linux")]
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test fails by panicking, and a child says what it found"
)]

use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use callbox::policy::{Isolation, Limits, Policy, Traps};
use callbox::wasm::{Allocation, Config, Engine, PreparedCall};
use callbox::{Blame, CallSite, StatusCode};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The environment variable with the scene that the child plays.
const SCENE: &str = "CALLBOX_TEST_ADDRESS_SPACE";

/// A user without processes.
const NOBODY: u32 = 65534;

/// `grow` adds pages to its memory and returns their old number, or -1, if what it wrote into the
/// first page before is still there. `count` returns how often its instance was called.
const GUEST: &str = r#"(module
  (memory (export "memory") 2)
  (table 8 funcref)
  (global $calls (mut i32) (i32.const 0))
  (func $operand (param $frame i32) (result i32)
    (i32.load (i32.load (i32.load offset=8 (local.get $frame)))))
  (func $return (param $frame i32) (param $value i32) (result i32)
    (i32.store (i32.load (i32.load offset=16 (local.get $frame))) (local.get $value))
    (i32.const 0))
  (func (export "grow") (param $frame i32) (result i32)
    (local $pages i32)
    (i32.store (i32.const 60000) (i32.const 77))
    (local.set $pages (memory.grow (call $operand (local.get $frame))))
    (if (i32.ne (local.get $pages) (i32.const -1))
      (then (i32.store (i32.mul (local.get $pages) (i32.const 65536)) (i32.const 1))))
    (if (i32.ne (i32.load (i32.const 60000)) (i32.const 77)) (then unreachable))
    (call $return (local.get $frame) (local.get $pages)))
  (func (export "count") (param $frame i32) (result i32)
    (global.set $calls (i32.add (global.get $calls) (i32.const 1)))
    (call $return (local.get $frame) (global.get $calls))))"#;

/// The first call returns at once. Later ones transform 65,521 points until they are stopped, for
/// which the host takes 11 MiB.
const TRANSFORMS: &str = r#"(module
  (import "callbox:ffi/maths@1.0.0" "fft-rows-f64"
    (func $fft (param i32 i32 i32 i32 i32 i32)))
  (memory (export "memory") 64)
  (global $calls (mut i32) (i32.const 0))
  (global i32 (i32.const NUMBER))
  (func (export "f") (param i32) (result i32)
    (global.set $calls (i32.add (global.get $calls) (i32.const 1)))
    (if (i32.eq (global.get $calls) (i32.const 1)) (then (return (i32.const 0))))
    (loop $again
      (call $fft (i32.const 0) (i32.const 65536) (i32.const 131042)
        (i32.const 65521) (i32.const 2097152) (i32.const 131042))
      (br $again))
    (i32.const 0)))"#;

/// Grows its memory by as much as it gets.
const HOLDS: &str = r#"(module
  (memory (export "memory") 1)
  (global i32 (i32.const NUMBER))
  (func (export "f") (param i32) (result i32)
    (local $pages i32)
    (local.set $pages (i32.const 8192))
    (loop $again
      (br_if $again (i32.ne (memory.grow (local.get $pages)) (i32.const -1)))
      (local.set $pages (i32.shr_u (local.get $pages) (i32.const 1)))
      (br_if $again (local.get $pages)))
    (i32.const 0)))"#;

/// Its allocator grows its memory, or gives up. Its state is deleted until that is stopped.
const ALLOCATES: &str = r#"(module
  (memory (export "memory") 1)
  (global i32 (i32.const NUMBER))
  (func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32)
    (local $pages i32)
    (local.set $pages (memory.grow (i32.const PAGES)))
    (if (i32.eq (local.get $pages) (i32.const -1)) (then unreachable))
    (i32.mul (local.get $pages) (i32.const 65536)))
  (func (export "f.instantiate") (param $frame i32) (result i32) (i32.const 0))
  (func (export "f.instantiate.drop") (param i32) (loop $on (br $on)))
  (func (export "f") (param i32) (result i32) (i32.const 0)))"#;

fn engine(policy: Policy) -> callbox::Result<Engine> {
    Engine::with_config(Config {
        policy,
        ..Config::default()
    })
}

fn prepare(engine: &Engine, target: &str) -> callbox::Result<PreparedCall> {
    let module = engine.load(&wat::parse_str(GUEST).unwrap())?;
    let shape = || "s32[]".parse().unwrap();
    module.prepare_call(CallSite::new(target, vec![shape()], shape()))
}

fn call(call: &PreparedCall, x: i32) -> callbox::Result<i32> {
    let mut result = [0; 4];
    call.call(&[&x.to_le_bytes()], &mut [&mut result])?;
    Ok(i32::from_le_bytes(result))
}

fn lower(resource: Resource, most: u64) {
    let new = Rlimit {
        current: Some(most),
        ..getrlimit(resource)
    };
    setrlimit(resource, new).unwrap();
}

/// Lowers a limit of this name to so many GiB.
fn lower_named(limit: &str) {
    let (resource, gibibytes) = match limit.split_once(' ') {
        Some(("RLIMIT_AS", gibibytes)) => (Resource::As, gibibytes),
        Some(("RLIMIT_DATA", gibibytes)) => (Resource::Data, gibibytes),
        _ => panic!("no limit {limit:?}"),
    };
    lower(resource, gibibytes.parse::<u64>().unwrap() << 30);
}

/// Plays a scene in a process of its own, and returns what it says.
fn play(scene: &str, user: Option<u32>) -> String {
    // By this name the program is found also by a user who may not enter the folder that it is in.
    let mut command = Command::new("/proc/self/exe");
    command
        .args(["--exact", "the_child", "--nocapture", "--test-threads=1"])
        .env(SCENE, scene);
    if let Some(user) = user {
        command.uid(user);
    }
    let output = command.output().unwrap();
    assert!(output.status.success(), "{scene}: {output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    let said = text.lines().find_map(|line| line.split_once("said: "));
    said.unwrap_or_else(|| panic!("{scene}: {text}"))
        .1
        .to_owned()
}

#[test]
fn the_child() {
    let Ok(scene) = std::env::var(SCENE) else {
        return;
    };
    match scene.split_once(' ').unwrap_or((&scene, "")) {
        ("limit", gibibytes) => {
            lower(Resource::As, gibibytes.parse::<u64>().unwrap() << 30);
            println!("said: {}", within_a_limit());
        }
        ("instances", gibibytes) => {
            lower(Resource::As, gibibytes.parse::<u64>().unwrap() << 30);
            println!("said: {}", concurrent_instances());
        }
        ("filled", gibibytes) => {
            lower(Resource::As, gibibytes.parse::<u64>().unwrap() << 30);
            println!("said: {}", filled("RLIMIT_AS"));
        }
        ("data", gibibytes) => {
            lower(Resource::Data, gibibytes.parse::<u64>().unwrap() << 30);
            println!("said: {}", filled("RLIMIT_DATA"));
        }
        ("transforms", _) => {
            lower(Resource::Data, 1 << 30);
            println!("said: {}", transforms());
        }
        ("idle", limit) => {
            lower_named(limit);
            println!("said: {}", idle_guests_give_way());
        }
        ("deleters", _) => {
            lower(Resource::Data, 1 << 30);
            println!("said: {}", deleters_that_run_on());
        }
        ("running", limit) => {
            lower_named(limit);
            println!("said: {}", load_beside_running_guests());
        }
        ("turns", gibibytes) => {
            lower(Resource::As, gibibytes.parse::<u64>().unwrap() << 30);
            println!("said: {}", calls_in_turn());
        }
        ("engines", _) => println!("said: {}", many_engines()),
        ("threads", most) => {
            lower(Resource::Nproc, most.parse().unwrap());
            println!("said: {}", few_threads());
        }
        other => panic!("no scene {other:?}"),
    }
}

/// Uses engines with each policy that changes how memories are made.
fn within_a_limit() -> Allocation {
    let default = Engine::new().unwrap().allocation();
    for traps in [Traps::Signals, Traps::Explicit] {
        for isolation in [Isolation::Executable, Isolation::Fresh] {
            let engine = engine(Policy {
                traps,
                isolation,
                ..Policy::default()
            })
            .unwrap();
            assert_eq!(engine.allocation(), default);
            let grow = prepare(&engine, "grow").unwrap();
            let before = call(&grow, 16).unwrap();
            // The memory moves, for it reserves 32 MiB.
            assert!(call(&grow, 1024).unwrap() >= before);
            assert_eq!(call(&grow, 1 << 16), Ok(-1));
            let count = prepare(&engine, "count").unwrap();
            let calls = [1, 2].map(|_| call(&count, 0).unwrap());
            let last = if isolation == Isolation::Fresh { 1 } else { 2 };
            assert_eq!(calls, [1, last]);
        }
    }
    at_most_two_instances();
    default
}

/// Has the guests of many modules take all the memory that they can get, in several threads at one
/// time, and says how many modules there were.
fn filled(limit: &str) -> usize {
    const STEP: i32 = 64;
    const COUNT: usize = 8;
    let engine = Engine::new().unwrap();
    let fill = |thread: usize| {
        let taken = (0..COUNT).map(|number| {
            let number = format!("(global i32 (i32.const {}))", thread << 16 | number);
            let text = GUEST.replace("(global $calls", &format!("{number} (global $calls"));
            let module = engine.load(&wat::parse_str(text).unwrap())?;
            let shape = || "s32[]".parse().unwrap();
            let grow = module.prepare_call(CallSite::new("grow", vec![shape()], shape()))?;
            while call(&grow, STEP)? >= 0 {}
            Ok::<_, callbox::Status>(grow)
        });
        Vec::from_iter(taken)
    };
    let ends = std::thread::scope(|scope| {
        let fill = &fill;
        let threads = Vec::from_iter((0..4).map(|thread| scope.spawn(move || fill(thread))));
        Vec::from_iter(
            threads
                .into_iter()
                .flat_map(|thread| thread.join().unwrap()),
        )
    });
    // The process has what it needs: more stack and memory.
    assert!(Vec::<u8>::new().try_reserve_exact(64 << 20).is_ok());
    for end in &ends {
        // glibc may have reserved 64 MiB for each thread since, so that there is no room for an
        // instance that gave way.
        let called = match end {
            Ok(grow) => call(grow, STEP),
            Err(status) => Err(status.clone()),
        };
        if let Err(status) = called {
            assert_eq!(status.code(), StatusCode::ResourceExhausted, "{status}");
            assert!(status.message().contains(limit), "{status}");
        }
    }
    let count = ends.len();
    // What was theirs can be used again. Of address space, glibc keeps some for each thread.
    drop(ends);
    if limit == "RLIMIT_DATA" {
        let again = prepare(&engine, "grow").and_then(|grow| call(&grow, 256));
        assert!(matches!(again, Ok(0..)), "{again:?}");
    }
    count
}

/// Loads beside guests that have taken all memory and run on, and says how the first one fails.
fn load_beside_running_guests() -> String {
    const TIME: Duration = Duration::from_secs(5);
    let mut policy = Policy::default();
    policy.limits.deadline = Some(TIME);
    let engine = engine(policy).unwrap();
    let runs_on = HOLDS.replace("(i32.const 0)))", "(loop $on (br $on)) (i32.const 0)))");
    let calls = Vec::from_iter((0..5).map(|number| without_operands(&engine, &runs_on, number)));
    std::thread::scope(|scope| {
        for call in &calls {
            scope.spawn(|| call.call(&[], &mut [&mut [0; 4]]));
        }
        // Memories that move leave a part. A larger file takes more than that beside it.
        let padding = format!("(module (@custom \"padding\" \"{}\")", " ".repeat(4 << 20));
        let large = HOLDS.replacen("(module", &padding, 1);
        let begun = Instant::now();
        let loads = (0..).map(|number| engine.load(&numbered(&large, number)));
        let mut loads = loads.take_while(|_| begun.elapsed() < TIME);
        let status = loads.find_map(Result::err).unwrap();
        format!("{status}, {:?}", status.blame())
    })
}

/// A module that differs from those with other numbers.
fn numbered(text: &str, number: usize) -> Vec<u8> {
    wat::parse_str(text.replace("NUMBER", &number.to_string())).unwrap()
}

/// A call of the target `f` of a module.
fn without_operands(engine: &Engine, text: &str, number: usize) -> PreparedCall {
    let module = engine.load(&numbered(text, number)).unwrap();
    let site = CallSite::new("f", vec![], "s32[]".parse().unwrap());
    module.prepare_call(site).unwrap()
}

/// Uses two engines after guests of a third took all the memory that they could get, and says how
/// often their own instances were called.
fn idle_guests_give_way() -> String {
    let hog = Engine::new().unwrap();
    let holders = Vec::from_iter((0..4).map(|number| without_operands(&hog, HOLDS, number)));
    let hold = || {
        for holder in &holders {
            holder.call(&[], &mut [&mut [0; 4]]).unwrap();
        }
    };
    let fresh = engine(Policy {
        isolation: Isolation::Fresh,
        ..Policy::default()
    });
    let fresh = prepare(&fresh.unwrap(), "count").unwrap();
    hold();
    let loaded = prepare(&Engine::new().unwrap(), "count").unwrap();
    let first = call(&loaded, 0);
    hold();
    let new = call(&fresh, 0);
    let allocates = ALLOCATES.replace("PAGES", "640");
    let allocates = without_operands(&Engine::new().unwrap(), &allocates, 0);
    hold();
    let allocated = allocates.call(&[], &mut [&mut [0; 4]]);
    hold();
    // Growth evicts no instance.
    let second = call(&loaded, 0);
    format!("{first:?} {new:?} {allocated:?} {second:?}")
}

/// Uses two engines while instances of a third, small and large ones, are idle or are taken back,
/// whose deleters run on. Says how often their own instances were called.
fn deleters_that_run_on() -> String {
    let other = Engine::new().unwrap();
    let run = |calls: &[PreparedCall]| {
        let mut ends = calls.iter().map(|call| call.call(&[], &mut [&mut [0; 4]]));
        ends.all(|end| end.is_ok())
    };
    let small = ALLOCATES.replace("PAGES", "1");
    let large = ALLOCATES.replace("PAGES", "600");
    let small = [(); 60].map(|()| without_operands(&other, &small, 0));
    let large = [(); 14].map(|()| without_operands(&other, &large, 1));
    let held = run(&small) && run(&large);
    let loaded = prepare(&Engine::new().unwrap(), "grow").unwrap();
    let grown = call(&loaded, 1);
    drop((small, large));
    let text = ALLOCATES.replace("PAGES", "2000");
    let after = run(&[without_operands(&Engine::new().unwrap(), &text, 2)]);
    format!("{held} {grown:?} {after}")
}

/// Has the host transform for many calls at one time, after other guests took all the memory that
/// they could get, and says how many calls ended.
fn transforms() -> usize {
    const COUNT: usize = 20;
    let mut policy = Policy::default();
    policy.limits.deadline = Some(Duration::from_secs(1));
    let engine = engine(policy).unwrap();
    let run = |call: &PreparedCall| call.call(&[], &mut [&mut [0; 4]]);
    let calls =
        Vec::from_iter((0..COUNT).map(|number| without_operands(&engine, TRANSFORMS, number)));
    let holders = Vec::from_iter((0..4).map(|number| without_operands(&engine, HOLDS, number)));
    // Instances and threads are there before the memory is taken.
    let are_ready = Barrier::new(COUNT + 1);
    let begins = Barrier::new(COUNT + 1);
    std::thread::scope(|scope| {
        let threads = calls.iter().map(|call| {
            scope.spawn(|| {
                run(call).unwrap();
                are_ready.wait();
                begins.wait();
                // A call in a new instance returns at once.
                run(call).err().map(|status| status.code())
            })
        });
        let threads = Vec::from_iter(threads);
        are_ready.wait();
        for holder in &holders {
            if run(holder).is_err() {
                break;
            }
        }
        begins.wait();
        let codes = threads.into_iter().map(|thread| thread.join().unwrap());
        let ends = [
            None,
            Some(StatusCode::DeadlineExceeded),
            Some(StatusCode::ResourceExhausted),
        ];
        codes.filter(|code| ends.contains(code)).count()
    })
}

/// Makes calls one after the other, each in a thread of its own, and says how many got memory.
fn calls_in_turn() -> usize {
    let engine = engine(Policy {
        isolation: Isolation::Fresh,
        ..Policy::default()
    });
    let grow = prepare(&engine.unwrap(), "grow").unwrap();
    let has_memory = |_: &usize| {
        std::thread::scope(|scope| scope.spawn(|| call(&grow, 512).unwrap() >= 0).join()).unwrap()
    };
    (0..200).filter(has_memory).count()
}

/// Uses as many instances at one time as an engine on demand has address space for.
fn concurrent_instances() -> Allocation {
    let engine = Engine::new().unwrap();
    let counts = [(); 128].map(|()| prepare(&engine, "count").unwrap());
    for round in 1..=2 {
        for count in &counts {
            // An instance that made way for another one would begin at 1 again.
            assert_eq!(call(count, 0), Ok(round));
        }
    }
    engine.allocation()
}

/// The limit on instances holds without a pool, and idle instances make way.
fn at_most_two_instances() {
    let limits = Limits {
        instances: 2,
        ..Limits::default()
    };
    let engine = engine(Policy {
        limits,
        ..Policy::default()
    });
    let engine = engine.unwrap();
    let counts = [(); 3].map(|()| prepare(&engine, "count").unwrap());
    for _ in 0..3 {
        let found: Vec<i32> = counts.iter().map(|count| call(count, 0).unwrap()).collect();
        // Three call sites share two instances, so that one of them had to wait for a new one.
        assert!(found.contains(&1), "{found:?}");
    }
}

#[test]
fn engines_work_within_a_limit_on_address_space() {
    for gibibytes in [1, 2, 4, 16, 64] {
        assert_eq!(play(&format!("limit {gibibytes}"), None), "compact");
    }
    assert_eq!(play("limit 2048", None), "on demand");
}

#[test]
fn guests_leave_address_space_to_the_process() {
    for gibibytes in [1, 2, 4] {
        assert_eq!(play(&format!("filled {gibibytes}"), None), "32");
    }
}

#[test]
fn guests_leave_memory_to_the_process() {
    for gibibytes in [1, 2] {
        assert_eq!(play(&format!("data {gibibytes}"), None), "32");
    }
}

/// The host computes with memory of its own.
#[test]
fn transforms_take_no_memory_that_the_process_needs() {
    assert_eq!(play("transforms 1", None), "20");
}

#[test]
fn idle_guests_give_way_to_other_engines() {
    // Each thread of an engine may reserve address space for what it allocates.
    for limit in ["RLIMIT_AS 2", "RLIMIT_DATA 1"] {
        let said = play(&format!("idle {limit}"), None);
        assert_eq!(said, "Ok(1) Ok(1) Ok(()) Ok(2)", "{limit}");
    }
}

#[test]
fn deleters_that_run_on_keep_no_memory() {
    // The arena takes a page, too.
    assert_eq!(play("deleters", None), "true Ok(3) true");
}

#[test]
fn a_load_beside_running_guests_is_refused() {
    for limit in ["RLIMIT_AS", "RLIMIT_DATA"] {
        let said = play(&format!("running {limit} 1"), None);
        let begins = said.starts_with("RESOURCE_EXHAUSTED: no room for the module: expected ");
        let ends = said.ends_with(&format!(" under {limit}, Host"));
        assert!(begins && ends, "{said}");
    }
}

/// What a thread has mapped, and what it has unmapped, counts no longer.
#[test]
fn calls_that_ended_take_no_address_space() {
    assert_eq!(play("turns 1", None), "200");
}

/// An instance takes 8 GiB of address space, half of it for its stop word. Engines are on demand
/// where 128 instances fit.
#[test]
fn stop_words_count() {
    assert_eq!(play("instances 1000", None), "compact");
    assert_eq!(play("instances 1100", None), "on demand");
}

/// Makes 500 engines with an instance each, and says how many of them have a pool.
fn many_engines() -> usize {
    let engines: Vec<_> = (0..500).map(|_| Engine::new().unwrap()).collect();
    let counts: Vec<_> = engines
        .iter()
        .map(|engine| prepare(engine, "count").unwrap())
        .collect();
    for round in 1..=2 {
        for count in &counts {
            assert_eq!(call(count, 0), Ok(round));
        }
    }
    let pooled = |engine: &&Engine| engine.allocation() == Allocation::Pooled;
    let pools = engines.iter().filter(pooled).count();
    drop((counts, engines));
    assert_eq!(Engine::new().unwrap().allocation(), Allocation::Pooled);
    pools
}

#[test]
fn five_hundred_engines_work_in_one_process() {
    assert_eq!(play("engines", None), "8");
}

/// Makes an engine and loads a module, and says with which status that fails, if it does.
fn few_threads() -> String {
    let made = Engine::new().and_then(|engine| prepare(&engine, "count").map(Arc::new));
    match made {
        Ok(count) => call(&count, 0).unwrap().to_string(),
        Err(status) => {
            assert_eq!(status.code(), StatusCode::ResourceExhausted, "{status}");
            assert_eq!(status.blame(), Blame::Host, "{status}");
            status.message().to_owned()
        }
    }
}

#[test]
fn a_lack_of_threads_is_a_status() {
    // The kernel does not hold root to the limit. Other users may have processes already, so that
    // no thread can be started.
    let is_root = rustix::process::geteuid().is_root();
    let user = is_root.then_some(NOBODY);
    for most in 1..=6 {
        let said = play(&format!("threads {most}"), user);
        assert!(said == "1" || said.contains("thread"), "{most}: {said}");
        // Main, the ticker, a compiler, and the thread that waits for it are four or five.
        if is_root && [1, 2, 3, 6].contains(&most) {
            assert_eq!(said == "1", most == 6, "{most}: {said}");
        }
    }
}
