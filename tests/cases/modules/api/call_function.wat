;; Calls a function where there is none to call. Each result is call-function's code, an S32.
(module
  (import "callbox:ffi/api@1.1.0" "call-function" (func $call (param i32 i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 1)
  (global $code (mut i32) (i32.const -1))

  (func $call_first (result i32)
    (call $call (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0)))
  (func $store (param $frame i32) (result i32)
    (i32.store (i32.load (i32.load offset=16 (local.get $frame))) (global.get $code))
    (i32.const 0))

  (func (export "in_instantiate.instantiate") (param $frame i32) (result i32) (global.set $code (call $call_first)) (i32.const 0))
  (func (export "in_instantiate") (param $frame i32) (result i32) (call $store (local.get $frame)))
  (func (export "in_prepare.prepare") (param $frame i32) (result i32) (global.set $code (call $call_first)) (i32.const 0))
  (func (export "in_prepare") (param $frame i32) (result i32) (call $store (local.get $frame)))
  (func (export "in_initialize.initialize") (param $frame i32) (result i32) (global.set $code (call $call_first)) (i32.const 0))
  (func (export "in_initialize") (param $frame i32) (result i32) (call $store (local.get $frame)))
  (func (export "in_execute") (param $frame i32) (result i32) (global.set $code (call $call_first)) (call $store (local.get $frame)))
  ;; API_VERSION_ORIGINAL: it receives no function number.
  (func (export "in_original") (param $out i32) (param $ins i32) (i32.store (local.get $out) (call $call_first)))

  (func $start (global.set $code (i32.ne (call $call_first) (i32.const 0))))
  (start $start)
  (func (export "in_start") (param $frame i32) (result i32) (call $store (local.get $frame)))
)
