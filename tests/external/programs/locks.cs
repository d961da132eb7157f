// A program whose threads wait for two locks, try one in vain, allocate, compute, and collect garbage.
using System;
using System.Collections.Generic;
using System.Threading;

class Locks {
    static readonly object first = new object();
    static readonly object second = new object();
    static List<byte[]> kept = new List<byte[]>();

    static void Hold(object door, int milliseconds) {
        lock (door) {
            Thread.Sleep(milliseconds);
            kept.Add(new byte[4096]);
        }
    }

    static void Try(object door) {
        if (Monitor.TryEnter(door, 1)) Monitor.Exit(door);
    }

    static double Spin(int rounds) {
        double sum = 0;
        for (int at = 0; at < rounds; at++) sum += Math.Sqrt(at) * Math.Sin(at);
        return sum;
    }

    static void Work() {
        for (int round = 0; round < 8; round++) {
            Hold(first, 3);
            Try(second);
            Hold(second, 2);
            Spin(400000);
            if (round % 4 == 3) GC.Collect();
        }
    }

    // A thread waits for the lock, however busy the machine is.
    static void Contend(object door) {
        var waiter = new Thread(() => Hold(door, 0));
        lock (door) {
            waiter.Start();
            for (int wait = 0; wait < 60000 && (waiter.ThreadState & ThreadState.WaitSleepJoin) == 0; wait++)
                Thread.Sleep(1);
        }
        waiter.Join();
    }

    static void Main() {
        Contend(first);
        Contend(second);
        var threads = new List<Thread>();
        for (int at = 0; at < 3; at++) threads.Add(new Thread(Work));
        threads.ForEach(thread => thread.Start());
        threads.ForEach(thread => thread.Join());
    }
}
