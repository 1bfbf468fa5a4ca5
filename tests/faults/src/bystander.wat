;; Fills its own two pages with a pattern at its start. Its target fails with DATA_LOSS if one of
;; these bytes changed, otherwise it adds 1 to its operand. The arena follows these pages.
(module
  (memory (export "memory") 2)
  (func $word (param $at i32) (result i64)
    (i64.mul (i64.extend_i32_u (local.get $at)) (i64.const 0x9e3779b97f4a7c15)))
  (func $fill (local $at i32)
    (loop $next
      (i64.store (local.get $at) (call $word (local.get $at)))
      (local.set $at (i32.add (local.get $at) (i32.const 8)))
      (br_if $next (i32.lt_u (local.get $at) (i32.const 131072)))))
  (start $fill)
  (func (export "intact") (param $frame i32) (result i32) (local $at i32)
    (loop $next
      (if (i64.ne (i64.load (local.get $at)) (call $word (local.get $at)))
        (then (return (i32.const 15))))
      (local.set $at (i32.add (local.get $at) (i32.const 8)))
      (br_if $next (i32.lt_u (local.get $at) (i32.const 131072))))
    (i32.store (i32.load (i32.load offset=16 (local.get $frame)))
      (i32.add (i32.const 1) (i32.load (i32.load (i32.load offset=8 (local.get $frame))))))
    (i32.const 0)))
