//! Results that share an operand's memory: the target reads the operand's contents, whatever it
//! writes.
#![allow(
    clippy::unwrap_used,
    missing_docs,
    reason = "tests fail by panicking, and targets of tests need no documentation"
)]

use callbox_guest::native::Call;
use callbox_guest::{AnyOperand, Failure, InPlace, Operand, ResultBuffer, target};

/// Reads its operand after writing its result, in reverse order.
#[target]
fn reverse(x: &Operand<f32, 1>, y: &mut ResultBuffer<f32, 1>) {
    y.fill(0.0);
    for (y, x) in y.iter_mut().zip(x.iter().rev()) {
        *y = *x;
    }
}

#[target]
fn add_one(x: &mut InPlace<i32>) {
    x.iter_mut().for_each(|x| *x += 1);
}

#[target]
fn add_to_both(x: &mut InPlace<i32>, y: &mut InPlace<i32>, z: &AnyOperand) -> Result<(), Failure> {
    let z = z.as_typed::<i32>()?;
    x.iter_mut().chain(y.iter_mut()).for_each(|x| *x += z[0]);
    Ok(())
}

/// Long enough that a copy has several chunks, the last of them partial.
fn ramp() -> Vec<f32> {
    (0..77_u8).map(f32::from).collect()
}

#[test]
fn a_shared_operand_is_read_as_it_was() {
    let mut reversed = ramp();
    reversed.reverse();

    let mut call = Call::new();
    call.operand(&ramp(), &[77]).result::<f32>(&[77]);
    assert_eq!(call.run::<reverse>(), Ok(()));
    assert_eq!(call.result_elements::<f32>(0), reversed);

    let mut call = Call::new();
    call.operand(&ramp(), &[77]).aliased_result(0);
    assert_eq!(call.run::<reverse>(), Ok(()));
    assert_eq!(call.result_elements::<f32>(0), reversed);
}

#[test]
fn in_place_works_with_and_without_sharing() {
    let mut call = Call::new();
    call.operand(&[1, 2, 3], &[3]).aliased_result(0);
    assert_eq!(call.run::<add_one>(), Ok(()));
    assert_eq!(call.run::<add_one>(), Ok(()));
    assert_eq!(call.result_elements::<i32>(0), [3, 4, 5]);

    let mut call = Call::new();
    call.operand(&[1, 2, 3], &[3]).result::<i32>(&[3]);
    assert_eq!(call.run::<add_one>(), Ok(()));
    assert_eq!(call.run::<add_one>(), Ok(()));
    assert_eq!(call.result_elements::<i32>(0), [2, 3, 4]);
}

/// Every combination of two results that share or do not share the three operands.
#[test]
fn in_place_reads_operands_that_other_results_share() {
    let choices = [None, Some(0), Some(1), Some(2)];
    for first in choices {
        for second in choices {
            let mut call = Call::new();
            call.operand(&[10], &[1])
                .operand(&[20], &[1])
                .operand(&[3], &[1]);
            for choice in [first, second] {
                match choice {
                    Some(operand) => call.aliased_result(operand),
                    None => call.result::<i32>(&[1]),
                };
            }
            let outcome = call.run::<add_to_both>();
            if let Some(operand) = first.filter(|_| first == second) {
                let message = format!(
                    "results 0 and 1 both share the memory of operand {operand}: expected one at most"
                );
                assert_eq!(outcome, Err(Failure::invalid_argument(message)));
            } else {
                assert_eq!(outcome, Ok(()), "{first:?} {second:?}");
                let results = [call.result_elements::<i32>(0), call.result_elements(1)];
                assert_eq!(results, [[13], [23]], "{first:?} {second:?}");
            }
        }
    }
}

#[test]
fn in_place_needs_operand_and_result_alike() {
    let mut call = Call::new();
    call.operand(&[1, 2, 3], &[3]).result::<i32>(&[1, 3]);
    let message = call.run::<add_one>().unwrap_err().message().to_owned();
    assert!(
        message.ends_with("Wrong result dimensions: expected [3] but got [1,3]"),
        "{message}"
    );

    let mut call = Call::new();
    call.operand(&[1, 2, 3], &[3]).result::<u32>(&[3]);
    let message = call.run::<add_one>().unwrap_err().message().to_owned();
    assert!(
        message.ends_with("Wrong buffer dtype: expected S32 but got U32"),
        "{message}"
    );
}

#[test]
fn in_place_is_one_operand_and_one_result() {
    let mut call = Call::new();
    call.operand(&[1], &[1]);
    let failure = call.run::<add_one>().unwrap_err();
    assert_eq!(
        failure.message(),
        "[execute] Wrong number of results: expected 1 but got 0"
    );
}
