;; Adds 2 to its operand in place. The result must share the operand's memory.
(module
  (memory (export "memory") 1)
  (func (export "add2_in_place") (param $frame i32) (result i32)
    (local $x i32)
    (local.set $x (i32.load (i32.load offset=8 (local.get $frame))))
    (if (i32.ne (local.get $x) (i32.load (i32.load offset=16 (local.get $frame)))) (then (return (i32.const 9))))
    (i32.store (local.get $x) (i32.add (i32.load (local.get $x)) (i32.const 2)))
    (i32.const 0)))
