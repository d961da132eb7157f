def fib(n):
    return n if n < 2 else fib(n - 1) + fib(n - 2)


assert sum(fib(15) for _ in range(4000)) == 2440000
