//! Modules that compile for too long, in too much memory, or without a processor.

use std::thread;
use std::time::{Duration, Instant};

use callbox::policy::Limits;
use callbox::wasm::Engine;
use callbox::{Blame, Status, StatusCode};

use super::workers::{alone, children, facts};
use super::{SECOND, call, compiler, engine, healthy, large, limits, refused, slow};

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
