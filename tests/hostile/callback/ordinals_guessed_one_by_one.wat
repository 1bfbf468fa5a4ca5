;; wit/callbox-ffi.wit, call-function: a number that is none is NOT_FOUND, and the guest goes on.
(module
  (import "callbox:ffi/api@1.1.0" "call-function" (func $call_function (param i32 i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 1)
  (func (export "ordinals_guessed_one_by_one") (param $frame i32) (result i32) (local $i i32)
    (if (i32.load (i32.load (i32.load offset=8 (local.get $frame)))) (then
      (local.set $i (i32.const 100000))
      (loop
        (drop (call $call_function (i32.add (local.get $i) (i32.const 1)) (i32.load offset=8 (local.get $frame)) (i32.const 1) (i32.load offset=16 (local.get $frame)) (i32.const 1)))
        (br_if 0 (local.tee $i (i32.sub (local.get $i) (i32.const 1)))))
      (return (call $call_function (i32.load (i32.load offset=8 (i32.load offset=24 (local.get $frame)))) (i32.load offset=8 (local.get $frame)) (i32.const 1) (i32.load offset=16 (local.get $frame)) (i32.const 1)))))
    (i32.store (i32.load (i32.load offset=16 (local.get $frame))) (i32.const 7))
    (i32.const 0))
)
