<?php
function fib($n) { return $n < 2 ? $n : fib($n - 1) + fib($n - 2); }
for ($round = $sum = 0; $round < 1500; $round++) $sum += fib(20);
exit($sum === 10147500 ? 0 : 1);
