//! What guests leave to the process.

use std::sync::Barrier;
use std::time::{Duration, Instant};

use callbox::policy::{Isolation, Policy};
use callbox::wasm::{Engine, PreparedCall};
use callbox::{CallSite, StatusCode};
use rustix::process::{Resource, getrlimit};

use crate::guests::{GUEST, HOLDS, TRANSFORMS, call, engine, numbered, prepare, without_operands};
use crate::play;

/// Has the guests of many modules take all the memory that they can get, in several threads at one
/// time, and says how many modules there were.
pub(crate) fn filled(limit: &str) -> usize {
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
    // The process has what it needs: more stack, memory, and the guests that are there.
    assert!(Vec::<u8>::new().try_reserve_exact(64 << 20).is_ok());
    // Of 1 GiB of address space, glibc may have reserved 64 MiB for each thread since, so that
    // there is no room for an instance that gave way.
    let is_tight = getrlimit(Resource::As).current <= Some(1 << 30) && limit == "RLIMIT_AS";
    for end in &ends {
        let (called, may_fail) = match end {
            Ok(grow) => (call(grow, STEP), is_tight),
            Err(status) => (Err(status.clone()), true),
        };
        if let Err(status) = called {
            assert!(may_fail, "{status}");
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
pub(crate) fn load_beside_running_guests() -> String {
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

/// Has the host transform for many calls at one time, after other guests took all the memory that
/// they could get, and says how many calls ended.
pub(crate) fn transforms() -> usize {
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
pub(crate) fn calls_in_turn() -> usize {
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

/// Loads and calls in a process whose name was cut within a character, and says what returned.
pub(crate) fn named() -> String {
    std::fs::write("/proc/self/comm", b"\xd1\x8f\xd1").unwrap();
    let count = prepare(&Engine::new().unwrap(), "count").unwrap();
    call(&count, 0).unwrap().to_string()
}

/// Grows and loads where no file can be opened any more, and says what became of it.
pub(crate) fn unreadable() -> String {
    let engine = Engine::new().unwrap();
    let [grow, count] = ["grow", "count"].map(|target| prepare(&engine, target).unwrap());
    let has_grown = call(&grow, 1).unwrap() >= 0;
    forbid_to_open();
    let grown = call(&grow, 1).unwrap();
    let new = call(&count, 0).unwrap_err();
    let load = engine.load(&numbered(HOLDS, 0)).unwrap_err();
    let [new_blame, load_blame] = [&new, &load].map(callbox::Status::blame);
    format!("{has_grown} {grown} | {new_blame:?} {new} | {load_blame:?} {load}")
}

/// Lets the process open no file any more, as a rule of Landlock would for `/proc`.
fn forbid_to_open() {
    use seccompiler::{
        BpfProgram, SeccompAction, SeccompFilter, TargetArch, apply_filter_all_threads,
    };
    let calls = [
        libc::SYS_openat,
        #[cfg(target_arch = "x86_64")]
        libc::SYS_open,
    ];
    let rules = calls.into_iter().map(|number| (number, vec![])).collect();
    let refused = SeccompAction::Errno(libc::EACCES.unsigned_abs());
    let arch = TargetArch::try_from(std::env::consts::ARCH).unwrap();
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, refused, arch).unwrap();
    let program = BpfProgram::try_from(filter).unwrap();
    apply_filter_all_threads(&program).unwrap();
}

#[test]
fn guests_leave_address_space_to_the_process() {
    for gibibytes in [1, 2, 4] {
        assert_eq!(play(&format!("filled RLIMIT_AS {gibibytes}")), "32");
    }
}

#[test]
fn guests_leave_memory_to_the_process() {
    for gibibytes in [1, 2] {
        assert_eq!(play(&format!("filled RLIMIT_DATA {gibibytes}")), "32");
    }
}

/// The host computes with memory of its own.
#[test]
fn transforms_take_no_memory_that_the_process_needs() {
    assert_eq!(play("transforms RLIMIT_DATA 1"), "20");
}

#[test]
fn a_load_beside_running_guests_is_refused() {
    for limit in ["RLIMIT_AS", "RLIMIT_DATA"] {
        let said = play(&format!("running {limit} 1"));
        let begins = said.starts_with("RESOURCE_EXHAUSTED: no room for the module: expected ");
        let ends = said.ends_with(&format!(" under {limit}, Host"));
        assert!(begins && ends, "{said}");
    }
}

/// What a thread has mapped, and what it has unmapped, counts no longer.
#[test]
fn calls_that_ended_take_no_address_space() {
    assert_eq!(play("turns RLIMIT_AS 1"), "200");
}

/// Guests would take what the process needs.
#[test]
fn without_proc_guests_get_no_memory() {
    let why = "expected /proc/thread-self/status, from which a process with RLIMIT_AS or RLIMIT_DATA reads what is left, found Permission denied";
    for limit in ["RLIMIT_AS 2", "RLIMIT_DATA 1"] {
        let said = play(&format!("unreadable {limit}"));
        assert_eq!(said.matches(why).count(), 2, "{said}");
        for expected in [
            "true -1 | Caller RESOURCE_EXHAUSTED: ",
            "| Host RESOURCE_EXHAUSTED: no room for the module: ",
        ] {
            assert!(said.contains(expected), "{said}");
        }
    }
}

/// The kernel cuts names after 15 bytes, and tells them with the limits.
#[test]
fn a_process_may_have_any_name() {
    for limit in ["RLIMIT_AS 2", "RLIMIT_DATA 1"] {
        assert_eq!(play(&format!("named {limit}")), "1", "{limit}");
    }
}
