//! Traces of LLVM's XRay.

super::rules! {
    rule EMPTY "XR001" Error "empty file"
    problem "The trace has no bytes, not even a header: the program ended before the log was flushed."
    readers "llvm-xray and jitinject refuse it."
    remedy "Call __xray_log_finalize() and __xray_log_flushLog() before the program ends."

    rule SHORT_HEADER "XR002" Error "file ends inside its header"
    problem "There are fewer bytes than the 32 of a header."
    readers "llvm-xray and jitinject refuse it."
    remedy "Copy the file whole; flush the log before the program ends."

    rule VERSION "XR003" Error "unknown version or type"
    problem "The header names a version or a type that is not published. Known are 1 to 5 of the flight data recorder (type 1), and 1 to 3 of basic mode (type 0)."
    readers "llvm-xray and jitinject refuse it."
    remedy "Use the flight data recorder or basic mode; other modes, as xray-profiling, write files of their own."

    rule NO_FREQUENCY "XR004" Warning "no frequency in the header"
    problem "The header says that the clock has 0 ticks a second."
    readers "llvm-xray calls ticks seconds. jitinject takes them for nanoseconds, unless the anchors of several buffers tell more."
    remedy "Write the frequency of the time stamp counter."
    seen "Old runtimes."

    rule WALL_CLOCK "XR005" Note "ticks are nanoseconds of the wall clock"
    problem "The frequency is 1,000,000,000: the runtime could not find out that of the processor's counter, and uses CLOCK_REALTIME, which jumps when it is set."
    readers "llvm-xray and jitinject read it as it is. Processor numbers are all 0."
    remedy "Nothing that a program could do: on virtual machines the kernel does not tell the frequency (cpufreq/cpuinfo_max_freq)."

    rule HEADER_BITS "XR006" Note "garbage in the header's bits"
    problem "Bits beside constant_tsc and nonstop_tsc are set."
    readers "None looks at them. A future one may."
    remedy "Clear the header before its fields are set."
    seen "Basic mode of LLVM 19 (0xaaaaaaab)."

    rule NO_RECORDS "XR007" Error "no records"
    problem "There is a header and not a single record that can be read."
    readers "llvm-xray refuses a file that ends with its header. All others have nothing to show."
    remedy "Call __xray_patch() before what is to be traced. Lower func_duration_threshold_us, below which calls are dropped."

    rule NO_PROCESS "XR008" Note "no process in the trace"
    problem "Buffers don't tell of which process they are. Before version 3 there is no room for it; from then on, the record that tells it is missing."
    readers "llvm-xray takes the thread's number. jitinject finds the process by the thread, where there is a recording."
    remedy "Before version 3, use a newer runtime. From version 3 on, write the record of the process behind that of the wall clock."

    rule UNKNOWN_KIND "XR010" Error "metadata record of an unknown kind"
    problem "The kind of a metadata record is not known, or can't be inside a buffer."
    readers "llvm-xray gives up on the whole trace. jitinject drops the rest of that buffer."
    remedy "It is damage, or a version that the header does not tell."

    rule UNKNOWN_RECORD "XR011" Error "record of an unknown type"
    problem "A function was neither entered nor left, or a record of basic mode has a type that is not known."
    readers "llvm-xray gives up on the whole trace. jitinject passes over the record."
    remedy "It is damage, or a version that the header does not tell."

    rule CUT_RECORD "XR012" Error "record that leaves its buffer"
    problem "The buffer ends inside a record."
    readers "llvm-xray gives up on the whole trace. jitinject drops the record."
    remedy "Write the size of the buffer when its last record is whole."

    rule BAD_EVENT_SIZE "XR013" Error "event of an impossible size"
    problem "A custom or typed event has less than no bytes."
    readers "llvm-xray gives up on the whole trace. jitinject drops the rest of that buffer."
    remedy "Give __xray_customevent the size of what it is to log."

    rule TICK_BACK "XR014" Warning "ticks that step back"
    problem "A record is older than the one before it in its buffer, without having gone to another processor."
    readers "llvm-xray account refuses records that are out of order. jitinject takes no time to have gone by."
    remedy "Use a machine whose counters are synchronous (constant_tsc)."

    rule TICK_OVERFLOW "XR015" Error "tick of more than 64 bits"
    problem "The differences of a buffer add up to more than 64 bits."
    readers "llvm-xray wraps around. jitinject takes the latest time there is."
    remedy "It is damage."

    rule LOST_BY_WRITER "XR016" Error "ends of buffers with typed events are missing"
    problem "Typed events are not fully counted in the size of their buffer: 16 bytes for each of them are missing at its end, often from the middle of a record on. The file does not show it: all runtimes that are known to write such events do so."
    readers "llvm-xray gives up on the whole trace where a record is cut. jitinject has all but the bytes that are not there."
    remedy "Use custom events, which are counted in full."
    unit "bytes."
    seen "LLVM's runtimes, 14 and 19 (__xray_typedevent)."

    rule SKIPPED_BYTES "XR017" Error "bytes that are in no buffer"
    problem "Where a buffer should start, there is something else."
    readers "llvm-xray looks on byte by byte from version 3 on, and gives up on the whole trace before. jitinject goes on at the next buffer."
    remedy "Write buffers one behind the other."
    unit "bytes."

    rule BAD_SIZE "XR018" Error "buffer whose size can't be"
    problem "The size leads to no other buffer, or is larger than that of all buffers in memory."
    readers "llvm-xray gives up on the whole trace, or loses records at the buffer's end and says nothing. jitinject reads up to where the next buffer starts."
    remedy "Write the size of the buffer when it is flushed."

    rule NO_TICK "XR019" Error "buffer that does not begin with a time"
    problem "There is no record of processor and tick in front of the first function."
    readers "llvm-xray gives up on the whole trace. jitinject drops the buffer: its records only tell differences."
    remedy "Write the records of thread, time, process and processor first."

    rule NO_WALL_TIME "XR020" Warning "buffer without a time on the wall clock"
    problem "The record of the wall clock is missing, which tells the order of a thread's buffers, and how ticks relate to a recording."
    readers "llvm-xray refuses it. jitinject takes the buffer for the thread's first one."
    remedy "Write the wall clock right behind the thread."

    rule TOO_MANY_BUFFERS "XR021" Error "buffers beyond the first 16,777,216"
    problem "There are more buffers than are read."
    readers "jitinject drops the others."
    remedy "Make buffers larger (buffer_size)."

    rule CUT_TAIL "XR022" Error "file ends inside its last buffer or record"
    problem "The file was not copied whole, or the program ended while it flushed the log."
    readers "llvm-xray gives up on the whole trace if a record is cut, and else says nothing. jitinject keeps the records that are whole."
    remedy "Wait until __xray_log_flushLog() has returned."

    rule LOST_EXITS "XR030" Warning "calls whose end is not told"
    problem "A function is left while others that it has called are not, as far as the trace tells: an exception went through them, or their buffer was used again."
    readers "llvm-xray convert has all records. account and stack want to be told to go on (-k), or else stop at the first one; then they count these calls wrongly. jitinject ends the calls with the one around them."
    remedy "Nothing, for exceptions: their frames have no exit. Else use more or larger buffers."
    unit "calls."
    seen "C++ programs that throw."

    rule UNMATCHED_EXITS "XR031" Warning "functions that are left and were not entered"
    problem "The entry is missing: it came before the trace began, or its buffer was used again."
    readers "llvm-xray convert has all records. account and stack want to be told to go on (-k), or else stop there. jitinject ignores the exit."
    remedy "Use more or larger buffers (buffer_size, buffer_max)."

    rule OLD_TYPED "XR032" Warning "typed events in a version before 5"
    problem "Typed events of versions 2 to 4 have a layout that llvm-xray has forgotten."
    readers "llvm-xray reads their times and types from the wrong bytes. jitinject knows both layouts."
    remedy "Use a runtime that writes version 5."

    rule EMPTY_EVENT "XR033" Error "event without bytes"
    problem "A custom or typed event of 0 bytes was logged."
    readers "llvm-xray gives up on the whole trace. jitinject shows an empty event."
    remedy "Log at least one byte."

    rule TYPED_EVENTS "XR034" Warning "typed events"
    problem "The program logs typed events (__xray_typedevent)."
    readers "llvm-xray reads the trace, but not the map of functions of such a program (Exec format error): it shows numbers in place of names. jitinject has the names."
    remedy "Use custom events, if llvm-xray is to be used."
    seen "LLVM 14 and 19."

    rule STRAY_ARGUMENTS "XR035" Warning "arguments of no entry"
    problem "The record of an argument does not follow the entry of a function."
    readers "llvm-xray crashes where it is the first record of basic mode, and refuses others. jitinject passes over it."
    remedy "Write arguments right behind the entry that they are of."
}
