#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use wasmparser::{Validator, WasmFeatures};

use super::{ALLOWED, allowed};
use crate::inspect;
use callbox_core::policy::Limits;

/// The proposals without which the module is not valid, by validating it once without each.
fn needed_by_validation(wasm: &[u8]) -> Vec<&'static str> {
    let is_valid = |features: WasmFeatures| {
        Validator::new_with_features(features)
            .validate_all(wasm)
            .is_ok()
    };
    assert!(is_valid(allowed()));
    let needed = ALLOWED
        .iter()
        .filter(|(_, feature)| !is_valid(allowed().difference(*feature)));
    needed.map(|(name, _)| *name).collect()
}

/// Modules that need each proposal in each way, and modules that need none.
const MODULES: &[&str] = &[
    "(module)",
    r#"(module (memory (export "memory") 1) (data (i32.const 1) "x") (table 1 funcref) (func) (elem (i32.const 0) 0))"#,
    r#"(module (import "a" "b" (global (mut i32))))"#,
    r#"(module (import "a" "b" (global i32)) (global (mut i32) (i32.const 1)))"#,
    r#"(module (import "a" "b" (global i32)) (global (export "c") (mut i32) (i32.const 1)))"#,
    r#"(module (global (export "c") i32 (i32.const 1)))"#,
    "(module (func (drop (i32.trunc_sat_f32_s (f32.const 1)))))",
    "(module (func (drop (i32.extend8_s (i32.const 1)))))",
    "(module (func (result i32 i32) (i32.const 1) (i32.const 2)))",
    "(module (func (i32.const 1) (block (param i32) (drop))))",
    "(module (func (i32.const 1) (loop (param i32) (drop))))",
    "(module (func (block (result i32) (i32.const 1)) (drop)))",
    "(module (func (block (result v128) (unreachable)) (drop)))",
    "(module (func (block (result funcref) (unreachable)) (drop)))",
    "(module (memory 1) (func (memory.fill (i32.const 0) (i32.const 0) (i32.const 0))))",
    "(module (memory 1) (func (memory.copy (i32.const 0) (i32.const 0) (i32.const 0))))",
    r#"(module (memory 1) (data "x"))"#,
    r#"(module (memory 1) (data $d "x") (func (data.drop $d)))"#,
    "(module (table 1 funcref) (func) (elem func 0))",
    "(module (table 1 funcref) (func) (elem declare func 0))",
    "(module (table 1 funcref) (func) (elem (i32.const 0) funcref (ref.func 0)))",
    "(module (table 1 funcref) (func) (elem (i32.const 0) funcref (ref.null func)))",
    "(module (table 1 funcref) (table 1 funcref))",
    r#"(module (import "a" "t" (table 1 funcref)))"#,
    r#"(module (import "a" "t" (table 1 funcref)) (table 1 funcref))"#,
    "(module (table 1 funcref) (func (drop (table.size))))",
    "(module (table 1 funcref) (type (func)) (func (call_indirect (type 0) (i32.const 0))))",
    "(module (table 1 funcref) (table 1 funcref) (type (func)) (func (call_indirect 1 (type 0) (i32.const 0))))",
    "(module (func (param funcref)))",
    "(module (func (local funcref)))",
    "(module (global funcref (ref.null func)))",
    "(module (func (drop (select (result i32) (i32.const 1) (i32.const 1) (i32.const 1)))))",
    "(module (func (local v128)))",
    "(module (func (param v128)))",
    "(module (type (func (result v128))))",
    "(module (global v128 (v128.const i32x4 1 2 3 4)))",
    "(module (func (drop (i32x4.splat (i32.const 1)))))",
    "(module (func (param v128) (drop (i8x16.relaxed_swizzle (local.get 0) (local.get 0)))))",
    "(module (func $f (return_call $f)))",
    "(module (global i32 (i32.add (i32.const 1) (i32.const 1))))",
    "(module (global i64 (i64.mul (i64.const 1) (i64.const 1))))",
    r#"(module (memory 1) (data (i32.sub (i32.const 1) (i32.const 1)) "x"))"#,
    "(module (table 1 funcref) (func) (elem (i32.add (i32.const 0) (i32.const 0)) 0))",
    "(module (func (drop (i32.add (i32.const 1) (i32.const 1)))))",
];

#[test]
fn one_pass_finds_what_validating_without_each_proposal_finds() {
    for text in MODULES {
        let wasm = wat::parse_str(text).unwrap();
        let found = inspect(&wasm, &Limits::default()).unwrap().features;
        assert_eq!(found, needed_by_validation(&wasm), "{text}");
    }
}

#[test]
fn an_overlong_table_index_needs_reference_types() {
    let text =
        "(module (table 1 funcref) (type (func)) (func (call_indirect (type 0) (i32.const 0))))";
    let wasm = wat::parse_str(text).unwrap();
    let call = [0x11, 0, 0];
    let at = wasm.windows(3).position(|bytes| bytes == call).unwrap();
    let (mut before, after) = (wasm[..at + 2].to_vec(), &wasm[at + 3..]);
    before.extend([0x80, 0x00]);
    before.extend(after);
    // The sizes of the section and of the body, which precede the locals and `i32.const 0`.
    before[at - 4] += 1;
    before[at - 6] += 1;
    let found = inspect(&before, &Limits::default()).unwrap().features;
    assert_eq!(found, needed_by_validation(&before));
    assert_eq!(found, ["reference-types"]);
}
