//! Elements whose calls fail, trap or do not end.

use std::time::{Duration, Instant};

use super::memory::UNTOUCHED;
use super::*;
use crate::call::Stage;
use crate::policy::Isolation;
use crate::values::Blame;

const STATUS: (StatusCode, &str) = (
    StatusCode::FailedPrecondition,
    "target \"scan\" returned FAILED_PRECONDITION without a message",
);

/// Six elements of one number, one of which is special.
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

/// Calls each element, and gives those that failed.
fn each(call: &MappedCall, options: &CallOptions, memory: &mut Memory) -> Vec<(usize, Status)> {
    let mut all = Vec::new();
    let mut failed = |_: &mut Memory, element, status| {
        all.push((element, status));
        Ok(())
    };
    call.call_each(options, memory, &mut failed).unwrap();
    all
}

/// A result's elements, of which those that were not written are `None`.
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
            let message = format!("batch element {element}: {message}");
            let status = fails(call.call_with(&options(), &mut memory), code, &message);
            assert_eq!(status.blame(), Blame::Guest);
            // Those before it are written, it and those after it are not.
            let done = [Some(1.0), Some(2.0), Some(3.0), None, None, None];
            assert_eq!(written(&memory, 0), done);
            assert_eq!(written(&memory, 1), done);

            let (_, mut healthy) = six("scan", 4.0, dimensions);
            call.call_with(&options(), &mut healthy).unwrap();
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
            status.message().starts_with("batch element (1, 0): target"),
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
    let mut failed = |memory: &mut Memory, element: usize, status: Status| {
        memory.write(0, 4 * element, &[0xff; 4]);
        Err(status.context("stopped"))
    };
    let outcome = call.call_each(&options(), &mut memory, &mut failed);
    fails(
        outcome,
        STATUS.0,
        "stopped: batch element 3: target \"scan\"",
    );
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
    fails(call.call_with(&options(), &mut memory), STATUS.0, STATUS.1);
    let failed = each(&call, &options(), &mut memory);
    assert_eq!((failed.len(), failed[0].0), (1, 0));
    assert_eq!(failed[0].1.message(), STATUS.1);
    assert_eq!(written(&memory, 0), [None]);
}

/// A broken instance takes the execution's stages with it; one that reported a failure does not.
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

/// The instance that broke makes place for the next.
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

fn spinning(limit: Option<Duration>) -> (MappedCall, Memory) {
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
        let start = format!("batch element {element}: ");
        assert!(status.message().starts_with(&start), "{status}");
    }
    assert_eq!(
        written(&memory, 0),
        [Some(1.0), None, None, None, None, None]
    );

    let (_, mut memory) = spinning(None);
    let outcome = call.call_with(&options, &mut memory);
    fails(outcome, StatusCode::DeadlineExceeded, "batch element 1: ");
}

#[test]
fn the_limits_deadline_is_for_each() {
    let (call, mut memory) = spinning(Some(Duration::from_millis(50)));
    let failed = each(&call, &options(), &mut memory);
    let elements: Vec<_> = failed.iter().map(|(element, _)| *element).collect();
    assert_eq!(elements, [1, 3]);
    assert!(
        failed
            .iter()
            .all(|(_, status)| status.code() == StatusCode::DeadlineExceeded)
    );
    let done = [Some(1.0), None, Some(3.0), None, Some(5.0), Some(6.0)];
    assert_eq!(written(&memory, 0), done);
}

#[test]
fn whoever_cancels_cancels_the_batch() {
    let (site, mut memory) = six("scan", 4.0, "6");
    let call = module().prepare_mapped(site, &mapping(1, None)).unwrap();
    let cancel = crate::call::CancelToken::new();
    cancel.cancel();
    let options = CallOptions {
        cancel: Some(cancel),
        ..options()
    };
    let outcome = call.call_with(&options, &mut memory);
    fails(outcome, StatusCode::Cancelled, "batch element 0: ");
    assert_eq!(each(&call, &options, &mut memory).len(), 6);
    assert_eq!(written(&memory, 0), [None; 6]);
}

/// Results are compared before one is written, also where they lie in an operand's memory.
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
    call.call_with(&options(), &mut memory).unwrap();
    assert_eq!(floats(&memory.result(0)), [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    assert_eq!(memory.read[0].get(), 48, "each element twice");
    assert_eq!(memory.written[0].get(), 24);

    let (site, memory) = six("pure", 13.0, "6");
    let call = module.prepare_mapped(site, &mapping(1, None)).unwrap();
    let mut memory = memory.donate(0, 0);
    let outcome = call.call_with(&options(), &mut memory);
    fails(outcome, StatusCode::FailedPrecondition, "batch element 3: ");
    assert_eq!(floats(&memory.operand(0)), [1.0, 2.0, 3.0, 13.0, 5.0, 6.0]);
    assert_eq!(memory.written[0].get(), 12);
}

/// Nothing that a target has for each execution is lost sight of.
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
    let outcome = call.call_with(&options(), &mut memory);
    fails(outcome, StatusCode::FailedPrecondition, "batch element 0: ");
    let failed = each(&call, &options(), &mut memory);
    let elements: Vec<_> = failed.iter().map(|(element, _)| *element).collect();
    assert_eq!(elements, [0, 1]);
}
