//! callbox's CUDA backend on the stand-in driver: what it does with devices, streams and failures. A result from here is no GPU's.
//!
//! A process of its own, for the stand-in has to be there before anything asks for CUDA.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test fails by panicking, and the sweep says how far it went"
)]

mod bad_input;
mod borrowed;
mod captured;
mod graphs;
mod libraries;
mod mapped;
mod rig;
mod sweep;
mod targets;
