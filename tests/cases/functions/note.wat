;; Logs when it runs.
(module
  (import "callbox:ffi/api@1.0.0" "log" (func $log (param i32 i32 i32)))
  (memory (export "memory") 1)
  ;; Logs the first attribute, a string, and copies the operand to the result.
  (func (export "note") (param $frame i32) (result i32)
    (local $attribute i32) (local $operand i32)
    (local.set $attribute (i32.load offset=24 (local.get $frame)))
    (call $log (i32.const 2) (i32.load offset=8 (local.get $attribute)) (i32.load offset=12 (local.get $attribute)))
    (local.set $operand (i32.load offset=8 (local.get $frame)))
    (memory.copy
      (i32.load (i32.load offset=16 (local.get $frame)))
      (i32.load (local.get $operand))
      (i32.load offset=4 (local.get $operand)))
    (i32.const 0))
)
