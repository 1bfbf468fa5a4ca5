//! The accuracy of each function, beside references with more digits, and what it does with special
//! values, with lengths of all kinds, and when it is stopped.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::needless_range_loop,
    reason = "a test fails by panicking, prints the errors it measured, and numbers rows"
)]

mod accuracy;
mod convert;
mod double;
mod elements_f64;
mod fft;
mod narrow;
mod products;
mod rows;

use std::convert::Infallible;

fn go_on() -> Result<(), Infallible> {
    Ok(())
}

/// Numbers between -4 and 4 without a pattern.
fn numbers(count: usize, seed: u32) -> Vec<f32> {
    let mut state = seed.wrapping_mul(2_654_435_761) | 1;
    (0..count)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 17;
            state ^= state << 5;
            (state >> 8) as f32 / (1 << 21) as f32 - 4.0
        })
        .collect()
}
