// Has stacks of several kinds, one after the other: in a signal handler, in the kernel's code (vdso), and through libraries
// with unwinding tables of different kinds (layer.c).

#define _GNU_SOURCE
#include <signal.h>
#include <sys/time.h>
#include <time.h>

struct layer {
    long (*enter)(const struct layer *rest, long value);
};

long plain_outer(const struct layer *rest, long value);
long zlib_outer(const struct layer *rest, long value);
long gnu_outer(const struct layer *rest, long value);
long zstd_outer(const struct layer *rest, long value);
long separate_outer(const struct layer *rest, long value);
long changed_outer(const struct layer *rest, long value);

static volatile long sink;

// Of the processor, however busy the machine is.
static long milliseconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

__attribute__((noinline)) void spin(long rounds) {
    for (long round = 0; round < rounds; round++)
        sink = sink * 31 + round;
}

__attribute__((noinline)) void handle_signal(int number) {
    spin(500000 + number);
    sink++;
}

// Interrupted at any instruction, including those that change its frame.
__attribute__((noinline)) long interrupted(long value) {
    volatile long words[5] = {value, value + 1};
    return words[value & 1];
}

__attribute__((noinline)) long wait_for_signals(long end) {
    long sum = 0;
    while (milliseconds() < end)
        for (int call = 0; call < 1000; call++)
            sum += interrupted(call);
    return sum;
}

__attribute__((noinline)) long ask_clock(long end) {
    struct timespec now;
    do
        for (int call = 0; call < 1000; call++)
            clock_gettime(CLOCK_MONOTONIC, &now);
    while (milliseconds() < end);
    return now.tv_nsec;
}

__attribute__((noinline)) long innermost(const struct layer *rest, long value) {
    spin(2000000 + value);
    return sink + (rest != 0);
}

int main(void) {
    struct sigaction action = {.sa_handler = handle_signal};
    struct itimerval often = {{0, 4000}, {0, 4000}}, never = {{0, 0}, {0, 0}};
    sigaction(SIGALRM, &action, 0);
    setitimer(ITIMER_REAL, &often, 0);
    sink += wait_for_signals(milliseconds() + 300);
    setitimer(ITIMER_REAL, &never, 0);
    sink += ask_clock(milliseconds() + 300);
    const struct layer layers[] = {{zlib_outer}, {gnu_outer}, {zstd_outer}, {separate_outer}, {changed_outer}, {innermost}, {0}};
    for (long end = milliseconds() + 300; milliseconds() < end;)
        sink += plain_outer(layers, sink & 7);
    return 0;
}
