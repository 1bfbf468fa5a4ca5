//! The command line as a process: arguments, output, files and exit codes.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "tests fail by panicking, and work on files of their own"
)]

mod authors;
mod bundles;
#[cfg(unix)]
mod cache;
mod call;
mod capabilities;
mod capsules;
#[cfg(all(unix, feature = "fetch"))]
mod committing_hub;
mod completions;
#[cfg(target_os = "linux")]
mod cost;
mod cuda;
mod differences;
mod doctor;
mod embedded;
#[cfg(feature = "cuda")]
mod fenced;
#[cfg(all(unix, feature = "fetch"))]
mod fetch;
#[cfg(all(unix, feature = "fetch"))]
mod fetched_bundles;
mod folders;
mod guests;
mod hub;
#[cfg(all(unix, feature = "fetch"))]
mod indexes;
mod inputs;
mod inspect;
#[cfg(unix)]
mod interrupt;
mod kernels;
mod kernels_in_python;
mod locks;
#[cfg(all(unix, feature = "fetch"))]
mod lying_hub;
mod manifests;
mod modules;
mod outputs;
mod packages;
#[cfg(all(unix, feature = "fetch"))]
mod passwords;
mod policy;
mod programs;
#[cfg(feature = "cuda")]
mod ptx;
#[cfg(all(unix, feature = "fetch"))]
mod published;
mod published_folders;
#[cfg(all(unix, feature = "fetch"))]
mod real_registry;
mod recorded;
#[cfg(all(unix, feature = "fetch"))]
mod referrers;
#[cfg(all(unix, feature = "fetch"))]
mod registries;
#[cfg(all(unix, feature = "fetch"))]
mod registry;
mod replaced;
#[cfg(all(unix, feature = "fetch"))]
mod resumed;
mod run;
#[cfg(target_os = "linux")]
mod scarcity;
#[cfg(all(unix, feature = "fetch"))]
mod server;
#[cfg(feature = "cuda")]
mod shadowed;
mod signing;
#[cfg(all(target_os = "linux", feature = "fetch"))]
mod stopped;
mod support;
#[cfg(feature = "cuda")]
mod traced;
mod twins;
#[cfg(all(unix, feature = "fetch"))]
mod updated;
mod usage;
#[cfg(target_os = "linux")]
mod walls;
