;; wit/callbox-ffi.wit, call-function: operands are read before results are written, so that buffers
;; may overlap; where the host finds the result it chose itself.
(module
  (import "callbox:ffi/api@1.1.0" "call-function" (func $call_function (param i32 i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 1)
  (func (export "result_over_the_operand") (param $frame i32) (result i32)
    (if (i32.load (i32.load (i32.load offset=8 (local.get $frame)))) (then
      (i32.store (i32.load (i32.load offset=16 (local.get $frame))) (i32.const 5))
      (i32.store (i32.load offset=16 (local.get $frame)) (i32.load (i32.load offset=8 (local.get $frame))))
      (return (call $call_function (i32.load (i32.load offset=8 (i32.load offset=24 (local.get $frame)))) (i32.load offset=8 (local.get $frame)) (i32.const 1) (i32.load offset=16 (local.get $frame)) (i32.const 1)))))
    (i32.store (i32.load (i32.load offset=16 (local.get $frame))) (i32.const 7))
    (i32.const 0))
)
