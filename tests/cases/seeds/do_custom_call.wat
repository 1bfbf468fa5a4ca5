;; The seed's `void do_custom_call(void* out, const void** in)`, as a C compiler translates it.
(module
  (memory (export "memory") 1)
  (func (export "do_custom_call") (param $out i32) (param $in i32)
    (local $i i32)
    (loop
      (f32.store
        (i32.add (local.get $out) (i32.shl (local.get $i) (i32.const 2)))
        (f32.add
          (f32.load (i32.add
            (i32.load (local.get $in))
            (i32.shl (i32.rem_u (local.get $i) (i32.const 128)) (i32.const 2))))
          (f32.load (i32.add
            (i32.load offset=4 (local.get $in))
            (i32.shl (local.get $i) (i32.const 2))))))
      (local.set $i (i32.add (local.get $i) (i32.const 1)))
      (br_if 0 (i32.lt_u (local.get $i) (i32.const 2048))))))
