//! Rules for traces of LLVM's XRay.

super::rules! {
    rule EMPTY "XR001" Error "empty file"
    problem "The trace has no bytes, not even a header: the program ended before the log was flushed."
    readers "llvm-xray and jitinject reject it."
    remedy "Call __xray_log_finalize() and __xray_log_flushLog() before the program ends."

    rule SHORT_HEADER "XR002" Error "truncated header"
    problem "The file is shorter than the 32 bytes of a header."
    readers "llvm-xray and jitinject reject it."
    remedy "Copy the whole file; flush the log before the program ends."

    rule VERSION "XR003" Error "unknown version or type"
    problem "The header has a version or a type that is not published. Known are versions 1 to 5 of the flight data recorder (type 1), and 1 to 3 of basic mode (type 0)."
    readers "llvm-xray and jitinject reject it."
    remedy "Use the flight data recorder or basic mode; other modes, such as xray-profiling, have their own file formats."

    rule NO_FREQUENCY "XR004" Warning "no frequency in the header"
    problem "The clock has 0 ticks per second according to the header."
    readers "llvm-xray reads ticks as seconds. jitinject reads them as nanoseconds, unless it can measure the frequency with the anchors of several buffers."
    remedy "Write the frequency of the time stamp counter."
    seen "Old runtimes."

    rule WALL_CLOCK "XR005" Note "ticks in nanoseconds of the wall clock"
    problem "The frequency is 1,000,000,000: the runtime could not determine that of the processor's counter, and uses CLOCK_REALTIME, which jumps when it is set."
    readers "llvm-xray and jitinject read it unchanged. Processor numbers are all 0."
    remedy "A program can't avoid it: on virtual machines the kernel does not report the frequency (cpufreq/cpuinfo_max_freq)."

    rule HEADER_BITS "XR006" Note "garbage in the header's bits"
    problem "Bits other than constant_tsc and nonstop_tsc are set."
    readers "No reader uses them. A future one may."
    remedy "Clear the header before setting its fields."
    seen "Basic mode of LLVM 19 (0xaaaaaaab)."

    rule NO_RECORDS "XR007" Error "no records"
    problem "The trace has a header, but not a single record that can be read."
    readers "llvm-xray refuses a file that ends with its header. All other readers have nothing to show."
    remedy "Call __xray_patch() before the code to trace. Lower func_duration_threshold_us: shorter calls are dropped."

    rule NO_PID "XR008" Note "no PID in the trace"
    problem "Buffers do not have the PID of their process. Before version 3 the format has no field for it; from then on, the record with the PID is missing."
    readers "llvm-xray uses the thread ID. jitinject finds the process by the thread, if there is a profile."
    remedy "Before version 3, use a newer runtime. From version 3 on, write the PID record after that of the wall clock."

    rule UNKNOWN_KIND "XR010" Error "metadata record of an unknown kind"
    problem "The kind of a metadata record is unknown, or not allowed inside a buffer."
    readers "llvm-xray fails for the whole trace. jitinject drops the rest of that buffer."
    remedy "The file is damaged, or of a version other than the header's."

    rule UNKNOWN_RECORD "XR011" Error "record of an unknown type"
    problem "A function record is neither an entry nor an exit, or a record of basic mode has an unknown type."
    readers "llvm-xray fails for the whole trace. jitinject skips the record."
    remedy "The file is damaged, or of a version other than the header's."

    rule CUT_RECORD "XR012" Error "record that exceeds its buffer"
    problem "The buffer ends inside a record."
    readers "llvm-xray fails for the whole trace. jitinject drops the record."
    remedy "Write the size of the buffer when its last record is complete."

    rule BAD_EVENT_SIZE "XR013" Error "event of an impossible size"
    problem "A custom or typed event has a negative size."
    readers "llvm-xray fails for the whole trace. jitinject drops the rest of that buffer."
    remedy "Pass the size of the data to log to __xray_customevent."

    rule TICK_BACK "XR014" Warning "ticks that step back"
    problem "A record is older than the one before it in its buffer, also where the processor has changed between them."
    readers "llvm-xray account rejects records that are out of order on one processor. jitinject assumes that no time has passed."
    remedy "Use a machine with synchronous counters (constant_tsc)."

    rule TICK_OVERFLOW "XR015" Error "tick of more than 64 bits"
    problem "The differences in a buffer add up to more than 64 bits."
    readers "llvm-xray wraps around. jitinject uses the latest possible time."
    remedy "The file is damaged."

    rule LOST_BY_WRITER "XR016" Error "missing ends of buffers with typed events"
    problem "From version 5 on, the size of a buffer does not fully include its typed events: 16 bytes for each of them are missing at its end, often from the middle of a record on. The file does not show it: all runtimes that are known to write such events do so."
    readers "llvm-xray fails for the whole trace if a record is cut. jitinject reads all but the missing bytes."
    remedy "Use custom events, which are included in full."
    unit "bytes."
    seen "LLVM's runtimes, 14 and 19 (__xray_typedevent)."

    rule SKIPPED_BYTES "XR017" Error "invalid bytes between buffers"
    problem "There are other bytes where a buffer should start."
    readers "llvm-xray searches on byte by byte from version 3 on, and fails for the whole trace before. jitinject continues at the next buffer."
    remedy "Write buffers directly one after the other."
    unit "bytes."

    rule BAD_SIZE "XR018" Error "impossible buffer size"
    problem "No buffer starts at the end given by the size, or the size is larger than that of all buffers in memory."
    readers "llvm-xray fails for the whole trace, or silently loses records at the buffer's end. jitinject reads up to the start of the next buffer."
    remedy "Write the size of the buffer when it is flushed."

    rule NO_TICK "XR019" Error "buffer without a time at its start"
    problem "The record of processor and tick before the first function is missing."
    readers "llvm-xray fails for the whole trace. jitinject drops the buffer: its records have only differences."
    remedy "Write the records of thread, time, process and processor first."

    rule NO_WALL_TIME "XR020" Warning "buffer without a wall clock time"
    problem "The record of the wall clock is missing. It gives the order of a thread's buffers, and relates ticks to a profile."
    readers "llvm-xray rejects it. jitinject reads the buffer as the thread's first one."
    remedy "Write the wall clock directly after the thread."

    rule TOO_MANY_BUFFERS "XR021" Error "buffers beyond the first 16,777,216"
    problem "There are more buffers than are read."
    readers "jitinject drops the others."
    remedy "Make buffers larger (buffer_size)."

    rule CUT_TAIL "XR022" Error "truncated last buffer or record"
    problem "The copy of the file is incomplete, or the program ended while it flushed the log."
    readers "llvm-xray fails for the whole trace if a record is cut, and otherwise prints nothing. jitinject keeps the records that are complete."
    remedy "Wait until __xray_log_flushLog() has returned."

    rule NO_END "XR023" Error "buffer of version 1 without its end"
    problem "The record that marks the end of the buffer's content is missing, or a function with ID 0 comes before it, which no binary has: filler."
    readers "llvm-xray reads the filler as calls. jitinject ends the buffer at a function with ID 0, and reads older records in the filler as calls."
    remedy "Write the end-of-buffer record after the last one."

    rule ANOTHER_TRACE "XR024" Warning "another trace in the file"
    problem "The header of another trace follows a buffer. The format allows it, but no runtime writes it."
    readers "llvm-xray fails for the whole trace, or reads the header as a record. jitinject reads the buffers after it, at the speed of the first header."
    remedy "Write a file for each trace."

    rule MICROSECONDS "XR025" Warning "wall clock with more microseconds than a second has"
    problem "The record of the wall clock has 1,000,000 microseconds or more, such as nanoseconds."
    readers "llvm-xray does not use them. jitinject adds them to the seconds: the trace may be at the wrong place beside a profile."
    remedy "Write the microseconds within the second."

    rule LOST_EXITS "XR030" Warning "calls without an exit"
    problem "The trace has the exit of a function, but not those of functions that it called: an exception went through them, or their buffer was reused."
    readers "llvm-xray convert has all records. account and stack need -k to continue, or else stop at the first such call; with -k they count these calls wrongly. jitinject ends the calls with the one around them."
    remedy "None for exceptions: the frames that they leave have no exit. Otherwise, use more or larger buffers."
    unit "calls."
    seen "C++ programs that throw."

    rule UNMATCHED_EXITS "XR031" Warning "function exits without an entry"
    problem "The entry is missing: it came before the trace began, or its buffer was reused."
    readers "llvm-xray convert has all records. account and stack need -k to continue, or else stop there. jitinject ignores the exit."
    remedy "Use more or larger buffers (buffer_size, buffer_max)."

    rule OLD_TYPED "XR032" Warning "typed events in a version before 5"
    problem "Typed events of versions 2 to 4 have a layout that llvm-xray no longer supports."
    readers "llvm-xray reads their times and types from the wrong bytes. jitinject supports both layouts."
    remedy "Use a runtime that writes version 5."

    rule EMPTY_EVENT "XR033" Error "event without data"
    problem "A custom or typed event of 0 bytes was logged."
    readers "llvm-xray fails for the whole trace. jitinject shows an empty event."
    remedy "Log at least one byte."

    rule TYPED_EVENTS "XR034" Warning "typed events"
    problem "The program logs typed events (__xray_typedevent)."
    readers "llvm-xray reads the trace, but not the instrumentation map of such a program (Exec format error): it shows numbers in place of names. jitinject has the names."
    remedy "Use custom events, if llvm-xray is to be used."
    seen "LLVM 14 and 19."

    rule STRAY_ARGUMENTS "XR035" Warning "arguments without a function entry"
    problem "The record of an argument does not follow the entry of a function."
    readers "llvm-xray crashes if it is the first record of basic mode, and rejects others there. jitinject skips it."
    remedy "Write arguments directly after the entry of their function."

    rule OLD_CUSTOM "XR036" Note "custom events in a version before 3"
    problem "The runtimes of versions 1 and 2 write the data of a custom event without advancing, so that the next records overwrite it."
    readers "llvm-xray and jitinject read the records that remain: calls after an event may be lost or wrong."
    remedy "Use a runtime that writes version 3 or later."

    rule FUNCTION_0 "XR037" Error "function ID 0"
    problem "A call has function ID 0. IDs count from 1."
    readers "llvm-xray and jitinject show the call without a name."
    remedy "The file is damaged; runtimes of versions 1 and 2 also write such records over custom events."
    unit "calls."
}
