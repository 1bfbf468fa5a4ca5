;; Calls the first called computation with the frame's own operands and results, and returns its
;; status.
(module
  (import "callbox:ffi/api@1.1.0" "call-function" (func $call_function (param i32 i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 1)
  (func (export "hand_on") (param $frame i32) (result i32)
    (call $call_function
      (i32.load (i32.load offset=60 (local.get $frame)))
      (i32.load offset=8 (local.get $frame)) (i32.load offset=12 (local.get $frame))
      (i32.load offset=16 (local.get $frame)) (i32.load offset=20 (local.get $frame)))))
