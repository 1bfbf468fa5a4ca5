;; Copies operands to results: result leaf i has the shape of operand leaf i.
(module
  (memory (export "memory") 1)

  ;; Typed FFI. 3 is INVALID_ARGUMENT, and 13 INTERNAL for a frame that cannot be right.
  (func (export "echo") (param $frame i32) (result i32)
    (local $i i32) (local $from i32) (local $to i32)
    (if (i32.lt_u (i32.load offset=20 (local.get $frame)) (i32.load offset=12 (local.get $frame)))
      (then (return (i32.const 3))))
    (loop $next
      (if (i32.ge_u (local.get $i) (i32.load offset=12 (local.get $frame)))
        (then (return (i32.const 0))))
      (local.set $from (i32.add (i32.load offset=8 (local.get $frame)) (i32.mul (local.get $i) (i32.const 36))))
      (local.set $to (i32.add (i32.load offset=16 (local.get $frame)) (i32.mul (local.get $i) (i32.const 36))))
      (if (i32.ne (i32.load offset=4 (local.get $from)) (i32.load offset=4 (local.get $to)))
        (then (return (i32.const 13))))
      (if (i32.and (i32.or (i32.load (local.get $from)) (i32.load (local.get $to))) (i32.const 63))
        (then (return (i32.const 13))))
      (memory.copy (i32.load (local.get $to)) (i32.load (local.get $from)) (i32.load offset=4 (local.get $from)))
      (local.set $i (i32.add (local.get $i) (i32.const 1)))
      (br $next))
    (unreachable))

  ;; The convention with opaque bytes, which are the leaves' sizes here, 4 bytes each.
  (func (export "unified") (param $out i32) (param $ins i32) (param $opaque i32) (param $length i32) (param $status i32)
    (local $i i32)
    (loop $next
      (if (i32.lt_u (local.get $i) (local.get $length))
        (then
          (memory.copy
            (i32.load (i32.add (local.get $out) (local.get $i)))
            (i32.load (i32.add (local.get $ins) (local.get $i)))
            (i32.load (i32.add (local.get $opaque) (local.get $i))))
          (local.set $i (i32.add (local.get $i) (i32.const 4)))
          (br $next))))))
