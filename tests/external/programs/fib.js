function fib(n) {
  return n < 2 ? n : fib(n - 1) + fib(n - 2);
}
let sum = 0;
for (let round = 0; round < 10000; round++) sum += fib(20);
if (sum !== 67650000) throw new Error(sum);
