;; The seed's nested tuples, as leaves in preorder. Copies each operand's first element to the first
;; result, and the byte counts of all operands and both results to the second.
(module
  (memory (export "memory") 1)
  (func (export "do_custom_call") (param $frame i32) (result i32)
    (local $operand i32) (local $results i32) (local $i i32)
    (if (i32.ne (i32.load offset=12 (local.get $frame)) (i32.const 4)) (then (return (i32.const 3))))
    (if (i32.ne (i32.load offset=20 (local.get $frame)) (i32.const 2)) (then (return (i32.const 3))))
    (local.set $operand (i32.load offset=8 (local.get $frame)))
    (local.set $results (i32.load offset=16 (local.get $frame)))
    (loop
      (f32.store (i32.add (i32.load (local.get $results)) (i32.shl (local.get $i) (i32.const 2)))
        (f32.load (i32.load (local.get $operand))))
      (f32.store (i32.add (i32.load offset=36 (local.get $results)) (i32.shl (local.get $i) (i32.const 2)))
        (f32.convert_i32_u (i32.load offset=4 (local.get $operand))))
      (local.set $operand (i32.add (local.get $operand) (i32.const 36)))
      (local.set $i (i32.add (local.get $i) (i32.const 1)))
      (br_if 0 (i32.lt_u (local.get $i) (i32.const 4))))
    (f32.store offset=16 (i32.load offset=36 (local.get $results)) (f32.convert_i32_u (i32.load offset=4 (local.get $results))))
    (f32.store offset=20 (i32.load offset=36 (local.get $results)) (f32.convert_i32_u (i32.load offset=40 (local.get $results))))
    (i32.const 0)))
