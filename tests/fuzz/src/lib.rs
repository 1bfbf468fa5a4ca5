//! Fuzz targets, each with its oracle, and their drivers.
//!
//! A [`Target`] passes bytes to callbox and panics if a requirement is violated. An input that
//! makes it panic, abort or hang is a find. There are three drivers: `cargo test -p callbox-fuzz`
//! (seeds, regressions and a fixed set of generated inputs), `cargo xtask fuzz` (generated inputs
//! for a given time: [`drive`]), and libFuzzer (`libfuzzer/`), which is guided by coverage.
//! `tests/README.md` has the rest.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a fuzz target fails by panicking"
)]

#[path = "../../tests/cost/bodies.rs"]
mod bodies;
mod budget;
// Written from the `.wit` file, not from the host's code.
#[path = "../../tests/engine/decode.rs"]
mod decode;
pub mod drive;
mod generate;
// The generators of the cases of `tests/cost`.
#[path = "../../tests/cost/generators.rs"]
mod generators;
mod interpret;
pub mod mutate;
#[path = "../../tests/cost/names.rs"]
mod names;
pub mod outcome;
#[path = "../../tests/cost/pieces.rs"]
mod pieces;
mod records;
#[path = "../../tests/cost/sections.rs"]
mod sections;
pub mod seeds;
pub mod targets;
#[path = "../../tests/cost/wide.rs"]
mod wide;

use outcome::Outcome;

/// A fuzz target.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// The name, which is also that of its folders of seeds and regressions.
    pub name: &'static str,
    /// Runs an input. Panics if a requirement is violated.
    pub run: fn(&[u8]) -> Outcome,
    /// The longest input.
    pub max_len: usize,
    /// The number of inputs that `cargo test` generates.
    pub executions: u64,
    /// Tokens for generated inputs.
    pub words: &'static [&'static str],
}

/// All targets.
pub const TARGETS: &[Target] = &[
    targets::hlo_text::TARGET,
    targets::metadata::TARGET,
    targets::attributes::TARGET,
    targets::arrays::TARGET,
    targets::policy::TARGET,
    targets::manifest::TARGET,
    targets::frame::TARGET,
    targets::program::TARGET,
    targets::module::TARGET,
    targets::cost::TARGET,
    targets::bundle::TARGET,
];

/// Looks up a target by its name.
#[must_use]
pub fn target(name: &str) -> Option<&'static Target> {
    TARGETS.iter().find(|target| target.name == name)
}
