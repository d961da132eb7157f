/* Prints the function, line and inlined calls at an address of a jitdump or of a running process:
 *
 *     cc -I capi/include capi/examples/symbolize.c -L target/debug -ljitinject_c -o symbolize
 *     symbolize JITDUMP|PID ADDRESS [TIME]
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "jitinject.h"

int main(int argc, char **argv) {
    if (argc < 3) {
        fprintf(stderr, "usage: symbolize JITDUMP|PID ADDRESS [TIME]\n");
        return 2;
    }
    char *end;
    unsigned long pid = strtoul(argv[1], &end, 10);
    jitinject_symbolizer *symbolizer = *end ? jitinject_open_file(argv[1]) : jitinject_open_process(pid);
    if (!symbolizer) {
        fprintf(stderr, "error: %s: %s\n", argv[1], strerror(errno));
        return 1;
    }
    uint64_t address = strtoull(argv[2], NULL, 16);
    uint64_t time = argc > 3 ? strtoull(argv[3], NULL, 10) : JITINJECT_NOW;

    /* A profiler calls this again whenever it has new samples. */
    int64_t count = jitinject_update(symbolizer);
    if (count < 0) {
        fprintf(stderr, "error: %s\n", jitinject_error(symbolizer));
        jitinject_close(symbolizer);
        return 1;
    }
    jitinject_function function;
    if (!jitinject_find(symbolizer, address, time, &function)) {
        printf("no function at 0x%" PRIx64 "\n", address);
        jitinject_close(symbolizer);
        return 1;
    }
    printf("%s+0x%" PRIx64 ", there since %" PRIu64 "\n", function.name, address - function.start, function.since);

    jitinject_frame frames[16];
    size_t found = jitinject_frames(symbolizer, address, time, frames, 16);
    for (size_t at = 0; at < found && at < 16; at++) {
        const jitinject_frame *frame = &frames[at];
        printf("  %s at %s:%" PRIu32 ":%" PRIu32 "\n", frame->function, frame->file ? frame->file : "unknown file",
               frame->line, frame->column);
    }
    jitinject_close(symbolizer);
    return 0;
}
