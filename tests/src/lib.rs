//! The conformance suite's runner: cases are data, and this crate reads, runs and judges them.
//!
//! [`discover`] finds the cases, [`case`] reads one, [`run`] runs it on a backend, [`compare`] holds what it gave
//! against what it expects. The runner knows callbox by its public interface only. `tests/README.md` has the
//! format.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

pub mod case;
pub mod compare;
pub mod discover;
pub mod element;
pub mod literal;
pub mod minifloat;
pub mod module;
pub mod npy;
pub mod run;
