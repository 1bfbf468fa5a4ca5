#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use proptest::prelude::*;
use wasmtime::{Engine, Instance, Module, Store, Trap};

use super::{InPieces, PIECE, in_pieces};

/// Twenty pages, 256 bytes more than a piece in the segments, and a function for each instruction and length.
fn text() -> String {
    let bytes: String = (0..PIECE + 256).map(|i| segment_byte(i) as char).collect();
    let (long, short) = (&bytes[..], &bytes[..40]);
    format!(
        r#"(module
          (memory (export "memory") {PAGES} {PAGES})
          (data $long "{long}") (data $short "{short}") (data $active (i32.const 8) "{long}")
          (func (export "fill") (param i32 i32 i32) (memory.fill (local.get 0) (local.get 1) (local.get 2)))
          (func (export "copy") (param i32 i32 i32) (memory.copy (local.get 0) (local.get 1) (local.get 2)))
          (func (export "init") (param i32 i32 i32) (memory.init $long (local.get 0) (local.get 1) (local.get 2)))
          (func (export "init_short") (param i32 i32 i32) (memory.init $short (local.get 0) (local.get 1) (local.get 2)))
          (func (export "init_active") (param i32 i32 i32) (memory.init $active (local.get 0) (local.get 1) (local.get 2)))
          (func (export "constant") (param i32 i32 i32) (memory.copy (local.get 0) (local.get 1) (i32.const 100)))
          (func (export "drop") (data.drop $long)))"#
    )
}

const PAGES: u32 = 20;
const SIZE: u32 = PAGES << 16;

fn segment_byte(i: u32) -> u8 {
    b'a' + (i % 23) as u8
}

/// A module in plain wasmtime: as it is, or in pieces.
struct Plain {
    store: Store<()>,
    instance: Instance,
}

impl Plain {
    fn new(wasm: &[u8]) -> Self {
        let engine = Engine::default();
        let module = Module::from_binary(&engine, wasm).unwrap();
        let mut store = Store::new(&engine, ());
        let instance = Instance::new(&mut store, &module, &[]).unwrap();
        let mut new = Self { store, instance };
        for (i, byte) in new.memory().iter_mut().enumerate() {
            *byte = (i % 251) as u8 ^ (i >> 12) as u8;
        }
        new
    }

    fn memory(&mut self) -> &mut [u8] {
        let memory = self.instance.get_memory(&mut self.store, "memory").unwrap();
        memory.data_mut(&mut self.store)
    }

    fn call(&mut self, name: &str, (a, b, c): (u32, u32, u32)) -> Result<(), Trap> {
        let function = self.instance.get_func(&mut self.store, name).unwrap();
        let called = match name {
            "drop" => function
                .typed(&self.store)
                .unwrap()
                .call(&mut self.store, ()),
            _ => function
                .typed(&self.store)
                .unwrap()
                .call(&mut self.store, (a, b, c)),
        };
        called.map_err(|error| error.downcast().unwrap())
    }
}

/// The same module as it is, and in pieces.
struct Both {
    plain: Plain,
    in_pieces: Plain,
}

impl Both {
    fn new() -> Self {
        let wasm = wat::parse_str(text()).unwrap();
        let rewritten = in_pieces(&wasm).unwrap();
        assert!(matches!(rewritten.wasm, std::borrow::Cow::Owned(_)));
        assert_eq!(rewritten.helpers_from, 7);
        Self {
            plain: Plain::new(&wasm),
            in_pieces: Plain::new(&rewritten.wasm),
        }
    }

    /// Does the same in both, and expects the same outcome and the same memory.
    fn call(&mut self, name: &str, arguments: (u32, u32, u32)) -> Result<(), Trap> {
        let plain = self.plain.call(name, arguments);
        let in_pieces = self.in_pieces.call(name, arguments);
        assert_eq!(plain, in_pieces, "{name}{arguments:?}");
        let (plain_memory, memory) = (self.plain.memory(), self.in_pieces.memory());
        assert!(plain_memory == memory, "{name}{arguments:?}: memory");
        plain
    }
}

const NAMES: [&str; 6] = [
    "fill",
    "copy",
    "init",
    "init_short",
    "init_active",
    "constant",
];

/// Numbers at which something changes.
fn edges() -> impl Iterator<Item = u32> + Clone {
    const LONG: u32 = PIECE + 256;
    let last = [SIZE - LONG, SIZE - PIECE, SIZE].into_iter();
    let starts = [0, PIECE, 2 * PIECE, LONG, u32::MAX - LONG].into_iter();
    let near = last.chain(starts).flat_map(|n| [n, n + 1]);
    near.chain([1 << 31, u32::MAX])
}

#[test]
fn at_the_edges_nothing_changes() {
    let mut both = Both::new();
    let mut trapped = 0;
    for name in ["fill", "copy", "init"] {
        for to in edges() {
            for from in edges() {
                for length in edges() {
                    trapped += usize::from(both.call(name, (to, from, length)).is_err());
                }
            }
        }
    }
    assert!(trapped > 1000, "{trapped}");
}

/// Each check of the epoch is counted: there are as many as pieces, at least, also where an operation takes all of memory or of a segment.
#[test]
fn between_pieces_a_guest_can_be_stopped() {
    let mut config = wasmtime::Config::new();
    config.epoch_interruption(true);
    let engine = Engine::new(&config).unwrap();
    let wasm = wat::parse_str(text()).unwrap();
    let checks = |wasm: &[u8], name, arguments: (u32, u32, u32)| {
        let module = Module::from_binary(&engine, wasm).unwrap();
        let mut store = Store::new(&engine, 0);
        store.set_epoch_deadline(0);
        store.epoch_deadline_callback(|mut context| {
            *context.data_mut() += 1;
            Ok(wasmtime::UpdateDeadline::Continue(0))
        });
        let instance = Instance::new(&mut store, &module, &[]).unwrap();
        let function = instance.get_typed_func::<_, ()>(&mut store, name).unwrap();
        function.call(&mut store, arguments).unwrap();
        *store.data()
    };
    let rewritten = in_pieces(&wasm).unwrap();
    let pieces = SIZE / PIECE;
    for (name, arguments, expected) in [
        ("fill", (0, 1, SIZE), pieces),
        ("copy", (0, 0, SIZE), pieces),
        ("copy", (SIZE / 2, 0, SIZE / 2), pieces / 2),
        ("copy", (0, SIZE / 2, SIZE / 2), pieces / 2),
        ("init", (0, 0, PIECE + 256), 2),
    ] {
        let (before, after) = (
            checks(&wasm, name, arguments),
            checks(&rewritten.wasm, name, arguments),
        );
        assert!(after >= before + expected, "{name}{arguments:?}: {after}");
    }
}

#[test]
fn a_dropped_segment_has_no_bytes() {
    let mut both = Both::new();
    assert_eq!(both.call("init", (0, 0, PIECE + 256)), Ok(()));
    assert_eq!(both.call("drop", (0, 0, 0)), Ok(()));
    assert_eq!(both.call("init", (0, 0, 0)), Ok(()));
    for length in [1, PIECE, PIECE + 1, PIECE + 256] {
        let trap = both.call("init", (0, 0, length)).unwrap_err();
        assert_eq!(trap, Trap::MemoryOutOfBounds);
    }
}

#[test]
fn what_has_no_long_instruction_stays_as_it_is() {
    let text = r#"(module (memory 1) (data "abc")
        (func (export "f") (memory.fill (i32.const 0) (i32.const 0) (i32.const 65536)))
        (func (memory.init 0 (i32.const 0) (i32.const 0) (memory.size))))"#;
    let wasm = wat::parse_str(text).unwrap();
    let InPieces {
        wasm: after,
        helpers_from,
    } = in_pieces(&wasm).unwrap();
    assert!(matches!(after, std::borrow::Cow::Borrowed(bytes) if bytes == wasm));
    assert_eq!(helpers_from, 2);
}

/// All sections, with imports, tables, indirect calls of the helpers' own type, a start function and names.
#[test]
fn the_rest_of_a_module_stays_as_it_is() {
    let text = r#"(module $m
        (type $t (func (param i32 i32 i32)))
        (import "a" "b" (func $import (param i32)))
        (table 2 funcref)
        (memory (export "memory") 1)
        (global $g (mut i32) (i32.const 7))
        (start $s)
        (elem (i32.const 0) $fill $import)
        (data (i32.const 3) "x")
        (func $s (global.set $g (i32.const 8)))
        (func $fill (type $t) (memory.fill (local.get 0) (local.get 1) (local.get 2)))
        (func (export "indirect") (param i32 i32 i32)
          (call_indirect (type $t) (local.get 0) (local.get 1) (local.get 2) (i32.const 0)))
        (@custom "metadata.code.branch_hint" "\00")
        (@custom "kept" "bytes"))"#;
    let wasm = wat::parse_str(text).unwrap();
    let after = in_pieces(&wasm).unwrap();
    assert_eq!(after.helpers_from, 4);
    let sections = unchanging(&after.wasm);
    assert_eq!(sections, unchanging(&wasm));
    let engine = Engine::default();
    let module = Module::from_binary(&engine, &after.wasm).unwrap();
    let mut store = Store::new(&engine, ());
    let import = wasmtime::Func::wrap(&mut store, |_: i32| ());
    let instance = Instance::new(&mut store, &module, &[import.into()]).unwrap();
    let call = instance
        .get_typed_func::<(u32, u32, u32), ()>(&mut store, "indirect")
        .unwrap();
    call.call(&mut store, (16, 9, 2)).unwrap();
    let memory = instance.get_memory(&mut store, "memory").unwrap();
    assert_eq!(memory.data(&store)[14..20], [0, 0, 9, 9, 0, 0]);
}

/// The sections that may not change, byte for byte.
fn unchanging(wasm: &[u8]) -> Vec<(u8, Vec<u8>)> {
    let changing = [1, 3, 10];
    let sections = wasmparser::Parser::new(0)
        .parse_all(wasm)
        .filter_map(|payload| {
            let payload = payload.unwrap();
            let is_hint = matches!(&payload, wasmparser::Payload::CustomSection(section)
                if section.name().starts_with("metadata.code."));
            payload.as_section().filter(|_| !is_hint)
        });
    sections
        .filter(|(id, _)| !changing.contains(id))
        .map(|(id, range)| (id, wasm[range].to_vec()))
        .collect()
}

fn number() -> impl Strategy<Value = u32> {
    prop_oneof![
        4 => 0..SIZE + 64,
        2 => 0..300_u32,
        1 => PIECE - 8..PIECE + 300,
        1 => SIZE - 300..SIZE + 8,
        1 => any::<u32>(),
        1 => u32::MAX - 300..,
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// A run of random operations: each with the same outcome and the same memory.
    #[test]
    fn in_pieces_is_the_same(
        operations in prop::collection::vec((0..NAMES.len(), number(), number(), number()), 40),
    ) {
        let mut both = Both::new();
        for (name, to, from, length) in operations {
            let _ = both.call(NAMES[name], (to, from, length));
        }
    }

    /// Copies that overlap, in either direction.
    #[test]
    fn overlapping_copies_are_the_same(
        copies in prop::collection::vec((0..SIZE / 2, 0..SIZE / 2, 0..SIZE / 2), 30),
        near in prop::collection::vec((0..SIZE / 4, 0..600_u32, PIECE - 300..3 * PIECE), 30),
    ) {
        let mut both = Both::new();
        for copy in copies {
            prop_assert_eq!(both.call("copy", copy), Ok(()));
        }
        for (from, distance, length) in near {
            prop_assert_eq!(both.call("copy", (from + distance, from, length)), Ok(()));
            prop_assert_eq!(both.call("copy", (from, from + distance, length)), Ok(()));
        }
    }
}
