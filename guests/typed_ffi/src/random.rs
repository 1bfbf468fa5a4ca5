//! Random bytes.

use callbox_guest::{Failure, ResultBuffer, StatusCode, random, target};

/// Fills the result with bytes of the crate getrandom, from a seed if there is one.
#[target]
fn noise(y: &mut ResultBuffer<u8>, #[attr] seed: Option<u64>) -> Result<(), Failure> {
    if let Some(seed) = seed {
        random::seed(seed);
    }
    getrandom::fill(y).map_err(|error| Failure::new(StatusCode::Unavailable, error.to_string()))
}
