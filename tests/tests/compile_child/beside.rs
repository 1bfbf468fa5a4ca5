//! Loads at one time: healthy modules beside hostile ones, and several loads of one file.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use callbox::policy::Limits;
use callbox::process::CompilerProcess;
use callbox::wasm::Engine;
use callbox::{Blame, Status, StatusCode};

use super::workers::{alone, children, is_zombie, kill, until};
use super::{SECOND, call, compiler, engine, healthy, limits, refused, slow};

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

fn engine_for_hostile(compiler: &Arc<CompilerProcess>, compile_time: Duration) -> Engine {
    let compile_time = Some(compile_time);
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
    let engine = engine_for_hostile(&compiler, 6 * SECOND);
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
    // Each of those before is to have shown that it takes long.
    let engine = engine_for_hostile(&compiler, 20 * SECOND);
    // Those that gave way to others ran out of time as well.
    for status in load_beside(&engine, 80, 0) {
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
