// Calls an interface method with several implementations, through .NET's resolve stubs.
interface IShape { double Area(); }
class Circle : IShape { public double Area() { return 3; } }
class Square : IShape { public double Area() { return 4; } }
class Triangle : IShape { public double Area() { return 1; } }

public static class App {
    static double Sum(IShape[] shapes) {
        double sum = 0;
        for (int index = 0; index < shapes.Length; index++) sum += shapes[index].Area();
        return sum;
    }
    public static int Main() {
        var shapes = new IShape[999];
        for (int index = 0; index < 999; index += 3) {
            shapes[index] = new Circle(); shapes[index + 1] = new Square(); shapes[index + 2] = new Triangle();
        }
        double sum = 0;
        for (int round = 0; round < 100000; round++) sum += Sum(shapes);
        return sum == 100000.0 * 333 * 8 ? 0 : 1;
    }
}
