#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;
use std::time::Instant;

use proptest::prelude::*;
use wasmtime::{Config, Engine, Extern, Func, Instance, Module, OperatorCost, Store, Trap};

use callbox_core::call::Deadline;
use callbox_core::policy::Limits;

use super::bulk::PIECE;
use super::{IMPORT, TRAP};
use crate::file::ModuleFile;
use crate::stop::{Lease, Watches};

fn read(wasm: &[u8]) -> ModuleFile {
    ModuleFile::read(wasm.to_vec(), &Limits::default()).unwrap()
}

/// The code that is compiled for a module.
fn rewritten(wasm: &[u8]) -> Vec<u8> {
    read(wasm).rewritten().unwrap()
}

/// Twenty pages, segments of a piece and 256 bytes, and a function for each instruction and length.
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

/// A module in plain wasmtime.
struct Plain {
    store: Store<()>,
    instance: Instance,
    watch: Lease,
}

fn config() -> Config {
    let mut config = Config::new();
    config.shared_memory(true);
    config
}

impl Plain {
    fn new(wasm: &[u8]) -> Self {
        let mut new = Self::with_config(wasm, &config());
        for (i, byte) in new.memory().iter_mut().enumerate() {
            *byte = (i % 251) as u8 ^ (i >> 12) as u8;
        }
        new
    }

    /// All imports but the stop memory are functions `(i32)`.
    fn with_config(wasm: &[u8], config: &Config) -> Self {
        let engine = Engine::new(config).unwrap();
        let module = Module::from_binary(&engine, wasm).unwrap();
        let mut store = Store::new(&engine, ());
        // Fails where fuel is not counted.
        let _ = store.set_fuel(u64::MAX / 2);
        let watch = Arc::new(Watches::new()).lease(&engine).unwrap();
        let imports: Vec<Extern> = module
            .imports()
            .map(|import| match (import.module(), import.name()) {
                IMPORT => watch.memory().clone().into(),
                _ => Func::wrap(&mut store, |_: i32| ()).into(),
            })
            .collect();
        let instance = Instance::new(&mut store, &module, &imports).unwrap();
        Self {
            store,
            instance,
            watch,
        }
    }

    /// Stops the guest, which sees it at its next look.
    fn stop(&self) {
        let past = Deadline::At(Instant::now());
        self.watch.set_deadline(Some(past));
        self.watch.arm();
        assert!(self.watch.tick());
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

/// The same module unchanged, and in pieces.
struct Both {
    plain: Plain,
    in_pieces: Plain,
}

impl Both {
    fn new() -> Self {
        let wasm = wat::parse_str(text()).unwrap();
        assert_eq!(read(&wasm).helpers_from(), 7);
        Self::of(&wasm)
    }

    fn of(wasm: &[u8]) -> Self {
        Self {
            plain: Plain::new(wasm),
            in_pieces: Plain::new(&rewritten(wasm)),
        }
    }

    /// Calls both, and expects the same outcome and the same memory.
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

/// Numbers at the edges of pieces, segments and memory.
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

/// The looks at the stop word during a call of the rewritten module: the fuel that its loads take.
fn looks(wasm: &[u8], name: &str, arguments: (u32, u32, u32)) -> u64 {
    let taken = |cost| {
        let mut config = config();
        config.consume_fuel(true).operator_cost(OperatorCost {
            I32AtomicLoad8U: cost,
            ..OperatorCost::new()
        });
        let mut plain = Plain::with_config(&rewritten(wasm), &config);
        let before = plain.store.get_fuel().unwrap();
        plain.call(name, arguments).unwrap();
        before - plain.store.get_fuel().unwrap()
    };
    taken(1) - taken(0)
}

/// A look precedes each piece, even if an operation covers all of memory or of a segment, and each
/// operation that is not cut.
#[test]
fn between_pieces_a_guest_can_be_stopped() {
    let wasm = wat::parse_str(text()).unwrap();
    let pieces = u64::from(SIZE / PIECE);
    // The function, the helper, and the pieces but the last.
    for (name, arguments, expected) in [
        ("fill", (0, 1, SIZE), 1 + pieces),
        ("copy", (0, 0, SIZE), 1 + pieces),
        ("copy", (SIZE / 2, 0, SIZE / 2), 1 + pieces / 2),
        ("copy", (0, SIZE / 2, SIZE / 2), 1 + pieces / 2),
        ("init", (0, 0, PIECE + 256), 3),
        ("fill", (0, 1, 1), 2),
        ("init_short", (0, 0, 1), 2),
        ("constant", (0, 500, 0), 2),
    ] {
        let found = looks(&wasm, name, arguments);
        assert_eq!(found, expected, "{name}{arguments:?}");
    }
}

/// A loop looks once for each iteration, a function once for each call.
#[test]
fn loops_and_functions_look() {
    let text = r#"(module
      (memory (export "memory") 1)
      (table 3 funcref)
      (func $leaf (param i32) (result i32) (i32.add (local.get 0) (i32.const 1)))
      (func $tail (param i32) (if (local.get 0) (then (return_call $tail (i32.sub (local.get 0) (i32.const 1))))))
      (func (export "loop") (param i32 i32 i32)
        (loop (br_if 0 (local.tee 0 (i32.sub (local.get 0) (i32.const 1))))))
      (func (export "nested") (param i32 i32 i32)
        (loop $outer
          (local.set 2 (local.get 1))
          (loop $inner
            (drop (i32.load (i32.const 8)))
            (br_if $inner (local.tee 2 (i32.sub (local.get 2) (i32.const 1)))))
          (br_if $outer (local.tee 0 (i32.sub (local.get 0) (i32.const 1))))))
      (func (export "values") (param i32 i32 i32)
        (local.get 0)
        (loop (param i32) (result i32)
          (local.set 0 (i32.sub (i32.const 1)))
          (br_if 0 (local.get 0) (local.get 0)))
        (drop))
      (func (export "calls") (param i32 i32 i32)
        (drop (call $leaf (call $leaf (call $leaf (local.get 0))))))
      (func (export "tail") (param i32 i32 i32) (call $tail (local.get 0)))
      (func (export "grow") (param i32 i32 i32) (drop (memory.grow (i32.const 0))))
      (func (export "table") (param i32 i32 i32)
        (table.fill (i32.const 0) (ref.null func) (i32.const 2))
        (table.copy (i32.const 0) (i32.const 1) (i32.const 2))
        (drop (table.grow (ref.null func) (i32.const 0))))
      (func (export "unreachable") (param i32 i32 i32) (return) (loop (br 0))))"#;
    let wasm = wat::parse_str(text).unwrap();
    for (name, arguments, expected) in [
        ("loop", (1, 0, 0), 2),
        ("loop", (50, 0, 0), 51),
        ("nested", (5, 7, 0), 1 + 5 + 5 * 7),
        ("values", (9, 0, 0), 10),
        ("calls", (0, 0, 0), 4),
        ("tail", (9, 0, 0), 11),
        ("grow", (0, 0, 0), 2),
        ("table", (0, 0, 0), 4),
        ("unreachable", (0, 0, 0), 1),
    ] {
        assert_eq!(looks(&wasm, name, arguments), expected, "{name}");
        let mut plain = Plain::new(&rewritten(&wasm));
        assert_eq!(plain.call(name, arguments), Ok(()), "{name}");
        plain.stop();
        assert_eq!(plain.call(name, arguments), Err(TRAP), "{name}");
    }
}

/// The path that runs has a look for each 64 accesses or 4,096 instructions, wherever the looks of
/// other paths lie.
#[test]
fn the_path_that_runs_has_looks() {
    const LOAD: &str = "(drop (i32.load (i32.const 0)))";
    const PLAIN: &str = "(local.set 0 (i32.add (local.get 0) (local.get 0)))";
    let loads = LOAD.repeat(64);
    let body = |between: &str| format!("{loads}{between}").repeat(10);
    let plain = |between: &str| format!("{}{between}", PLAIN.repeat(1024)).repeat(10);
    let callees = format!(
        "(func $loads (param i32)
          (if (local.get 0) (then (call $loads (i32.sub (local.get 0) (i32.const 1)))))
          {loads})
        (func $plain (param i32)
          (if (local.get 0) (then (call $plain (i32.sub (local.get 0) (i32.const 1)))))
          {})",
        PLAIN.repeat(20)
    );
    let untaken_fill = "(if (local.get 0)
      (then (memory.fill (i32.const 0) (i32.const 0) (local.get 1))))";
    let indirect = "(call_indirect (param i32) (i32.const 9) (i32.const 0))";
    for (what, body, least) in [
        ("a straight line", body(""), 10),
        ("an if", body("(if (local.get 0) (then (loop)))"), 10),
        (
            "an else",
            body("(if (i32.eqz (local.get 0)) (then) (else (loop)))"),
            10,
        ),
        ("both", body("(if (local.get 0) (then) (else))"), 10),
        (
            "a branch",
            body("(block (br_if 0 (i32.eqz (local.get 0))) (loop))"),
            10,
        ),
        ("a jump", body("(block (br 0) (loop))"), 10),
        (
            "a table",
            body("(block (br_table 0 0 (local.get 0)) (loop))"),
            10,
        ),
        ("a long instruction", body(untaken_fill), 10),
        ("a loop", body("(loop)"), 21),
        ("plain instructions", plain(""), 10),
        (
            "an if in them",
            plain("(if (local.get 0) (then (loop)))"),
            10,
        ),
        ("imports", "(call $import (i32.const 0))".repeat(640), 10),
        // One of each function, one behind each call, and one between the loads.
        ("a recursion", "(call $loads (i32.const 9))".to_owned(), 31),
        ("a plain one", "(call $plain (i32.const 9))".to_owned(), 21),
        ("calls in a table", indirect.to_owned(), 31),
    ] {
        let text = format!(
            r#"(module
              (import "m" "import" (func $import (param i32)))
              (memory (export "memory") 1) (table funcref (elem $loads)) {callees}
              (func (export "f") (param i32 i32 i32) {body}))"#
        );
        let wasm = wat::parse_str(text).unwrap();
        let found = looks(&wasm, "f", (0, 0, 0));
        let most = least + 3;
        assert!((least..=most).contains(&found), "{what}: {found}");
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
fn short_instructions_stay() {
    let text = r#"(module (memory 1) (data "abc")
        (func (export "f") (memory.fill (i32.const 0) (i32.const 0) (i32.const 65536)))
        (func (memory.init 0 (i32.const 0) (i32.const 0) (memory.size))))"#;
    let wasm = wat::parse_str(text).unwrap();
    let bodies = |wasm: &[u8]| {
        let payloads = wasmparser::Parser::new(0).parse_all(wasm);
        payloads
            .filter(|payload| matches!(payload, Ok(wasmparser::Payload::CodeSectionEntry(_))))
            .count()
    };
    assert_eq!(read(&wasm).helpers_from(), 2);
    assert_eq!(bodies(&rewritten(&wasm)), 2);
}

/// Each kind of access, with and without offsets, also where a number is encoded with more bytes
/// than it needs.
#[test]
fn accesses_stay_where_they_were() {
    let text = r#"(module
      (memory (export "memory") 2)
      (func (export "f") (param i32 i32 i32)
        (i32.store offset=70000 (local.get 0) (i32.load8_u align=1 (local.get 1)))
        (i64.store32 offset=4 align=1 (local.get 0) (i64.load offset=8 (local.get 1)))
        (v128.store offset=16 (local.get 0) (v128.load8_splat offset=3 (local.get 1)))
        (v128.store8_lane offset=99 15 (local.get 0) (v128.load64_lane offset=11 1 (local.get 1) (v128.load (local.get 1))))
        (f64.store (local.get 2) (f64.load offset=65528 (local.get 1)))
        (i32.store (local.get 0) (i32.add (memory.size) (memory.grow (i32.const 1))))
        (memory.copy (i32.const 300) (i32.const 200) (i32.const 100))
        (memory.fill (i32.const 500) (i32.const 7) (i32.const 10))))"#;
    let mut both = Both::of(&wat::parse_str(text).unwrap());
    assert_eq!(both.call("f", (40, 80, 120)), Ok(()));
    let padded = [
        &b"\0asm\x01\0\0\0\x01\x07\x01\x60\x03\x7f\x7f\x7f\0\x03\x02\x01\0\x05\x03\x01\0\x01"[..],
        b"\x07\x0e\x02\x06memory\x02\0\x01f\0\0\x0a\x14\x01\x12\0",
        // i32.store align=4 offset=1 of an i32.load align=4 offset=2.
        b"\x20\0\x20\x01\x28\x82\x80\0\x82\x80\0\x36\x82\0\x81\0\x0b",
    ];
    let mut both = Both::of(&padded.concat());
    assert_eq!(both.call("f", (40, 80, 0)), Ok(()));
    for offset in [0, 65533, u32::MAX] {
        let text = format!(
            r#"(module (memory (export "memory") 1)
              (func (export "f") (param i32 i32 i32) (drop (i32.load offset={offset} (local.get 0)))))"#
        );
        let mut both = Both::of(&wat::parse_str(text).unwrap());
        let trap = both.call("f", (65533, 0, 0)).unwrap_err();
        assert_eq!(trap, Trap::MemoryOutOfBounds);
    }
}

/// A module without a memory, a function or anything else can be rewritten.
#[test]
fn small_modules_are_valid() {
    for text in [
        "(module)",
        "(module (func))",
        "(module (memory 1))",
        r#"(module (global i32 (i32.const 1)) (export "g" (global 0)))"#,
        r#"(module (type (func (param i32))) (import "a" "b" (func (type 0))))"#,
    ] {
        Plain::with_config(&rewritten(&wat::parse_str(text).unwrap()), &config());
    }
}

/// All sections, with imports, tables, indirect calls of the helpers' own type, a start function
/// and names.
#[test]
fn the_rest_of_a_module_is_copied() {
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
        (data (memory 0) (i32.const 5) "y") (data $passive "zz")
        (func (export "init") (param i32 i32 i32)
          (memory.init $passive (local.get 0) (local.get 1) (local.get 2)))
        (@custom "metadata.code.branch_hint" "\00")
        (@custom "other" "bytes"))"#;
    let wasm = wat::parse_str(text).unwrap();
    let after = rewritten(&wasm);
    assert_eq!(read(&wasm).helpers_from(), 5);
    let (sections, mut expected) = (unchanging(&after), unchanging(&wasm));
    let (sections, custom): (Vec<_>, Vec<_>) = sections.into_iter().partition(|(id, _)| *id != 0);
    expected.retain(|(id, _)| *id != 0);
    assert_eq!(sections, expected);
    // Of the names, those of functions are left.
    let functions = b"\x04name\x01\x12\x03\x00\x06import\x01\x01s\x02\x04fill";
    assert_eq!(custom, [(0, functions.to_vec())]);
    let mut plain = Plain::with_config(&after, &config());
    plain.call("indirect", (16, 9, 2)).unwrap();
    plain.call("init", (30, 0, 2)).unwrap();
    let memory = plain.memory();
    assert_eq!(memory[..6], *b"\0\0\0x\0y");
    assert_eq!(memory[14..20], [0, 0, 9, 9, 0, 0]);
    assert_eq!(memory[30..33], *b"zz\0");
}

/// The sections that rewriting must not change: all but types, imports, functions, exports, code
/// and data.
fn unchanging(wasm: &[u8]) -> Vec<(u8, Vec<u8>)> {
    let changing = [1, 2, 3, 7, 10, 11];
    let payloads = wasmparser::Parser::new(0).parse_all(wasm);
    payloads
        .filter_map(|payload| payload.unwrap().as_section())
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

    /// Random operations have the same outcome and the same memory.
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
