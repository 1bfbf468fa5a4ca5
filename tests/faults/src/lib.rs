//! Fault injection at the boundary: the cases of the conformance suite run while what the host reads from guests is altered.
//!
//! callbox is built with its feature `fault-injection` here. Each number that a guest's function returns or hands to an import, all that the host
//! reads from a guest's memory, and the memory's size pass through one module, which alters them by a schedule: one bit, an
//! extreme, a neighbour, something random, or what was read before. The technique is SbxBrk's: whatever is altered is something
//! that a hostile guest could have said itself, so that the host must be as safe as before.
//!
//! # What must hold of a run
//!
//! 1. Nothing panics, nothing hangs, the process lives.
//! 2. Each step ends in a status or in results. A status is never the host's own fault, its text is fit to be shown, and a
//!    failed call has not touched the caller's results.
//! 3. Results have the shapes and the sizes that they have when nothing is altered, and nothing around the caller's buffers is written to.
//! 4. Results also have the very bits, as long as nothing was altered that they follow from. They follow from all that a
//!    guest says but for what it logs and the text of its failures: the arena's place, the bytes of a result, the code that says
//!    there are results. What is altered there is another guest's answer, and the host is right to believe it. Where the case fails, it
//!    still fails if nothing was altered but texts.
//! 5. A code that is altered to say that the call failed makes a call fail, unless the guest calls back and may handle it.
//! 6. Another executable, whose instance lies next to the altered one's, has all of its memory as it was, and works.
//! 7. The same case, prepared anew on the same engine and not altered, does exactly what it expects.
//!
//! A run is known by its case and its schedule, and `cargo run -p callbox-fault-injection -- --case NAME --seed N` runs it again,
//! as does `--read K --mutation M` where one read alone was altered.
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
