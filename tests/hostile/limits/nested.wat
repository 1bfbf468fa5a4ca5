;; `outer` calls the function of its call site, whose target is `inner` of the same module, in
;; another instance, unless x is 0.
(module
  (import "callbox:ffi/api@1.1.0" "call-function" (func $call_function (param i32 i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 1)
  (func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32) (i32.const 1024))
  (func (export "outer") (param $frame i32) (result i32)
    (if (i32.load (i32.load (i32.load offset=8 (local.get $frame)))) (then
      (return (call $call_function (i32.load (i32.load offset=8 (i32.load offset=24 (local.get $frame)))) (i32.load offset=8 (local.get $frame)) (i32.const 1) (i32.load offset=16 (local.get $frame)) (i32.const 1)))))
    (i32.store (i32.load (i32.load offset=16 (local.get $frame))) (i32.const 7))
    (i32.const 0))
  (func (export "inner") (param $frame i32) (result i32)
    (i32.store (i32.load (i32.load offset=16 (local.get $frame))) (i32.const 7))
    (i32.const 0)))
