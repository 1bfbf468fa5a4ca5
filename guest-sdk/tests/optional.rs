//! Optional and remaining operands and results, by the rules and with the messages of
//! xla/ffi/api/api.h.
#![allow(
    clippy::unwrap_used,
    missing_docs,
    reason = "tests fail by panicking, and targets of tests need no documentation"
)]

use callbox_guest::native::Call;
use callbox_guest::{
    AnyOperand, Element, Failure, InPlace, Operand, RemainingOperands, RemainingResults,
    ResultBuffer, target,
};

/// Returns the number of elements of each parameter, or -1 for one that is omitted.
#[target]
fn lengths(
    y: &mut ResultBuffer<i64, 1>,
    x: &Operand<f32>,
    extra: Option<&mut ResultBuffer<f32>>,
    bias: Option<&Operand<f32>>,
    any: Option<&AnyOperand>,
) {
    let length = |length: Option<usize>| length.map_or(-1, |length| length as i64);
    y.copy_from_slice(&[
        length(Some(x.len())),
        length(bias.map(|bias| bias.len())),
        length(any.map(|any| any.bytes().len())),
    ]);
    if let Some(extra) = extra {
        extra.fill(bias.map_or(0.0, |bias| bias[0]));
    }
}

fn refusal(call: &mut Call) -> String {
    call.run::<lengths>().unwrap_err().message().to_owned()
}

#[test]
fn optional_buffers_may_be_absent_from_the_last() {
    let mut call = Call::new();
    call.result::<i64>(&[3]).operand(&[1.0_f32; 4], &[4]);
    assert_eq!(call.run::<lengths>(), Ok(()));
    assert_eq!(call.result_elements::<i64>(0), [4, -1, -1]);

    call.operand(&[2.5_f32], &[1]).result::<f32>(&[2]);
    assert_eq!(call.run::<lengths>(), Ok(()));
    assert_eq!(call.result_elements::<i64>(0), [4, 1, -1]);
    assert_eq!(call.result_elements::<f32>(1), [2.5, 2.5]);

    call.operand(&[1_u16], &[]);
    assert_eq!(call.run::<lengths>(), Ok(()));
    assert_eq!(call.result_elements::<i64>(0), [4, 1, 2]);
}

#[test]
fn counts_have_a_least_and_a_most() {
    let mut call = Call::new();
    call.result::<i64>(&[3]);
    assert_eq!(
        refusal(&mut call),
        "[execute] Wrong number of arguments: expected 1 to 3 but got 0"
    );
    for _ in 0..4 {
        call.operand(&[1.0_f32], &[]);
    }
    assert_eq!(
        refusal(&mut call),
        "[execute] Wrong number of arguments: expected 1 to 3 but got 4"
    );
    let mut call = Call::new();
    call.operand(&[1.0_f32], &[]);
    assert_eq!(
        refusal(&mut call),
        "[execute] Wrong number of results: expected 1 to 2 but got 0"
    );
}

#[test]
fn an_optional_buffer_that_is_there_is_checked() {
    let mut call = Call::new();
    call.operand(&[1.0_f32], &[])
        .operand(&[1_i32], &[])
        .result::<i64>(&[3])
        .result::<u8>(&[1]);
    assert_eq!(
        refusal(&mut call),
        "[execute] Failed to decode all FFI handler operands (bad operands at: 2, 3)\nDiagnostics:\n\
         Wrong buffer dtype: expected F32 but got U8\nWrong buffer dtype: expected F32 but got S32"
    );
}

#[target(T = [f32, f64])]
fn scaled<T: Element + core::ops::MulAssign>(x: &mut InPlace<T>, scale: Option<&Operand<T, 0>>) {
    if let Some(scale) = scale {
        x.iter_mut().for_each(|x| *x *= scale.value());
    }
}

#[test]
fn a_generic_target_has_optional_buffers_of_its_type() {
    let mut call = Call::new();
    call.operand(&[1.0_f64, 2.0], &[2]).aliased_result(0);
    assert_eq!(call.run::<scaled>(), Ok(()));
    assert_eq!(call.result_elements::<f64>(0), [1.0, 2.0]);
    call.operand(&[3.0_f64], &[]);
    assert_eq!(call.run::<scaled>(), Ok(()));
    assert_eq!(call.result_elements::<f64>(0), [3.0, 6.0]);
}

/// Writes the sum of all operands, of which the first is required, to each result.
#[target]
fn sum_to_all(
    first: &Operand<f32, 1>,
    rest: RemainingOperands,
    mut results: RemainingResults,
) -> Result<(), Failure> {
    for r in 0..results.len() {
        let mut y = results.get::<f32>(r)?;
        y.copy_from_slice(first);
        for i in 0..rest.len() {
            let x = rest.get::<f32>(i)?;
            y.iter_mut().zip(x.iter()).for_each(|(y, x)| *y += x);
        }
    }
    Ok(())
}

#[test]
fn remaining_buffers_are_as_many_as_there_are() {
    for count in 0..4_u8 {
        let mut call = Call::new();
        call.operand(&[1.0_f32, 2.0], &[2]);
        for _ in 0..count {
            call.operand(&[10.0_f32, 20.0], &[2]).result::<f32>(&[2]);
        }
        assert_eq!(call.run::<sum_to_all>(), Ok(()));
        let factor = 1.0 + 10.0 * f32::from(count);
        for result in 0..usize::from(count) {
            assert_eq!(
                call.result_elements::<f32>(result),
                [factor, 2.0 * factor],
                "{count}"
            );
        }
    }
    assert_eq!(
        Call::new().run::<sum_to_all>().unwrap_err().message(),
        "[execute] Wrong number of arguments: expected at least 1 but got 0"
    );
}

/// A result that shares the memory of a remaining operand does not change it.
#[test]
fn remaining_operands_are_read_as_they_were() {
    let mut call = Call::new();
    call.operand(&[1.0_f32, 2.0], &[2])
        .operand(&[10.0_f32, 20.0], &[2])
        .aliased_result(1)
        .result::<f32>(&[2]);
    assert_eq!(call.run::<sum_to_all>(), Ok(()));
    assert_eq!(call.result_elements::<f32>(0), [11.0, 22.0]);
    assert_eq!(call.result_elements::<f32>(1), [11.0, 22.0]);
}

#[test]
fn remaining_buffers_are_of_any_type_until_they_are_taken() {
    let mut call = Call::new();
    call.operand(&[1.0_f32], &[1])
        .operand(&[1_i32], &[1])
        .result::<f32>(&[1]);
    assert_eq!(
        call.run::<sum_to_all>(),
        Err(Failure::invalid_argument(
            "Wrong buffer dtype: expected F32 but got S32"
        ))
    );
    let mut call = Call::new();
    call.operand(&[1.0_f32], &[1]).result::<f64>(&[1]);
    assert_eq!(
        call.run::<sum_to_all>(),
        Err(Failure::invalid_argument(
            "Wrong buffer dtype: expected F32 but got F64"
        ))
    );
}

#[target]
fn past_the_end(rest: RemainingOperands, mut results: RemainingResults) -> Result<(), Failure> {
    assert!(rest.is_empty() && results.is_empty());
    let operand = rest.any(0).map(drop);
    assert_eq!(operand, results.any(0).map(drop));
    operand
}

#[test]
fn what_does_not_remain_is_out_of_range() {
    assert_eq!(
        Call::new().run::<past_the_end>(),
        Err(Failure::invalid_argument("Index out of range"))
    );
}
