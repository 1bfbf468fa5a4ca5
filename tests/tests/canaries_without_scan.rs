//! The canaries of `canaries.rs` where the kernel does not say which pages were written to: memory is then given back in another way. It takes a
//! process of its own, because wasmtime looks once for each process whether it can ask.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod canary;

use std::fs;

use callbox::policy::{Isolation, Policy, Traps};
use callbox::wasm::{Config, Engine};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Whether this process has the file open by which one asks.
fn asks() -> bool {
    fs::read_dir("/proc/self/fd").unwrap().any(|entry| {
        let target = fs::read_link(entry.unwrap().path());
        target.is_ok_and(|target| target.ends_with("pagemap"))
    })
}

#[test]
fn nothing_is_left_where_pages_are_given_back() {
    // While no file can be opened, wasmtime finds that it cannot ask.
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
