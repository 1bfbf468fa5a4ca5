//! Elements by index, dimensions as arrays, and targets that are generic over two types.
#![allow(
    clippy::unwrap_used,
    missing_docs,
    reason = "tests fail by panicking, and targets of tests need no documentation"
)]

use std::panic::{AssertUnwindSafe, catch_unwind};

use callbox_guest::native::Call;
use callbox_guest::{AnyOperand, Element, Failure, InPlace, Operand, ResultBuffer, target};

#[test]
fn an_index_is_that_of_a_matrix() {
    let numbers: Vec<i32> = (0..24).collect();
    let x = Operand::<i32, 3>::new(&numbers, &[2, 3, 4]).unwrap();
    let [planes, rows, columns] = x.dims();
    let mut expected = 0;
    for i in 0..planes {
        for j in 0..rows {
            for k in 0..columns {
                assert_eq!(x[[i, j, k]], expected);
                expected += 1;
            }
        }
    }
    let of_any_rank = Operand::<i32>::new(&numbers, &[4, 6]).unwrap();
    assert_eq!(of_any_rank[[3, 5]], 23);
    assert_eq!(of_any_rank.dims(), [4, 6]);
    assert_eq!(AnyOperand::from(&of_any_rank).dims(), [4, 6]);
    let scalar = Operand::<i32, 0>::new(&numbers[7..8], &[]).unwrap();
    assert_eq!(scalar[[]], 7);
    assert_eq!(scalar.dims(), [0_usize; 0]);
}

#[test]
fn places_and_ranges_are_those_of_a_slice() {
    let mut numbers = [1.0_f32, 2.0, 3.0, 4.0];
    let mut y = ResultBuffer::<f32>::new(&mut numbers, &[2, 2]).unwrap();
    assert_eq!((y[0], y[3]), (1.0, 4.0));
    assert_eq!(
        (&y[1..3], &y[..2], &y[3..]),
        (&[2.0, 3.0][..], &[1.0, 2.0][..], &[4.0][..])
    );
    assert_eq!(
        (&y[..], &y[2..=3], &y[..=0]),
        (&[1.0, 2.0, 3.0, 4.0][..], &[3.0, 4.0][..], &[1.0][..])
    );
    y[0] += 10.0;
    y[[1, 0]] = 30.0;
    y[3..].fill(40.0);
    let mut z = InPlace::<f32, 2>::new(&mut numbers, &[2, 2]).unwrap();
    z[[0, 1]] *= 10.0;
    assert_eq!(z.dims(), [2, 2]);
    assert_eq!(numbers, [11.0, 20.0, 30.0, 40.0]);
}

#[test]
fn indices_are_checked() {
    let numbers = [1_u8; 6];
    let x = Operand::<u8>::new(&numbers, &[2, 3]).unwrap();
    let message = |f: &dyn Fn() -> u8| {
        let panic = catch_unwind(AssertUnwindSafe(f)).unwrap_err();
        panic.downcast_ref::<String>().unwrap().clone()
    };
    // Inside of memory, but not of the row.
    assert_eq!(
        message(&|| x[[0, 3]]),
        "expected an index inside of the dimensions [2,3], found [0, 3]"
    );
    assert_eq!(
        message(&|| x[[usize::MAX, 0]]),
        format!(
            "expected an index inside of the dimensions [2,3], found [{}, 0]",
            usize::MAX
        )
    );
    assert_eq!(message(&|| x[[1]]), "expected an array of rank 1, found 2");
    assert_eq!(
        message(&|| x.dims::<3>()[0] as u8),
        "expected an array of rank 3, found 2"
    );
    let empty = Operand::<u8>::new(&[], &[0, i64::MAX]).unwrap();
    assert!(message(&|| empty[[0, 0]]).contains("[0,9223372036854775807]"));
}

/// Returns the elements of a matrix at pairs of indices.
#[target(pure, T = [f32, u8], I = [i32, u64])]
fn picked<T: Element, I: Element + TryInto<usize>>(
    x: &Operand<T, 2>,
    at: &Operand<I, 2>,
    y: &mut ResultBuffer<T, 1>,
) -> Result<(), Failure> {
    let [count, _] = at.dims();
    for i in 0..count {
        let index = |j: usize| at[[i, j]].try_into().ok();
        let (Some(row), Some(column)) = (index(0), index(1)) else {
            return Err(Failure::invalid_argument("negative index"));
        };
        y[i] = x[[row, column]];
    }
    Ok(())
}

fn pick<T: Element, I: Element>(x: &[T], at: &[I]) -> Result<Vec<T>, Failure> {
    let mut call = Call::new();
    call.operand(x, &[2, 3])
        .operand(at, &[2, 2])
        .result::<T>(&[2]);
    call.run::<picked>()?;
    Ok(call.result_elements::<T>(0).to_vec())
}

#[test]
fn each_pair_of_types_is_an_instance() {
    let (floats, bytes) = ([0.5_f32, 1.5, 2.5, 3.5, 4.5, 5.5], [0_u8, 1, 2, 3, 4, 5]);
    let (signed, unsigned) = ([1_i32, 2, 0, 1], [1_u64, 2, 0, 1]);
    assert_eq!(pick(&floats, &signed).unwrap(), [5.5, 1.5]);
    assert_eq!(pick(&floats, &unsigned).unwrap(), [5.5, 1.5]);
    assert_eq!(pick(&bytes, &signed).unwrap(), [5, 1]);
    assert_eq!(pick(&bytes, &unsigned).unwrap(), [5, 1]);
    assert_eq!(
        pick(&bytes, &[-1_i32, 0, 0, 0]).unwrap_err().message(),
        "negative index"
    );
    let refused = pick(&[0.5_f64; 6], &signed).unwrap_err();
    assert!(
        refused
            .message()
            .ends_with("Wrong buffer dtype: expected F32 or U8 but got F64"),
        "{}",
        refused.message()
    );
    let refused = pick(&bytes, &[0_u8; 4]).unwrap_err();
    assert!(
        refused
            .message()
            .ends_with("Wrong buffer dtype: expected S32 or U64 but got U8"),
        "{}",
        refused.message()
    );
}

#[cfg(feature = "num-complex")]
#[test]
fn complex_numbers_convert_both_ways() {
    use callbox_guest::{C64, C128};
    use num_complex::Complex;

    let (single, double) = (
        C64 { re: 1.5, im: -0.0 },
        C128 {
            re: f64::MIN,
            im: 2.0,
        },
    );
    assert_eq!(Complex::from(single), Complex::new(1.5_f32, -0.0));
    assert_eq!(Complex::from(double), Complex::new(f64::MIN, 2.0));
    assert_eq!(C64::from(Complex::from(single)), single);
    assert!(C64::from(Complex::from(single)).im.is_sign_negative());
    assert_eq!(C128::from(Complex::from(double)), double);
}
