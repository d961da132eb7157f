//! Rules for logs of Mono's profiler.

super::rules! {
    rule EMPTY "ML001" Error "empty file"
    problem "The log has no bytes, not even a header: the program was killed before the first buffer was flushed."
    readers "mprof-report and jitinject reject it."
    remedy "Let the program end, or have it flush its buffers."

    rule SHORT_HEADER "ML002" Error "truncated header"
    problem "The file is shorter than the header."
    readers "mprof-report and jitinject reject it."
    remedy "Let the program end, or have it flush its buffers."

    rule DATA_VERSION "ML003" Error "unknown data version"
    problem "The header has a version of the events that is not published; known versions are 1 to 17."
    readers "mprof-report rejects versions newer than its own, jitinject all unknown ones: events could have any layout."
    remedy "Use a profiler of Mono up to 6.8, or of .NET's own Mono."

    rule POINTER_SIZE "ML004" Error "impossible pointer size"
    problem "The program's pointers have neither 4 nor 8 bytes according to the header."
    readers "mprof-report and jitinject reject it."
    remedy "Write sizeof (gpointer)."

    rule FLAGS "ML005" Error "unknown flags in the header"
    problem "Bits are set in the header's flags, none of which has a meaning so far."
    readers "mprof-report and jitinject reject it: what follows could have any layout."
    remedy "Write 0."

    rule NO_PID "ML006" Warning "no PID in the header"
    problem "The PID in the header is 0."
    readers "jitinject can't match the log with its process, and needs --pid."
    remedy "Write getpid()."
    seen "The profiler of 2010."

    rule NO_EVENTS "ML007" Warning "no events"
    problem "The log has a header, but not a single event that can be read."
    readers "There is nothing to show."
    remedy "Enable events, as with --profile=log:jit,calls, and let the program end by itself."

    rule UNKNOWN_EVENT "ML010" Error "event of an unknown type"
    problem "The data version has no event of this type."
    readers "mprof-report stops there (`unhandled profiler event`). jitinject drops the rest of that buffer: each value is a difference to the one before."
    remedy "Increase the data version when adding events. A file written by Mono itself is damaged."

    rule CUT_EVENT "ML011" Error "event that exceeds its buffer"
    problem "The buffer ends inside the event."
    readers "mprof-report silently decodes the bytes that follow as part of the event. jitinject drops the event."
    remedy "Start a new buffer for an event that may not fit."

    rule BAD_COUNT "ML012" Error "event with an impossible number of elements"
    problem "The number of frames, references or the like is more than the rest of the buffer can hold."
    readers "mprof-report silently decodes the bytes that follow. jitinject drops the rest of that buffer."
    remedy "Count before writing. A file written by Mono itself is damaged."

    rule UNTERMINATED_STRING "ML013" Error "unterminated string"
    problem "No NUL follows in the buffer."
    readers "mprof-report silently decodes the bytes that follow. jitinject drops the rest of that buffer."
    remedy "End strings with a NUL."

    rule LONG_NUMBER "ML014" Error "number of more than 64 bits"
    problem "A variable-length number has more than 10 bytes, or a value of more than 64 bits."
    readers "mprof-report silently decodes the bytes that follow. jitinject drops the rest of that buffer."
    remedy "Write the shortest encoding."

    rule UNKNOWN_COUNTER "ML015" Error "counter of an unknown type"
    problem "The size of the counter's values is unknown, and thus the start of the next counter."
    readers "mprof-report silently decodes the bytes that follow. jitinject drops the rest of that buffer."
    remedy "Use the types of Mono's counters."

    rule SKIPPED_BYTES "ML016" Error "invalid bytes between buffers"
    problem "There are other bytes where a buffer should start."
    readers "mprof-report silently stops there. jitinject continues at the next buffer."
    remedy "Write each buffer with one call, from one thread."
    unit "bytes."

    rule BAD_SIZE "ML017" Error "buffer larger than the rest of the file"
    problem "The buffer ends after the end of the file by its size, though other buffers follow it."
    readers "mprof-report silently stops there. jitinject reads it up to the next one."
    remedy "Write the size of the buffer when it is full."

    rule CUT_TAIL "ML018" Error "truncated last buffer"
    problem "The program was killed while it was writing, or the file system was full."
    readers "mprof-report drops the buffer. jitinject keeps the events that are complete."
    remedy "Let the program end by itself, or stop it with a signal that it handles."

    rule BAD_GZIP "ML019" Error "damaged gzip data"
    problem "The compressed file can't be decompressed from some offset on."
    readers "mprof-report and jitinject read only what comes before."
    remedy "Copy the file again."

    rule CUT_GZIP "ML020" Error "truncated gzip data"
    problem "The compressed file has no end: the program was killed, or the copy of the file is incomplete. With the option `zip`, Mono flushes late."
    readers "mprof-report and jitinject read only what comes before."
    remedy "Let the program end by itself, or leave out `zip`."

    rule INVALID_GZIP_CONTENT "ML021" Error "invalid data in the gzip stream"
    problem "From some offset on, the decompressed data has no buffers."
    readers "jitinject stops decompressing there; mprof-report stops reading."
    remedy "Write only the log into the stream."

    rule GZIP_TOO_LARGE "ML022" Error "gzip data far larger than any log"
    problem "The file decompresses to more than 200 times its own size, and to more than 64 MiB. Logs of programs have 4 to 20 times theirs."
    readers "jitinject stops decompressing there: such files are made to fill memory."
    remedy "Write the log without `zip`, if it really is one."

    rule TRAILING_GZIP_BYTES "ML023" Error "bytes after the gzip data"
    problem "The file goes on after the end of the compressed stream."
    readers "mprof-report and jitinject don't read them."
    remedy "Write one stream, and a file for each run."

    rule TIME_BACK "ML030" Note "times that step back"
    problem "An event is older than the one before it in its buffer: Mono's writer thread logs methods that other threads have compiled. The difference is written as a 64-bit number that wraps around."
    readers "A reader that uses signed or saturating arithmetic has times of thousands of years from there on. mprof-report and jitinject wrap as well."
    remedy "None needed: all logs with compiled methods have it."
    seen "Mono 6.8."

    rule NO_NAME "ML031" Warning "compiled methods without a name"
    problem "The log has the code of methods that no event names."
    readers "mprof-report does not list them. jitinject names them by the calls that follow, if the log has calls; otherwise their samples stay unnamed."
    remedy "Name each method when it is compiled, with the event for its code."
    seen "Mono 6.8: a method that is called right after it was compiled is named before its code is known."

    rule NO_SIZE "ML032" Note "code without a size"
    problem "The code of a method or a helper has a size of 0, or one that exceeds the address space."
    readers "jitinject can't name samples in it. From data version 11 on, 0 means that the size is unknown."
    remedy "Log the code once it exists."

    rule NO_CODE "ML033" Warning "no compiled methods"
    problem "The log has no compiled method."
    readers "jitinject has no names for the program's samples."
    remedy "Enable `jit` (--profile=log:jit)."

    rule USED_BEFORE_NAMED "ML034" Note "types used before they are described"
    problem "Objects are allocated of a class or vtable that only a later event describes."
    readers "mprof-report, which reads the log once, calls it `unresolved class (nil)`. jitinject reads it twice."
    remedy "Write the events of types to the file before those that use them."
    unit "types."
    seen "Mono 6.8."

    rule UNNAMED_TYPE "ML035" Warning "types that are never described"
    problem "Objects are allocated of a class or vtable that no event describes."
    readers "mprof-report and jitinject can't show the type of these objects."
    remedy "Log every type, including those of the runtime's start."
    unit "types."

    rule UNNAMED_CALLS "ML036" Warning "calls of methods without a name"
    problem "A method is entered that no event names."
    readers "mprof-report and jitinject show it by its address."
    remedy "Enable `jit` along with `calls`."

    rule UNMATCHED_LEAVE "ML037" Note "method exits without an entry"
    problem "A method returns whose entry is not in the log: it was running when the log began, or the call was lost."
    readers "mprof-report does not count it. jitinject ignores it."
    remedy "None needed for the methods that were running when the log began."
    seen "Mono 6.8, one for each program."

    rule BUFFER_ORDER "ML038" Note "buffers of a thread out of the order of time"
    problem "A buffer begins before the one that its thread wrote before it: Mono writes some late."
    readers "A reader that takes them in the order of the file gives calls across them wrong times. jitinject sorts them."
    remedy "None needed for jitinject."

    rule NOT_UTF8 "ML039" Warning "names that are not UTF-8"
    problem "The name of a method, a type, a thread or the like is not UTF-8."
    readers "jitinject writes the bytes to symbols; in JSON, the replacement character stands for them."
    remedy "Write strings in UTF-8."

    rule UNKNOWN_VALUE "ML040" Note "unknown phases, kinds or events"
    problem "The phase of a collection, the kind of code or the event of a lock has a number without a meaning."
    readers "jitinject ignores the event, and shows such code as `[mono code]`."
    remedy "Increase the data version when adding values. A file written by Mono itself is damaged."

    rule LOST_LEAVES "ML041" Note "calls without an exit"
    problem "A method returns, but not the methods that it called."
    readers "jitinject ends the calls with the one around them."
    remedy "Log an exception's exits as well."
    unit "calls."

    rule UNPAIRED "ML042" Note "collections, pauses or waits without a start or an end"
    problem "A collection, a pause or a wait for a lock ends that has not started, or starts again before it has ended."
    readers "jitinject makes no event of it."
    remedy "None needed for what was going on when the log began."

    rule UNDESCRIBED_COUNTER "ML043" Warning "counters without a description"
    problem "The value of a counter comes before its name and type, or without them."
    readers "A reader knows neither the name nor the unit of the value."
    remedy "Describe a counter before its first value."
    unit "counters."
}
