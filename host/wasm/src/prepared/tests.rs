//! Compares mapped calls with loops of plain ones.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod batches;
mod cutting;
mod failures;
mod guest;
mod memory;

use std::sync::{Arc, LazyLock};

use self::guest::GUEST;
use self::memory::Memory;
use super::*;
use crate::{Config, Engine};
use callbox_core::policy::Policy;
use callbox_core::values::{Shape, StatusCode};

/// The guest on an engine with this policy.
fn load(policy: Policy) -> Arc<Module> {
    let config = Config {
        policy,
        ..Config::default()
    };
    let engine = Engine::with_config(config).unwrap();
    engine.load(&wat::parse_str(GUEST).unwrap()).unwrap()
}

/// The guest with the default policy except for the number of instances.
fn module() -> Arc<Module> {
    static MODULE: LazyLock<Arc<Module>> = LazyLock::new(|| {
        let mut policy = Policy::default();
        policy.limits.instances = 16;
        load(policy)
    });
    Arc::clone(&MODULE)
}

fn mapping(batch_dimensions: usize, piece_bytes: impl Into<Option<usize>>) -> Mapping {
    Mapping {
        batch_dimensions,
        piece_bytes: piece_bytes.into(),
    }
}

/// A call site with these shapes, of which the result's may be a tuple.
fn site(target: &str, operands: &[&str], result: &str) -> CallSite {
    let operands = operands.iter().map(|shape| shape.parse().unwrap());
    CallSite::new(target, operands.collect(), result.parse().unwrap())
}

/// The bytes of elements.
fn bytes(elements: &[f32]) -> Vec<u8> {
    elements.iter().flat_map(|x| x.to_le_bytes()).collect()
}

/// The elements that bytes contain.
fn floats(bytes: &[u8]) -> Vec<f32> {
    let (words, []) = bytes.as_chunks::<4>() else {
        panic!("expected elements of four bytes, found {}", bytes.len());
    };
    words.iter().map(|word| f32::from_le_bytes(*word)).collect()
}

fn options() -> CallOptions {
    CallOptions::default()
}

/// Checks the status and the message of a failed call.
#[track_caller]
fn fails(outcome: Result<()>, code: StatusCode, message: &str) -> Status {
    let status = outcome.unwrap_err();
    assert_eq!(status.code(), code, "{status}");
    assert!(status.message().starts_with(message), "{status}");
    status
}

fn is_cut(call: &PreparedCall) -> bool {
    call.is_cut()
}
