//! With explicit checks callbox installs no signal handlers, whatever a guest does.
//!
//! It has its own `main`: signal handlers belong to the whole process, so other tests beside it
//! would affect the outcome.

use std::process::ExitCode;

#[cfg(target_os = "linux")]
mod linux {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use callbox::policy::{Policy, Traps};
    use callbox::wasm::{Config, Engine};
    use callbox::{CallSite, Shape, StatusCode};

    const MODULE: &str = r#"(module
      (memory (export "memory") 1)
      (func (export "load") (param i32) (result i32)
        (i32.load (i32.const -8)))
      (func (export "divide") (param i32) (result i32)
        (i32.div_u (i32.const 1) (i32.load (i32.const 0))))
      (func (export "unreachable") (param i32) (result i32)
        (unreachable))
      (func $deeper (export "stack") (param i32) (result i32)
        (i32.add (call $deeper (i32.add (local.get 0) (i32.const 1))) (local.get 0)))
      (func (export "healthy") (param i32) (result i32) (i32.const 0)))"#;

    /// Returns the signals that have a handler, bit `n - 1` for signal `n`. glibc's internal
    /// signals 32 and 33, which threads install, are left out.
    fn caught() -> u64 {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let mut lines = status.lines();
        let mask = lines.find_map(|line| line.strip_prefix("SigCgt:")).unwrap();
        u64::from_str_radix(mask.trim(), 16).unwrap() & !(bit(32) | bit(33))
    }

    fn bit(signal: libc::c_int) -> u64 {
        1 << (signal - 1)
    }

    /// Runs guests that trap in each way that a processor can report.
    fn trap(traps: Traps) {
        let mut policy = Policy {
            traps,
            ..Policy::default()
        };
        policy.limits.instances = 4;
        let engine = Engine::with_config(Config {
            policy,
            ..Config::default()
        });
        let wasm = wat::parse_str(MODULE).unwrap();
        let module = engine.unwrap().load(&wasm).unwrap();
        for (target, expected) in [
            ("load", Some(StatusCode::OutOfRange)),
            ("divide", Some(StatusCode::Aborted)),
            ("unreachable", Some(StatusCode::Aborted)),
            ("stack", Some(StatusCode::ResourceExhausted)),
            ("healthy", None),
        ] {
            let nothing = Shape::tuple(Vec::new()).unwrap();
            let site = CallSite::new(target, Vec::new(), nothing);
            let outcome = module.prepare_call(site).unwrap().call(&[], &mut []);
            let code = outcome.err().map(|status| status.code());
            assert_eq!(code, expected, "{target}, {traps:?}");
        }
    }

    pub(super) fn test() {
        let before = caught();
        // Rust's runtime handles SIGSEGV and SIGBUS for stack overflows, but not these.
        let wasmtimes = bit(libc::SIGILL) | bit(libc::SIGFPE);
        assert_eq!(before & wasmtimes, 0, "{before:x}");
        trap(Traps::Explicit);
        assert_eq!(caught(), before, "explicit checks need no handler");
        // The positive control: with signals, the handlers show.
        trap(Traps::Signals);
        let after = caught();
        assert_ne!(after & wasmtimes, 0, "{before:x} {after:x}");
        eprintln!("signals: ok");
    }
}

fn main() -> ExitCode {
    #[cfg(target_os = "linux")]
    linux::test();
    #[cfg(not(target_os = "linux"))]
    println!("signals: not run, for only Linux says which signals are caught");
    ExitCode::SUCCESS
}
