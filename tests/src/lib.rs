//! The conformance suite's runner: cases are data, and this crate reads, runs and judges them.
//!
//! [`discover`] finds the cases, [`case`] reads one, [`run`] runs it on a [`platform`] and judges it, [`compare`] holds arrays
//! against each other, [`suite`] runs many cases, [`report`] shows what came of them, and [`soak`] runs them among other things for as long as one likes. The runner knows callbox by its public interface only. `tests/README.md` has the
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
pub mod platform;
pub mod report;
pub mod root;
pub mod run;
pub mod soak;
pub mod suite;
pub mod worker;
