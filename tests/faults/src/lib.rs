//! Fault injection at the boundary: runs the cases of the conformance suite while altering what the
//! host reads from guests.
//!
//! This crate builds callbox with its feature `fault-injection`. Every number that a guest's
//! function returns or passes to an import, every byte that the host reads from a guest's memory,
//! and the memory's size pass through one module, which alters them by a schedule: it flips a bit,
//! or substitutes an extreme, a neighbour, a random value or an earlier read. The technique is
//! SbxBrk's. A hostile guest could have sent each altered value itself, so the host must stay safe.
//!
//! # Requirements on a run
//!
//! 1. Nothing panics, nothing hangs, and the process survives.
//! 2. Each step ends in a status or in results. A status never blames the host, its text is
//!    printable, and a failed call leaves the caller's results unchanged.
//! 3. Results have the shapes and sizes of an unaltered run, and no byte around the caller's
//!    buffers changes.
//! 4. Results also have the same bits, unless a value was altered that they depend on. They depend
//!    on everything that a guest says except its log messages and the texts of its failures: the
//!    arena's place, the bytes of a result, the code that reports success. With such a value
//!    altered, the host rightly believes a different guest. A case that fails still fails if only
//!    texts were altered.
//! 5. A code altered to report a failure makes the call fail, unless the guest calls back and may
//!    handle it.
//! 6. Another executable, whose instance is adjacent, keeps its memory unchanged, and works.
//! 7. The same case, prepared anew on the same engine and unaltered, passes.
//!
//! A run is identified by its case and its schedule. `cargo run -p callbox-fault-injection --
//! --case NAME --seed N` repeats it, as does `--read K --mutation M` where one read alone was
//! altered.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

pub mod bystander;
pub mod campaign;
pub mod oracle;
pub mod panics;
pub mod subject;
pub mod tally;
pub mod watchdog;
