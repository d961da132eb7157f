-module(app).
-export([main/0]).

fib(N) when N < 2 -> N;
fib(N) -> fib(N - 1) + fib(N - 2).

work(0, Sum) -> Sum;
work(Rounds, Sum) -> work(Rounds - 1, Sum + fib(20)).

main() ->
    67650000 = work(10000, 0),
    halt().
