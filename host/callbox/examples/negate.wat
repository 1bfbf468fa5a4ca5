;; A target in WebAssembly's text format: y = -x, element by element, for F32 of any shape.
(module
  (memory (export "memory") 1)
  (func (export "negate") (param $frame i32) (result i32)
    (local $x i32) (local $y i32) (local $end i32)
    ;; The first record of the frame's operands starts with `data`, an offset and a length in bytes.
    ;; So does that of its results.
    (local.set $x (i32.load (i32.load offset=8 (local.get $frame))))
    (local.set $y (i32.load (i32.load offset=16 (local.get $frame))))
    (local.set $end (i32.add (local.get $x) (i32.load offset=4 (i32.load offset=8 (local.get $frame)))))
    (block $done
      (loop $next
        (br_if $done (i32.ge_u (local.get $x) (local.get $end)))
        (f32.store (local.get $y) (f32.neg (f32.load (local.get $x))))
        (local.set $x (i32.add (local.get $x) (i32.const 4)))
        (local.set $y (i32.add (local.get $y) (i32.const 4)))
        (br $next)))
    ;; OK
    (i32.const 0)))
