;; A target of the JAX FFI proposal in WebAssembly's text format, for F32:
;; outputs[0][0] = inputs[0][0] + info->n.
(module
  (import "callbox:ffi/api@1.0.0" "version" (func $version (result i32)))
  (import "callbox:ffi/api@1.0.0" "set-failure" (func $set_failure (param i32 i32 i32 i32)))
  (memory (export "memory") 1)
  (type $binary (func (param i32 i32)))
  (table 3 funcref)
  (elem (i32.const 1) $ffi_version $ffi_set_failure)
  (data (i32.const 16) "Info must be >= 0")
  ;; The API table: [0] is the version, [1] sets the failure. Function pointers are indices into the
  ;; table above.
  (data (i32.const 64) "\01\00\00\00\02\00\00\00")
  (func (export "jax-ffi-api") (result i32) (i32.const 64))
  (func $ffi_version (result i32) (i32.const 1))
  (func $ffi_set_failure (param $status i32) (param $message i32)
    (local $length i32)
    (block $end
      (loop $next
        (br_if $end (i32.eqz (i32.load8_u (i32.add (local.get $message) (local.get $length)))))
        (local.set $length (i32.add (local.get $length) (i32.const 1)))
        (br $next)))
    ;; 13 is INTERNAL, XLA's code for the failure of a custom call.
    (call $set_failure (i32.const 13) (local.get $message) (local.get $length) (i32.const 0)))
  (func (export "add_n") (param $api i32) (param $status i32) (param $info i32) (param $outputs i32) (param $inputs i32)
    (if (f32.lt (f32.load (local.get $info)) (f32.const 0))
      (then
        (call_indirect (type $binary) (local.get $status) (i32.const 16) (i32.load offset=4 (local.get $api)))
        (return)))
    (f32.store (i32.load (local.get $outputs))
      (f32.add (f32.load (i32.load (local.get $inputs))) (f32.load (local.get $info))))))
