;; Targets that log when they run and what memory they get. Offsets are those of
;; `wit/callbox-ffi.wit`.
(module
  (import "callbox:ffi/api@1.1.0" "log" (func $log (param i32 i32 i32)))
  (import "callbox:ffi/api@1.1.0" "call-function" (func $call_function (param i32 i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 1)

  ;; The address and length of the buffer in a list's record `index`. A record has 36 bytes.
  (func $data (param $list i32) (param $index i32) (result i32)
    (i32.load (i32.add (i32.load (local.get $list)) (i32.mul (local.get $index) (i32.const 36)))))
  (func $length (param $list i32) (param $index i32) (result i32)
    (i32.load offset=4 (i32.add (i32.load (local.get $list)) (i32.mul (local.get $index) (i32.const 36)))))

  ;; `note`: logs the first attribute, a string, and copies the first operand to the first result.
  (func (export "note") (param $frame i32) (result i32)
    (local $attribute i32)
    (local.set $attribute (i32.load offset=24 (local.get $frame)))
    (call $log (i32.const 2) (i32.load offset=8 (local.get $attribute)) (i32.load offset=12 (local.get $attribute)))
    (memory.copy
      (call $data (i32.add (local.get $frame) (i32.const 16)) (i32.const 0))
      (call $data (i32.add (local.get $frame) (i32.const 8)) (i32.const 0))
      (call $length (i32.add (local.get $frame) (i32.const 8)) (i32.const 0)))
    (i32.const 0))

  ;; `increment`: adds 1.0 to each element of each F32 result in place, and so to an operand that
  ;; shares its memory.
  (func (export "increment") (param $frame i32) (result i32)
    (local $results i32) (local $index i32) (local $at i32) (local $end i32)
    (local.set $results (i32.add (local.get $frame) (i32.const 16)))
    (block $all
      (loop $result
        (br_if $all (i32.eq (local.get $index) (i32.load offset=4 (local.get $results))))
        (local.set $at (call $data (local.get $results) (local.get $index)))
        (local.set $end (i32.add (local.get $at) (call $length (local.get $results) (local.get $index))))
        (block $done
          (loop $element
            (br_if $done (i32.ge_u (local.get $at) (local.get $end)))
            (f32.store (local.get $at) (f32.add (f32.load (local.get $at)) (f32.const 1)))
            (local.set $at (i32.add (local.get $at) (i32.const 4)))
            (br $element)))
        (local.set $index (i32.add (local.get $index) (i32.const 1)))
        (br $result)))
    (i32.const 0))

  ;; `reverse_by_way_of`: copies the first operand, reversed, to the last result, its temporary
  ;; buffer, and from there to the first.
  (func (export "reverse_by_way_of") (param $frame i32) (result i32)
    (local $x i32) (local $y i32) (local $temp i32) (local $length i32) (local $at i32)
    (local.set $x (call $data (i32.add (local.get $frame) (i32.const 8)) (i32.const 0)))
    (local.set $length (call $length (i32.add (local.get $frame) (i32.const 8)) (i32.const 0)))
    (local.set $y (call $data (i32.add (local.get $frame) (i32.const 16)) (i32.const 0)))
    (local.set $temp (call $data
      (i32.add (local.get $frame) (i32.const 16))
      (i32.sub (i32.load offset=20 (local.get $frame)) (i32.const 1))))
    (block $done
      (loop $element
        (br_if $done (i32.ge_u (local.get $at) (local.get $length)))
        (f32.store
          (i32.sub (i32.add (local.get $temp) (local.get $length)) (i32.add (local.get $at) (i32.const 4)))
          (f32.load (i32.add (local.get $x) (local.get $at))))
        (local.set $at (i32.add (local.get $at) (i32.const 4)))
        (br $element)))
    (memory.copy (local.get $y) (local.get $temp) (local.get $length))
    (i32.const 0))

  ;; `call_back`: calls the function in the first attribute with all operands and results.
  (func (export "call_back") (param $frame i32) (result i32)
    (call $call_function
      (i32.load (i32.load offset=8 (i32.load offset=24 (local.get $frame))))
      (i32.load offset=8 (local.get $frame)) (i32.load offset=12 (local.get $frame))
      (i32.load offset=16 (local.get $frame)) (i32.load offset=20 (local.get $frame)))))
