;; Writes the doubled operand to the second result, which the program does not read, and that plus 1
;; to the first.
(module
  (memory (export "memory") 1)
  (func (export "scratch") (param $frame i32) (result i32)
    (local $in i32) (local $out i32) (local $scratch i32) (local $i i32)
    (local.set $in (i32.load (i32.load offset=8 (local.get $frame))))
    (local.set $out (i32.load (i32.load offset=16 (local.get $frame))))
    (local.set $scratch (i32.load offset=36 (i32.load offset=16 (local.get $frame))))
    (loop
      (f32.store (i32.add (local.get $scratch) (local.get $i))
        (f32.mul (f32.const 2) (f32.load (i32.add (local.get $in) (local.get $i)))))
      (local.set $i (i32.add (local.get $i) (i32.const 4)))
      (br_if 0 (i32.lt_u (local.get $i) (i32.const 16))))
    (local.set $i (i32.const 0))
    (loop
      (f32.store (i32.add (local.get $out) (local.get $i))
        (f32.add (f32.const 1) (f32.load (i32.add (local.get $scratch) (local.get $i)))))
      (local.set $i (i32.add (local.get $i) (i32.const 4)))
      (br_if 0 (i32.lt_u (local.get $i) (i32.const 16))))
    (i32.const 0)))
