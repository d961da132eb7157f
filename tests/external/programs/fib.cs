public static class App {
    static int Fib(int n) { return n < 2 ? n : Fib(n - 1) + Fib(n - 2); }
    public static int Main() {
        int sum = 0;
        for (int round = 0; round < 10000; round++) sum += Fib(20);
        return sum == 67650000 ? 0 : 1;
    }
}
