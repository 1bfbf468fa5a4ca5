//! Fuzz targets, each with what must hold of it, and what drives them.
//!
//! A [`Target`] takes bytes, has callbox do something with them, and panics if what must hold does not: an input that makes it panic, abort or run for ever
//! is a find. It runs under three drivers: `cargo test -p callbox-fuzz` (seeds, regressions and some inputs, the same each time), `cargo xtask fuzz`
//! (the same for as long as one likes: [`drive`]), and libFuzzer (`libfuzzer/`), which is led by coverage. `tests/README.md` has the rest.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a fuzz target fails by panicking"
)]

// Written from the `.wit` file, not from the host's code.
#[path = "../../tests/decode/mod.rs"]
mod decode;
pub mod drive;
mod generate;
mod interpret;
pub mod mutate;
pub mod outcome;
mod records;
pub mod seeds;
pub mod targets;

use outcome::Outcome;

/// What is fuzzed.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// The name: that of its folders of seeds and regressions.
    pub name: &'static str,
    /// What is done with an input. It panics if what must hold does not.
    pub run: fn(&[u8]) -> Outcome,
    /// The longest input.
    pub max_len: usize,
    /// How many inputs `cargo test` makes.
    pub executions: u64,
    /// What inputs are likely to have in them.
    pub words: &'static [&'static str],
}

/// All of them.
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
];

/// The target of this name.
#[must_use]
pub fn target(name: &str) -> Option<&'static Target> {
    TARGETS.iter().find(|target| target.name == name)
}
