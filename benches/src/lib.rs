//! Benchmarks of callbox, each beside its baseline.
//!
//! Each criterion group holds callbox and its baseline, measured in the same run, so that the
//! `ratios` binary can print one relative to the other.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::missing_panics_doc,
    reason = "a benchmark fails by panicking"
)]

pub mod cold_start;
pub mod conventions;
pub mod cores;
pub mod data_plane;
pub mod fence;
pub mod instantiation;
pub mod kernel;
pub mod kills;
pub mod prepared_call;
pub mod program;
pub mod raw;
pub mod second_wall;
pub mod traps;

use std::path::PathBuf;
use std::sync::Arc;

use callbox::wasm::{Engine, Module};

/// A target that does nothing; calls of it measure overhead.
pub const EMPTY_KERNEL: &str = r#"
(module
  (memory (export "memory") 1)
  (func (export "empty") (param i32) (result i32) i32.const 0))
"#;

/// Reads a guest that `cargo xtask guests` built.
#[must_use]
pub fn guest(name: &str) -> Vec<u8> {
    let path =
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("../target/guests/{name}.wasm"));
    std::fs::read(&path).unwrap_or_else(|error| panic_missing(&path, &error))
}

#[expect(clippy::panic, reason = "a benchmark fails by panicking")]
fn panic_missing(path: &std::path::Path, error: &std::io::Error) -> ! {
    panic!(
        "expected {}, which `cargo xtask guests` builds: {error}",
        path.display()
    )
}

/// Loads a module from its WebAssembly text.
#[must_use]
pub fn load_text(engine: &Engine, text: &str) -> Arc<Module> {
    engine.load(&wat::parse_str(text).unwrap()).unwrap()
}

/// Returns `count` varying numbers.
#[must_use]
pub fn floats(count: usize) -> Vec<f32> {
    (0..count).map(|i| (i % 1013) as f32 * 0.01 - 5.0).collect()
}

/// Returns the little-endian bytes of the values.
#[must_use]
pub fn bytes(values: &[f32]) -> Vec<u8> {
    values
        .iter()
        .flat_map(|value| value.to_le_bytes())
        .collect()
}
