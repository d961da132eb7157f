#ifndef JITINJECT_H
#define JITINJECT_H

/* Made by cbindgen from capi/src/lib.rs: change that, and run scripts/c-header. */

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

/*
 The latest time: asks for the code that is there now.
 */
#define JITINJECT_NOW (UINT64_MAX - 1)

/*
 The functions of a process or of a file. One thread at a time may use it.
 */
typedef struct jitinject_symbolizer jitinject_symbolizer;

/*
 A function at an address.
 */
typedef struct {
  /*
   Name, with zero bytes removed. Valid until the next call with the symbolizer.
   */
  const char *name;
  /*
   Compiler tier; NULL if it is unknown. Valid as long as the name.
   */
  const char *tier;
  /*
   Start address of the code.
   */
  uint64_t start;
  /*
   Size of the code in bytes.
   */
  uint64_t size;
  /*
   Time at which it was loaded or moved there, in nanoseconds.
   */
  uint64_t since;
} jitinject_function;

/*
 A function or an inlined call at an address.
 */
typedef struct {
  /*
   Name of the function; of an inlined one, possibly empty. Valid until the next call with the symbolizer.
   */
  const char *function;
  /*
   Path of the source file; NULL if it is unknown. Valid as long as the name.
   */
  const char *file;
  /*
   Executed line, or in a caller the line of the call, from 1; 0 if it is unknown.
   */
  uint32_t line;
  /*
   Column, from 1; 0 if it is unknown.
   */
  uint32_t column;
  /*
   Whether the call was inlined into the next frame.
   */
  bool is_inlined;
} jitinject_frame;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/*
 Opens a jitdump, which may still be written. Returns NULL, and sets errno, if the file cannot be opened. Nothing is read
 before jitinject_update().

 # Safety

 `path` is a string that ends with a zero byte.
 */
jitinject_symbolizer *jitinject_open_file(const char *path);

/*
 Creates a symbolizer for the jitdumps of a running process. Never returns NULL. At most 64 of them are open, those that were
 found last; each takes a file descriptor.
 */
jitinject_symbolizer *jitinject_open_process(uint32_t pid);

/*
 Frees a symbolizer and all strings of its answers. NULL is ignored.

 # Safety

 `symbolizer` is from an open function, and not used afterwards.
 */
void jitinject_close(jitinject_symbolizer *symbolizer);

/*
 Reads what was written since the last call. Returns the number of functions that were loaded or moved, or -1 after an error
 (see jitinject_error()); what was read before stays usable. It is an error if the mappings of a process cannot be read and no
 jitdump of it is open; if one is open, it is read without them.

 # Safety

 `symbolizer` is from an open function.
 */
int64_t jitinject_update(jitinject_symbolizer *symbolizer);

/*
 Like jitinject_update(), for a file that nothing writes to any more: damage and an unfinished record at its end are not waited
 for. For a process, there is no difference.

 # Safety

 `symbolizer` is from an open function.
 */
int64_t jitinject_finish(jitinject_symbolizer *symbolizer);

/*
 Returns the message of the last error. Valid until the next error of the symbolizer.

 # Safety

 `symbolizer` is from an open function.
 */
const char *jitinject_error(const jitinject_symbolizer *symbolizer);

/*
 Finds the function whose code contains an address at a time, in nanoseconds of the jitdump's clock (CLOCK_MONOTONIC for nearly
 all runtimes) or JITINJECT_NOW. Returns false, and leaves `function` alone, if there is none.

 # Safety

 `symbolizer` is from an open function, and `function` can be written.
 */
bool jitinject_find(jitinject_symbolizer *symbolizer,
                    uint64_t address,
                    uint64_t time,
                    jitinject_function *function);

/*
 Finds the source line and the inlined calls at an address at a time: inlined calls first, the function itself last. Writes up to
 `capacity` of them to `frames`, and returns how many there are, 0 without a function. In V8's optimized code, a line may be
 that of an inlined function, which is not named.

 # Safety

 `symbolizer` is from an open function, and `frames` has room for `capacity` frames.
 */
size_t jitinject_frames(jitinject_symbolizer *symbolizer,
                        uint64_t address,
                        uint64_t time,
                        jitinject_frame *frames,
                        size_t capacity);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* JITINJECT_H */
