//! Failures, stops and panics on one of several threads.

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use callbox::call::CallBuffers;
use callbox::{CancelToken, Deadline, Status, StatusCode};

use super::buffers::Hooked;
use super::*;

/// One row of `LENGTH` numbers in each piece or element.
const ROW: usize = LENGTH * 4;

/// Rows of which some hold a special number.
fn with_specials(specials: &[(usize, f32)]) -> Vec<u8> {
    let mut x = floats(ROWS * LENGTH, 0.5);
    for &(row, special) in specials {
        x[row * LENGTH + 7] = special;
    }
    bytes(&x)
}

fn weights() -> Vec<u8> {
    bytes(&floats(LENGTH, -3.0))
}

/// A call in pieces of a row each, and a call of a batch of rows.
fn both(module: &Arc<Module>) -> [PreparedCall; 2] {
    [
        (site("rows", &[], &[ROWS, LENGTH]), mapping(0, Some(ROW))),
        (site("pure", &[ROWS], &[LENGTH]), mapping(1, None)),
    ]
    .map(|(site, mapping)| module.prepare_mapped(site, &mapping).unwrap())
}

/// Failures, traps and loops at several rows: the first in the order of rows is the one that the
/// caller gets, word for word as with one thread, and no later loop holds the call.
#[test]
fn the_first_failure_in_order_is_told() {
    for manner in [Manner::AtOnce, Manner::Beside, Manner::Pool] {
        let (module, _) = guest(manner);
        for call_of in both(&module) {
            for specials in [
                &[(5, 13.0), (900, 666.0), (1500, 13.0)][..],
                &[(700, 666.0), (701, 13.0), (702, 1000.0)],
                &[(ROWS - 1, 13.0)],
                &[(0, 666.0), (300, 1000.0), (1100, 1000.0)],
            ] {
                let x = with_specials(specials);
                let began = Instant::now();
                let told = |count| call(&call_of, &threads(count), &x, &weights()).unwrap_err();
                let [alone, shared] = [told(1), told(4)];
                assert_eq!(shared, alone, "{manner:?} {specials:?}");
                assert!(began.elapsed() < Duration::from_secs(8), "{manner:?}");
                let healthy = call(&call_of, &threads(4), &with_specials(&[]), &weights());
                assert!(healthy.is_ok());
            }
        }
    }
}

/// A module that does not end its initialization has used up the time: the call is not begun again
/// on one thread, which would blame the caller for the deadline that has passed.
#[test]
fn an_initialization_without_end_is_the_guests_failure() {
    let text = GUEST.replace(
        "(func $special",
        "(func (export \"_initialize\") (loop $forever (br $forever)))\n  (func $special",
    );
    let config = Config {
        policy: small_policy(),
        threads: Some(Counted::new(Manner::Beside, 3)),
        ..Config::default()
    };
    let engine = Engine::with_config(config).unwrap();
    let module = engine.load(&wat::parse_str(&text).unwrap()).unwrap();
    for call_of in both(&module) {
        let told = |count| {
            let options = CallOptions {
                deadline: Some(Deadline::After(Duration::from_millis(100))),
                ..threads(count)
            };
            call(&call_of, &options, &with_specials(&[]), &weights()).unwrap_err()
        };
        let [alone, shared] = [told(1), told(4)];
        assert_eq!(shared, alone);
        assert_eq!(shared.code(), StatusCode::DeadlineExceeded);
        assert_eq!(shared.blame(), Blame::Guest);
    }
}

/// A thread that computes a later part for ever is stopped when an earlier part fails.
#[test]
fn a_failure_stops_the_threads_at_later_parts() {
    let (module, _) = guest(Manner::Beside);
    for call_of in both(&module) {
        let is_looping = AtomicBool::new(false);
        let wait = |at: usize| {
            let row = at / ROW;
            if row >= ROWS / 16 {
                is_looping.store(true, Ordering::Release);
            }
            let began = Instant::now();
            while row == 0 && !is_looping.load(Ordering::Acquire) {
                assert!(began.elapsed() < Duration::from_secs(5), "no thread helped");
                std::thread::yield_now();
            }
        };
        // Every row but the first loops.
        let mut x = vec![(0, 13.0)];
        x.extend((ROWS / 16..ROWS).map(|row| (row, 1000.0)));
        let mut buffers = Hooked::new(with_specials(&x), weights(), &wait);
        let began = Instant::now();
        let status = call_of.call_buffers(&threads(4), &mut buffers).unwrap_err();
        assert!(began.elapsed() < Duration::from_secs(5));
        assert_eq!(status.code(), StatusCode::FailedPrecondition, "{status}");
    }
}

/// The caller who goes on gets every failure, in order, and the results of the other elements.
#[test]
fn a_caller_who_goes_on_gets_all_failures_in_order() {
    let specials = [(3, 13.0), (700, 666.0), (701, 13.0), (1999, 666.0)];
    for manner in [Manner::AtOnce, Manner::Beside] {
        let (module, counted) = guest(manner);
        let [_, batch] = both(&module);
        let told = |count| {
            let mut buffers = Hooked::new(with_specials(&specials), weights(), &|_| {});
            let mut failures: Vec<(usize, Status)> = Vec::new();
            let mut failed = |buffers: &mut Hooked<'_>, rows: Range<usize>, status: Status| {
                for row in rows.clone() {
                    buffers.write(0, row * ROW, &[0xff; ROW]);
                }
                failures.push((rows.start, status));
                Ok(())
            };
            let outcome = batch.call_each(&threads(count), &mut buffers, &mut failed);
            outcome.unwrap();
            (failures, buffers.y.into_inner().unwrap())
        };
        let (alone, shared) = (told(1), told(4));
        assert!(counted.offered() > 0);
        assert_eq!(
            alone.0.iter().map(|(row, _)| *row).collect::<Vec<_>>(),
            specials.map(|(row, _)| row)
        );
        assert!(alone == shared);
    }
}

/// A deadline and a cancel token reach all threads.
#[test]
fn a_stop_reaches_all_threads() {
    for manner in [Manner::AtOnce, Manner::Beside, Manner::Pool] {
        let (module, _) = guest(manner);
        let all: Vec<_> = (0..ROWS).map(|row| (row, 1000.0)).collect();
        let x = with_specials(&all);
        for call_of in both(&module) {
            let token = CancelToken::new();
            for (options, code) in [
                (
                    CallOptions {
                        deadline: Some(Deadline::After(Duration::from_millis(60))),
                        ..threads(4)
                    },
                    StatusCode::DeadlineExceeded,
                ),
                (
                    CallOptions {
                        cancel: Some(token.clone()),
                        ..threads(4)
                    },
                    StatusCode::Cancelled,
                ),
            ] {
                let began = Instant::now();
                std::thread::scope(|scope| {
                    scope.spawn(|| {
                        std::thread::sleep(Duration::from_millis(60));
                        token.cancel();
                    });
                    let status = call(&call_of, &options, &x, &weights()).unwrap_err();
                    assert_eq!(status.code(), code, "{status}");
                });
                assert!(began.elapsed() < Duration::from_secs(5), "{manner:?}");
            }
        }
    }
}

/// No call waits for a job that has not started, and a job that starts late does nothing.
#[test]
fn stalled_threads_hold_no_call() {
    let (module, counted) = guest(Manner::Kept);
    let x = with_specials(&[]);
    for call_of in both(&module) {
        let alone = call(&call_of, &threads(1), &x, &weights()).unwrap();
        assert!(call(&call_of, &threads(4), &x, &weights()).unwrap() == alone);
    }
    assert_eq!(counted.run_kept(), 6);
    assert_eq!(counted.run_kept(), 0);
}

/// While every thread of a pool is in a guest's loop, other calls go on.
#[test]
fn a_pool_in_loops_holds_no_other_call() {
    let (module, _) = guest(Manner::Pool);
    let all: Vec<_> = (0..ROWS).map(|row| (row, 1000.0)).collect();
    let (looping, healthy) = (with_specials(&all), with_specials(&[]));
    let [call_of, _] = both(&module);
    let token = CancelToken::new();
    let options = CallOptions {
        cancel: Some(token.clone()),
        ..threads(4)
    };
    let reads = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        let held = scope.spawn(|| {
            let count = |_| {
                reads.fetch_add(1, Ordering::Relaxed);
            };
            let mut buffers = Hooked::new(looping, weights(), &count);
            call_of.call_buffers(&options, &mut buffers).unwrap_err()
        });
        let began = Instant::now();
        while reads.load(Ordering::Relaxed) < 4 {
            assert!(
                began.elapsed() < Duration::from_secs(5),
                "the threads did not help"
            );
            std::thread::yield_now();
        }
        call(&call_of, &threads(4), &healthy, &weights()).unwrap();
        assert!(began.elapsed() < Duration::from_secs(5));
        token.cancel();
        assert_eq!(held.join().unwrap().code(), StatusCode::Cancelled);
    });
}

/// A panic of the caller's buffers on another thread reaches the caller.
#[test]
fn a_panic_on_another_thread_is_the_callers() {
    for manner in [Manner::AtOnce, Manner::Pool] {
        let (module, _) = guest(manner);
        let [call_of, _] = both(&module);
        let caller = std::thread::current().id();
        let panics = |at: usize| {
            let is_other = std::thread::current().id() != caller;
            assert!(!is_other, "the test's panic");
            // The caller leaves the rest to the others.
            if at == 0 {
                std::thread::sleep(Duration::from_millis(200));
            }
        };
        let mut buffers = Hooked::new(with_specials(&[]), weights(), &panics);
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            call_of.call_buffers(&threads(4), &mut buffers)
        }));
        let panic = outcome.unwrap_err();
        assert_eq!(panic.downcast_ref::<&str>(), Some(&"the test's panic"));
        let healthy = call(&call_of, &threads(4), &with_specials(&[]), &weights());
        assert!(healthy.is_ok());
    }
}
