//! Jitdumps: lines, inlined calls, and samply's other extensions.

super::rules! {
    rule UNREADABLE "JD070" Error "DEBUG_INFO that can't be understood"
    problem "The entries do not end where the record does: there are more or fewer than `nr_entry`, or a name has no NUL."
    readers "perf before 2026 crashes where there are more entries than bytes, and writes absurd lines else. jitinject passes over the record, and takes file and line of the function from its name where that tells them."
    remedy "Count the entries, and end each name with one NUL."

    rule WITHOUT_LOAD "JD071" Error "DEBUG_INFO without its LOAD record"
    problem "No LOAD record of its address follows, or another DEBUG_INFO of the same address comes before it."
    readers "perf inject gives the lines to the function that is loaded next, whichever it is, as samply does. jitinject passes over them."
    remedy "Write DEBUG_INFO right before the LOAD record of its function, with the lock held over both."

    rule NOT_NEXT "JD072" Error "DEBUG_INFO that its LOAD record does not follow"
    problem "Another function's DEBUG_INFO or LOAD record stands between the two."
    readers "perf inject and samply give lines to the LOAD record that follows: of several DEBUG_INFO records in a row the last one goes to the first function, and all other functions have none. jitinject goes by the address."
    remedy "Write each function's records together, LOAD last."
    seen "LLVM's ORC (PerfSupportPlugin), which writes all DEBUG_INFO of an object and then all LOAD records."

    rule BIASED "JD073" Warning "addresses of lines are too high by the size of an ELF header"
    problem "0x40 (0x34 on machines of 32 bits) is added to each address, for perf before 5.8, which forgot the header of the file that it makes."
    readers "perf 5.8 and later, and samply, show each line 64 bytes too late. jitinject takes it out again."
    remedy "Write the addresses of the code."
    seen "V8 (Node.js 18 to 26, Deno, Chromium), LLVM 14 and 19."

    rule DAMAGED_NAMES "JD074" Error "damaged names of source files"
    problem "The names have other bytes in place of their own, NULs among them: they were copied from memory that was freed."
    readers "perf and samply take the NUL for the end of the name, and the rest for entries: absurd addresses, lines and files. jitinject tells the name by its end, from that of the function, or by the size of the entries."
    remedy "Copy the name while the script is alive, and hold the string until the record is written."
    seen "V8 10.2 to 13.6 (Node.js 18 to 24), for scripts whose name is no flat string yet."

    rule ASTRAY "JD075" Warning "entries that can't be"
    problem "An entry has a line above 16 million, or a name with control characters; or it is of no file, or of a position whose callers lead nowhere or in circles."
    readers "perf and samply show what stands there. jitinject drops the entry."
    remedy "Leave out entries for code without a place in the sources."

    rule BELOW_CODE "JD076" Warning "entries below the code"
    problem "An entry's address is lower than the first one of its function."
    readers "perf writes a line table that goes backwards, and addr2line may find none of its lines. jitinject moves the first one to the function's start, if it is near, and drops all others."
    remedy "Write the address of the first instruction for the first line, and no lines of other functions."
    seen "Erlang (the function's header), LLVM 19 (lines of other sections)."

    rule BEHIND_CODE "JD077" Warning "entries behind the code"
    problem "An entry's address is higher than the end of its function, or an inlined call's is."
    readers "perf writes lines for addresses of other functions into the function's file; samply never meets them. jitinject drops the entry."
    remedy "Leave out lines of other functions and of constants behind the code; an entry at the end itself is right."
    seen "LLVM 19 (lines of other sections)."

    rule UNSORTED "JD078" Warning "entries that are not sorted by their addresses"
    problem "An entry's address is lower than that of the one before it."
    readers "perf writes the line table as it stands there, which has to go up: addresses find another line, or none. jitinject sorts."
    remedy "Sort by the address, those of one address in the order of the sources."
    seen "LLVM 19."

    rule NO_LINES "JD079" Note "DEBUG_INFO without lines"
    problem "There are no entries, or none but the one for the end of the code."
    readers "perf makes a line table with nothing in it. jitinject writes none."
    remedy "Leave out the record."
    seen "QEMU, which writes one for each block."

    rule NO_END "JD080" Note "no entry for the end of the code"
    problem "The last entry is that of the last line; nothing stands at the end of the code."
    readers "perf ends its line table at the last entry, whose line is lost with it; a function with one entry has no lines at all. samply and jitinject take the last line to go up to the end."
    remedy "Add an entry with the address behind the code, line 0 and an empty name."
    seen "All but Erlang and QEMU."

    rule RELATIVE "JD081" Note "relative names of source files"
    problem "A file's name does not start at the root, nor with a scheme."
    readers "perf annotate and addr2line look for it from where they are started, and mostly find no source. jitinject has --source-dir."
    remedy "Write the whole path, if it is known."
    seen "Java (java/lang/String.java), Erlang (work.erl)."

    rule SAME_NAME "JD082" Warning "name that stands for the one of the entry before"
    problem "The name of an entry is the single byte 0xff, which newer versions of perf read as the name before; the specification does not have it."
    readers "perf 6.1 and samply take it for a file of that name. perf 6.12 and jitinject know what is meant."
    remedy "Repeat the name."
    seen "V8 10 (Node.js 18)."

    rule NO_FILE "JD083" Warning "entries without the name of a file"
    problem "The name is empty, though there is a line."
    readers "perf and samply show a line of no file. jitinject takes the file from the function's name, where that tells it."
    remedy "Write the name of the file, or leave out the entry."

    rule CALLS_ASTRAY "JD084" Warning "inlined calls that don't fit into their callers"
    problem "A call of DEBUG_INFO2 lies outside its caller or its function, is nested too deeply, or overlaps another one of the same depth."
    readers "Who takes the calls as they are shows frames that were not there. jitinject drops what does not fit."
    remedy "Write calls from the outside to the inside, with ranges inside those of their caller."

    rule OTHER_ADDRESS "JD085" Warning "DEBUG_INFO with another address than its LOAD record"
    problem "The record's `code_addr` is not that of the LOAD record behind it, though its lines are of that function."
    readers "perf and samply go by the order, and are right. A reader that goes by the address finds none; jitinject does both."
    remedy "Write the address of the function to both."

    rule EXTENSION "JD086" Note "records of samply's extensions"
    problem "DEBUG_INFO2, JIT_TIER or embedded sources, which the specification of Linux does not have."
    readers "perf inject prints a message for each of them, and passes over them. samply and jitinject read them."
    remedy "Write DEBUG_INFO as well, which perf understands."

    rule BAD_EXTENSION "JD087" Error "record of samply's extensions that can't be understood"
    problem "It has neither of the published layouts: sizes and counts don't add up to the record's."
    readers "jitinject passes over it, and so does whoever reads these records at all."
    remedy "Follow the layout that samply's reader has."

    rule OTHER_LAYOUT "JD088" Error "DEBUG_INFO2 in a layout, or under a number, that samply does not read"
    problem "There are two layouts of DEBUG_INFO2: six lists, first published, as number 827346259, and positions that know their callers, as number 827346260. samply reads the second one, under its number."
    readers "samply passes over the record or reads it as another one. jitinject tells the layout by the content."
    remedy "Write positions that know their callers, as number 827346260."

    rule TIER_WITHOUT_LOAD "JD089" Warning "JIT_TIER without its LOAD record"
    problem "No LOAD record follows before the next JIT_TIER."
    readers "The tier is lost, or goes to the wrong function."
    remedy "Write JIT_TIER right before the LOAD record of its function."
}
