//! The runner of the conformance suite: cases are data, and this crate reads, runs and judges them.
//!
//! [`discover`] finds the cases, [`case`] reads one, [`run`] runs it on a [`platform`] and judges
//! it, [`compare`] compares arrays, [`suite`] runs many cases, [`report`] shows the results,
//! [`soak`] mixes cases with other calls for a given time, and [`fenced`] calls PTX without a
//! grant. The runner uses callbox's public interface only. The format of cases is in
//! `tests/README.md`.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

pub mod abi_records;
pub mod case;
pub mod compare;
pub mod date;
pub mod discover;
pub mod element;
pub mod fenced;
pub mod jax_ffi;
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
