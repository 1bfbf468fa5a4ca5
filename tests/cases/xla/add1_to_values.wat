;; Adds 1 to each of four values, in any layout.
(module
  (memory (export "memory") 1)
  (func (export "Add1ToValues") (param $frame i32) (result i32)
    (v128.store (i32.load (i32.load offset=16 (local.get $frame)))
      (f32x4.add
        (v128.load (i32.load (i32.load offset=8 (local.get $frame))))
        (f32x4.splat (f32.const 1))))
    (i32.const 0)))
