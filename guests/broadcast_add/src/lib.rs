//! The example of XLA's custom-call documentation, `A[i] = B[i % 128] + C[i]`, for any lengths. The
//! guest does not use the standard library.
#![cfg_attr(target_arch = "wasm32", no_std)]

pub mod kernel;

use callbox_guest::{Failure, Operand, ResultBuffer, target};

callbox_guest::runtime!();

/// Adds `b`, repeated as often as needed, to `c`.
#[target(pure)]
fn broadcast_add(
    #[dimensions(m)] b: &Operand<f32, 1>,
    #[dimensions(n)] c: &Operand<f32, 1>,
    #[dimensions(n)] a: &mut ResultBuffer<f32, 1>,
) -> Result<(), Failure> {
    a.expect_dimensions(c.dimensions())?;
    if b.is_empty() && !c.is_empty() {
        return Err(Failure::invalid_argument(
            "expected at least one element to repeat, found none",
        ));
    }
    kernel::broadcast_add(b, c, a);
    Ok(())
}

#[cfg(test)]
mod tests {
    use callbox_guest::native::Call;

    /// A call of `broadcast_add` on zeros of these lengths.
    fn outcome(b: usize, c: usize, a: i64) -> String {
        let mut call = Call::new();
        call.operand(&vec![0.0_f32; b], &[b as i64])
            .operand(&vec![0.0_f32; c], &[c as i64])
            .result::<f32>(&[a]);
        match call.run::<super::broadcast_add>() {
            Ok(()) => String::from("OK"),
            Err(failure) => failure.to_string(),
        }
    }

    #[test]
    fn any_lengths_do_if_there_is_something_to_repeat() {
        assert_eq!(outcome(128, 2048, 2048), "OK");
        assert_eq!(outcome(3, 2, 2), "OK");
        assert_eq!(outcome(0, 0, 0), "OK");
        assert_eq!(
            outcome(0, 2, 2),
            "INVALID_ARGUMENT: expected at least one element to repeat, found none"
        );
    }

    #[test]
    fn the_result_is_as_long_as_the_second_operand() {
        assert_eq!(
            outcome(2, 4, 3),
            "INVALID_ARGUMENT: Wrong result dimensions: expected [4] but got [3]"
        );
    }
}
