//! Tests of elements whose calls fail, trap or loop for ever.

use std::ops::Range;
use std::time::{Duration, Instant};

use super::memory::UNTOUCHED;
use super::*;
use callbox_core::call::{Deadline, Fuel, Stage};
use callbox_core::policy::Isolation;
use callbox_core::values::Blame;

const STATUS: (StatusCode, &str) = (
    StatusCode::FailedPrecondition,
    "target \"scan\" returned FAILED_PRECONDITION without a message",
);

/// A call of six elements with one number each. The fourth number is `special`.
fn six(target: &str, special: f32, dimensions: &str) -> (CallSite, Memory) {
    let batch = format!("f32[{dimensions}]");
    let array = format!("f32[{dimensions},1]");
    let (site, results) = match target {
        "scan" => {
            let result = format!("({array}, {batch})");
            (site("scan", &[&array, &batch], &result), vec![24, 24])
        }
        _ => (
            site(target, &[&batch], &format!("s32[{dimensions}]")),
            vec![24],
        ),
    };
    let mut x = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0];
    x[3] = special;
    let operands = [bytes(&x), bytes(&[0.0; 6])];
    (
        site.clone(),
        Memory::new(&operands[..site.operands.len()], &results),
    )
}

/// Calls each element, and returns those that failed.
fn each(call: &PreparedCall, options: &CallOptions, memory: &mut Memory) -> Vec<(usize, Status)> {
    let mut all = Vec::new();
    let mut failed = |_: &mut Memory, elements: Range<usize>, status: Status| {
        all.extend(elements.map(|element| (element, status.clone())));
        Ok(())
    };
    call.call_each(options, memory, &mut failed).unwrap();
    all
}

/// A result's elements, with `None` for those that were not written.
fn written(memory: &Memory, result: usize) -> Vec<Option<f32>> {
    let bytes = memory.result(result);
    let words = bytes.as_chunks::<4>().0.iter();
    words
        .map(|word| (*word != [UNTOUCHED; 4]).then(|| f32::from_le_bytes(*word)))
        .collect()
}

#[test]
fn a_failure_names_its_element() {
    for (special, code, message) in [
        (13.0, STATUS.0, STATUS.1),
        (666.0, StatusCode::Aborted, "target \"scan\""),
    ] {
        for (dimensions, rank, element) in [
            ("6", 1, "3"),
            ("2,3", 2, "(1, 0)"),
            ("1,6,1", 3, "(0, 3, 0)"),
        ] {
            let (site, mut memory) = six("scan", special, dimensions);
            let call = module().prepare_mapped(site, &mapping(rank, None)).unwrap();
            let label = &module().label;
            let message = format!("batch element {element}: {label}: {message}");
            let status = fails(call.call_buffers(&options(), &mut memory), code, &message);
            assert_eq!(status.blame(), Blame::Guest);
            // The elements before the failed one are written, the others are not.
            let done = [Some(1.0), Some(2.0), Some(3.0), None, None, None];
            assert_eq!(written(&memory, 0), done);
            assert_eq!(written(&memory, 1), done);

            let (_, mut healthy) = six("scan", 4.0, dimensions);
            call.call_buffers(&options(), &mut healthy).unwrap();
            assert_eq!(floats(&healthy.result(0)), [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
        }
    }
}

#[test]
fn the_others_are_called_if_the_caller_goes_on() {
    for (special, code) in [(13.0, STATUS.0), (666.0, StatusCode::Aborted)] {
        let (site, mut memory) = six("scan", special, "2,3");
        let call = module().prepare_mapped(site, &mapping(2, None)).unwrap();
        let failed = each(&call, &options(), &mut memory);
        let [(3, status)] = &failed[..] else {
            panic!("expected element 3 to fail, found {failed:?}");
        };
        assert_eq!(status.code(), code);
        assert!(
            status
                .message()
                .starts_with(&format!("batch element (1, 0): {}: target", module().label)),
            "{status}"
        );
        let done = [Some(1.0), Some(2.0), Some(3.0), None, Some(5.0), Some(6.0)];
        assert_eq!(written(&memory, 0), done);
    }
}

#[test]
fn the_caller_can_stop_and_write() {
    let (site, mut memory) = six("scan", 13.0, "6");
    let call = module().prepare_mapped(site, &mapping(1, None)).unwrap();
    let mut failed = |memory: &mut Memory, elements: Range<usize>, status: Status| {
        memory.write(0, 4 * elements.start, &[0xff; 4]);
        Err(status.context("stopped"))
    };
    let outcome = call.call_each(&options(), &mut memory, &mut failed);
    let message = format!(
        "stopped: batch element 3: {}: target \"scan\"",
        module().label
    );
    fails(outcome, STATUS.0, &message);
    assert_eq!(
        memory.result(0)[12..],
        [[0xff; 4], [UNTOUCHED; 4], [UNTOUCHED; 4]].concat()
    );
}

#[test]
fn a_plain_call_that_fails_has_no_prefix() {
    let site = site("scan", &["f32[1]", "f32[]"], "(f32[1], f32[])");
    let call = module().prepare_mapped(site, &mapping(0, None)).unwrap();
    let mut memory = Memory::new(&[bytes(&[13.0]), bytes(&[0.0])], &[4, 4]);
    let message = format!("{}: {}", module().label, STATUS.1);
    let outcome = call.call_buffers(&options(), &mut memory);
    fails(outcome, STATUS.0, &message);
    let failed = each(&call, &options(), &mut memory);
    assert_eq!((failed.len(), failed[0].0), (1, 0));
    assert_eq!(failed[0].1.message(), message);
    assert_eq!(written(&memory, 0), [None]);
}

/// The stages run again after an element broke the instance, but not after one that returned a
/// failure.
#[test]
fn stages_run_again_after_a_trap_only() {
    for (special, counts) in [
        (13.0, [1101, 1102, 1103, 0, 1104, 1105]),
        (666.0, [1101, 1102, 1103, 0, 1101, 1102]),
    ] {
        let (site, mut memory) = six("staged", special, "6");
        let call = module().prepare_mapped(site, &mapping(1, None)).unwrap();
        assert_eq!(each(&call, &options(), &mut memory).len(), 1);
        let found = memory.result(0);
        let found: Vec<_> = found
            .as_chunks::<4>()
            .0
            .iter()
            .map(|word| i32::from_le_bytes(*word))
            .collect();
        let untouched = i32::from_le_bytes([UNTOUCHED; 4]);
        assert_eq!(
            found,
            counts.map(|count| if count == 0 { untouched } else { count })
        );
    }
}

/// A broken instance frees its place for the next one.
#[test]
fn one_instance_is_enough() {
    for (isolation, check_pure) in [
        (Isolation::Executable, false),
        (Isolation::Fresh, false),
        (Isolation::Executable, true),
    ] {
        let mut policy = Policy {
            isolation,
            check_pure,
            ..Policy::default()
        };
        policy.limits.instances = 1;
        let (site, mut memory) = six("pure", 666.0, "6");
        let call = load(policy)
            .prepare_mapped(site, &mapping(1, None))
            .unwrap();
        assert_eq!(each(&call, &options(), &mut memory).len(), 1);
        let done = [Some(1.0), Some(2.0), Some(3.0), None, Some(5.0), Some(6.0)];
        assert_eq!(written(&memory, 0), done, "{isolation:?}");
    }
}

fn spinning(limit: Option<Duration>) -> (PreparedCall, Memory) {
    let mut policy = Policy::default();
    policy.limits.deadline = limit;
    policy.limits.instances = 4;
    let (site, mut memory) = six("scan", 1000.0, "6");
    memory.write_operand(0, 4, 1000.0);
    let call = load(policy)
        .prepare_mapped(site, &mapping(1, None))
        .unwrap();
    (call, memory)
}

#[test]
fn the_callers_deadline_is_for_all_together() {
    let (call, mut memory) = spinning(None);
    let options = CallOptions {
        deadline: Some(Deadline::After(Duration::from_millis(100))),
        ..options()
    };
    let started = Instant::now();
    let failed = each(&call, &options, &mut memory);
    assert!(started.elapsed() < Duration::from_secs(5));
    let elements: Vec<_> = failed.iter().map(|(element, _)| *element).collect();
    assert_eq!(elements, [1, 2, 3, 4, 5]);
    for (element, status) in &failed {
        assert_eq!(status.code(), StatusCode::DeadlineExceeded);
        let start = match element {
            1 => "batch element 1: ",
            _ => "batch elements 2 to 5 were not called: batch element 1: ",
        };
        assert!(status.message().starts_with(start), "{status}");
    }
    assert_eq!(
        written(&memory, 0),
        [Some(1.0), None, None, None, None, None]
    );

    let (_, mut memory) = spinning(None);
    let outcome = call.call_buffers(&options, &mut memory);
    fails(outcome, StatusCode::DeadlineExceeded, "batch element 1: ");
}

#[test]
fn the_limits_deadline_is_for_all_together_too() {
    let (call, mut memory) = spinning(Some(Duration::from_millis(50)));
    let failed = each(&call, &options(), &mut memory);
    let elements: Vec<_> = failed.iter().map(|(element, _)| *element).collect();
    assert_eq!(elements, [1, 2, 3, 4, 5]);
    for (_, status) in &failed {
        // The first one was interrupted, and took the time of the others, which were not called.
        let (code, blame) = (status.code(), status.blame());
        assert_eq!((code, blame), (StatusCode::DeadlineExceeded, Blame::Guest));
    }
    let done = [Some(1.0), None, None, None, None, None];
    assert_eq!(written(&memory, 0), done);
}

/// All elements together have the time of the limit, and so have all pieces.
#[test]
fn a_long_batch_ends_with_the_limits_deadline() {
    const COUNT: usize = 100_000;
    let mut policy = Policy::default();
    policy.limits.deadline = Some(Duration::from_millis(100));
    policy.limits.instances = 4;
    let module = load(policy);
    let batch = format!("f32[{COUNT}]");
    for (target, is_piecewise) in [("pure", false), ("any", true)] {
        let (site, results) = if is_piecewise {
            let result = format!("({batch}, pred[{COUNT}])");
            (
                site(target, &[&batch, &batch], &result),
                vec![4 * COUNT, COUNT],
            )
        } else {
            (
                site(target, &[&batch], &format!("s32[{COUNT}]")),
                vec![4 * COUNT],
            )
        };
        let operands = vec![bytes(&vec![1000.0; COUNT]); site.operands.len()];
        let call = module.prepare_mapped(site, &mapping(1, 1 << 16)).unwrap();
        assert_eq!(is_cut(&call), is_piecewise);
        let mut memory = Memory::new(&operands, &results);
        let started = Instant::now();
        let outcome = call.call_buffers(&options(), &mut memory);
        fails(outcome, StatusCode::DeadlineExceeded, "batch element");
        let mut ranges = Vec::new();
        let mut failed = |_: &mut Memory, elements: Range<usize>, _| {
            ranges.push(elements);
            Ok(())
        };
        call.call_each(&options(), &mut memory, &mut failed)
            .unwrap();
        // The elements that were not called fail all at once.
        let [last, rest] = &ranges[..] else {
            panic!("expected two ranges, found {ranges:?}");
        };
        assert_eq!((last.len(), rest), (1, &(last.end..COUNT)));
        assert!(
            started.elapsed() < Duration::from_secs(10),
            "{:?}",
            started.elapsed()
        );
    }
}

#[test]
fn the_limits_fuel_is_for_all_together() {
    let mut policy = Policy {
        deterministic: true,
        ..Policy::default()
    };
    policy.limits.fuel = 1_000_000;
    policy.limits.instances = 4;
    let module = load(policy);
    let many = 100_000;
    let batch = format!("f32[{many}]");
    let call = module
        .prepare_mapped(
            site("pure", &[&batch], &format!("s32[{many}]")),
            &mapping(1, None),
        )
        .unwrap();
    let mut memory = Memory::new(&[bytes(&vec![1.0; many])], &[4 * many]);
    let outcome = call.call_buffers(&options(), &mut memory);
    let status = fails(outcome, StatusCode::DeadlineExceeded, "batch element");
    assert_eq!(status.blame(), Blame::Guest);
    let own = Fuel::new(1 << 40);
    let options = CallOptions {
        fuel: Some(own.clone()),
        ..options()
    };
    call.call_buffers(&options, &mut memory).unwrap();
    assert!(own.left() < (1 << 40) - 1_000_000);
    let options = CallOptions {
        fuel: Some(Fuel::new(1_000_000)),
        ..options
    };
    let mut ranges = Vec::new();
    let mut failed = |_: &mut Memory, elements: Range<usize>, _| {
        ranges.push(elements);
        Ok(())
    };
    call.call_each(&options, &mut memory, &mut failed).unwrap();
    assert_eq!(ranges.len(), 2, "{ranges:?}");
    assert_eq!(ranges[1].end, many);
}

#[test]
fn whoever_cancels_cancels_the_batch() {
    let (site, mut memory) = six("scan", 4.0, "6");
    let call = module().prepare_mapped(site, &mapping(1, None)).unwrap();
    let cancel = callbox_core::call::CancelToken::new();
    cancel.cancel();
    let options = CallOptions {
        cancel: Some(cancel),
        ..options()
    };
    let outcome = call.call_buffers(&options, &mut memory);
    fails(outcome, StatusCode::Cancelled, "batch element 0: ");
    assert_eq!(each(&call, &options, &mut memory).len(), 6);
    assert_eq!(written(&memory, 0), [None; 6]);
}

/// Results are compared before any is written, even if one shares an operand's memory.
#[test]
fn purity_is_checked_before_anything_is_written() {
    let policy = Policy {
        check_pure: true,
        ..Policy::default()
    };
    let module = load(policy);
    let (site, memory) = six("pure", 4.0, "6");
    let call = module.prepare_mapped(site, &mapping(1, 64)).unwrap();
    let mut memory = memory.donate(0, 0);
    call.call_buffers(&options(), &mut memory).unwrap();
    assert_eq!(floats(&memory.result(0)), [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    assert_eq!(memory.read[0].get(), 48, "each element twice");
    assert_eq!(memory.written[0].get(), 24);

    let (site, memory) = six("pure", 13.0, "6");
    let call = module.prepare_mapped(site, &mapping(1, None)).unwrap();
    let mut memory = memory.donate(0, 0);
    let outcome = call.call_buffers(&options(), &mut memory);
    fails(outcome, StatusCode::FailedPrecondition, "batch element 3: ");
    assert_eq!(floats(&memory.operand(0)), [1.0, 2.0, 3.0, 13.0, 5.0, 6.0]);
    assert_eq!(memory.written[0].get(), 12);
}

/// A failing stage is reported for the first element, and runs again for the next.
#[test]
fn a_failing_stage_is_the_first_elements() {
    const FAILS: &str = r#"(module
      (memory (export "memory") 1)
      (func (export "f.prepare") (param i32) (result i32) (i32.const 9))
      (func (export "f") (param i32) (result i32) (i32.const 0)))"#;
    let engine = Engine::new().unwrap();
    assert!(engine.is_of_this_process());
    let module = engine.load(&wat::parse_str(FAILS).unwrap()).unwrap();
    assert!(module.target("f").unwrap().stages.contains(&Stage::Prepare));
    let site = site("f", &[], "f32[2]");
    let call = module.prepare_mapped(site, &mapping(1, None)).unwrap();
    let mut memory = Memory::new(&[], &[8]);
    let outcome = call.call_buffers(&options(), &mut memory);
    fails(outcome, StatusCode::FailedPrecondition, "batch element 0: ");
    let failed = each(&call, &options(), &mut memory);
    let elements: Vec<_> = failed.iter().map(|(element, _)| *element).collect();
    assert_eq!(elements, [0, 1]);
}
