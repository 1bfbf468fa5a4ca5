//! The canaries of `canaries.rs` on kernels that do not report which pages were written to;
//! wasmtime then clears memory in another way. This test needs its own process, because wasmtime
//! checks for the feature once per process.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod canary;

use std::fs;

use callbox::policy::{Isolation, Policy, Traps};
use callbox::wasm::{Config, Engine};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Returns whether this process has the file open through which wasmtime asks the kernel.
fn asks() -> bool {
    fs::read_dir("/proc/self/fd").unwrap().any(|entry| {
        let target = fs::read_link(entry.unwrap().path());
        target.is_ok_and(|target| target.ends_with("pagemap"))
    })
}

#[test]
fn nothing_is_left_where_pages_are_given_back() {
    // With no descriptor available, wasmtime concludes that it cannot ask.
    let before = getrlimit(Resource::Nofile);
    let none = Rlimit {
        current: Some(0),
        ..before
    };
    setrlimit(Resource::Nofile, none).unwrap();
    let engine = Engine::with_config(Config {
        policy: Policy::default(),
        ..Config::default()
    });
    setrlimit(Resource::Nofile, before).unwrap();
    drop(engine.unwrap());
    for isolation in [Isolation::Executable, Isolation::Fresh] {
        for traps in [Traps::Signals, Traps::Explicit] {
            canary::nothing_is_left(isolation, traps);
        }
    }
    assert!(!asks());
}
