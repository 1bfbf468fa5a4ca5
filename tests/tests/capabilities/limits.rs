//! Limits on the host's resources that grants give access to: open files.

use callbox::call::ApiVersion;
use callbox::policy::{Access, Grants, Limits, Policy};
use callbox::wasm::{Engine, PreparedCall};
use callbox::{Blame, CallSite, ElementType, Shape, StatusCode};

use crate::tree::Tree;
use crate::{engine, script, steps};

/// A guest that opens a file as often as the operand says and closes none. It returns the number of
/// open files and the last error number.
const HOARDER: &str = r#"(module
  (import "wasi_snapshot_preview1" "path_open"
    (func $open (param i32 i32 i32 i32 i32 i64 i64 i32 i32) (result i32)))
  (memory (export "memory") 1)
  (data (i32.const 64) "file.txt")
  (func (export "f") (param $out i32) (param $in i32) (local $left i32) (local $errno i32)
    (local.set $left (i32.load (i32.load (local.get $in))))
    (i32.store (local.get $out) (i32.const 0))
    (loop $on
      (local.set $errno (call $open (i32.const 3) (i32.const 0) (i32.const 64) (i32.const 8)
        (i32.const 0) (i64.const 2) (i64.const 0) (i32.const 0) (i32.const 32)))
      (if (i32.eqz (local.get $errno))
        (then (i32.store (local.get $out) (i32.add (i32.load (local.get $out)) (i32.const 1)))))
      (local.set $left (i32.sub (local.get $left) (i32.const 1)))
      (br_if $on (local.get $left)))
    (i32.store offset=4 (local.get $out) (local.get $errno))))"#;

fn hoarder(engine: &Engine, grants: &Grants) -> PreparedCall {
    let module = engine.load_with(&wat::parse_str(HOARDER).unwrap(), grants);
    let numbers = |count| Shape::array(ElementType::S32, &[count]).unwrap();
    // A single array operand would be passed as a direct pointer; two operands are passed as a
    // list.
    let mut site = CallSite::new("f", vec![numbers(1), numbers(1)], numbers(2));
    site.api_version = ApiVersion::Original;
    module.unwrap().prepare_call(site).unwrap()
}

/// Returns how many files are open after `tries` attempts, and the last error number.
fn hoard(call: &PreparedCall, tries: u32) -> (u32, u32) {
    let mut bytes = [0; 8];
    let operand = tries.to_le_bytes();
    call.call(&[&operand, &operand], &mut [&mut bytes]).unwrap();
    let word = |bytes: &[u8]| u32::from_le_bytes(bytes.try_into().unwrap());
    (word(&bytes[..4]), word(&bytes[4..]))
}

fn limited(open_files: usize, engine_open_files: usize) -> Engine {
    engine(Policy {
        limits: Limits {
            open_files,
            engine_open_files,
            ..Limits::default()
        },
        ..Policy::default()
    })
}

#[test]
fn open_files_are_limited() {
    let tree = Tree::new();
    let grants = tree.grants(Access::Read);
    let mfile = script::errno("mfile");
    for limit in [0, 1, 5] {
        let call = hoarder(&limited(limit, 100), &grants);
        if limit > 0 {
            assert_eq!(hoard(&call, limit as u32), (limit as u32, 0));
        }
        assert_eq!(hoard(&call, 1), (0, mfile));
        assert_eq!(hoard(&call, 100), (0, mfile));
    }
    let call = hoarder(&engine(Policy::default()), &grants);
    assert_eq!(hoard(&call, 1_000_000), (64, mfile));
}

#[test]
fn open_files_of_all_instances_are_limited() {
    let tree = Tree::new();
    let grants = tree.grants(Access::Read);
    let mfile = script::errno("mfile");
    let call = hoarder(&limited(10, 5), &grants);
    for _ in 0..3 {
        assert_eq!(hoard(&call, 20), (5, mfile));
    }
}

/// The files of idle instances leave others half of the engine's.
#[test]
fn instances_with_too_many_files_are_not_idle() {
    let tree = Tree::new();
    let grants = tree.grants(Access::Read);
    let engine = limited(10, 40);
    let mfile = script::errno("mfile");
    let idle = [(); 2].map(|()| hoarder(&engine, &grants));
    for call in &idle {
        assert_eq!(hoard(call, 20), (10, mfile));
        assert_eq!(hoard(call, 1), (0, mfile));
    }
    // Dropping an instance closes its files.
    let others = [(); 4].map(|()| hoarder(&engine, &grants));
    for call in others.iter().cycle().take(12) {
        assert_eq!(hoard(call, 20), (10, mfile));
    }
    drop(idle);
    for call in &others[..2] {
        assert_eq!(hoard(call, 20), (10, mfile));
        assert_eq!(hoard(call, 1), (0, mfile));
    }
}

#[test]
fn a_file_that_is_closed_or_was_not_opened_does_not_count() {
    let tree = Tree::new();
    let engine = limited(1, 1);
    let grants = tree.grants(Access::ReadWrite);
    let script = steps(serde_json::json!([
        {"do": "open", "path": "file.txt", "flags": "r"},
        {"do": "open", "path": "file.txt", "flags": "r", "errno": "mfile"},
        {"do": "close", "at": "$0"},
        {"do": "open", "path": "nothing", "flags": "r", "errno": "noent"},
        {"do": "open", "path": "fifo", "flags": "r", "errno": "notsup"},
        {"do": "open", "path": "dir", "flags": "rd"},
        {"do": "open", "path": "file.txt", "flags": "r", "errno": "mfile"},
        {"do": "renumber", "at": "$5", "to": 1},
        {"do": "open", "path": "file.txt", "flags": "r", "errno": "mfile"},
        {"do": "close", "at": 1},
        {"do": "open", "path": "file.txt", "flags": "r"},
        {"do": "renumber", "at": 2, "to": "$10"},
        {"do": "open", "path": "file.txt", "flags": "r"}
    ]));
    let records = script::run(&engine, &grants, &script).unwrap();
    for (i, (step, record)) in std::iter::zip(&script, &records).enumerate() {
        assert_eq!(record.errno, script::errno(&step.errno), "step {i}");
    }
}

/// In the deterministic mode, a call does not go on without a file because of those of others.
#[test]
fn a_deterministic_call_fails_for_files_that_others_have_open() {
    let tree = Tree::new();
    let grants = tree.grants(Access::Read);
    let mfile = script::errno("mfile");
    let engine = engine(Policy {
        deterministic: true,
        limits: Limits {
            open_files: 10,
            engine_open_files: 12,
            ..Limits::default()
        },
        ..Policy::default()
    });
    let [holds, call] = [(); 2].map(|()| hoarder(&engine, &grants));
    assert_eq!(hoard(&holds, 5), (5, 0));
    let mut bytes = [0; 8];
    let operand = 20_u32.to_le_bytes();
    let failed = call.call(&[&operand, &operand], &mut [&mut bytes]);
    let status = failed.unwrap_err();
    assert_eq!(
        (status.code(), status.blame()),
        (StatusCode::ResourceExhausted, Blame::Caller),
        "{status}"
    );
    drop(holds);
    assert_eq!(hoard(&call, 20), (10, mfile));
}

/// A guest that moves 300,000 bytes of a file: it reads them for the operand 0, writes letters for
/// 1, and writes them at the offset 7 for 2. It returns the error number, the bytes that were
/// moved, and the bytes of its memory before and behind the cut.
const MOVES: &str = r#"(module
  (import "wasi_snapshot_preview1" "path_open"
    (func $open (param i32 i32 i32 i32 i32 i64 i64 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_read" (func $read (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_pwrite" (func $pwrite (param i32 i32 i32 i64 i32) (result i32)))
  (memory (export "memory") 8)
  (data (i32.const 64) "file.txt")
  (func (export "f") (param $out i32) (param $in i32) (local $do i32) (local $file i32) (local $errno i32)
    (local.set $do (i32.load (i32.load (local.get $in))))
    (drop (call $open (i32.const 3) (i32.const 0) (i32.const 64) (i32.const 8)
      (i32.const 0) (i64.const 66) (i64.const 0) (i32.const 0) (i32.const 32)))
    (local.set $file (i32.load (i32.const 32)))
    (memory.fill (i32.const 65536) (i32.const 120) (i32.const 300000))
    ;; An empty buffer, and one of 300,000 bytes.
    (i64.store (i32.const 128) (i64.const 0))
    (i32.store (i32.const 136) (i32.const 65536))
    (i32.store (i32.const 140) (i32.const 300000))
    (if (i32.eq (local.get $do) (i32.const 0)) (then (local.set $errno
      (call $read (local.get $file) (i32.const 128) (i32.const 2) (i32.const 36)))))
    (if (i32.eq (local.get $do) (i32.const 1)) (then (local.set $errno
      (call $write (local.get $file) (i32.const 128) (i32.const 2) (i32.const 36)))))
    (if (i32.eq (local.get $do) (i32.const 2)) (then (local.set $errno
      (call $pwrite (local.get $file) (i32.const 128) (i32.const 2) (i64.const 7) (i32.const 36)))))
    (i32.store (local.get $out) (local.get $errno))
    (i32.store offset=4 (local.get $out) (i32.load (i32.const 36)))
    (i32.store offset=8 (local.get $out) (i32.load8_u (i32.const 327679)))
    (i32.store offset=12 (local.get $out) (i32.load8_u (i32.const 327680)))))"#;

/// One call moves a part of a long buffer, between two looks at whether it is to stop.
#[test]
fn a_call_moves_a_part_of_a_long_buffer() {
    const MOST: usize = 256 << 10;
    let engine = engine(Policy::default());
    for (does, first, moved) in [
        (0_u32, b'.', 0..0),
        (1, b'x', 0..MOST),
        (2, b'x', 7..7 + MOST),
    ] {
        let tree = Tree::new();
        let file = tree.path().join("in/file.txt");
        std::fs::write(&file, vec![b'.'; 600_000]).unwrap();
        let grants = tree.grants(Access::ReadWrite);
        let module = engine.load_with(&wat::parse_str(MOVES).unwrap(), &grants);
        let numbers = |count| Shape::array(ElementType::S32, &[count]).unwrap();
        let mut site = CallSite::new("f", vec![numbers(1), numbers(1)], numbers(4));
        site.api_version = ApiVersion::Original;
        let call = module.unwrap().prepare_call(site).unwrap();
        let (mut found, operand) = ([0; 16], does.to_le_bytes());
        call.call(&[&operand, &operand], &mut [&mut found]).unwrap();
        let expected = [0, MOST as u32, u32::from(first), u32::from(b'x')];
        assert_eq!(found.as_chunks::<4>().0, expected.map(u32::to_le_bytes));
        let mut contents = vec![b'.'; 600_000];
        contents[moved].fill(b'x');
        assert!(std::fs::read(&file).unwrap() == contents, "{does}");
    }
}
