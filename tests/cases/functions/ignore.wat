;; Calls back, and succeeds in any case.
(module
  (import "callbox:ffi/api@1.1.0" "call-function" (func $call (param i32 i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 1)
  ;; Calls the first called computation with the frame's one operand and one result.
  (func (export "ignore") (param $frame i32) (result i32)
    (drop (call $call
      (i32.load (i32.load offset=60 (local.get $frame)))
      (i32.load offset=8 (local.get $frame)) (i32.const 1)
      (i32.load offset=16 (local.get $frame)) (i32.const 1)))
    (i32.const 0))
)
