//! Logs of Mono's profiler.

super::rules! {
    rule EMPTY "ML001" Error "empty file"
    problem "The log has no bytes, not even a header: the program was killed before the first buffer was written out."
    readers "mprof-report and jitinject refuse it."
    remedy "Let the program end, or have it write out its buffers."

    rule SHORT_HEADER "ML002" Error "file ends inside its header"
    problem "There are fewer bytes than the header has."
    readers "mprof-report and jitinject refuse it."
    remedy "Let the program end, or have it write out its buffers."

    rule DATA_VERSION "ML003" Error "unknown data version"
    problem "The header names a version of the events that is not published; known are 1 to 17."
    readers "mprof-report refuses what is newer than itself, jitinject all that it does not know: events could be laid out in any way."
    remedy "Use a profiler of Mono up to 6.8, or of .NET's own Mono."

    rule POINTER_SIZE "ML004" Error "impossible size of pointers"
    problem "The header says that pointers of the program have neither 4 nor 8 bytes."
    readers "mprof-report and jitinject refuse it."
    remedy "Write sizeof (gpointer)."

    rule FLAGS "ML005" Error "unknown flags in the header"
    problem "Bits are set in the header's flags, none of which has a meaning so far."
    readers "mprof-report and jitinject refuse it: what follows could be anything."
    remedy "Write 0."

    rule NO_PROCESS "ML006" Warning "no process in the header"
    problem "The number of the process is 0."
    readers "jitinject can't tell whose log it is, and asks for --pid."
    remedy "Write getpid()."
    seen "The profiler of 2010."

    rule NO_EVENTS "ML007" Warning "no events"
    problem "There is a header and not a single event that can be read."
    readers "There is nothing to be shown."
    remedy "Ask Mono for events, as with --profile=log:jit,calls, and let the program end by itself."

    rule UNKNOWN_EVENT "ML010" Error "event of an unknown type"
    problem "The type of an event is none that the data version has."
    readers "mprof-report stops there (`unhandled profiler event`). jitinject drops the rest of that buffer: each value counts from the one before."
    remedy "Raise the data version along with new events. In a file of Mono's own it is damage."

    rule CUT_EVENT "ML011" Error "event that leaves its buffer"
    problem "The buffer ends inside the event."
    readers "mprof-report says nothing, and shows what it makes of the bytes that follow. jitinject drops the event."
    remedy "Start a new buffer for an event for which the room may not be enough."

    rule BAD_COUNT "ML012" Error "event with more elements than there is room for"
    problem "The number of frames, references or the like is more than the rest of the buffer could have."
    readers "mprof-report says nothing, and shows what it makes of the bytes that follow. jitinject drops the rest of that buffer."
    remedy "Count before writing. In a file of Mono's own it is damage."

    rule UNENDED_STRING "ML013" Error "string without an end"
    problem "No NUL follows in the buffer."
    readers "mprof-report says nothing, and shows what it makes of the bytes that follow. jitinject drops the rest of that buffer."
    remedy "End strings with a NUL."

    rule LONG_NUMBER "ML014" Error "number of more than 64 bits"
    problem "A variable-length number goes on for more than 10 bytes, or means more than 64 bits can hold."
    readers "mprof-report says nothing, and shows what it makes of the bytes that follow. jitinject drops the rest of that buffer."
    remedy "Write the shortest form."

    rule UNKNOWN_COUNTER "ML015" Error "counter of an unknown type"
    problem "The size of the counter's values is not known, and so not where the next one starts."
    readers "mprof-report says nothing, and shows what it makes of the bytes that follow. jitinject drops the rest of that buffer."
    remedy "Use the types that Mono's counters have."

    rule SKIPPED_BYTES "ML016" Error "bytes that are no buffers"
    problem "Where a buffer should start, there is something else."
    readers "mprof-report stops there, and says nothing. jitinject goes on at the next buffer."
    remedy "Write each buffer with one call, from one thread."
    unit "bytes."

    rule BAD_SIZE "ML017" Error "buffer larger than the rest of the file"
    problem "The buffer's size leads behind the end of the file, though other buffers follow it."
    readers "mprof-report stops there, and says nothing. jitinject reads it up to the next one."
    remedy "Write the size of the buffer when it is full."

    rule CUT_TAIL "ML018" Error "last buffer cut off by the end of the file"
    problem "The program was killed while it wrote, or the file system was full."
    readers "mprof-report drops the buffer. jitinject keeps the events that are whole."
    remedy "Let the program end by itself, or stop it with a signal that it handles."

    rule BAD_PACKING "ML019" Error "gzip data that can't be unpacked"
    problem "From some point on, the packed file is damaged."
    readers "mprof-report and jitinject have only what comes before."
    remedy "Copy the file once more."

    rule CUT_PACKING "ML020" Error "gzip data cut off by the end of the file"
    problem "The packed file has no end: the program was killed, or the file was not copied whole. With the option `zip` Mono writes out late."
    readers "mprof-report and jitinject have only what comes before."
    remedy "Let the program end by itself, or leave out `zip`."

    rule UNPACKED_JUNK "ML021" Error "unpacked data that are no buffers"
    problem "What was unpacked is no log from some point on."
    readers "jitinject stops unpacking there; mprof-report stops reading."
    remedy "Write nothing but the log into the stream."

    rule TOO_MUCH "ML022" Error "gzip data with far more in them than any log has"
    problem "The packed file stands for more than 200 times its own size, and for more than 64 MiB. Logs of programs have 4 to 20 times theirs."
    readers "jitinject stops unpacking there: such files are made to fill memory."
    remedy "Write it without `zip`, if it is a log in truth."

    rule BEHIND_PACKING "ML023" Error "bytes behind the gzip data"
    problem "The packed stream ends, and the file goes on."
    readers "mprof-report and jitinject don't see what is there."
    remedy "Write one stream, and a file for each run."

    rule TIME_BACK "ML030" Note "times that step back"
    problem "An event is older than the one before it in its buffer: Mono's writer thread tells of methods that other threads have compiled. The difference is written as a number of 64 bits that wraps around."
    readers "A reader that computes with signed numbers, or with saturation, has times of thousands of years from there on. mprof-report and jitinject wrap as well."
    remedy "Nothing: all logs with compiled methods have it."
    seen "Mono 6.8."

    rule NO_NAME "ML031" Warning "compiled methods without a name"
    problem "Code of methods is told of that no event names."
    readers "mprof-report does not list them. jitinject names them by the calls behind them, if the log has those; else their samples stay unnamed."
    remedy "Name each method when it is compiled, with the event for its code."
    seen "Mono 6.8: a method that is called right after it was compiled is named before its code is known."

    rule NO_SIZE "ML032" Note "code without a size"
    problem "A method or a helper is told of with a size of 0, or one that leaves the address space."
    readers "jitinject can't name samples in it. From data version 11 on, 0 stands for what is not known."
    remedy "Tell of it once the code is there."

    rule NO_CODE "ML033" Warning "no code"
    problem "The log tells of no compiled method."
    readers "jitinject has no names for the program's samples."
    remedy "Ask Mono for `jit` (--profile=log:jit)."

    rule USED_BEFORE_NAMED "ML034" Note "types that are used before they are told of"
    problem "Objects are allocated of a class or vtable of which an event says only later what it is."
    readers "mprof-report, which reads the log once, calls it `unresolved class (nil)`. jitinject reads it twice."
    remedy "Write the events of types to the file before those that use them."
    unit "types."
    seen "Mono 6.8."

    rule UNNAMED_TYPE "ML035" Warning "types that are never told of"
    problem "Objects are allocated of a class or vtable of which no event says what it is."
    readers "mprof-report and jitinject can't tell the type of these objects."
    remedy "Tell of every type, those of the runtime's start included."
    unit "types."

    rule UNNAMED_CALLS "ML036" Warning "calls of methods that are never named"
    problem "A method is entered of which no event tells the name."
    readers "mprof-report calls it by its address, jitinject too."
    remedy "Ask Mono for `jit` along with `calls`."

    rule UNMATCHED_LEAVE "ML037" Note "methods that are left and were not entered"
    problem "A method returns that the log does not say was entered: it was running when the log began, or the call was lost."
    readers "mprof-report counts it for nothing. jitinject ignores it."
    remedy "Nothing, for the methods around the log's start."
    seen "Mono 6.8, one for a program."
}
