//! Tests of calls that are cut into pieces.

use std::ops::Range;
use std::time::Duration;

use proptest::prelude::*;

use super::memory::UNTOUCHED;
use super::*;
use callbox_core::call::{Alias, Deadline};
use callbox_core::policy::Isolation;
use callbox_core::values::{Blame, ElementType};

/// Reproducible numbers, some of them negative, tiny, infinite or NaN.
fn numbers(count: usize, seed: u32) -> Vec<f32> {
    let mut state = seed | 1;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        f32::from_bits(state.rotate_left(9))
    };
    (0..count).map(|_| next()).collect()
}

fn dimensions(dimensions: &[usize]) -> String {
    let sizes: Vec<_> = dimensions.iter().map(usize::to_string).collect();
    sizes.join(",")
}

/// The call site of `mul` or `any` and its operands. `c` has the dimensions of `x`, or only those
/// of the batch.
fn mul(
    target: &str,
    batch: &[usize],
    own: &[usize],
    c_is_scalar: bool,
) -> (CallSite, Vec<Vec<u8>>) {
    let whole = [batch, own].concat();
    let c = match c_is_scalar {
        true => vec![1; batch.len()],
        false => whole.clone(),
    };
    let count = |sizes: &[usize]| sizes.iter().product::<usize>();
    let operands = vec![
        bytes(&numbers(count(&whole), 1)),
        bytes(&numbers(count(&c), 99)),
    ];
    let (whole, c) = (dimensions(&whole), dimensions(&c));
    let operand_shapes = [format!("f32[{whole}]"), format!("f32[{c}]")];
    let operand_shapes = operand_shapes.each_ref().map(String::as_str);
    let result = format!("(f32[{whole}], pred[{whole}])");
    (site(target, &operand_shapes, &result), operands)
}

/// The results of a mapped call, and whether it was cut.
fn call(
    site: &CallSite,
    operands: &[Vec<u8>],
    mapping: &Mapping,
    by_element: bool,
) -> (Vec<Vec<u8>>, bool) {
    let call = module().prepare_mapped(site.clone(), mapping).unwrap();
    let sizes: Vec<_> = site
        .result
        .leaves()
        .iter()
        .map(|leaf| leaf.byte_size())
        .collect();
    let mut memory = Memory::new(operands, &sizes);
    let outcome = match by_element {
        true => call.call_each(&options(), &mut memory, &mut |_, _, status| Err(status)),
        false => call.call_buffers(&options(), &mut memory),
    };
    outcome.unwrap();
    (memory.all_results(), is_cut(&call))
}

proptest! {
    #[test]
    fn pieces_give_the_bits_of_the_whole(
        batch in prop::collection::vec(1..5_usize, 0..3),
        own in prop::collection::vec(0..12_usize, 1..4),
        c_is_scalar in any::<bool>(),
        piece_bytes in prop::sample::select(vec![0, 1, 256, 300, 512, 1000]),
    ) {
        let (site, operands) = mul("mul", &batch, &own, c_is_scalar);
        let (expected, _) = call(&site, &operands, &mapping(batch.len(), None), false);
        for by_element in [false, true] {
            let (found, cut) = call(&site, &operands, &mapping(batch.len(), piece_bytes), by_element);
            prop_assert_eq!(&found, &expected);
            let total: usize = batch.iter().chain(&own).product();
            let piece = (piece_bytes / 4 / 64 * 64).max(64);
            prop_assert_eq!(cut, total > piece && 4 * total > piece_bytes);
        }
    }

    #[test]
    fn scalars_are_pieces_where_any_rank_is_declared(
        batch in prop::collection::vec(1..15_usize, 1..4),
        piece_bytes in prop::sample::select(vec![256, 512]),
    ) {
        let (site, operands) = mul("any", &batch, &[], false);
        let (expected, _) = call(&site, &operands, &mapping(batch.len(), None), false);
        for by_element in [false, true] {
            let (found, cut) = call(&site, &operands, &mapping(batch.len(), piece_bytes), by_element);
            prop_assert_eq!(&found, &expected);
            prop_assert_eq!(cut, batch.iter().product::<usize>() > piece_bytes / 4);
        }
        // A target that declares no dimensions is not cut.
        let (site, operands) = mul("mul", &batch, &[], false);
        let (found, cut) = call(&site, &operands, &mapping(batch.len(), piece_bytes), false);
        prop_assert_eq!(found, expected);
        prop_assert!(!cut);
    }
}

/// The number of bytes of the operand in the call that made each element.
fn lengths(dimensions: &str, mapping: &Mapping, by_element: bool) -> Vec<i32> {
    let site = site(
        "length",
        &[&format!("f32[{dimensions}]")],
        &format!("s32[{dimensions}]"),
    );
    let size = site.result.leaves()[0].byte_size();
    let (results, _) = call(&site, &[vec![0; size]], mapping, by_element);
    let words = results[0].as_chunks::<4>().0.iter();
    words.map(|word| i32::from_le_bytes(*word)).collect()
}

#[test]
fn pieces_are_as_large_as_they_should_be() {
    let runs = |runs: &[(usize, i32)]| -> Vec<i32> {
        let runs = runs.iter();
        runs.flat_map(|&(count, length)| vec![length; count])
            .collect()
    };
    for by_element in [false, true] {
        // The smallest pieces, and a remainder.
        assert_eq!(
            lengths("64", &mapping(0, 0), by_element),
            runs(&[(64, 256)])
        );
        assert_eq!(
            lengths("65", &mapping(0, 0), by_element),
            runs(&[(64, 256), (1, 4)])
        );
        assert_eq!(
            lengths("5,40", &mapping(0, 511), by_element),
            runs(&[(192, 256), (8, 32)])
        );
        assert_eq!(
            lengths("2,5,30", &mapping(0, 512), by_element),
            runs(&[(256, 512), (44, 176)])
        );
        assert_eq!(
            lengths("384", &mapping(0, 512), by_element),
            runs(&[(384, 512)])
        );
        // A piece of the whole array.
        assert_eq!(
            lengths("300", &mapping(0, 1200), by_element),
            runs(&[(300, 1200)])
        );
        assert_eq!(
            lengths("300", &mapping(0, None), by_element),
            runs(&[(300, 1200)])
        );
    }
    // A batch is cut across its elements, or within them.
    assert_eq!(
        lengths("3,100", &mapping(1, 512), false),
        runs(&[(256, 512), (44, 176)])
    );
    assert_eq!(
        lengths("3,100", &mapping(1, 512), true),
        runs(&[(300, 400)])
    );
    let each = [(128, 512), (72, 288)];
    assert_eq!(
        lengths("2,200", &mapping(1, 512), true),
        runs(&each.repeat(2))
    );
    // The widest array determines the size of a piece.
    let site = site("length", &["pred[300]"], "s32[300]");
    let (results, cut) = call(&site, &[vec![0; 300]], &mapping(0, 512), false);
    assert!(cut);
    assert_eq!(results[0][..4], 128_i32.to_le_bytes());
}

#[test]
fn what_cannot_be_cut_is_called_whole() {
    let whole = "f32[4,100]";
    for (target, operands, batch, why) in [
        (
            "scan",
            ["f32[4,100]", "f32[4]"],
            1,
            "it does not say that it is elementwise",
        ),
        (
            "mul",
            ["f32[1,100]", "f32[4,100]"],
            1,
            "an operand is the same for all",
        ),
        (
            "mul",
            ["f32[4,100]", "f32[4]"],
            1,
            "an operand of rank 0 is another for each",
        ),
    ] {
        let result = match target {
            "scan" => format!("({whole}, f32[4])"),
            _ => format!("({whole}, pred[4,100])"),
        };
        let site = site(target, &operands, &result);
        let operands = site
            .operands
            .iter()
            .enumerate()
            .map(|(i, shape)| bytes(&numbers(shape.leaves()[0].element_count(), i as u32)));
        let operands: Vec<_> = operands.collect();
        let (expected, _) = call(&site, &operands, &mapping(batch, None), false);
        let (found, cut) = call(&site, &operands, &mapping(batch, 256), false);
        assert!(!cut, "{why}");
        assert_eq!(found, expected, "{why}");
    }
}

#[test]
fn some_policies_have_nothing_cut() {
    for policy in [
        Policy {
            check_pure: true,
            ..Policy::default()
        },
        Policy {
            isolation: Isolation::Fresh,
            ..Policy::default()
        },
        Policy {
            deterministic: true,
            ..Policy::default()
        },
    ] {
        let (site, operands) = mul("mul", &[], &[300], true);
        let call = load(policy).prepare_mapped(site, &mapping(0, 256)).unwrap();
        assert!(!is_cut(&call));
        let mut memory = Memory::new(&operands, &[1200, 300]);
        call.call_buffers(&options(), &mut memory).unwrap();
    }
}

/// Arrays can exceed the guest's memory, because the arena holds only one piece.
#[test]
fn the_arena_is_as_large_as_pieces() {
    let mut policy = Policy::default();
    policy.limits.memory_bytes = 1 << 20;
    let module = load(policy);
    let count = (3 << 20) / 4 + 5;
    let (site, operands) = mul("mul", &[], &[count], true);
    let outcome = module.prepare_mapped(site.clone(), &mapping(0, None));
    fails(
        outcome.map(drop),
        StatusCode::ResourceExhausted,
        "mul: expected operands",
    );
    let call = module.prepare_mapped(site, &mapping(0, 64 << 10)).unwrap();
    let mut memory = Memory::new(&operands, &[4 * count, count]);
    call.call_buffers(&options(), &mut memory).unwrap();
    let c = floats(&operands[1])[0];
    let expected: Vec<f32> = floats(&operands[0]).iter().map(|x| x * c + x).collect();
    let same = std::iter::zip(floats(&memory.result(0)), expected).all(|(found, expected)| {
        found.to_bits() == expected.to_bits() || found.is_nan() && expected.is_nan()
    });
    assert!(same);
}

/// If the result shares the operand's memory, each piece is read before it is overwritten.
#[test]
fn pieces_can_be_donated() {
    for (batch, by_element) in [(0, false), (1, false), (1, true)] {
        let (mut site, operands) = mul("mul", &[3], &[100], true);
        if batch == 0 {
            site.operands[1] = "f32[]".parse().unwrap();
        }
        site.aliasing = vec![Alias {
            result_index: vec![0],
            operand: 0,
            operand_index: vec![],
        }];
        let plain = mapping(batch, None);
        let (expected, _) = call(&site, &operands, &plain, false);
        let call = module().prepare_mapped(site, &mapping(batch, 256)).unwrap();
        assert!(is_cut(&call));
        let mut memory = Memory::new(&operands, &[1200, 300]).donate(0, 0);
        let outcome = match by_element {
            true => call.call_each(&options(), &mut memory, &mut |_, _, status| Err(status)),
            false => call.call_buffers(&options(), &mut memory),
        };
        outcome.unwrap();
        assert_eq!(memory.all_results(), expected);
    }
}

/// Ones, except for a special number at one index.
fn with_special(count: usize, at: usize, special: f32) -> Vec<u8> {
    let mut x = vec![1.0; count];
    x[at] = special;
    bytes(&x)
}

#[test]
fn failures_name_what_the_piece_is_of() {
    for (batch, own, at, message) in [
        (&[][..], 300, 150, "elements 128 to 191"),
        (&[], 300, 299, "elements 256 to 299"),
        (&[4], 40, 70, "batch elements 1 to 3"),
        (&[4], 200, 450, "batch element 2"),
        (&[2, 3], 30, 70, "batch elements (0, 2) to (1, 1)"),
    ] {
        for special in [13.0, 666.0] {
            let (site, mut operands) = mul("mul", batch, &[own], true);
            let count = operands[0].len() / 4;
            operands[0] = with_special(count, at, special);
            operands[1] = bytes(&[2.0]);
            let call = module()
                .prepare_mapped(site, &mapping(batch.len(), 256))
                .unwrap();
            assert!(is_cut(&call));
            let mut memory = Memory::new(&operands, &[4 * count, count]);
            let status = call.call_buffers(&options(), &mut memory).unwrap_err();
            let message = format!("{message}: {}: target", module().label);
            assert!(status.message().starts_with(&message), "{status}");
            // The pieces before the failed one are written.
            assert_eq!(memory.written[1].get(), at / 64 * 64);

            // By element, the failed element is reported, and the others are called.
            let mut memory = Memory::new(&operands, &[4 * count, count]);
            let mut all = Vec::new();
            let mut failed = |_: &mut Memory, elements: Range<usize>, status: Status| {
                all.push((elements.start, status.message().to_owned()));
                Ok(())
            };
            call.call_each(&options(), &mut memory, &mut failed)
                .unwrap();
            assert_eq!(all.len(), 1);
            assert_eq!(all[0].0, if batch.is_empty() { 0 } else { at / own });
            assert_eq!(all[0].1.starts_with("batch element "), !batch.is_empty());
            if !batch.is_empty() {
                let less = memory.result(1);
                let untouched = |element: usize| less[element * own..][..own].contains(&UNTOUCHED);
                let elements: Vec<_> = (0..count / own)
                    .filter(|&element| untouched(element))
                    .collect();
                assert_eq!(elements, [at / own]);
            }
        }
    }
}

/// The pieces of a call share its limits.
#[test]
fn a_calls_pieces_have_its_time() {
    let mut policy = Policy::default();
    policy.limits.deadline = Some(Duration::from_millis(100));
    let module = load(policy);
    let (site, mut operands) = mul("mul", &[], &[300], true);
    operands[0] = with_special(300, 200, 1000.0);
    let call = module.prepare_mapped(site, &mapping(0, 256)).unwrap();
    let mut memory = Memory::new(&operands, &[1200, 300]);
    let outcome = call.call_buffers(&options(), &mut memory);
    fails(
        outcome,
        StatusCode::DeadlineExceeded,
        "elements 192 to 255: ",
    );
}

/// Where the time ends between two pieces, the next one is not called: the target took the time.
#[test]
fn the_time_of_earlier_pieces_is_the_targets() {
    let mut policy = Policy::default();
    policy.limits.deadline = Some(Duration::from_millis(5));
    let module = load(policy);
    for c_is_scalar in [false, true] {
        for batch in [&[][..], &[4]] {
            let (site, operands) = mul("mul", batch, &[1 << 20], c_is_scalar);
            let call = module.prepare_mapped(site, &mapping(batch.len(), 64));
            let size = operands[0].len();
            let mut memory = Memory::new(&operands, &[size, size / 4]);
            let call = call.unwrap();
            // Its instance is there before the time counts.
            let enough = CallOptions {
                deadline: Some(Deadline::After(Duration::from_secs(60))),
                ..options()
            };
            call.call_buffers(&enough, &mut memory).unwrap();
            let outcome = call.call_buffers(&options(), &mut memory);
            let status = fails(outcome, StatusCode::DeadlineExceeded, "");
            assert_eq!(status.blame(), Blame::Guest, "{status}");
        }
    }
}

/// A target whose arrays have a declared rank is called with the caller's shapes, even if it is
/// elementwise.
#[test]
fn scalars_stay_scalars_where_one_rank_is_declared() {
    let shape = Shape::array(ElementType::F32, &[300]).unwrap();
    let site = CallSite::new(
        "length",
        vec![shape.clone()],
        Shape::array(ElementType::S32, &[300]).unwrap(),
    );
    let call = module().prepare_mapped(site, &mapping(1, 256)).unwrap();
    assert!(!is_cut(&call));
    let mut memory = Memory::new(&[vec![0; 1200]], &[1200]);
    call.call_buffers(&options(), &mut memory).unwrap();
    assert!(
        memory
            .result(0)
            .as_chunks::<4>()
            .0
            .iter()
            .all(|word| *word == 4_i32.to_le_bytes())
    );
}
