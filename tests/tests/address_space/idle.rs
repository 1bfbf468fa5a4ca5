//! Idle instances that give way, and calls that are refused.

use std::fmt::Write;

use callbox::policy::{Isolation, Policy};
use callbox::wasm::{Engine, PreparedCall};

use crate::guests::{ALLOCATES, HOLDS, RETURNS, call, call_of, engine, prepare, without_operands};
use crate::{child, play, said};

/// Uses two engines after guests of a third took all the memory that they could get, and says how
/// often their own instances were called.
pub(crate) fn idle_guests_give_way() -> String {
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

/// Calls guests that take more memory than there is, with and without an instance, beside one whose
/// instance is idle. Says how that was called, and how the others failed.
pub(crate) fn refused_guests() -> String {
    let count = prepare(&Engine::new().unwrap(), "count").unwrap();
    let large = HOLDS.replace(r#""memory") 1)"#, r#""memory") 15000)"#);
    let returns = RETURNS.replace("PAGES", "15000");
    let refused = [large, returns].map(|text| without_operands(&Engine::new().unwrap(), &text, 0));
    let mut said = vec![call(&count, 0).unwrap().to_string()];
    for refused in &refused {
        for _ in 0..2 {
            let status = refused.call(&[], &mut [&mut [0; 4]]).unwrap_err();
            said.push(format!("{:?} {:?}", status.code(), status.blame()));
            said.push(call(&count, 0).unwrap().to_string());
        }
    }
    said.join(", ")
}

/// Makes an instance whose start takes most of a call's fuel, and the memory of an idle guest.
pub(crate) fn starts_of_one_call(starts: &str) -> String {
    // Smaller ones are freed at once.
    let spare = [(); 4].map(|()| prepare(&Engine::new().unwrap(), "grow").unwrap());
    let hog = without_operands(&Engine::new().unwrap(), HOLDS, 0);
    let mut policy = Policy {
        deterministic: true,
        ..Policy::default()
    };
    policy.limits.fuel = 16_000_000;
    let starts = without_operands(&engine(policy).unwrap(), starts, 0);
    for spare in &spare {
        call(spare, 100).unwrap();
    }
    hog.call(&[], &mut [&mut [0; 4]]).unwrap();
    // It leaves enough for an instance that has not grown.
    drop(spare);
    let ends = [(); 2].map(|()| starts.call(&[], &mut [&mut [0; 4]]));
    ends.map(|end| match end {
        Ok(()) => "done".to_owned(),
        Err(status) => format!("{:?} {:?}", status.code(), status.blame()),
    })
    .join(", ")
}

/// Makes an instance of a large memory beside idle ones whose memory is small, but which take much
/// for references to functions.
pub(crate) fn many_functions() -> String {
    const FUNCTIONS: usize = 30_000;
    let mut items = "(func)".repeat(FUNCTIONS);
    items += "(elem declare func";
    for function in 1..=FUNCTIONS {
        write!(items, " {function}").unwrap();
    }
    items += ")";
    beside_large_records(&items)
}

/// The same for elements that wait to be copied into a table.
pub(crate) fn passive_segment() -> String {
    beside_large_records(&format!(
        "(elem funcref{})",
        " (ref.null func)".repeat(60_000)
    ))
}

fn beside_large_records(items: &str) -> String {
    let mut text = String::from(r#"(module (memory (export "memory") 1)"#);
    text += r#"(func (export "f") (param i32) (result i32) (i32.const 0))"#;
    text += items;
    text += ")";
    let engine = Engine::new().unwrap();
    let module = engine.load(&wat::parse_str(text).unwrap()).unwrap();
    let idle = Vec::from_iter((0..700).map(|_| call_of(&module)));
    for call in &idle {
        call.call(&[], &mut [&mut [0; 4]]).unwrap();
    }
    let large = HOLDS.replace(r#""memory") 1)"#, r#""memory") 6400)"#);
    let large = without_operands(&Engine::new().unwrap(), &large, 0);
    format!("{:?}", large.call(&[], &mut [&mut [0; 4]]))
}

/// Uses two engines while instances of a third, small and large ones, are idle or are taken back,
/// whose deleters run on. Says how often their own instances were called.
pub(crate) fn deleters_that_run_on() -> String {
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

#[test]
fn idle_guests_give_way_to_other_engines() {
    // Each thread of an engine may reserve address space for what it allocates.
    for limit in ["RLIMIT_AS 2", "RLIMIT_DATA 1"] {
        let said = play(&format!("idle {limit}"));
        assert_eq!(said, "Ok(1) Ok(1) Ok(()) Ok(2)", "{limit}");
    }
}

/// No idle instance is discarded for what all of them would not give.
#[test]
fn refused_guests_are_not_blamed_and_evict_nobody() {
    let refused = "ResourceExhausted Caller";
    let said = format!("1, {refused}, 2, {refused}, 3, {refused}, 4, {refused}, 5");
    assert_eq!(play("refused RLIMIT_DATA 1"), said);
}

#[test]
fn all_that_an_idle_instance_takes_counts() {
    for scene in ["functions RLIMIT_DATA 1", "segment RLIMIT_DATA 1"] {
        let mut child = child(scene);
        // glibc gives back what an instance takes.
        let said = said(child.env("MALLOC_MMAP_THRESHOLD_", "131072"));
        assert_eq!(said, "Ok(())", "{scene}");
    }
}

/// What the first attempt to make an instance used does not count: the call ends as it would alone.
#[test]
fn a_start_that_is_begun_again_costs_the_call_no_fuel() {
    // Where it was large, it is freed in the background, which makes no room.
    for scene in ["starts", "large-starts", "starts-and-works"] {
        assert_eq!(
            play(&format!("{scene} RLIMIT_DATA 1")),
            "done, done",
            "{scene}"
        );
    }
}

#[test]
fn deleters_that_run_on_keep_no_memory() {
    // The arena takes a page, too.
    assert_eq!(play("deleters RLIMIT_DATA 1"), "true Ok(3) true");
}
