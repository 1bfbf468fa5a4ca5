//! The command line as a process: what it takes, what it prints, what it leaves behind, and how it exits.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "tests fail by panicking, and work on files of their own"
)]

#[cfg(unix)]
mod cache;
mod call;
mod capabilities;
mod cuda;
mod doctor;
mod guests;
mod inputs;
mod inspect;
#[cfg(unix)]
mod interrupt;
mod manifests;
mod modules;
mod outputs;
mod policy;
mod run;
mod support;
mod usage;
#[cfg(target_os = "linux")]
mod walls;
