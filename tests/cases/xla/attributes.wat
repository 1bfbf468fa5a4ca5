;; Sums the array attribute `array` of S32, the only attribute, to its result.
(module
  (memory (export "memory") 1)
  (func (export "array_attr") (param $frame i32) (result i32)
    (local $at i32) (local $end i32) (local $sum i32) (local $attribute i32)
    (local.set $attribute (i32.load offset=24 (local.get $frame)))
    (if (i32.ne (i32.load8_u offset=24 (local.get $attribute)) (i32.const 1)) (then (return (i32.const 3))))
    (if (i32.ne (i32.load8_u offset=25 (local.get $attribute)) (i32.const 4)) (then (return (i32.const 3))))
    (local.set $at (i32.load offset=8 (local.get $attribute)))
    (local.set $end (i32.add (local.get $at) (i32.load offset=12 (local.get $attribute))))
    (block
      (loop
        (br_if 1 (i32.eq (local.get $at) (local.get $end)))
        (local.set $sum (i32.add (local.get $sum) (i32.load (local.get $at))))
        (local.set $at (i32.add (local.get $at) (i32.const 4)))
        (br 0)))
    (i32.store (i32.load (i32.load offset=16 (local.get $frame))) (local.get $sum))
    (i32.const 0))
  ;; Copies the fields `hi` and `lo`, S64, of the dictionary attribute `range`, the only attribute.
  (func (export "range_attr") (param $frame i32) (result i32)
    (local $out i32) (local $fields i32)
    (local.set $out (i32.load (i32.load offset=16 (local.get $frame))))
    (local.set $fields (i32.load offset=8 (i32.load offset=24 (local.get $frame))))
    (i64.store (local.get $out) (i64.load (i32.load offset=8 (local.get $fields))))
    (i64.store offset=8 (local.get $out) (i64.load (i32.load offset=36 (local.get $fields))))
    (i32.const 0)))
