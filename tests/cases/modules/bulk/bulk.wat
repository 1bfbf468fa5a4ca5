(module
  (memory (export "memory") 4)
  (data $bytes "abc")
  ;; By its operand: 0 returns a sum; 1 fills, 2 copies to, 3 copies from, and 4 initialises past
  ;; the end; 5 fills and 6 copies for ever; 7 fills most of its memory once, and can be stopped
  ;; only in the middle of that.
  (func $target (export "f") (param $frame i32) (result i32)
    (local $what i32)
    (local.set $what (i32.load (i32.load (i32.load offset=8 (local.get $frame)))))
    (if (i32.eq (local.get $what) (i32.const 1)) (then
      (call $fill (i32.const 65536) (i32.const 0x1000000))))
    (if (i32.eq (local.get $what) (i32.const 2)) (then
      (call $copy (i32.const 65536) (i32.const 0) (i32.const 0x1000000))))
    (if (i32.eq (local.get $what) (i32.const 3)) (then
      (call $copy (i32.const 0) (i32.const -65536) (i32.const 65537))))
    (if (i32.eq (local.get $what) (i32.const 4)) (then
      (memory.init $bytes (i32.const 0) (i32.const 0) (i32.add (local.get $what) (i32.const 100000)))))
    (if (i32.eq (local.get $what) (i32.const 5)) (then
      (drop (memory.grow (i32.const 4096)))
      (loop (call $fill (i32.const 0) (i32.shl (memory.size) (i32.const 16))) (br 0))))
    (if (i32.eq (local.get $what) (i32.const 6)) (then
      (drop (memory.grow (i32.const 4096)))
      (loop (call $copy (i32.const 65536) (i32.const 0) (i32.const 0x8000000)) (br 0))))
    (if (i32.eq (local.get $what) (i32.const 7)) (then
      (if (i32.eq (memory.grow (i32.const 15900)) (i32.const -1)) (then (unreachable)))
      (memory.fill (i32.const 0) (i32.const 3) (i32.shl (memory.size) (i32.const 16)))
      (return (i32.const 0))))
    ;; 100,001 bytes of 3, of which the last is the end of an overlapping copy.
    (call $fill (i32.const 65536) (i32.const 100000))
    (call $copy (i32.const 65537) (i32.const 65536) (i32.const 100000))
    (i32.store (i32.load (i32.load offset=16 (local.get $frame)))
      (i32.add (i32.load8_u (i32.const 65536))
        (i32.add (i32.load8_u (i32.const 165536)) (i32.load8_u (i32.const 165537)))))
    (i32.const 0))
  (func $fill (param $to i32) (param $length i32)
    (memory.fill (local.get $to) (i32.const 3) (local.get $length)))
  (func $copy (param $to i32) (param $from i32) (param $length i32)
    (memory.copy (local.get $to) (local.get $from) (local.get $length))))
