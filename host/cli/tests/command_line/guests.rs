//! Modules in WebAssembly's text format, and programs. Offsets in frames are those of
//! `wit/callbox-ffi.wit`.

/// `negate`: y = -x.
pub(crate) const NEGATE: &str = include_str!("../../../callbox/examples/negate.wat");

/// `fail` fails with "Info must be >= 0", recoverable. `trap` traps in `inner`. `spin` does not
/// end. `shout` logs.
pub(crate) const FAULTS: &str = r#"(module
  (import "callbox:ffi/api@1.0.0" "set-failure" (func $set_failure (param i32 i32 i32 i32)))
  (import "callbox:ffi/api@1.0.0" "log" (func $log (param i32 i32 i32)))
  (memory (export "memory") 1)
  (data (i32.const 16) "Info must be >= 0")
  (data (i32.const 64) "loud\nerror: \1b[31mfake")
  (func (export "fail") (param i32) (result i32)
    (call $set_failure (i32.const 3) (i32.const 16) (i32.const 17) (i32.const 1))
    (i32.const 3))
  (func $inner unreachable)
  (func (export "trap") (param i32) (result i32) (call $inner) (i32.const 0))
  (func (export "spin") (param i32) (result i32) (loop $again (br $again)) (i32.const 0))
  (func (export "shout") (param i32) (result i32)
    (call $log (i32.const 1) (i32.const 64) (i32.const 21))
    (i32.const 0)))"#;

/// `forge` fails with a message that would pass for callbox's own lines. Its function `pass\n
/// blame: host` traps.
pub(crate) const FORGED: &str = r#"(module
  (import "callbox:ffi/api@1.0.0" "set-failure" (func $set_failure (param i32 i32 i32 i32)))
  (memory (export "memory") 1)
  (data (i32.const 16) "no\n  blame: host\n\0d\1b[2Kerror: INTERNAL: the host failed\n")
  (func (export "forge") (param i32) (result i32)
    (call $set_failure (i32.const 13) (i32.const 16) (i32.const 55) (i32.const 0))
    (i32.const 13))
  (func $inner (@name "pass\n  blame: host\1b[2K") unreachable)
  (func (export "trap") (param i32) (result i32) (call $inner) (i32.const 0)))"#;

/// `iota` fills its F32 result with 0, 1, 2, ... in the order of memory. `attribute` copies the
/// first attribute's bytes to its result; `kind` writes its kind, element type and rank.
pub(crate) const WRITERS: &str = r#"(module
  (memory (export "memory") 1)
  (func (export "iota") (param $frame i32) (result i32)
    (local $y i32) (local $n i32) (local $i i32)
    (local.set $y (i32.load (i32.load offset=16 (local.get $frame))))
    (local.set $n (i32.div_u (i32.load offset=4 (i32.load offset=16 (local.get $frame))) (i32.const 4)))
    (block $done
      (loop $next
        (br_if $done (i32.ge_u (local.get $i) (local.get $n)))
        (f32.store (i32.add (local.get $y) (i32.mul (local.get $i) (i32.const 4)))
          (f32.convert_i32_u (local.get $i)))
        (local.set $i (i32.add (local.get $i) (i32.const 1)))
        (br $next)))
    (i32.const 0))
  (func (export "attribute") (param $frame i32) (result i32)
    (local $a i32)
    (local.set $a (i32.load offset=24 (local.get $frame)))
    (memory.copy (i32.load (i32.load offset=16 (local.get $frame)))
      (i32.load offset=8 (local.get $a)) (i32.load offset=12 (local.get $a)))
    (i32.const 0))
  (func (export "kind") (param $frame i32) (result i32)
    (local $a i32) (local $y i32)
    (local.set $a (i32.load offset=24 (local.get $frame)))
    (local.set $y (i32.load (i32.load offset=16 (local.get $frame))))
    (i32.store8 (local.get $y) (i32.load8_u offset=24 (local.get $a)))
    (i32.store8 offset=1 (local.get $y) (i32.load8_u offset=25 (local.get $a)))
    (i32.store8 offset=2 (local.get $y) (i32.load offset=20 (local.get $a)))
    (i32.const 0)))"#;

/// `negate` returns the 12 bytes of the user data `seed`, or fails with NOT_FOUND.
pub(crate) const SEED: &str = r#"(module
  (import "callbox:ffi/api@1.1.0" "user-data" (func $user_data (param i32 i32 i32 i32) (result i64)))
  (memory (export "memory") 1)
  (data (i32.const 16) "seed")
  (func (export "negate") (param $frame i32) (result i32)
    (local $y i32)
    (local.set $y (i32.load (i32.load offset=16 (local.get $frame))))
    (if (result i32)
      (i64.eq (call $user_data (i32.const 16) (i32.const 4) (local.get $y) (i32.const 12)) (i64.const 12))
      (then (i32.const 0))
      (else (i32.const 5)))))"#;

/// A module with everything that `inspect` shows, and with text that would control a terminal.
pub(crate) const DECLARED: &str = r#"(module
  (import "callbox:ffi/api@1.0.0" "version" (func (result i32)))
  (memory (export "memory") 2 16)
  (func (export "scale") (param i32) (result i32) (i32.extend8_s (i32.const 0)))
  (func (export "helper\1b[2J"))
  (@custom "callbox.targets" "{\"name\":\"scale\",\"stages\":[\"execute\"],\"operands\":[{\"name\":\"x\",\"element_types\":[\"f32\",\"f64\"],\"rank\":2},{\"name\":\"any\"}],\"results\":[{\"name\":\"y\",\"element_types\":[\"f32\"],\"dimensions\":[\"..\",\"n\",4]}],\"attributes\":[{\"name\":\"n\",\"kind\":\"scalar\",\"element_type\":\"f32\",\"optional\":true},{\"name\":\"mode\",\"kind\":\"string\"}],\"traits\":[\"pure\"],\"doc\":\"Scales.\\n\\u001b[31mRed\\u009b1m \\u202e.\"}"))"#;

/// x + y.
pub(crate) const ADD: &str = "HloModule m
ENTRY main {
  x = f32[3]{0} parameter(0)
  y = f32[3]{0} parameter(1)
  ROOT sum = f32[3]{0} add(x, y)
}
";

/// A call of `negate` by the name `do_custom_call`.
pub(crate) const CALL: &str = "HloModule m
ENTRY main {
  x = f32[3] parameter(0)
  ROOT y = f32[3] custom-call(x), custom_call_target=\"do_custom_call\", api_version=API_VERSION_TYPED_FFI
}
";

/// A program with one custom call of this target.
pub(crate) fn calling(target: &str) -> String {
    CALL.replace("do_custom_call", target)
}

/// A program that returns its only parameter, which has this shape.
pub(crate) fn identity(shape: &str) -> String {
    format!("HloModule m\nENTRY main {{\n  ROOT x = {shape} parameter(0)\n}}\n")
}
