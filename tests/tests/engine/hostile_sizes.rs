//! Modules of a few hundred kilobytes, built to cost much more memory or time than their size.

use std::fmt::Write;

use callbox::call::Platform;
use callbox::policy::Limits;
use callbox::wasm::inspect;
use callbox::{Blame, Registry, StatusCode};
use callbox_tests::run;

/// The number of exports or imports of a module.
const MANY: usize = 20_000;

/// The longest name that implementations of WebAssembly accept, in bytes.
const LONGEST_NAME: usize = 100_000;

/// Builds a module with one function of this type, exported `count` times as `f0`, `f1` and so on.
fn exports(count: usize, ty: &str, body: &str) -> Vec<u8> {
    let mut text = format!("(module (memory (export \"memory\") 1) (func $f {ty} {body})");
    for i in 0..count {
        write!(text, " (export \"f{i}\" (func $f))").unwrap();
    }
    text.push(')');
    wat::parse_str(text).unwrap()
}

/// Encodes a size as WebAssembly's LEB128.
fn leb128(mut value: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    while value >= 0x80 {
        bytes.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
    bytes
}

fn section(id: u8, contents: &[u8]) -> Vec<u8> {
    [&[id], leb128(contents.len()).as_slice(), contents].concat()
}

fn string(bytes: &[u8]) -> Vec<u8> {
    [leb128(bytes.len()).as_slice(), bytes].concat()
}

#[test]
fn many_exports_are_many_targets() {
    let wasm = exports(MANY, "(param i32) (result i32)", "(i32.const 0)");
    let module = run::shared_engine().load(&wasm).unwrap();
    assert_eq!(module.info().exports.len(), MANY);
    assert_eq!(module.info().targets.len(), MANY);
    let mut registry = Registry::new();
    registry.register_module(module).unwrap();
    assert_eq!(registry.names(Platform::Host).count(), MANY);
}

/// Of a branch with more targets than it takes, the compiler names the function.
#[test]
fn a_name_in_the_compilers_words_ends_no_quotation() {
    let targets = "0 ".repeat(70_000);
    let text = format!(
        r#"(module (memory (export "memory") 1)
          (func $"a\"b" (export "f") (param i32) (result i32)
            (block (br_table {targets} (i32.const 0))) (i32.const 0)))"#
    );
    let wasm = wat::parse_str(text).unwrap();
    let status = run::shared_engine().load(&wasm).unwrap_err();
    assert_eq!(status.code(), StatusCode::InvalidArgument, "{status}");
    let (before, says) = status.message().split_once("the compiler says ").unwrap();
    assert!(!before.contains('"'), "{status}");
    assert!(says.contains(r#"a\"b"#), "{status}");
    assert_eq!(
        says.replace(r#"\""#, "").matches('"').count(),
        2,
        "{status}"
    );
}

#[test]
fn a_long_type_is_not_written_out_for_each_export() {
    // Validation allows types with about a million parts in all.
    for (parameters, count) in [(128, 900), (40, MANY)] {
        let wasm = exports(count, &format!("(param {})", "i32 ".repeat(parameters)), "");
        let module = run::shared_engine().load(&wasm).unwrap();
        let info = module.info();
        assert_eq!((info.exports.len(), info.targets.len()), (count, 0));
        for export in &info.exports {
            assert!(export.ty.len() < 300, "{export:?}");
        }
    }
    let wasm = exports(MANY, &format!("(param {})", "i32 ".repeat(128)), "");
    let status = run::shared_engine().load(&wasm).unwrap_err();
    assert_eq!(status.code(), StatusCode::InvalidArgument);
    assert_eq!(status.blame(), Blame::Guest);
}

/// The proposal "compact import section" lets imports share their module name, so that a file of
/// 300 KB would expand to 2 GB.
#[test]
fn imports_cannot_share_a_long_name() {
    let names = b"\x01n\x00\x00".repeat(MANY);
    let group = [
        leb128(1),
        string(&b"m".repeat(LONGEST_NAME)),
        string(b""),
        vec![0x7f],
        leb128(MANY),
        names,
    ];
    let types = b"\x01\x60\x00\x00";
    let wasm = [
        b"\0asm\x01\0\0\0".to_vec(),
        section(1, types),
        section(2, &group.concat()),
    ]
    .concat();
    assert!(wasm.len() < 300_000);
    let refusals = [
        run::shared_engine().load(&wasm).unwrap_err(),
        inspect(&wasm, &Limits::default()).unwrap_err(),
    ];
    for status in refusals {
        assert_eq!(status.code(), StatusCode::InvalidArgument);
        assert_eq!(status.blame(), Blame::Guest);
        assert!(status.message().contains("compact imports"), "{status}");
    }
}

#[test]
fn a_long_name_makes_no_long_message() {
    let name = "n".repeat(LONGEST_NAME);
    let longest = 2 * run::shared_engine().policy().limits.message_bytes;
    for text in [
        format!(r#"(module (import "{name}" "f" (func)) (memory (export "memory") 1))"#),
        format!(r#"(module (import "env" "{name}" (func)) (memory (export "memory") 1))"#),
    ] {
        let wasm = wat::parse_str(text).unwrap();
        let status = run::shared_engine().load(&wasm).unwrap_err();
        assert_eq!(status.code(), StatusCode::PermissionDenied);
        assert!(
            status.message().len() <= longest,
            "expected a message of at most {longest} bytes, found {}",
            status.message().len()
        );
    }
}
