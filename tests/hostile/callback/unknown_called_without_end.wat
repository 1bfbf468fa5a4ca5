;; callbox design: work of the host for a guest counts towards the guest's time.
(module
  (import "callbox:ffi/api@1.1.0" "call-function" (func $call_function (param i32 i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 1)
  (func (export "unknown_called_without_end") (param $frame i32) (result i32)
    (if (i32.load (i32.load (i32.load offset=8 (local.get $frame)))) (then
      (loop (drop (call $call_function (i32.const 9) (i32.load offset=8 (local.get $frame)) (i32.const 1) (i32.load offset=16 (local.get $frame)) (i32.const 1))) (br 0))))
    (i32.store (i32.load (i32.load offset=16 (local.get $frame))) (i32.const 7))
    (i32.const 0))
)
