//! The example of the JAX FFI proposal: `x + n` for any `x`, with `n` an attribute. The guest does
//! not use the standard library, which keeps it small.
#![cfg_attr(target_arch = "wasm32", no_std)]

use callbox_guest::{Failure, Operand, ResultBuffer, target};

callbox_guest::runtime!();

/// Adds the attribute `n`, which must not be negative, to every element of `x`.
#[target(elementwise)]
fn add_n(
    #[dimensions(..)] x: &Operand<f32>,
    #[dimensions(..)] y: &mut ResultBuffer<f32>,
    #[attr] n: f32,
) -> Result<(), Failure> {
    if n < 0.0 {
        return Err(Failure::invalid_argument("Info must be >= 0").recoverable());
    }
    y.expect_dimensions(x.dimensions())?;
    for (y, x) in y.iter_mut().zip(x.iter()) {
        *y = x + n;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use callbox_guest::Failure;
    use callbox_guest::native::Call;

    #[test]
    fn four_and_four_are_eight() {
        let mut call = Call::new();
        call.operand(&[4.0_f32], &[])
            .result::<f32>(&[])
            .attribute("n", 4.0_f32);
        assert_eq!(call.run::<super::add_n>(), Ok(()));
        assert_eq!(call.result_elements::<f32>(0), [8.0]);
    }

    #[test]
    fn a_negative_n_is_the_callers_to_mend() {
        let mut call = Call::new();
        call.operand(&[4.0_f32], &[1])
            .result::<f32>(&[1])
            .attribute("n", -1.0_f32);
        let expected = Failure::invalid_argument("Info must be >= 0").recoverable();
        assert_eq!(call.run::<super::add_n>(), Err(expected));
    }
}
