//! The purity check detects targets that are not pure: results from random bytes, and random
//! failures.
//!
//! Cases that need no grant are in `tests/cases/purity`.

use callbox::call::Platform;
use callbox::policy::{Grants, Policy, Randomness};
use callbox::program::{Executable, ExecuteOptions, Program};
use callbox::wasm::{Config, Engine};
use callbox::{Blame, CallSite, Registry, Result, StatusCode};

/// The result is sixteen random bytes. `sometimes` traps for half of all first bytes.
const RANDOM: &str = r#"(module
  (import "wasi_snapshot_preview1" "random_get" (func $random (param i32 i32) (result i32)))
  (memory (export "memory") 1)
  (func (export "bytes") (param $out i32) (param i32)
    (drop (call $random (local.get $out) (i32.const 16))))
  (func (export "sometimes") (param $out i32) (param i32)
    (drop (call $random (i32.const 0) (i32.const 1)))
    (if (i32.and (i32.load8_u (i32.const 0)) (i32.const 1)) (then (unreachable))))
  (@custom "callbox.targets" "{\"name\": \"bytes\", \"api_version\": \"API_VERSION_ORIGINAL\", \"traits\": [\"pure\"]} {\"name\": \"sometimes\", \"api_version\": \"API_VERSION_ORIGINAL\", \"traits\": [\"pure\"]}"))"#;

const PROGRAM: &str = r#"HloModule pure

ENTRY main {
  ROOT r = u8[16] custom-call(), custom_call_target="bytes", api_version=API_VERSION_ORIGINAL
}"#;

/// Calls one of its targets. Returns the outcome and the result's bytes, which were all 7 before.
fn call(check_pure: bool, randomness: Randomness, target: &str) -> (Result<()>, [u8; 16]) {
    let mut policy = Policy {
        check_pure,
        ..Policy::default()
    };
    policy.limits.instances = 4;
    let config = Config {
        policy,
        ..Config::default()
    };
    let grants = Grants {
        randomness: Some(randomness),
        ..Grants::default()
    };
    let wasm = wat::parse_str(RANDOM).unwrap();
    let engine = Engine::with_config(config).unwrap();
    let module = engine.load_with(&wasm, &grants).unwrap();
    let mut site = CallSite::new(target, Vec::new(), "u8[16]".parse().unwrap());
    site.api_version = callbox::call::ApiVersion::Original;
    let mut bytes = [7; 16];
    let outcome = module
        .prepare_call(site)
        .unwrap()
        .call(&[], &mut [&mut bytes]);
    (outcome, bytes)
}

#[test]
fn other_bits_are_found() {
    let (outcome, bytes) = call(true, Randomness::System, "bytes");
    let status = outcome.unwrap_err();
    assert_eq!(
        (status.code(), status.blame()),
        (StatusCode::Internal, Blame::Guest)
    );
    assert!(
        status.message().contains(
            ": target \"bytes\": expected a target that is declared pure to give the same twice, found result 0 with other bits"
        ),
        "{status}"
    );
    assert_eq!(bytes, [7; 16], "a failed call writes no results");
    // It passes without the check, and with deterministic random bytes, which restart in each
    // instance.
    call(false, Randomness::System, "bytes").0.unwrap();
    let (outcome, bytes) = call(true, Randomness::Seed(1), "bytes");
    outcome.unwrap();
    assert_ne!(bytes, [7; 16]);
}

#[test]
fn a_failure_now_and_then_is_found() {
    let found = (0..64).any(|_| {
        let outcome = call(true, Randomness::System, "sometimes").0;
        outcome.is_err_and(|status| status.code() == StatusCode::Internal)
    });
    assert!(found, "in 64 times it never differed");
}

#[test]
fn a_program_that_is_checked_needs_one_instance() {
    let mut policy = Policy {
        check_pure: true,
        ..Policy::default()
    };
    policy.limits.instances = 1;
    let engine = Engine::with_config(Config {
        policy,
        ..Config::default()
    });
    let grants = Grants {
        randomness: Some(Randomness::Seed(1)),
        ..Grants::default()
    };
    let wasm = wat::parse_str(RANDOM).unwrap();
    let mut registry = Registry::new();
    let module = engine.unwrap().load_with(&wasm, &grants).unwrap();
    registry.register_module(module).unwrap();
    let program = Program::from_hlo_text(PROGRAM).unwrap();
    let executable = Executable::compile(&program, &registry, Platform::Host).unwrap();
    executable
        .execute(0, &[], &ExecuteOptions::default())
        .unwrap();
}
