// A hot loop with inlined calls in inlined calls.
#include <stdint.h>
#include <stdlib.h>

static inline __attribute__((always_inline)) uint64_t mix(uint64_t x) {
    x ^= x << 13;
    x ^= x >> 7;
    return x ^ (x << 17);
}

static inline __attribute__((always_inline)) uint64_t twice(uint64_t x) {
    return mix(mix(x));
}

__attribute__((noinline)) static uint64_t spin(uint64_t rounds) {
    uint64_t x = 88172645463325252;
    while (rounds--)
        x = twice(x);
    return x;
}

int main(int argc, char **argv) {
    return spin(argc > 1 ? strtoull(argv[1], NULL, 10) : 0) == 0;
}
