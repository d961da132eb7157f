(module
  (func $fib (param $n i64) (result i64)
    (if (result i64) (i64.lt_s (local.get $n) (i64.const 2))
      (then (local.get $n))
      (else (i64.add
        (call $fib (i64.sub (local.get $n) (i64.const 1)))
        (call $fib (i64.sub (local.get $n) (i64.const 2)))))))
  (func (export "_start") (local $round i32)
    (loop $again
      (drop (call $fib (i64.const 20)))
      (local.set $round (i32.add (local.get $round) (i32.const 1)))
      (br_if $again (i32.lt_s (local.get $round) (i32.const 20000))))))
