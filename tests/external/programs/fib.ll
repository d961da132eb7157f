define i64 @fib(i64 %n) noinline {
  %small = icmp slt i64 %n, 2
  br i1 %small, label %done, label %more
more:
  %one = sub i64 %n, 1
  %two = sub i64 %n, 2
  %left = call i64 @fib(i64 %one)
  %right = call i64 @fib(i64 %two)
  %sum = add i64 %left, %right
  ret i64 %sum
done:
  ret i64 %n
}

define i32 @main() {
start:
  br label %again
again:
  %round = phi i64 [ 0, %start ], [ %next, %again ]
  %result = call i64 @fib(i64 20)
  %next = add i64 %round, 1
  %more = icmp slt i64 %next, 20000
  br i1 %more, label %again, label %done
done:
  ret i32 0
}
