//! The number of threads, and the calls that one thread makes alone.

use std::time::{Duration, Instant};

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
