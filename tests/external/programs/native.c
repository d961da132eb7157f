/* Inlined calls in a loop, and calls of a library through linkage stubs. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static inline unsigned mix(unsigned hash, unsigned char byte) {
    hash ^= byte;
    return hash * 16777619u;
}

static inline unsigned hash_of(const char *text) {
    unsigned hash = 2166136261u;
    for (; *text; text++)
        hash = mix(hash, *text);
    return hash;
}

__attribute__((noinline)) unsigned work(const char *text, int count) {
    unsigned sum = 0;
    for (int i = 0; i < count; i++) {
        sum += hash_of(text) + abs(i);
        sum += labs(sum) + strlen(text);
    }
    return sum;
}

int main(int argc, char **argv) {
    printf("%u\n", work(argc > 1 ? argv[1] : "stub", 20000000));
    return 0;
}
