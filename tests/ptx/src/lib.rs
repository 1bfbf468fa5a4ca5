//! Kernels for tests of the PTX fence: hostile ones with their expectations, random ones, and
//! launches of this repository's kernels.
//!
//! The stand-in for CUDA's driver, `gpu-check` and `cargo xtask ptx` run them.

pub mod hostile;
pub mod launch;
pub mod random;

/// The contents of a buffer before a launch.
pub fn content(bytes: u64) -> Vec<u8> {
    (0..bytes).map(|at| (at * 7 % 64) as u8).collect()
}
