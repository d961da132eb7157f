// A program whose calls are logged: several named threads, recursion, exceptions that leave several calls at
// once, interfaces, generics and delegates, and calls so short that the stack changes every few microseconds.
using System;
using System.Collections.Generic;
using System.Threading;

namespace Stacks {
    interface IShape {
        uint Turn(int times);
    }

    class Square : IShape {
        public uint Turn(int times) { return Mixer.Mix(times) + Mixer.Mix(times / 2); }
    }

    class Circle : IShape {
        public uint Turn(int times) { return Mixer.Deeper(3, times); }
    }

    class Pair<T> where T : IShape {
        readonly T first, second;

        public Pair(T first, T second) { this.first = first; this.second = second; }

        public uint Turn(int times) { return first.Turn(times) ^ second.Turn(times); }
    }

    static class Mixer {
        // Takes some microseconds.
        public static uint Mix(int times) {
            uint state = (uint)times | 1;
            for (int i = 0; i < times; i++) {
                state ^= state << 13;
                state ^= state >> 17;
                state ^= state << 5;
            }
            return state;
        }

        public static uint Deeper(int depth, int times) {
            uint here = Mix(times / 4);
            return depth == 0 ? here : here + Deeper(depth - 1, times);
        }
    }

    static class Program {
        static readonly object gate = new object();
        static uint total;

        static uint Fall(int depth) {
            if (depth == 0) throw new InvalidOperationException("down");
            return Mixer.Mix(700) + Fall(depth - 1);
        }

        static uint Catch(int depth) {
            try {
                return Fall(depth);
            } catch (InvalidOperationException) {
                return Mixer.Mix(900);
            } finally {
                total += Mixer.Mix(500);
            }
        }

        static uint Round(int number) {
            var pair = new Pair<IShape>(new Square(), new Circle());
            uint sum = pair.Turn(1500 + number % 7 * 100);
            if (number % 4 == 0) sum += Catch(3 + number % 3);
            Func<int, uint> turn = times => Mixer.Mix(times) + 1;
            return sum + turn(1200);
        }

        static void Work(int milliseconds) {
            var kept = new List<byte[]>();
            var end = DateTime.UtcNow.AddMilliseconds(milliseconds);
            for (int number = 0; DateTime.UtcNow < end; number++) {
                uint sum = Round(number);
                if (number % 64 == 0) kept.Add(new byte[100]);
                if (number % 16 == 0) lock (gate) total += sum + Mixer.Mix(2000);
            }
            GC.KeepAlive(kept);
        }

        static int Main(string[] arguments) {
            int milliseconds = int.Parse(arguments[0]);
            var threads = new List<Thread>();
            foreach (string name in new[] { "first", "second", "with a rather long name" }) {
                var thread = new Thread(() => Work(milliseconds));
                thread.Name = name;
                thread.Start();
                threads.Add(thread);
            }
            Work(milliseconds);
            foreach (var thread in threads) thread.Join();
            GC.Collect();
            return 0;
        }
    }
}
