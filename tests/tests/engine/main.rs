//! Engines and their calls in one process, as an embedder uses them. Tests that measure time, need
//! all of a processor or change the process have executables of their own.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod callbacks;
mod decode;
mod deleters;
mod deterministic;
mod embedder;
mod hostile_sizes;
mod instances;
mod jax_ffi;
mod properties;
mod purity;
