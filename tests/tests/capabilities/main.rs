//! The grants of a policy: which imports they allow, and that they allow nothing else.
#![cfg(unix)]
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "a test fails by panicking, and works on files of its own"
)]

mod c_guest;
mod imports;
mod limits;
mod log;
mod paths;
mod script;
mod sources;
mod tree;

use callbox::policy::Policy;
use callbox::wasm::{Config, Engine};

/// Makes an engine with this policy.
fn engine(policy: Policy) -> Engine {
    let config = Config {
        policy,
        ..Config::default()
    };
    Engine::with_config(config).unwrap()
}

/// Parses the steps of a script, in the format of `paths.json`.
fn steps(json: serde_json::Value) -> Vec<script::Step> {
    serde_json::from_value(json).unwrap()
}
