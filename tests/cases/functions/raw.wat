;; Calls the function of the attribute `func` directly, each target in another way. There is no
;; other attribute; operand and result are an F32 array of 3.
(module
  (import "callbox:ffi/api@1.1.0" "call-function" (func $call (param i32 i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 1)

  ;; The number of the function: the first word of the first attribute's value.
  (func $number (param $frame i32) (result i32)
    (i32.load (i32.load offset=8 (i32.load offset=24 (local.get $frame)))))
  (func $operands (param $frame i32) (result i32) (i32.load offset=8 (local.get $frame)))
  (func $results (param $frame i32) (result i32) (i32.load offset=16 (local.get $frame)))
  ;; Calls the function with the frame's own records.
  (func $call_with (param $frame i32) (param $number i32) (result i32)
    (call $call (local.get $number)
      (call $operands (local.get $frame)) (i32.const 1)
      (call $results (local.get $frame)) (i32.const 1)))

  (func (export "negates") (param $frame i32) (result i32)
    (call $call_with (local.get $frame) (call $number (local.get $frame))))
  (func (export "unknown_number") (param $frame i32) (result i32)
    (call $call_with (local.get $frame) (i32.add (call $number (local.get $frame)) (i32.const 1))))
  (func (export "largest_number") (param $frame i32) (result i32)
    (call $call_with (local.get $frame) (i32.const -1)))

  (func (export "results_outside_memory") (param $frame i32) (result i32)
    (call $call (call $number (local.get $frame))
      (call $operands (local.get $frame)) (i32.const 1)
      (i32.const -36) (i32.const 1)))
  (func (export "operands_outside_memory") (param $frame i32) (result i32)
    (call $call (call $number (local.get $frame))
      (i32.const -4) (i32.const 1)
      (call $results (local.get $frame)) (i32.const 1)))
  ;; The record begins within memory and ends past it.
  (func (export "records_past_the_end") (param $frame i32) (result i32)
    (call $call (call $number (local.get $frame))
      (i32.sub (i32.mul (memory.size) (i32.const 65536)) (i32.const 35)) (i32.const 1)
      (call $results (local.get $frame)) (i32.const 1)))
  (func (export "too_many_records") (param $frame i32) (result i32)
    (call $call (call $number (local.get $frame))
      (call $operands (local.get $frame)) (i32.const -1)
      (call $results (local.get $frame)) (i32.const 1)))

  ;; The frame is in the guest's memory: overwrites the records.
  (func (export "data_outside_memory") (param $frame i32) (result i32)
    (i32.store (call $results (local.get $frame)) (i32.const -8))
    (call $call_with (local.get $frame) (call $number (local.get $frame))))
  (func (export "dimensions_outside_memory") (param $frame i32) (result i32)
    (i32.store offset=8 (call $operands (local.get $frame)) (i32.const -8))
    (call $call_with (local.get $frame) (call $number (local.get $frame))))
  (func (export "result_too_short") (param $frame i32) (result i32)
    (i32.store offset=4 (call $results (local.get $frame)) (i32.const 11))
    (call $call_with (local.get $frame) (call $number (local.get $frame))))
  (func (export "result_too_long") (param $frame i32) (result i32)
    (i32.store offset=4 (call $results (local.get $frame)) (i32.const 16))
    (call $call_with (local.get $frame) (call $number (local.get $frame))))

  ;; The operand is read before the result is written, so both may be the result's memory.
  (func (export "in_place") (param $frame i32) (result i32)
    (memory.copy
      (i32.load (call $results (local.get $frame)))
      (i32.load (call $operands (local.get $frame)))
      (i32.const 12))
    (i32.store (call $operands (local.get $frame)) (i32.load (call $results (local.get $frame))))
    (call $call_with (local.get $frame) (call $number (local.get $frame))))

  ;; A code with which no function failed: there is no failure to pass on.
  (func (export "code_of_no_failure") (param $frame i32) (result i32)
    (drop (call $call_with (local.get $frame) (call $number (local.get $frame))))
    (i32.const 15))
  (func (export "another_code") (param $frame i32) (result i32)
    (drop (call $call_with (local.get $frame) (i32.const -1)))
    (i32.const 15))
)
