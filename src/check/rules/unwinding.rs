//! Jitdumps: unwinding information.

super::rules! {
    rule UNREADABLE "JD090" Error "UNWINDING_INFO that can't be understood"
    problem "Neither an .eh_frame followed by its header, nor a header followed by its .eh_frame stands in the record, or the sizes in it are more than it has."
    readers "perf before 2026 computes with the sizes as they are, and reads beyond the record. jitinject passes over it. Stacks end at the function, or go on wrongly."
    remedy "Write the .eh_frame, which starts with a CIE, and then the .eh_frame_hdr."

    rule WITHOUT_LOAD "JD091" Error "UNWINDING_INFO without its LOAD record"
    problem "No LOAD record follows before the next UNWINDING_INFO, or none at all."
    readers "perf gives the tables to the function that is loaded next, or to none. jitinject passes over them."
    remedy "Write UNWINDING_INFO right before the LOAD record of its function."

    rule HEADER_FIRST "JD092" Error ".eh_frame_hdr in front of the .eh_frame"
    problem "The record has the two in the order that the specification asks for. perf, which wrote it, reads them the other way round."
    readers "perf takes the first bytes for the .eh_frame and the last ones for its header: nothing can be unwound. jitinject tells them by their content. samply uses neither."
    remedy "Write the .eh_frame first and the .eh_frame_hdr last, as V8 and CPython do."
    seen "LLVM's ORC."

    rule FRAME_FIRST "JD093" Note ".eh_frame in front of its .eh_frame_hdr"
    problem "The record has the two in the order in which perf reads them. The specification has the other one."
    readers "perf and jitinject read it. What goes by the specification's text, as linux-perf-data and CodSpeed's runner do, takes one for the other."
    remedy "Nothing: with the other order, perf can't unwind."
    seen "V8, CPython."

    rule SEVERAL_LOADS "JD094" Error "one UNWINDING_INFO for several functions"
    problem "Functions have no record of their own; the tables of one before them are for the whole object."
    readers "perf gives the tables to the first function, and none to all others, through which nothing can be unwound. jitinject finds the part for each function."
    remedy "Write UNWINDING_INFO with the tables of one function before each LOAD record."
    seen "LLVM's ORC."

    rule HEADER_ALONE "JD095" Note "UNWINDING_INFO that says nothing"
    problem "The record has an .eh_frame_hdr and no .eh_frame, to say that the function keeps a frame pointer."
    readers "perf, and jitinject, then go by the frame pointer, as they do without the record."
    remedy "Leave out the record, unless perf shall not use another one's."
    seen "V8, for all code without tables."

    rule MAPPED_OVER "JD096" Warning "mapped_size reaches over other code"
    problem "Behind the end of the function, rounded up to 8 bytes, and within `mapped_size` bytes of that, lies another function that was loaded earlier, and whose memory was not seen to be used again."
    readers "perf makes the map of the function longer by `mapped_size`, where it was loaded, and so hides the start of the other one: its samples are shown as raw addresses."
    remedy "Leave that much room behind the code, as CPython does, or write 0 where the tables don't lie behind the code."

    rule NO_HEADER "JD097" Warning "UNWINDING_INFO without an .eh_frame_hdr"
    problem "The `eh_frame_hdr_size` is 0, though there is an .eh_frame."
    readers "perf 6.1 to 6.12 keeps such tables, and their `mapped_size`, for all functions that are loaded later. Without the header its unwinders don't find the .eh_frame."
    remedy "Write an .eh_frame_hdr behind the .eh_frame."
}
