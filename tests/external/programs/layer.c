// A layer of a stack: compiled as several libraries, each with unwinding tables of another kind. LAYER is the prefix of
// its functions.

#define JOIN2(layer, name) layer##_##name
#define JOIN(layer, name) JOIN2(layer, name)
#define FUNCTION(name) JOIN(LAYER, name)

struct layer {
    long (*enter)(const struct layer *rest, long value);
};

// Only tables say where its frame ends.
__attribute__((noinline)) long FUNCTION(inner)(const struct layer *rest, long value) {
    volatile long words[SIZE];
    for (int at = 0; at < SIZE; at++)
        words[at] = value + at;
    return rest->enter(rest + 1, words[value % SIZE]) + words[3];
}

long FUNCTION(outer)(const struct layer *rest, long value) {
    return FUNCTION(inner)(rest, value + 1) * 3;
}

// Never called: with these, tables are large enough to be compressed.
#define UNUSED(number)                                                                                                 \
    long FUNCTION(unused_##number)(const struct layer *rest, long value) {                                              \
        return FUNCTION(inner)(rest, value * number) + FUNCTION(outer)(rest, value + number);                           \
    }
UNUSED(1)
UNUSED(2)
UNUSED(3)
UNUSED(4)
UNUSED(5)
UNUSED(6)
UNUSED(7)
UNUSED(8)
