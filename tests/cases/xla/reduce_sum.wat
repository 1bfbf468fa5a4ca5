(module
  (memory (export "memory") 1)
  (func (export "reduce_sum") (param $frame i32) (result i32)
    (local $in i32) (local $end i32) (local $sum f32)
    (local.set $in (i32.load (i32.load offset=8 (local.get $frame))))
    (local.set $end (i32.add (local.get $in) (i32.load offset=4 (i32.load offset=8 (local.get $frame)))))
    (block
      (loop
        (br_if 1 (i32.eq (local.get $in) (local.get $end)))
        (local.set $sum (f32.add (local.get $sum) (f32.load (local.get $in))))
        (local.set $in (i32.add (local.get $in) (i32.const 4)))
        (br 0)))
    (f32.store (i32.load (i32.load offset=16 (local.get $frame))) (local.get $sum))
    (i32.const 0)))
