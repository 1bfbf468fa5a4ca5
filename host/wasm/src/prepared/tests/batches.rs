//! Tests of batches.

use proptest::prelude::*;

use super::*;
use crate::prepared::tests::memory::UNTOUCHED;
use callbox_core::call::Alias;
use callbox_core::call::batch::Batch;
use callbox_core::values::ElementType;

/// The shape of an `f32` array.
fn shape(dimensions: &[usize]) -> Shape {
    Shape::array(ElementType::F32, dimensions).unwrap()
}

/// Distinct numbers, one for each element.
fn numbers(count: usize, from: f32) -> Vec<f32> {
    (0..count).map(|i| from + i as f32).collect()
}

/// The offset of the element at a position in an array that is broadcast along dimensions of size
/// 1.
fn offset(dimensions: &[usize], position: &[usize], inner: usize) -> usize {
    let mut element = 0;
    for (size, index) in std::iter::zip(dimensions, position) {
        element = element * size + if *size == 1 { 0 } else { *index };
    }
    element * inner
}

/// All positions in row-major order.
fn positions(sizes: &[usize]) -> Vec<Vec<usize>> {
    let mut all = vec![Vec::new()];
    for size in sizes {
        let longer = all.iter().flat_map(|position: &Vec<usize>| {
            (0..*size).map(move |index| [position.as_slice(), &[index]].concat())
        });
        all = longer.collect();
    }
    all
}

/// Calls `scan` for each element of a batch, mapped and in a loop of plain calls.
fn check_scan(sizes: &[usize], x_batch: &[usize], b_batch: &[usize], n: usize) {
    let x_shape = [x_batch, &[n]].concat();
    let y_shape = [sizes, &[n]].concat();
    let count = |dimensions: &[usize]| dimensions.iter().product::<usize>();
    let x = numbers(count(&x_shape), 0.5);
    let b = numbers(count(b_batch), 100.25);
    let result = Shape::tuple(vec![shape(&y_shape), shape(sizes)]).unwrap();
    let whole = CallSite::new("scan", vec![shape(&x_shape), shape(b_batch)], result);
    let call = module()
        .prepare_mapped(whole, &mapping(sizes.len(), None))
        .unwrap();
    let results = [4 * count(&y_shape), 4 * count(sizes)];
    let mut memory = Memory::new(&[bytes(&x), bytes(&b)], &results);
    call.call_buffers(&options(), &mut memory).unwrap();

    let result = Shape::tuple(vec![shape(&[n]), shape(&[])]).unwrap();
    let plain = CallSite::new("scan", vec![shape(&[n]), shape(&[])], result);
    let plain = module().prepare_call(plain).unwrap();
    let (mut all_y, mut all_last) = (Vec::new(), Vec::new());
    for position in positions(sizes) {
        let x = &x[offset(x_batch, &position, n)..][..n];
        let b = b[offset(b_batch, &position, 1)];
        let (mut y, mut last) = (vec![0; 4 * n], vec![0; 4]);
        plain
            .call(&[&bytes(x), &bytes(&[b])], &mut [&mut y, &mut last])
            .unwrap();
        all_y.extend(y);
        all_last.extend(last);
    }
    assert_eq!(memory.all_results(), [all_y, all_last]);
    let calls = count(sizes);
    assert_eq!(memory.read[0].get(), calls * n * 4);
    assert_eq!(memory.read[1].get(), calls * 4);
}

/// The sizes of a batch, and those of two operands, which may be broadcast along some dimensions.
fn batches() -> impl Strategy<Value = [Vec<usize>; 3]> {
    prop::collection::vec((0..4_usize, any::<bool>(), any::<bool>()), 0..4).prop_map(|all| {
        let pick = |f: fn(&(usize, bool, bool)) -> usize| all.iter().map(f).collect();
        [
            pick(|(size, _, _)| *size),
            pick(|(size, same, _)| if *same { 1 } else { *size }),
            pick(|(size, _, same)| if *same { 1 } else { *size }),
        ]
    })
}

proptest! {
    #[test]
    fn a_batch_is_a_loop_of_calls([sizes, x, b] in batches(), n in 0..4_usize) {
        check_scan(&sizes, &x, &b, n);
    }
}

#[test]
fn operands_are_the_same_along_dimensions_of_size_1() {
    check_scan(&[2, 3], &[1, 3], &[2, 1], 4);
    check_scan(&[2, 3, 2], &[2, 1, 2], &[1, 1, 1], 1);
    check_scan(&[3], &[1], &[3], 2);
    check_scan(&[0], &[1], &[1], 2);
    check_scan(&[2, 0], &[2, 1], &[1, 0], 2);
}

#[test]
fn without_a_mapping_it_is_a_plain_call() {
    let site = site("scan", &["f32[3]", "f32[]"], "(f32[3], f32[])");
    for mapping in [mapping(0, None), mapping(0, 1 << 20)] {
        let call = module().prepare_mapped(site.clone(), &mapping).unwrap();
        let operands = [bytes(&[1.0, 2.0, 3.0]), bytes(&[10.0])];
        let mut memory = Memory::new(&operands, &[12, 4]);
        call.call_buffers(&options(), &mut memory).unwrap();
        assert_eq!(floats(&memory.result(0)), [11.0, 13.0, 16.0]);
        assert_eq!(floats(&memory.result(1)), [16.0]);
    }
    // The layouts of an element are independent of the batch.
    let column = self::site("staged", &["f32[2,3]{0,1}"], "s32[]");
    let call = module().prepare_mapped(column, &mapping(0, None)).unwrap();
    let mut memory = Memory::new(&[vec![0; 24]], &[4]);
    call.call_buffers(&options(), &mut memory).unwrap();
    assert_eq!(memory.result(0), 1101_i32.to_le_bytes());
}

/// If a result shares an operand's memory, each element is read before it is overwritten.
#[test]
fn a_result_can_lie_where_an_operand_does() {
    let mut donated = site("scan", &["f32[2,3]", "f32[2]"], "(f32[2,3], f32[2])");
    for aliases in [&[][..], &[(0, 0)], &[(0, 0), (1, 1)]] {
        donated.aliasing = aliases
            .iter()
            .map(|&(result, operand)| Alias {
                result_index: vec![result],
                operand,
                operand_index: vec![],
            })
            .collect();
        let call = module()
            .prepare_mapped(donated.clone(), &mapping(1, None))
            .unwrap();
        let operands = [bytes(&numbers(6, 1.0)), bytes(&[10.0, 20.0])];
        let mut memory = Memory::new(&operands, &[24, 8]).donate(0, 0).donate(1, 1);
        call.call_buffers(&options(), &mut memory).unwrap();
        let y = floats(&memory.result(0));
        assert_eq!(y, [11.0, 13.0, 16.0, 24.0, 29.0, 35.0]);
        assert_eq!(floats(&memory.result(1)), [16.0, 35.0]);
        assert_eq!(memory.operand(0), memory.result(0));
    }
}

#[test]
fn stages_run_once_for_a_batch() {
    let call = site("staged", &["f32[2,2]"], "s32[2,2]");
    let call = module().prepare_mapped(call, &mapping(2, None)).unwrap();
    let mut first = 0;
    for run in 1..3 {
        let mut memory = Memory::new(&[bytes(&[0.0; 4])], &[16]);
        call.call_buffers(&options(), &mut memory).unwrap();
        let counts: Vec<_> = memory
            .result(0)
            .as_chunks::<4>()
            .0
            .iter()
            .map(|word| i32::from_le_bytes(*word))
            .collect();
        assert_eq!(counts, [1, 2, 3, 4].map(|calls| run * 1100 + first + calls));
        first += 4;
    }
    // The stages of an empty batch do not run.
    let call = site("staged", &["f32[0]"], "s32[0]");
    let call = module().prepare_mapped(call, &mapping(1, None)).unwrap();
    let mut memory = Memory::new(&[vec![]], &[0]);
    call.call_buffers(&options(), &mut memory).unwrap();
    assert_eq!((memory.read[0].get(), memory.written[0].get()), (0, 0));
}

#[test]
fn scratch_has_no_bytes() {
    let mut whole = site("scan", &["f32[2,2]", "f32[1]"], "(f32[2,2], f32[2])");
    whole.scratch = vec![0];
    let call = module().prepare_mapped(whole, &mapping(1, None)).unwrap();
    let operands = [bytes(&numbers(4, 1.0)), bytes(&[0.5])];
    let mut memory = Memory::new(&operands, &[0, 8]);
    call.call_buffers(&options(), &mut memory).unwrap();
    assert_eq!(floats(&memory.result(1)), [3.5, 7.5]);
}

#[test]
fn without_results_the_operands_have_the_sizes() {
    let whole = CallSite::new(
        "length",
        vec![shape(&[1, 3, 2]), shape(&[2, 1])],
        Shape::tuple(vec![]).unwrap(),
    );
    let (_, batch) = Batch::split(&whole, 2).unwrap();
    assert_eq!((&*batch.sizes, batch.count), (&[2, 3][..], 6));
    let wrong = CallSite::new(
        "length",
        vec![shape(&[3, 2]), shape(&[2, 2])],
        Shape::tuple(vec![]).unwrap(),
    );
    let status = Batch::split(&wrong, 1).unwrap_err();
    assert_eq!(
        status.message(),
        "operand 1: expected a batch dimension 0 of size 3 or 1, found f32[2,2]"
    );
}

/// Wrong shapes are reported before anything runs.
#[test]
fn wrong_shapes_are_refused() {
    for (operands, result, dimensions, message) in [
        (
            ["f32[3]", "f32[2]"],
            "(f32[2,3], f32[2])",
            2,
            "operand 0: expected a batch of 2 dimensions before its own, found f32[3]",
        ),
        (
            ["f32[2,3]", "f32[]"],
            "(f32[2,3], f32[2])",
            1,
            "operand 1: expected a batch of 1 dimensions before its own, found f32[]",
        ),
        (
            ["f32[2,3]", "f32[2]"],
            "(f32[2,3], f32[])",
            1,
            "result 1: expected a batch of 1 dimensions before its own, found f32[]",
        ),
        (
            ["f32[2,3]", "f32[4]"],
            "(f32[2,3], f32[2])",
            1,
            "operand 1: expected a batch dimension 0 of size 2 or 1, found f32[4]",
        ),
        (
            ["f32[2,5,3]", "f32[1,1]"],
            "(f32[2,4,3], f32[2,4])",
            2,
            "operand 0: expected a batch dimension 1 of size 4 or 1, found f32[2,5,3]",
        ),
        (
            ["f32[0,3]", "f32[1]"],
            "(f32[2,3], f32[2])",
            1,
            "operand 0: expected a batch dimension 0 of size 2 or 1, found f32[0,3]",
        ),
        (
            ["f32[1,3]", "f32[1]"],
            "(f32[2,3], f32[1])",
            1,
            "result 1: expected the batch sizes [2], which result 0 has, found f32[1]",
        ),
        (
            ["f32[2,3]{0,1}", "f32[2]"],
            "(f32[2,3], f32[2])",
            1,
            "operand 0: expected a row-major layout for a call that is mapped, found f32[2,3]{0,1}",
        ),
        (
            ["f32[2,3]", "f32[2]"],
            "(f32[2,3]{0,1}, f32[2])",
            1,
            "result 0: expected a row-major layout for a call that is mapped, found f32[2,3]{0,1}",
        ),
        (
            ["f32[2,3]", "f32[2]"],
            "(f32[2,3], f32[2])",
            usize::MAX,
            "operand 0: expected a batch of 18446744073709551615 dimensions before its own, found f32[2,3]",
        ),
    ] {
        let mut wrong = site("scan", &operands, result);
        wrong.name = "%call.1".to_owned();
        let outcome = module().prepare_mapped(wrong, &mapping(dimensions, None));
        let message = format!("%call.1: {message}");
        fails(outcome.map(drop), StatusCode::InvalidArgument, &message);
    }
    let column = site("mul", &["f32[2,3]{0,1}", "f32[]"], "(f32[2,3], pred[2,3])");
    let outcome = module().prepare_mapped(column, &mapping(0, 256));
    fails(
        outcome.map(drop),
        StatusCode::InvalidArgument,
        "mul: operand 0: expected a row-major layout",
    );
}

#[test]
fn buffers_of_other_sizes_are_refused() {
    let whole = site(
        "mul",
        &["f32[2,300]", "f32[2,300]"],
        "(f32[2,300], pred[2,300])",
    );
    for mapping in [
        mapping(1, None),
        mapping(1, 256),
        mapping(0, 256),
        mapping(0, None),
    ] {
        let call = module().prepare_mapped(whole.clone(), &mapping).unwrap();
        assert_eq!(is_cut(&call), mapping.piece_bytes.is_some());
        for (operands, results, message) in [
            (
                &[2400][..],
                &[2400, 600][..],
                "expected 2 operand buffers, found 1",
            ),
            (&[2400, 2400], &[2400], "expected 2 result buffers, found 1"),
            (
                &[2400, 2399],
                &[2400, 600],
                "operand 1: expected 2400 bytes, found 2399",
            ),
            (
                &[2400, 2400],
                &[2400, 601],
                "result 1: expected 600 bytes, found 601",
            ),
            (
                &[1200, 2400],
                &[2400, 600],
                "operand 0: expected 2400 bytes, found 1200",
            ),
        ] {
            let operands: Vec<_> = operands.iter().map(|&size| vec![0; size]).collect();
            let mut memory = Memory::new(&operands, results);
            fails(
                call.call_buffers(&options(), &mut memory),
                StatusCode::InvalidArgument,
                message,
            );
            // The failure belongs to no element.
            if mapping.batch_dimensions > 0 {
                let mut failed = |_: &mut Memory, _, _| Ok(());
                let outcome = call.call_each(&options(), &mut memory, &mut failed);
                fails(outcome, StatusCode::InvalidArgument, message);
            }
            let written = memory.all_results().concat();
            assert!(written.iter().all(|byte| *byte == UNTOUCHED));
        }
    }
}

#[test]
fn what_is_wrong_for_an_element_is_refused() {
    let outcome = module().prepare_mapped(site("none", &["f32[2]"], "f32[2]"), &mapping(1, None));
    fails(
        outcome.map(drop),
        StatusCode::NotFound,
        "none: expected a target of the module",
    );
    // The call site has the shapes of one element.
    let wrong = site("any", &["f32[2,3]", "f32[2,4]"], "(f32[2,3], pred[2,3])");
    for pieces in [None, Some(256)] {
        let outcome = module().prepare_mapped(wrong.clone(), &mapping(1, pieces));
        let status = fails(
            outcome.map(drop),
            StatusCode::InvalidArgument,
            "any: Failed to decode",
        );
        assert!(
            status.message().contains("[3]") && !status.message().contains("[2,3]"),
            "{status}"
        );
    }
}
