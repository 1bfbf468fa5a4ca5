;; wit/callbox-ffi.wit, call-function: values from a guest are unchecked claims.
(module
  (import "callbox:ffi/api@1.1.0" "call-function" (func $call_function (param i32 i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 1)
  (func (export "data_longer_than_its_shape") (param $frame i32) (result i32)
    (if (i32.load (i32.load (i32.load offset=8 (local.get $frame)))) (then
      (i32.store offset=4 (i32.load offset=16 (local.get $frame)) (i32.const 65536))
      (return (call $call_function (i32.load (i32.load offset=8 (i32.load offset=24 (local.get $frame)))) (i32.load offset=8 (local.get $frame)) (i32.const 1) (i32.load offset=16 (local.get $frame)) (i32.const 1)))))
    (i32.store (i32.load (i32.load offset=16 (local.get $frame))) (i32.const 7))
    (i32.const 0))
)
