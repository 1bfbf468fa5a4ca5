//! Engines under limits, without threads, and very many of them.

use std::os::unix::process::CommandExt;
use std::sync::Arc;

use callbox::policy::{Isolation, Limits, Policy, Traps};
use callbox::wasm::{Allocation, Engine};
use callbox::{Blame, StatusCode};

use crate::guests::{call, engine, prepare};
use crate::{child, play, said};

/// A user without processes.
const NOBODY: u32 = 65534;

/// Uses engines with each policy that changes how memories are made.
pub(crate) fn policies() -> Allocation {
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

/// Uses as many instances at one time as an engine on demand has address space for.
pub(crate) fn concurrent_instances() -> Allocation {
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

/// Makes 500 engines with an instance each, and says how many of them have a pool.
pub(crate) fn many_engines() -> usize {
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

/// Makes an engine and loads a module, and says with which status that fails, if it does.
pub(crate) fn few_threads() -> String {
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
fn engines_work_policies_on_address_space() {
    for gibibytes in [1, 2, 4, 16, 64] {
        assert_eq!(play(&format!("policies RLIMIT_AS {gibibytes}")), "compact");
    }
    assert_eq!(play("policies RLIMIT_AS 2048"), "on demand");
}

/// An instance takes 8 GiB of address space, half of it for its stop word. Engines are on demand
/// where 128 instances fit.
#[test]
fn stop_words_count() {
    assert_eq!(play("instances RLIMIT_AS 1000"), "compact");
    assert_eq!(play("instances RLIMIT_AS 1100"), "on demand");
}

#[test]
fn five_hundred_engines_work_in_one_process() {
    assert_eq!(play("engines"), "8");
}

#[test]
fn a_lack_of_threads_is_a_status() {
    // The kernel does not hold root to the limit. Other users may have processes already, so that
    // no thread can be started.
    let is_root = rustix::process::geteuid().is_root();
    let user = is_root.then_some(NOBODY);
    for most in 1..=6 {
        let mut child = child(&format!("threads RLIMIT_NPROC {most}"));
        if let Some(user) = user {
            child.uid(user);
        }
        let said = said(&mut child);
        assert!(said == "1" || said.contains("thread"), "{most}: {said}");
        // Main, the ticker, a compiler, and the thread that waits for it are four or five.
        if is_root && [1, 2, 3, 6].contains(&most) {
            assert_eq!(said == "1", most == 6, "{most}: {said}");
        }
    }
}
