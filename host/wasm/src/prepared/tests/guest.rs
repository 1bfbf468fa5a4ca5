//! The guest of the tests of mapped calls.

/// Targets of typed FFI:
/// - `scan(x: f32[n], b: f32[]) -> (f32[n], f32[])`: running sums that start at `b`, and the last
///   sum.
/// - `mul(x, c) -> (f32, pred)`: `x * c + x`, and whether `x < c`; `c` is an array like `x`, or of
///   rank 0. It is elementwise. So is `any`, the same with dimensions of any rank that are
///   declared.
/// - `length(x) -> s32`: the number of the operand's bytes in each element. It is declared
///   elementwise, so that the results show pieces.
/// - `staged(x: f32[]) -> s32[]`: counts the stages that ran in its instance (1000 for `prepare`,
///   100 for `initialize`), and the calls.
/// - `pure(x: f32[]) -> s32[]`: the bits of the operand.
///
/// At the first 13.0 in an operand they fail, at 666.0 they trap, and at 1000.0 they loop for ever.
pub(super) const GUEST: &str = r#"(module
  (memory (export "memory") 1)
  (global $prepared (mut i32) (i32.const 0))
  (global $initialized (mut i32) (i32.const 0))
  (global $calls (mut i32) (i32.const 0))

  (func $special (param $x f32) (result i32)
    (if (f32.eq (local.get $x) (f32.const 666)) (then (unreachable)))
    (loop $forever (br_if $forever (f32.eq (local.get $x) (f32.const 1000))))
    (f32.eq (local.get $x) (f32.const 13)))

  (func (export "scan") (param $f i32) (result i32)
    (local $x i32) (local $end i32) (local $y i32) (local $sum f32)
    (local.set $x (i32.load (i32.load offset=8 (local.get $f))))
    (local.set $end (i32.add (local.get $x) (i32.load offset=4 (i32.load offset=8 (local.get $f)))))
    (local.set $sum (f32.load (i32.load offset=36 (i32.load offset=8 (local.get $f)))))
    (local.set $y (i32.load (i32.load offset=16 (local.get $f))))
    (if (call $special (local.get $sum)) (then (return (i32.const 9))))
    (block $done
      (loop $next
        (br_if $done (i32.ge_u (local.get $x) (local.get $end)))
        (if (call $special (f32.load (local.get $x))) (then (return (i32.const 9))))
        (local.set $sum (f32.add (local.get $sum) (f32.load (local.get $x))))
        (f32.store (local.get $y) (local.get $sum))
        (local.set $x (i32.add (local.get $x) (i32.const 4)))
        (local.set $y (i32.add (local.get $y) (i32.const 4)))
        (br $next)))
    (f32.store (i32.load offset=36 (i32.load offset=16 (local.get $f))) (local.get $sum))
    (i32.const 0))

  (func $mul (param $f i32) (result i32)
    (local $x i32) (local $end i32) (local $c i32) (local $step i32) (local $y i32) (local $less i32) (local $v f32)
    (local.set $x (i32.load (i32.load offset=8 (local.get $f))))
    (local.set $end (i32.add (local.get $x) (i32.load offset=4 (i32.load offset=8 (local.get $f)))))
    (local.set $c (i32.load offset=36 (i32.load offset=8 (local.get $f))))
    ;; An operand of rank 0 has no dimensions.
    (if (i32.load offset=48 (i32.load offset=8 (local.get $f))) (then (local.set $step (i32.const 4))))
    (local.set $y (i32.load (i32.load offset=16 (local.get $f))))
    (local.set $less (i32.load offset=36 (i32.load offset=16 (local.get $f))))
    (block $done
      (loop $next
        (br_if $done (i32.ge_u (local.get $x) (local.get $end)))
        (local.set $v (f32.load (local.get $x)))
        (if (call $special (local.get $v)) (then (return (i32.const 9))))
        (i32.store8 (local.get $less) (f32.lt (local.get $v) (f32.load (local.get $c))))
        (f32.store (local.get $y) (f32.add (f32.mul (local.get $v) (f32.load (local.get $c))) (local.get $v)))
        (local.set $x (i32.add (local.get $x) (i32.const 4)))
        (local.set $c (i32.add (local.get $c) (local.get $step)))
        (local.set $y (i32.add (local.get $y) (i32.const 4)))
        (local.set $less (i32.add (local.get $less) (i32.const 1)))
        (br $next)))
    (i32.const 0))
  (export "mul" (func $mul))
  (export "any" (func $mul))

  (func (export "length") (param $f i32) (result i32)
    (local $y i32) (local $end i32)
    (local.set $y (i32.load (i32.load offset=16 (local.get $f))))
    (local.set $end (i32.add (local.get $y) (i32.load offset=4 (i32.load offset=16 (local.get $f)))))
    (block $done
      (loop $next
        (br_if $done (i32.ge_u (local.get $y) (local.get $end)))
        (i32.store (local.get $y) (i32.load offset=4 (i32.load offset=8 (local.get $f))))
        (local.set $y (i32.add (local.get $y) (i32.const 4)))
        (br $next)))
    (i32.const 0))

  (func (export "staged.prepare") (param i32) (result i32)
    (global.set $prepared (i32.add (global.get $prepared) (i32.const 1000)))
    (i32.const 0))
  (func (export "staged.initialize") (param i32) (result i32)
    (global.set $initialized (i32.add (global.get $initialized) (i32.const 100)))
    (i32.const 0))
  (func (export "staged") (param $f i32) (result i32)
    (if (call $special (f32.load (i32.load (i32.load offset=8 (local.get $f))))) (then (return (i32.const 9))))
    (global.set $calls (i32.add (global.get $calls) (i32.const 1)))
    (i32.store (i32.load (i32.load offset=16 (local.get $f)))
      (i32.add (global.get $calls) (i32.add (global.get $prepared) (global.get $initialized))))
    (i32.const 0))

  (func (export "pure") (param $f i32) (result i32)
    (if (call $special (f32.load (i32.load (i32.load offset=8 (local.get $f))))) (then (return (i32.const 9))))
    (i32.store (i32.load (i32.load offset=16 (local.get $f))) (i32.load (i32.load (i32.load offset=8 (local.get $f)))))
    (i32.const 0))

  (@custom "callbox.targets"
    "{\"name\": \"scan\"} {\"name\": \"staged\", \"stages\": [\"prepare\", \"initialize\", \"execute\"]}"
    "{\"name\": \"mul\", \"traits\": [\"elementwise\"]}"
    "{\"name\": \"length\", \"traits\": [\"elementwise\"]}"
    "{\"name\": \"any\", \"traits\": [\"elementwise\"],"
    "  \"operands\": [{\"name\": \"x\", \"dimensions\": [\"..\"]}, {\"name\": \"c\", \"dimensions\": [\"..\"]}],"
    "  \"results\": [{\"name\": \"y\", \"dimensions\": [\"..\"]}, {\"name\": \"less\", \"dimensions\": [\"..\"]}]}"
    "{\"name\": \"pure\", \"traits\": [\"pure\"]}"))"#;
