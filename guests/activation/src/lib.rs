//! Squareplus, a smooth approximation of the positive part without exponentials, and its gradient.
//! JAX has it under the same name.

pub mod kernel;

use callbox_guest::{Element, Failure, Operand, ResultBuffer, Shape, target};

use kernel::Real;

/// Computes the squareplus of each element: `(x + sqrt(x^2 + beta)) / 2`.
#[target(elementwise, T = [f32, f64])]
fn squareplus<T: Element + Real>(
    #[dimensions(..)] x: &Operand<T>,
    #[dimensions(..)] y: &mut ResultBuffer<T>,
    #[attr] beta: f32,
) -> Result<(), Failure> {
    check_beta(beta)?;
    expect_like(x.shape(), "y", y.shape())?;
    kernel::squareplus(x, beta, y);
    Ok(())
}

/// Computes the cotangent of `x` from the cotangent `dy` of the result:
/// `dy (1 + x / sqrt(x^2 + beta)) / 2`.
#[target(elementwise, T = [f32, f64])]
#[derivative_of(squareplus)]
fn squareplus_grad<T: Element + Real>(
    #[dimensions(..)] x: &Operand<T>,
    #[dimensions(..)] dy: &Operand<T>,
    #[dimensions(..)] dx: &mut ResultBuffer<T>,
    #[attr] beta: f32,
) -> Result<(), Failure> {
    check_beta(beta)?;
    expect_like(x.shape(), "dy", dy.shape())?;
    expect_like(x.shape(), "dx", dx.shape())?;
    kernel::squareplus_grad(x, dy, beta, dx);
    Ok(())
}

fn check_beta(beta: f32) -> Result<(), Failure> {
    if beta.is_finite() && beta >= 0.0 {
        Ok(())
    } else {
        Err(Failure::invalid_argument(format!(
            "expected beta to be finite and not negative, found {beta}"
        ))
        .recoverable())
    }
}

/// Checks that the arrays have the same layout, so that equal offsets mean equal indices.
fn expect_like(x: Shape<'_>, name: &str, other: Shape<'_>) -> Result<(), Failure> {
    if x == other {
        Ok(())
    } else {
        Err(Failure::invalid_argument(format!(
            "expected {name} to have the dimensions and the layout of x, {x:?}, found {other:?}"
        )))
    }
}

#[cfg(test)]
mod tests {
    use callbox_guest::Failure;
    use callbox_guest::native::Call;

    #[test]
    fn both_types_and_any_dimensions_will_do() {
        for dimensions in [&[2][..], &[2, 1], &[1, 2, 1]] {
            let mut call = Call::new();
            call.operand(&[3.0_f32, -3.0], dimensions)
                .result::<f32>(dimensions)
                .attribute("beta", 16.0_f32);
            assert_eq!(call.run::<super::squareplus>(), Ok(()));
            assert_eq!(call.result_elements::<f32>(0), [4.0, 1.0]);
        }
        let mut call = Call::new();
        call.operand(&[3.0_f64], &[])
            .operand(&[10.0_f64], &[])
            .result::<f64>(&[])
            .attribute("beta", 16.0_f32);
        assert_eq!(call.run::<super::squareplus_grad>(), Ok(()));
        assert_eq!(call.result_elements::<f64>(0), [8.0]);
    }

    #[test]
    fn beta_is_the_callers_to_mend() {
        for beta in [-1.0_f32, f32::NAN, f32::INFINITY] {
            let mut call = Call::new();
            call.operand(&[3.0_f32], &[1])
                .result::<f32>(&[1])
                .attribute("beta", beta);
            let message = format!("expected beta to be finite and not negative, found {beta}");
            let expected = Failure::invalid_argument(message).recoverable();
            assert_eq!(call.run::<super::squareplus>(), Err(expected));
        }
    }

    #[test]
    fn other_dimensions_are_refused() {
        let mut call = Call::new();
        call.operand(&[3.0_f32; 4], &[2, 2])
            .operand(&[3.0_f32; 4], &[4])
            .result::<f32>(&[2, 2])
            .attribute("beta", 1.0_f32);
        let message =
            "expected dy to have the dimensions and the layout of x, [2,2]{1,0}, found [4]{0}";
        assert_eq!(
            call.run::<super::squareplus_grad>(),
            Err(Failure::invalid_argument(message))
        );
    }
}
