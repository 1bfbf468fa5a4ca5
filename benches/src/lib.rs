//! Benchmarks. Each measures callbox and its baseline in one run, in one criterion group, so that `ratios` can say one
//! through the other.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::missing_panics_doc,
    reason = "a benchmark that cannot be set up has nothing to say"
)]

pub mod cold_start;
pub mod conventions;
pub mod data_plane;
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

/// The target that does nothing, which every overhead is measured with.
pub const EMPTY_KERNEL: &str = r#"
(module
  (memory (export "memory") 1)
  (func (export "empty") (param i32) (result i32) i32.const 0))
"#;

/// A guest as `cargo xtask guests` built it.
#[must_use]
pub fn guest(name: &str) -> Vec<u8> {
    let path =
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("../target/guests/{name}.wasm"));
    std::fs::read(&path).unwrap_or_else(|error| panic_missing(&path, &error))
}

#[expect(
    clippy::panic,
    reason = "a benchmark without its guest has nothing to say"
)]
fn panic_missing(path: &std::path::Path, error: &std::io::Error) -> ! {
    panic!(
        "expected {}, which `cargo xtask guests` builds: {error}",
        path.display()
    )
}

/// Loads a module given as text.
#[must_use]
pub fn load_text(engine: &Engine, text: &str) -> Arc<Module> {
    engine.load(&wat::parse_str(text).unwrap()).unwrap()
}

/// Numbers that are not all alike.
#[must_use]
pub fn floats(count: usize) -> Vec<f32> {
    (0..count).map(|i| (i % 1013) as f32 * 0.01 - 5.0).collect()
}

/// Their bytes.
#[must_use]
pub fn bytes(values: &[f32]) -> Vec<u8> {
    values
        .iter()
        .flat_map(|value| value.to_le_bytes())
        .collect()
}
