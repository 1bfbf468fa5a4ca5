//! The number of threads, and the calls that one thread makes alone.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use callbox::StatusCode;
use callbox::call::{CancelToken, Deadline, Slices};
use callbox::policy::{Isolation, Limits};

use super::buffers::Hooked;
use super::*;

/// The jobs that one large call of each kind offers under a policy.
fn offered(policy: Policy, options: &CallOptions, target: &str) -> usize {
    let counted = Counted::new(Manner::AtOnce, 16);
    let module = load(policy, Arc::clone(&counted) as Arc<dyn Threads>);
    let (x, w) = (floats(ROWS * LENGTH, 0.5), floats(LENGTH, -3.0));
    let prepared = match target {
        "rows" => {
            module.prepare_mapped(site("rows", &[], &[ROWS, LENGTH]), &mapping(0, Some(4096)))
        }
        _ => module.prepare_mapped(site(target, &[ROWS], &[LENGTH]), &mapping(1, None)),
    };
    let found = call(&prepared.unwrap(), options, &bytes(&x), &bytes(&w)).unwrap();
    assert!(found == reference(&x, &w));
    counted.offered()
}

/// With one thread fewer than the call could use, at the number, and past it.
#[test]
fn threads_are_limited() {
    for (limit, asked, helpers) in [
        (0, None, 0),
        (1, None, 0),
        (2, None, 1),
        (5, None, 4),
        (5, Some(4), 3),
        (5, Some(5), 4),
        (5, Some(6), 4),
        (5, Some(1), 0),
        (5, Some(0), 0),
        (100, None, 16),
    ] {
        let limits = Limits {
            threads: limit,
            instances: 32,
            executable_memory_bytes: 100 << 30,
            ..Limits::default()
        };
        let policy = Policy {
            limits,
            ..Policy::default()
        };
        let options = CallOptions {
            threads: asked,
            ..CallOptions::default()
        };
        assert_eq!(
            offered(policy.clone(), &options, "rows"),
            helpers,
            "{limit} {asked:?}"
        );
        assert_eq!(
            offered(policy, &options, "pure"),
            helpers,
            "{limit} {asked:?}"
        );
    }
}

/// The memory of all threads' instances fits into the executable's.
#[test]
fn threads_have_memory() {
    for (memory_bytes, executable_memory_bytes, helpers) in [
        (16 << 20, 16 << 20, 0),
        (16 << 20, 47 << 20, 1),
        (16 << 20, 48 << 20, 2),
    ] {
        let mut policy = small_policy();
        policy.limits.memory_bytes = memory_bytes;
        policy.limits.executable_memory_bytes = executable_memory_bytes;
        assert_eq!(offered(policy, &CallOptions::default(), "rows"), helpers);
    }
}

/// Where the number of calls or instances could be seen, one thread makes the call.
#[test]
fn what_could_be_seen_stays_on_one_thread() {
    for target in ["rows", "pure", "plain", "staged"] {
        for (name, policy) in [
            ("default", small_policy()),
            (
                "fresh",
                Policy {
                    isolation: Isolation::Fresh,
                    ..small_policy()
                },
            ),
            (
                "check_pure",
                Policy {
                    check_pure: true,
                    ..small_policy()
                },
            ),
            (
                "deterministic",
                Policy {
                    deterministic: true,
                    ..small_policy()
                },
            ),
        ] {
            let is_shared = name == "default" && ["rows", "pure"].contains(&target);
            let found = offered(policy, &CallOptions::default(), target);
            assert_eq!(found > 0, is_shared, "{target}, {name}");
        }
    }
}

/// A call that ends before a thread would have woken offers no job.
#[test]
fn small_calls_stay_on_one_thread() {
    let (module, counted) = guest(Manner::Asleep);
    let (x, w) = (floats(128 * LENGTH, 0.5), floats(LENGTH, -3.0));
    let prepared = module
        .prepare_mapped(site("rows", &[], &[128, LENGTH]), &mapping(0, Some(4096)))
        .unwrap();
    let found = call(&prepared, &CallOptions::default(), &bytes(&x), &bytes(&w));
    assert!(found.unwrap() == reference(&x, &w));
    assert_eq!(counted.offered(), 0);
}

/// A thread for which there is no instance does not help.
#[test]
fn one_instance_is_enough() {
    for manner in [Manner::AtOnce, Manner::Beside, Manner::Pool] {
        for (instances, executable_instances) in [(1, 256), (16, 1)] {
            let mut policy = small_policy();
            policy.limits.instances = instances;
            policy.limits.executable_instances = executable_instances;
            let module = load(policy, Counted::new(manner, 3));
            let (x, w) = (floats(ROWS * LENGTH, 0.5), floats(LENGTH, -3.0));
            let prepared = module
                .prepare_mapped(site("rows", &[], &[ROWS, LENGTH]), &mapping(0, Some(4096)))
                .unwrap();
            let mut buffers = Hooked::new(bytes(&x), bytes(&w), &|_| {});
            prepared.call_buffers(&threads(4), &mut buffers).unwrap();
            assert!(buffers.y.into_inner().unwrap() == reference(&x, &w));
            let writers = buffers.writers.into_inner().unwrap();
            assert_eq!(Vec::from_iter(writers), [std::thread::current().id()]);
        }
    }
}

/// A call that finds no room for its instance gets the one of a thread that helps another call.
#[test]
fn helpers_make_room_for_other_calls() {
    let mut policy = small_policy();
    policy.limits.instances = 2;
    let module = load(policy, Counted::new(Manner::Beside, 3));
    let (x, w) = (
        bytes(&floats(ROWS * LENGTH, 0.5)),
        bytes(&floats(LENGTH, -3.0)),
    );
    let prepare = || {
        let site = site("rows", &[], &[ROWS, LENGTH]);
        module
            .prepare_mapped(site, &mapping(0, Some(4096)))
            .unwrap()
    };
    let (slow, other) = (prepare(), prepare());
    let pause = |_| std::thread::sleep(Duration::from_millis(5));
    std::thread::scope(|scope| {
        let mut buffers = Hooked::new(x.clone(), w.clone(), &pause);
        let slow = &slow;
        let held = scope.spawn(move || {
            slow.call_buffers(&threads(4), &mut buffers).unwrap();
            buffers.writers.into_inner().unwrap().len()
        });
        std::thread::sleep(Duration::from_millis(50));
        let began = Instant::now();
        call(&other, &threads(1), &x, &w).unwrap();
        assert!(began.elapsed() < Duration::from_secs(5));
        assert_eq!(held.join().unwrap(), 2);
    });
}

/// A call that finds no room for its instance, or no memory, gets those of a thread that helps,
/// which is stopped in a loop. The looping call goes on by itself.
#[test]
fn helpers_in_loops_hold_no_other_call() {
    // So much that other threads help at once.
    const SIZE: usize = 1 << 18;
    let mut few = small_policy();
    few.limits.instances = 2;
    for (lack, policy) in [("instances", few), ("memory", policy_for(2))] {
        let module = growing(&policy, Counted::new(Manner::Pool, 1));
        let prepare = || {
            let site = CallSite::new("f", vec![shape(&[SIZE])], shape(&[SIZE]));
            module
                .prepare_mapped(site, &mapping(0, Some(1 << 16)))
                .unwrap()
        };
        let (looping, healthy) = (prepare(), prepare());
        let token = CancelToken::new();
        let options = CallOptions {
            cancel: Some(token.clone()),
            ..threads(2)
        };
        let reads = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            let held = scope.spawn(|| {
                let count = |_| {
                    reads.fetch_add(1, Ordering::Relaxed);
                };
                let loops = bytes(&[1000.0; SIZE]);
                let mut buffers = Hooked::new(loops, Vec::new(), &count);
                looping.call_buffers(&options, &mut buffers).unwrap_err()
            });
            let began = Instant::now();
            while reads.load(Ordering::Relaxed) < 2 {
                assert!(began.elapsed() < Duration::from_secs(20), "{lack}: no help");
                std::thread::yield_now();
            }
            let x = bytes(&floats(SIZE, 0.5));
            let mut y = vec![0; x.len()];
            let called = healthy.call_with(&threads(1), &[&x], &mut [&mut y]);
            assert_eq!(called, Ok(()), "{lack}");
            assert!(x == y && !held.is_finished(), "{lack}");
            token.cancel();
            assert_eq!(held.join().unwrap().code(), StatusCode::Cancelled);
        });
    }
}

/// A thread that helped with the first part gives it back when there is no time left for it: the
/// failure is that of the part in which the time passed, as on one thread.
#[test]
fn a_guest_is_to_blame_for_the_time_that_a_part_given_back_lacks() {
    const SIZE: usize = 1 << 18;
    let module = growing(&policy_for(2), Counted::new(Manner::First, 1));
    let prepare = || {
        let site = CallSite::new("f", vec![shape(&[SIZE])], shape(&[SIZE]));
        module
            .prepare_mapped(site, &mapping(0, Some(1 << 16)))
            .unwrap()
    };
    let (looping, other) = (prepare(), prepare());
    let options = CallOptions {
        deadline: Some(Deadline::After(Duration::from_secs(1))),
        ..threads(2)
    };
    std::thread::scope(|scope| {
        let late = scope.spawn(|| {
            let loops = bytes(&[1000.0; SIZE]);
            looping.call_with(&options, &[&loops], &mut [&mut loops.clone()])
        });
        std::thread::sleep(Duration::from_millis(300));
        let x = bytes(&floats(SIZE, 0.5));
        let called = other.call_with(&threads(1), &[&x], &mut [&mut x.clone()]);
        assert_eq!(called, Ok(()));
        let status = late.join().unwrap().unwrap_err();
        let told = (status.code(), status.blame());
        assert_eq!(
            told,
            (StatusCode::DeadlineExceeded, Blame::Guest),
            "{status}"
        );
        assert!(
            status.message().contains("ran past its deadline"),
            "{status}"
        );
    });
}

/// A target that copies its operand, once its memory has 900 pages. At 666.0 it traps, and at
/// 1000.0 it loops for ever.
const GROWS: &str = r#"(module
  (memory (export "memory") 1)
  (func (export "f") (param $f i32) (result i32) (local $i i32)
    (if (i32.lt_u (memory.size) (i32.const 900))
      (then
        (if (i32.eq (memory.grow (i32.sub (i32.const 900) (memory.size))) (i32.const -1))
          (then (return (i32.const 8))))))
    (if (f32.eq (f32.const 666) (f32.load (i32.load (i32.load offset=8 (local.get $f)))))
      (then (unreachable)))
    (loop $ever
      (br_if $ever (f32.eq (f32.const 1000) (f32.load (i32.load (i32.load offset=8 (local.get $f)))))))
    (local.set $i (i32.const 100000))
    (loop $work (br_if $work (local.tee $i (i32.sub (local.get $i) (i32.const 1)))))
    (memory.copy
      (i32.load (i32.load offset=16 (local.get $f)))
      (i32.load (i32.load offset=8 (local.get $f)))
      (i32.load offset=4 (i32.load offset=8 (local.get $f))))
    (i32.const 0))
  (@custom "callbox.targets"
    "{\"name\": \"f\", \"traits\": [\"pure\", \"elementwise\"],"
    "  \"operands\": [{\"name\": \"x\", \"dimensions\": [\"..\"]}],"
    "  \"results\": [{\"name\": \"y\", \"dimensions\": [\"..\"]}]}"))"#;

fn growing(policy: &Policy, threads: Arc<Counted>) -> Arc<Module> {
    let engine = Engine::with_config(Config {
        policy: policy.clone(),
        threads: Some(threads),
        ..Config::default()
    });
    let module = wat::parse_str(GROWS).unwrap();
    engine.unwrap().load(&module).unwrap()
}

/// A policy under which this many calls have memory, each for one instance.
fn policy_for(calls: usize) -> Policy {
    let mut policy = small_policy();
    policy.limits.memory_bytes = 64 << 20;
    policy.limits.executable_memory_bytes = calls * (64 << 20);
    policy
}

/// Three calls have room, each for one instance. Threads that help take none of it for long.
#[test]
fn helpers_leave_memory_to_other_calls() {
    const CALLS: usize = 3;
    const SIZE: usize = 1 << 20;
    let policy = policy_for(CALLS);
    for manner in [Manner::AtOnce, Manner::Beside, Manner::Pool] {
        let module = growing(&policy, Counted::new(manner, 3));
        std::thread::scope(|scope| {
            for number in 0..CALLS {
                let module = &module;
                scope.spawn(move || {
                    let site = CallSite::new("f", vec![shape(&[SIZE])], shape(&[SIZE]));
                    let prepared = module.prepare_mapped(site, &mapping(0, Some(1 << 16)));
                    let prepared = prepared.unwrap();
                    let x = bytes(&floats(SIZE, number as f32));
                    let mut y = vec![0; x.len()];
                    for _ in 0..20 {
                        y.fill(0);
                        let called = prepared.call_with(&threads(4), &[&x], &mut [&mut y]);
                        assert_eq!(called, Ok(()), "{manner:?}");
                        assert!(x == y, "{manner:?}");
                    }
                });
            }
        });
    }
}

/// The same for batches whose elements trap: a new instance takes the place of the last one.
#[test]
fn helpers_leave_memory_to_calls_whose_elements_trap() {
    const CALLS: usize = 3;
    const COUNT: usize = 300;
    let policy = policy_for(CALLS);
    let module = growing(&policy, Counted::new(Manner::Pool, 3));
    let arrays = shape(&[COUNT, 1]);
    let site = CallSite::new("f", vec![arrays.clone()], arrays);
    let prepared = module.prepare_mapped(site, &mapping(1, None)).unwrap();
    std::thread::scope(|scope| {
        for number in 0..CALLS {
            let prepared = &prepared;
            scope.spawn(move || {
                for round in 0..30 {
                    let traps = [30 + number, 100 + round, 200 + 7 * number];
                    let mut x = floats(COUNT, 0.5);
                    for &element in &traps {
                        x[element] = 666.0;
                    }
                    let x = bytes(&x);
                    let mut y = vec![0; x.len()];
                    let mut failed = Vec::new();
                    let called = prepared.call_each(
                        &threads(4),
                        &mut Slices {
                            operands: &[&x],
                            results: &mut [&mut y],
                        },
                        &mut |_: &mut Slices<'_, '_>, elements, status| {
                            failed.push((elements, status.code()));
                            Ok(())
                        },
                    );
                    assert_eq!(called, Ok(()));
                    let expected = traps.map(|at| (at..at + 1, StatusCode::Aborted));
                    assert_eq!(failed, expected);
                }
            });
        }
    });
}

/// The same for pieces that trap: each call has the failure of its first one.
#[test]
fn helpers_leave_memory_to_calls_whose_pieces_trap() {
    const CALLS: usize = 3;
    const PIECES: usize = 300;
    const PIECE: usize = 64;
    const SIZE: usize = PIECES * PIECE;
    let policy = policy_for(CALLS);
    let module = growing(&policy, Counted::new(Manner::Pool, 3));
    let site = CallSite::new("f", vec![shape(&[SIZE])], shape(&[SIZE]));
    let prepared = module.prepare_mapped(site, &mapping(0, Some(4 * PIECE)));
    let prepared = prepared.unwrap();
    std::thread::scope(|scope| {
        for number in 0..CALLS {
            let prepared = &prepared;
            scope.spawn(move || {
                for round in 0..200 {
                    let traps = [40 * number + round, 250 + number];
                    let mut x = floats(SIZE, 0.5);
                    for &piece in &traps {
                        x[piece * PIECE] = 666.0;
                    }
                    let x = bytes(&x);
                    let mut y = vec![0; x.len()];
                    let called = prepared.call_with(&threads(4), &[&x], &mut [&mut y]);
                    let failure = called.unwrap_err();
                    let first = traps[0].min(traps[1]) * PIECE;
                    let place = format!("elements {first} to {}:", first + PIECE - 1);
                    assert_eq!(failure.code(), StatusCode::Aborted, "{failure}");
                    assert!(failure.to_string().contains(&place), "{failure}");
                }
            });
        }
    });
}
