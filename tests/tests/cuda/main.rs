//! callbox's CUDA backend on the stand-in driver, which is not a GPU.
//!
//! The tests have a process of their own, because the stand-in must be loaded before CUDA is first
//! used.
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
mod fenced;
mod graph_failures;
mod graphs;
mod libraries;
mod mapped;
mod rig;
mod sweep;
mod targets;
