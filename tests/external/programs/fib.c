int fib(int n)
{
    return n < 2 ? n : fib(n - 1) + fib(n - 2);
}

int main(void)
{
    int sum = 0;
    for (volatile int round = 0; round < 5000; round++)
        sum += fib(20);
    return sum == 33825000 ? 0 : 1;
}
