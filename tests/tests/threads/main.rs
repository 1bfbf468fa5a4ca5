//! Calls that several threads share: the bits, failures, limits and promises are those of one
//! thread, whatever the other threads do.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod buffers;
mod failures;
mod helpers;
mod limits;

use std::sync::{Arc, LazyLock};

use callbox::call::Threads;
use callbox::policy::Policy;
use callbox::wasm::{Config, Engine, Mapping, Module, PreparedCall};
use callbox::{Blame, CallOptions, CallSite, Result, Shape};
use proptest::prelude::*;

use self::helpers::{Counted, Manner};

/// Targets that compute `y = x * w + s` for each row of `x`, where `w` has the length of a row and
/// `s` is the sum of the row. At the first 13.0 in a row they fail, at 666.0 they trap, and at
/// 1000.0 they loop for ever. `rows` declares its rows; `pure` and `plain` are the same function
/// without the declaration, and `staged` has a stage that runs once per execution.
const GUEST: &str = r#"(module
  (memory (export "memory") 1)
  (func $special (param $x f32) (result i32)
    (if (f32.eq (local.get $x) (f32.const 666)) (then (unreachable)))
    (loop $forever (br_if $forever (f32.eq (local.get $x) (f32.const 1000))))
    (f32.eq (local.get $x) (f32.const 13)))
  (func $rows (param $f i32) (result i32)
    (local $x i32) (local $end i32) (local $w i32) (local $row i32) (local $y i32) (local $i i32) (local $sum f32)
    (local.set $x (i32.load (i32.load offset=8 (local.get $f))))
    (local.set $end (i32.add (local.get $x) (i32.load offset=4 (i32.load offset=8 (local.get $f)))))
    (local.set $w (i32.load offset=36 (i32.load offset=8 (local.get $f))))
    (local.set $row (i32.load offset=40 (i32.load offset=8 (local.get $f))))
    (local.set $y (i32.load (i32.load offset=16 (local.get $f))))
    (block $done
      (br_if $done (i32.eqz (local.get $row)))
      (loop $next
        (br_if $done (i32.ge_u (local.get $x) (local.get $end)))
        (local.set $sum (f32.const 0))
        (local.set $i (i32.const 0))
        (loop $add
          (if (call $special (f32.load (i32.add (local.get $x) (local.get $i)))) (then (return (i32.const 9))))
          (local.set $sum (f32.add (local.get $sum) (f32.load (i32.add (local.get $x) (local.get $i)))))
          (local.set $i (i32.add (local.get $i) (i32.const 4)))
          (br_if $add (i32.lt_u (local.get $i) (local.get $row))))
        (local.set $i (i32.const 0))
        (loop $write
          (f32.store (i32.add (local.get $y) (local.get $i))
            (f32.add (local.get $sum)
              (f32.mul (f32.load (i32.add (local.get $x) (local.get $i))) (f32.load (i32.add (local.get $w) (local.get $i))))))
          (local.set $i (i32.add (local.get $i) (i32.const 4)))
          (br_if $write (i32.lt_u (local.get $i) (local.get $row))))
        (local.set $x (i32.add (local.get $x) (local.get $row)))
        (local.set $y (i32.add (local.get $y) (local.get $row)))
        (br $next)))
    (i32.const 0))
  (export "rows" (func $rows))
  (export "pure" (func $rows))
  (export "plain" (func $rows))
  (export "staged" (func $rows))
  (func (export "staged.prepare") (param i32) (result i32) (i32.const 0))
  (@custom "callbox.targets"
    "{\"name\": \"rows\", \"traits\": [\"rows\"],"
    "  \"operands\": [{\"name\": \"x\", \"dimensions\": [\"..\", \"n\"]}, {\"name\": \"w\", \"dimensions\": [\"n\"]}],"
    "  \"results\": [{\"name\": \"y\", \"dimensions\": [\"..\", \"n\"]}]}"
    "{\"name\": \"pure\", \"traits\": [\"pure\"]} {\"name\": \"plain\"}"
    "{\"name\": \"staged\", \"traits\": [\"pure\"], \"stages\": [\"prepare\", \"execute\"]}"))"#;

/// The guest, on an engine with this policy and these threads.
fn load(policy: Policy, threads: Arc<dyn Threads>) -> Arc<Module> {
    let config = Config {
        policy,
        threads: Some(threads),
        ..Config::default()
    };
    let engine = Engine::with_config(config).unwrap();
    engine.load(&wat::parse_str(GUEST).unwrap()).unwrap()
}

fn small_policy() -> Policy {
    let mut policy = Policy::default();
    policy.limits.instances = 16;
    policy
}

/// The guest with three helping threads of this manner.
fn guest(manner: Manner) -> (Arc<Module>, Arc<Counted>) {
    let threads = Counted::new(manner, 3);
    let module = load(small_policy(), Arc::clone(&threads) as Arc<dyn Threads>);
    (module, threads)
}

/// Varying numbers below 13, of which none is special.
fn floats(count: usize, from: f32) -> Vec<f32> {
    (0..count)
        .map(|i| from % 8.0 + (i % 1013) as f32 * 0.004)
        .collect()
}

fn bytes(values: &[f32]) -> Vec<u8> {
    values
        .iter()
        .flat_map(|value| value.to_le_bytes())
        .collect()
}

fn shape(dimensions: &[usize]) -> Shape {
    Shape::array(callbox::ElementType::F32, dimensions).unwrap()
}

/// A call site on a batch of `x`, whose elements share `w`.
fn site(target: &str, batch: &[usize], own: &[usize]) -> CallSite {
    let x = shape(&[batch, own].concat());
    let row = own.last().copied().unwrap_or(1);
    let w = shape(&[vec![1; batch.len()], vec![row]].concat());
    CallSite::new(target, vec![x.clone(), w], x)
}

fn mapping(batch_dimensions: usize, piece_bytes: Option<usize>) -> Mapping {
    Mapping {
        batch_dimensions,
        piece_bytes,
    }
}

/// Options with this number of threads.
fn threads(count: usize) -> CallOptions {
    CallOptions {
        threads: Some(count),
        ..CallOptions::default()
    }
}

/// Calls the target on slices.
fn call(call: &PreparedCall, options: &CallOptions, x: &[u8], w: &[u8]) -> Result<Vec<u8>> {
    let mut y = vec![0; x.len()];
    call.call_with(options, &[x, w], &mut [&mut y])?;
    Ok(y)
}

/// What the targets compute, in Rust.
fn reference(x: &[f32], w: &[f32]) -> Vec<u8> {
    let rows = x.chunks(w.len()).flat_map(|row| {
        let sum = row.iter().fold(0.0, |sum, x| sum + x);
        row.iter().zip(w).map(move |(x, w)| x * w + sum)
    });
    bytes(&rows.collect::<Vec<f32>>())
}

/// More than a megabyte in rows, which is enough to share a call from its start.
const ROWS: usize = 2048;
const LENGTH: usize = 96;

/// Pieces and elements are computed by whichever thread takes them, to the same bits.
#[test]
fn any_number_of_threads_gives_the_same_bits() {
    let (x, w) = (floats(ROWS * LENGTH, 0.5), floats(LENGTH, -3.0));
    let expected = reference(&x, &w);
    let (x, w) = (bytes(&x), bytes(&w));
    for manner in [Manner::AtOnce, Manner::Beside, Manner::Pool] {
        let (module, counted) = guest(manner);
        for (target, batch, own, piece_bytes) in [
            ("rows", &[][..], &[ROWS, LENGTH][..], Some(4096)),
            ("rows", &[], &[ROWS / 8, 8, LENGTH], Some(100_000)),
            ("rows", &[ROWS / 8], &[8, LENGTH], Some(4096)),
            ("rows", &[ROWS], &[LENGTH], Some(4096)),
            ("pure", &[ROWS], &[LENGTH], None),
            ("pure", &[2, ROWS / 2], &[LENGTH], None),
            ("pure", &[4], &[ROWS / 4, LENGTH], None),
        ] {
            let mapping = mapping(batch.len(), piece_bytes);
            let prepared = module.prepare_mapped(site(target, batch, own), &mapping);
            let prepared = prepared.unwrap();
            assert_eq!(prepared.is_cut(), piece_bytes.is_some());
            for count in [1, 2, 4] {
                counted.forget();
                let found = call(&prepared, &threads(count), &x, &w).unwrap();
                assert!(
                    found == expected,
                    "{target} {batch:?} {own:?}: {count} threads"
                );
                assert_eq!(counted.offered(), count - 1, "{target} {batch:?} {own:?}");
            }
        }
    }
}

/// A declaration of rows that is false changes the guest's own results, and nothing else.
#[test]
fn false_rows_are_the_guests_own_affair() {
    let rows = concat!(
        r#"\"traits\": [\"rows\"], \"operands\": [{\"dimensions\": [\"..\"]}, {\"dimensions\": [\"n\"]}], "#,
        r#"\"results\": [{\"dimensions\": [\"..\"]}]} {"#
    );
    let text = GUEST.replace(r#"\"traits\": [\"pure\"]} {"#, rows);
    let engine = Engine::with_config(Config {
        policy: small_policy(),
        threads: Some(Counted::new(Manner::Beside, 3)),
        ..Config::default()
    });
    let module = engine
        .unwrap()
        .load(&wat::parse_str(&text).unwrap())
        .unwrap();
    let (x, w) = (floats(ROWS * LENGTH, 0.5), floats(LENGTH, -3.0));
    let expected = reference(&x, &w);
    let (x, w) = (bytes(&x), bytes(&w));
    // Each element counts as a row here, and a piece ends within a row.
    let prepared = module
        .prepare_mapped(site("pure", &[], &[ROWS, LENGTH]), &mapping(0, Some(4096)))
        .unwrap();
    assert!(prepared.is_cut());
    for count in [1, 4] {
        match call(&prepared, &threads(count), &x, &w) {
            Ok(found) => assert!(found != expected),
            Err(status) => assert_eq!(status.blame(), Blame::Guest, "{status}"),
        }
    }
    let healthy = module
        .prepare_mapped(site("rows", &[], &[ROWS, LENGTH]), &mapping(0, Some(4096)))
        .unwrap();
    assert!(call(&healthy, &threads(4), &x, &w).unwrap() == expected);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Pieces of any size, on any number of threads, make up the whole.
    #[test]
    fn pieces_are_the_whole(
        length in 1_usize..70,
        before in proptest::collection::vec(1_usize..6, 0..3),
        batch in proptest::collection::vec(1_usize..4, 0..2),
        piece_bytes in 1_usize..200_000,
        count in 1_usize..5,
        from in -50.0_f32..50.0,
    ) {
        static MODULE: LazyLock<Arc<Module>> = LazyLock::new(|| guest(Manner::Beside).0);
        let few: usize = before.iter().chain(&batch).product::<usize>() * length;
        // Enough rows for a megabyte in and out.
        let own = [&before[..], &[(160_000 / few).max(1), length]].concat();
        let elements = batch.iter().chain(&own).product();
        let (x, w) = (floats(elements, from), floats(length, from / 3.0));
        let prepared = MODULE
            .prepare_mapped(site("rows", &batch, &own), &mapping(batch.len(), Some(piece_bytes)))
            .unwrap();
        let found = call(&prepared, &threads(count), &bytes(&x), &bytes(&w)).unwrap();
        prop_assert!(found == reference(&x, &w));
    }
}
