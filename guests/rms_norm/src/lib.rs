//! Normalisation of rows by their root mean square, and its gradient.

pub mod kernel;

use callbox_guest::{Failure, Operand, ResultBuffer, Shape, target};

/// Divides each row of `x` by the root of the mean of its squares plus `eps`, and multiplies it by
/// `weight`.
#[target(rows)]
fn rms_norm(
    #[dimensions(.., n)] x: &Operand<f32>,
    #[dimensions(n)] weight: &Operand<f32, 1>,
    #[dimensions(.., n)] y: &mut ResultBuffer<f32>,
    #[attr] eps: f32,
) -> Result<(), Failure> {
    check(x, weight, eps)?;
    y.expect_dimensions(x.dimensions())?;
    expect_rows(&[("x", x.shape()), ("y", y.shape())])?;
    kernel::rms_norm(x, weight, eps, y);
    Ok(())
}

/// Computes the cotangents of `x` and `weight` from the cotangent `dy` of the result of `rms_norm`.
#[target(pure)]
#[derivative_of(rms_norm)]
fn rms_norm_grad(
    #[dimensions(.., n)] x: &Operand<f32>,
    #[dimensions(n)] weight: &Operand<f32, 1>,
    #[dimensions(.., n)] dy: &Operand<f32>,
    #[dimensions(.., n)] dx: &mut ResultBuffer<f32>,
    #[dimensions(n)] dweight: &mut ResultBuffer<f32, 1>,
    #[attr] eps: f32,
) -> Result<(), Failure> {
    check(x, weight, eps)?;
    if dy.dimensions() != x.dimensions() {
        return Err(Failure::invalid_argument(format!(
            "expected dy to have the dimensions of x, {:?}, found {:?}",
            x.dimensions(),
            dy.dimensions()
        )));
    }
    dx.expect_dimensions(x.dimensions())?;
    dweight.expect_dimensions(weight.dimensions())?;
    expect_rows(&[("x", x.shape()), ("dy", dy.shape()), ("dx", dx.shape())])?;
    kernel::rms_norm_grad(x, weight, dy, eps, dx, dweight);
    Ok(())
}

/// Checks that rows are as long as `weight`, and that `eps` is finite and not negative.
fn check(x: &Operand<f32>, weight: &Operand<f32, 1>, eps: f32) -> Result<(), Failure> {
    if x.dimensions().last() != weight.dimensions().first() {
        return Err(Failure::invalid_argument(format!(
            "expected rows of x as long as weight, {} elements, found the dimensions {:?}",
            weight.len(),
            x.dimensions()
        )));
    }
    if eps.is_finite() && eps >= 0.0 {
        Ok(())
    } else {
        Err(Failure::invalid_argument(format!(
            "expected eps to be finite and not negative, found {eps}"
        ))
        .recoverable())
    }
}

fn expect_rows(buffers: &[(&str, Shape<'_>)]) -> Result<(), Failure> {
    match buffers.iter().find(|(_, shape)| !shape.is_row_major()) {
        None => Ok(()),
        Some((name, shape)) => Err(Failure::invalid_argument(format!(
            "expected rows in memory, a row-major layout of {name}, found {shape:?}"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use callbox_guest::native::Call;

    fn message(call: &mut Call) -> String {
        match call.run::<super::rms_norm>() {
            Ok(()) => "OK".to_owned(),
            Err(failure) => failure.to_string(),
        }
    }

    #[test]
    fn rows_are_normalised_at_any_rank() {
        for dimensions in [&[2][..], &[1, 2], &[1, 1, 2]] {
            let mut call = Call::new();
            call.operand(&[1.0_f32, -7.0], dimensions)
                .operand(&[1.0_f32, 10.0], &[2])
                .result::<f32>(dimensions)
                .attribute("eps", 0.0_f32);
            assert_eq!(message(&mut call), "OK");
            assert_eq!(call.result_elements::<f32>(0), [0.2, -14.0]);
        }
    }

    #[test]
    fn a_gradient_is_one_of_each_operand() {
        let mut call = Call::new();
        call.operand(&[1.0_f32, -7.0], &[1, 2])
            .operand(&[1.0_f32, 10.0], &[2])
            .operand(&[1.0_f32, 0.0], &[1, 2])
            .result::<f32>(&[1, 2])
            .result::<f32>(&[2])
            .attribute("eps", 0.0_f32);
        assert_eq!(call.run::<super::rms_norm_grad>(), Ok(()));
        // Calculated by hand with s = 1/5: s - s^3 / 2 and 7 s^3 / 2; dy x s.
        assert_eq!(call.result_elements::<f32>(0), [0.196, 0.028]);
        assert_eq!(call.result_elements::<f32>(1), [0.2, 0.0]);
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let mut call = Call::new();
        call.operand(&[1.0_f32; 6], &[2, 3])
            .operand(&[1.0_f32; 2], &[2])
            .result::<f32>(&[2, 3])
            .attribute("eps", 0.0_f32);
        assert_eq!(
            message(&mut call),
            "INVALID_ARGUMENT: expected rows of x as long as weight, 2 elements, found the dimensions [2, 3]"
        );
        for eps in [-1.0_f32, f32::NAN, f32::INFINITY] {
            let mut call = Call::new();
            call.operand(&[1.0_f32; 2], &[2])
                .operand(&[1.0_f32; 2], &[2])
                .result::<f32>(&[2])
                .attribute("eps", eps);
            assert!(message(&mut call).contains("expected eps to be finite and not negative"));
        }
        let mut call = Call::new();
        call.operand(&[1.0_f32; 4], &[2, 2])
            .operand(&[1.0_f32; 2], &[2])
            .result::<f32>(&[2, 2])
            .attribute("eps", 0.0_f32)
            .minor_to_major(&[0, 1]);
        assert!(message(&mut call).contains("expected rows in memory"));
    }
}
