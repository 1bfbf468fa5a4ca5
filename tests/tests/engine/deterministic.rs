//! The deterministic mode: the results of sample kernels have the same digests on every machine.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;

use callbox::policy::{Grants, Isolation, LogLevel, Policy, Traps};
use callbox::wasm::{Config, Engine, LogRecord, Mapping};
use callbox::{Attribute, Blame, CallSite, Dictionary, Shape, Status, StatusCode};
use callbox_tests::module::read_guest;
use sha2::{Digest, Sha256};

/// Returns numbers of all magnitudes, including infinities, NaNs with several payloads, and
/// denormals.
fn numbers(count: usize) -> Vec<u8> {
    let mut state = 0x2545_f491_u32;
    let odd = [0x7f80_0000, 0xff80_0000, 0x7fc0_0001, 0xffff_ffff, 1];
    let number = |i: usize| {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        match i % 11 {
            0 => odd[(i / 11) % odd.len()],
            // Exponents around 1, so that sums are rounded.
            _ => (state & 0x807f_ffff) | (0x3e00_0000 + (state >> 8 & 0x0180_0000)),
        }
    };
    (0..count).map(number).flat_map(u32::to_le_bytes).collect()
}

/// Returns the operands of a call.
fn operands(site: &CallSite) -> Vec<Vec<u8>> {
    site.operands
        .iter()
        .flat_map(|shape| shape.leaves())
        .map(|leaf| numbers(leaf.byte_size() / 4))
        .collect()
}

/// Returns a call's result.
fn result(policy: &Policy, guest: &str, site: &CallSite) -> Vec<u8> {
    let engine = Engine::with_config(Config {
        policy: policy.clone(),
        ..Config::default()
    });
    let module = engine.unwrap().load(&read_guest(guest).unwrap()).unwrap();
    let operands = operands(site);
    let operands: Vec<_> = operands.iter().map(Vec::as_slice).collect();
    let mut result = vec![0; site.result.leaves()[0].byte_size()];
    let call = module.prepare_call(site.clone()).unwrap();
    call.call(&operands, &mut [&mut result]).unwrap();
    result
}

fn digest(bytes: &[u8]) -> String {
    Sha256::digest(bytes)
        .iter()
        .fold(String::new(), |text, byte| format!("{text}{byte:02x}"))
}

/// Returns the bits of a sum by IEEE 754, with canonical NaNs, whose bits the standard leaves open.
fn sum(a: u32, b: u32) -> u32 {
    let sum = f32::from_bits(a) + f32::from_bits(b);
    if sum.is_nan() {
        0x7fc0_0000
    } else {
        sum.to_bits()
    }
}

fn words(bytes: &[u8]) -> Vec<u32> {
    let words = bytes.as_chunks::<4>().0.iter();
    words.copied().map(u32::from_le_bytes).collect()
}

fn add_n() -> CallSite {
    let shape = || "f32[512]".parse().unwrap();
    let n = [("n".to_owned(), Attribute::scalar(0.1_f32))];
    CallSite::new("add_n", vec![shape()], shape())
        .with_attributes(n.into_iter().collect::<Dictionary>())
}

fn broadcast_add() -> CallSite {
    let shape = |text: &str| text.parse().unwrap();
    let operands = vec![shape("f32[128]"), shape("f32[2048]")];
    CallSite::new("broadcast_add", operands, shape("f32[2048]"))
}

/// The bits equal those of this processor's sums, except for NaNs, where processors differ.
#[test]
fn bits_are_those_of_native_sums() {
    let mut policy = Policy {
        deterministic: true,
        ..Policy::default()
    };
    policy.limits.instances = 2;

    let site = add_n();
    let x = words(&operands(&site)[0]);
    let expected: Vec<_> = x.iter().map(|&x| sum(x, 0.1_f32.to_bits())).collect();
    assert!(expected.contains(&0x7fc0_0000));
    assert_eq!(words(&result(&policy, "add_n", &site)), expected);

    let site = broadcast_add();
    let [b, c] = [0, 1].map(|i| words(&operands(&site)[i]));
    let c = c.iter().enumerate();
    let expected: Vec<_> = c.map(|(i, &c)| sum(b[i % b.len()], c)).collect();
    assert!(expected.contains(&0x7fc0_0000));
    assert_eq!(words(&result(&policy, "broadcast_add", &site)), expected);
}

/// The first two digests were the same on an AVX-512 machine and on emulated processors down to
/// SSE4.1. The third is that of the lent softmax, step by step in NumPy's F32.
#[test]
fn digests_are_those_of_every_machine() {
    let shape = |text: &str| text.parse::<callbox::Shape>().unwrap();
    let cases = [
        (
            "add_n",
            add_n(),
            "5c46e2a6e46a44f42f0892c3bee3e80b1e10084a7a85f19d9103eb8cec935437",
        ),
        (
            "broadcast_add",
            broadcast_add(),
            "cebf397a31a4d09099bfeafc42100289a0668eb2003f627c41d47dcc5d150a2e",
        ),
        (
            "softmax",
            CallSite::new("softmax", vec![shape("f32[33,10]")], shape("f32[33,10]")),
            "8f444da5d38a4f0cb20ea46abe7f86436b58029a4f438c1c28b9fc629452a77a",
        ),
    ];
    for traps in [Traps::Signals, Traps::Explicit] {
        let mut policy = Policy {
            deterministic: true,
            traps,
            ..Policy::default()
        };
        policy.limits.instances = 2;
        for (guest, site, expected) in &cases {
            assert_eq!(
                digest(&result(&policy, guest, site)),
                *expected,
                "{guest}, {traps:?}"
            );
        }
    }
}

/// Otherwise each element would have the fuel for a deleter that runs on.
#[test]
fn fuel_is_for_all_deleters_of_a_mapped_call() {
    const TEXT: &str = r#"(module
      (memory (export "memory") 1)
      (func (export "f.instantiate") (param i32) (result i32) (i32.const 0))
      (func (export "f.instantiate.drop") (param i32) (loop $on (br $on)))
      (func (export "f") (param i32) (result i32) (i32.const 0)))"#;
    let mut policy = Policy {
        deterministic: true,
        isolation: Isolation::Fresh,
        ..Policy::default()
    };
    policy.limits.fuel = 100_000;
    let engine = Engine::with_config(Config {
        policy,
        ..Config::default()
    });
    let module = engine
        .unwrap()
        .load(&wat::parse_str(TEXT).unwrap())
        .unwrap();
    let call = |elements: usize| {
        let operand = format!("s32[{elements}]").parse().unwrap();
        let site = CallSite::new("f", vec![operand], Shape::tuple(Vec::new()).unwrap());
        let mapping = Mapping {
            batch_dimensions: 1,
            ..Mapping::default()
        };
        let call = module.prepare_mapped(site, &mapping).unwrap();
        call.call(&[&vec![0; 4 * elements]], &mut [])
    };
    call(1).unwrap();
    let status = call(20).unwrap_err();
    assert_eq!(status.code(), StatusCode::DeadlineExceeded, "{status}");
    assert_eq!(status.blame(), Blame::Guest);
    assert!(
        status.message().starts_with("batch element 1: "),
        "{status}"
    );
}

/// A target `f` of an s32[], which grows by 38 MiB and returns how large its memory was, or -1. It
/// logs then if its operand is not 0.
const GROWS: &str = r#"(module
  (import "callbox:ffi/api@1.0.0" "log" (func $log (param i32 i32 i32)))
  (memory (export "memory") 1)
  (func (export "f") (param $frame i32) (result i32)
    (local $was i32)
    (local.set $was (memory.grow (i32.const 600)))
    (if (i32.load (i32.load (i32.load offset=8 (local.get $frame))))
      (then (call $log (i32.const 2) (i32.const 0) (i32.const 0))))
    (i32.store (i32.load (i32.load offset=16 (local.get $frame))) (local.get $was))
    (i32.const 0)))"#;

/// The same, where the start function says that it runs, takes some 12 million units of fuel, and
/// grows.
const GROWS_AT_ITS_START: &str = r#"(module
  (import "callbox:ffi/api@1.0.0" "log" (func $log (param i32 i32 i32)))
  (memory (export "memory") 1)
  (func $start (local $rounds i32)
    (call $log (i32.const 3) (i32.const 0) (i32.const 0))
    (local.set $rounds (i32.const 1500000))
    (loop $again
      (br_if $again (local.tee $rounds (i32.sub (local.get $rounds) (i32.const 1)))))
    (i32.store (i32.const 0) (memory.grow (i32.const 600))))
  (start $start)
  (func (export "f") (param $frame i32) (result i32)
    (if (i32.load (i32.load (i32.load offset=8 (local.get $frame))))
      (then (call $log (i32.const 2) (i32.const 0) (i32.const 0))))
    (i32.store (i32.load (i32.load offset=16 (local.get $frame))) (i32.load (i32.const 0)))
    (i32.const 0)))"#;

/// The growth of a call beside another that has grown within the limit of both, and how often its
/// start ran.
fn growth_beside_another(wat: &str, deterministic: bool) -> (Result<i32, Status>, usize) {
    let mut policy = Policy {
        deterministic,
        isolation: Isolation::Fresh,
        grants: Grants::log(LogLevel::Trace),
        ..Policy::default()
    };
    policy.limits.executable_memory_bytes = 64 << 20;
    policy.limits.fuel = 16_000_000;
    let starts = Arc::<AtomicUsize>::default();
    let counter = Arc::clone(&starts);
    let (logs, has_logged) = mpsc::sync_channel(0);
    let (end, ends) = mpsc::channel::<()>();
    let ends = Mutex::new(ends);
    let engine = Engine::with_config(Config {
        policy,
        log: Some(Arc::new(move |record: &LogRecord<'_>| {
            if record.level == LogLevel::Debug {
                counter.fetch_add(1, Ordering::SeqCst);
            } else {
                logs.send(()).unwrap();
                let _ = ends.lock().unwrap().recv();
            }
        })),
        ..Config::default()
    })
    .unwrap();
    let module = engine.load(&wat::parse_str(wat).unwrap()).unwrap();
    let shape = || "s32[]".parse().unwrap();
    let site = CallSite::new("f", vec![shape()], shape());
    let prepared = module.prepare_call(site).unwrap();
    let grow = |logs: i32| {
        let mut result = [0; 4];
        prepared.call(&[&logs.to_le_bytes()], &mut [&mut result])?;
        Ok(i32::from_le_bytes(result))
    };
    thread::scope(|scope| {
        let other = scope.spawn(|| grow(1));
        has_logged.recv().unwrap();
        let before = starts.load(Ordering::SeqCst);
        let growth = grow(0);
        let starts = starts.load(Ordering::SeqCst) - before;
        drop(end);
        let other = other.join().unwrap();
        assert!(other.as_ref().is_ok_and(|&pages| pages > 0), "{other:?}");
        assert_eq!(grow(0), other);
        (growth, starts)
    })
}

/// Its results would depend on the other call. A start that finds no room is begun again, but all
/// that are have no more fuel together than the call.
#[test]
fn no_call_sees_that_another_has_taken_its_memory() {
    for (wat, starts) in [(GROWS, 0), (GROWS_AT_ITS_START, 2)] {
        let (growth, _) = growth_beside_another(wat, false);
        assert_eq!(growth, Ok(-1));
        let (growth, found) = growth_beside_another(wat, true);
        let status = growth.unwrap_err();
        assert_eq!(
            (status.code(), status.blame()),
            (StatusCode::ResourceExhausted, Blame::Caller),
            "{status}"
        );
        assert_eq!(found, starts);
    }
}

/// The elements of a batch share its fuel, also with the deleters between them.
#[test]
fn what_a_deleter_uses_that_is_refused_memory_for_another_call_decides_nothing() {
    const TEXT: &str = r#"(module
      (import "callbox:ffi/api@1.0.0" "log" (func $log (param i32 i32 i32)))
      (memory (export "memory") 1)
      (func (export "f.instantiate") (param i32) (result i32) (i32.const 0))
      (func (export "f.instantiate.drop") (param i32)
        (if (i32.eq (memory.grow (i32.const 600)) (i32.const -1)) (then (loop $on (br $on)))))
      (func (export "f") (param i32) (result i32) (i32.const 0))
      (func (export "hold") (param i32) (result i32)
        (drop (memory.grow (i32.const 600)))
        (call $log (i32.const 2) (i32.const 0) (i32.const 0))
        (i32.const 0)))"#;
    let mut policy = Policy {
        deterministic: true,
        isolation: Isolation::Fresh,
        grants: Grants::log(LogLevel::Trace),
        ..Policy::default()
    };
    policy.limits.executable_memory_bytes = 64 << 20;
    policy.limits.fuel = 16_000_000;
    let (logs, has_logged) = mpsc::sync_channel(0);
    let (end, ends) = mpsc::channel::<()>();
    let ends = Mutex::new(ends);
    let engine = Engine::with_config(Config {
        policy,
        log: Some(Arc::new(move |_: &LogRecord<'_>| {
            logs.send(()).unwrap();
            let _ = ends.lock().unwrap().recv();
        })),
        ..Config::default()
    })
    .unwrap();
    let module = engine.load(&wat::parse_str(TEXT).unwrap()).unwrap();
    let nothing = || Shape::tuple(Vec::new()).unwrap();
    let hold = module.prepare_call(CallSite::new("hold", Vec::new(), nothing()));
    let site = CallSite::new("f", vec!["s32[5]".parse().unwrap()], nothing());
    let mapping = Mapping {
        batch_dimensions: 1,
        ..Mapping::default()
    };
    let mapped = module.prepare_mapped(site, &mapping).unwrap();
    let call = || mapped.call(&[&[0; 20]], &mut []);
    assert_eq!(call(), Ok(()));
    thread::scope(|scope| {
        let holding = scope.spawn(move || hold.unwrap().call(&[], &mut []));
        has_logged.recv().unwrap();
        let status = call().unwrap_err();
        drop(end);
        assert_eq!(holding.join().unwrap(), Ok(()));
        assert_eq!(
            (status.code(), status.blame()),
            (StatusCode::ResourceExhausted, Blame::Caller),
            "{status}"
        );
        assert!(status.message().contains("batch element 1"), "{status}");
    });
}
