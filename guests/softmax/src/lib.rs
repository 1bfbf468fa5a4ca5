//! Softmax over the last axis, for F32 and F64.

pub mod kernel;

use callbox_guest::maths::MatrixElement;
use callbox_guest::{Failure, Operand, ResultBuffer, target};

/// Computes the softmax of `x` over its last axis, as `jax.nn.softmax` does.
#[target(rows, T = [f32, f64])]
fn softmax<T: MatrixElement>(
    #[dimensions(.., n)] x: &Operand<T>,
    #[dimensions(.., n)] y: &mut ResultBuffer<T>,
) -> Result<(), Failure> {
    let Some(&length) = x.dimensions().last() else {
        return Err(Failure::invalid_argument(
            "softmax needs an axis: expected rank 1 or more, found 0",
        ));
    };
    y.expect_dimensions(x.dimensions())?;
    if !(x.shape().is_row_major() && y.shape().is_row_major()) {
        return Err(Failure::invalid_argument(format!(
            "softmax needs rows in memory: expected row-major layouts, found {:?} and {:?}",
            x.shape(),
            y.shape()
        )));
    }
    kernel::softmax(x, length as usize, y);
    Ok(())
}

#[cfg(test)]
mod tests {
    use callbox_guest::native::Call;

    #[test]
    fn the_last_axis_is_normalised_at_any_rank() {
        for dimensions in [&[4][..], &[1, 4], &[1, 1, 4]] {
            let mut call = Call::new();
            call.operand(&[0.0_f64; 4], dimensions)
                .result::<f64>(dimensions);
            assert_eq!(call.run::<super::softmax>(), Ok(()));
            assert_eq!(call.result_elements::<f64>(0), [0.25; 4]);
        }
        let mut call = Call::new();
        call.operand(&[5.0_f32; 4], &[4, 1]).result::<f32>(&[4, 1]);
        assert_eq!(call.run::<super::softmax>(), Ok(()));
        assert_eq!(call.result_elements::<f32>(0), [1.0; 4]);
    }

    #[test]
    fn arrays_without_elements_are_fine() {
        for dimensions in [&[0][..], &[3, 0], &[0, 3]] {
            let mut call = Call::new();
            call.operand::<f32>(&[], dimensions)
                .result::<f32>(dimensions);
            assert_eq!(call.run::<super::softmax>(), Ok(()));
        }
    }

    #[test]
    fn what_has_no_rows_is_refused() {
        let message = |call: &mut Call| match call.run::<super::softmax>() {
            Ok(()) => "none".to_owned(),
            Err(failure) => failure.to_string(),
        };
        let mut call = Call::new();
        call.operand(&[1.0_f32], &[]).result::<f32>(&[]);
        assert_eq!(
            message(&mut call),
            "INVALID_ARGUMENT: softmax needs an axis: expected rank 1 or more, found 0"
        );
        let mut call = Call::new();
        call.operand(&[1.0_f32; 4], &[2, 2]).result::<f32>(&[4]);
        assert_eq!(
            message(&mut call),
            "INVALID_ARGUMENT: Wrong result dimensions: expected [2,2] but got [4]"
        );
        let mut call = Call::new();
        call.operand(&[1.0_f32; 4], &[2, 2])
            .result::<f32>(&[2, 2])
            .minor_to_major(&[0, 1]);
        assert_eq!(
            message(&mut call),
            "INVALID_ARGUMENT: softmax needs rows in memory: expected row-major layouts, found [2,2]{0,1} and [2,2]{0,1}"
        );
    }
}
