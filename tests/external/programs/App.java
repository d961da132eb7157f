public class App {
    static int fib(int n) {
        return n < 2 ? n : fib(n - 1) + fib(n - 2);
    }

    public static void main(String[] arguments) {
        int sum = 0;
        for (int round = 0; round < 40000; round++) sum += fib(20);
        System.exit(sum == 270600000 ? 0 : 1);
    }
}
