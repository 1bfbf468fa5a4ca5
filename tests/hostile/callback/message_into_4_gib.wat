;; wit/callbox-ffi.wit, call-function: values from a guest are unchecked claims.
(module
  (import "callbox:ffi/api@1.1.0" "call-function" (func $call_function (param i32 i32 i32 i32 i32) (result i32)))
  (import "callbox:ffi/api@1.1.0" "function-message" (func $function_message (param i32 i32) (result i32)))
  (memory (export "memory") 1)
  (func (export "message_into_4_gib") (param $frame i32) (result i32)
    (if (i32.load (i32.load (i32.load offset=8 (local.get $frame)))) (then
      (drop (call $call_function (i32.const 9) (i32.load offset=8 (local.get $frame)) (i32.const 1) (i32.load offset=16 (local.get $frame)) (i32.const 1)))
      (drop (call $function_message (i32.const 8) (i32.const -1)))))
    (i32.store (i32.load (i32.load offset=16 (local.get $frame))) (i32.const 7))
    (i32.const 0))
)
