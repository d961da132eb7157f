//! Rules for jitdumps: unwinding information.

super::rules! {
    rule UNREADABLE "JD090" Error "invalid UNWINDING_INFO"
    problem "The record has neither an .eh_frame followed by its header, nor a header followed by its .eh_frame, or the sizes in it are larger than the record."
    readers "perf before 2026 uses the sizes unchecked, and reads beyond the record. jitinject skips it. Call chains end at the function, or continue wrongly."
    remedy "Write the .eh_frame, which starts with a CIE, and then the .eh_frame_hdr."

    rule WITHOUT_LOAD "JD091" Error "UNWINDING_INFO without its LOAD record"
    problem "No LOAD record follows before the next UNWINDING_INFO, or none at all."
    readers "perf assigns the unwinding tables to the function that is loaded next, or to none. jitinject skips them."
    remedy "Write UNWINDING_INFO directly before the LOAD record of its function."

    rule HEADER_FIRST "JD092" Error ".eh_frame_hdr before the .eh_frame"
    problem "The two are in the order that the specification requires. perf, which the specification comes from, reads them in reverse order."
    readers "perf reads the first bytes as the .eh_frame and the last ones as its header: nothing can be unwound. jitinject detects the order by content. samply uses neither."
    remedy "Write the .eh_frame first and the .eh_frame_hdr last, as V8 and CPython do."
    seen "LLVM's ORC."

    rule FRAME_FIRST "JD093" Note ".eh_frame before its .eh_frame_hdr"
    problem "The two are in the order in which perf reads them. The specification has the reverse order."
    readers "perf and jitinject read it. Readers that follow the text of the specification, such as linux-perf-data and CodSpeed's runner, read one as the other."
    remedy "None needed: with the reverse order, perf can't unwind."
    seen "V8, CPython."

    rule SEVERAL_LOADS "JD094" Error "one UNWINDING_INFO for several functions"
    problem "Functions have no record of their own; the tables of one before them are for the whole object."
    readers "perf assigns the tables to the first function, and none to all others, through which nothing can be unwound. jitinject finds the part for each function."
    remedy "Write UNWINDING_INFO with the tables of one function before each LOAD record."
    seen "LLVM's ORC."

    rule HEADER_ONLY "JD095" Note "UNWINDING_INFO without unwinding tables"
    problem "The record has an .eh_frame_hdr and no .eh_frame, which means that the function keeps a frame pointer."
    readers "perf and jitinject then use the frame pointer, as they do without the record."
    remedy "Leave out the record, unless it keeps perf from using that of another function."
    seen "V8, for all code without tables."

    rule MAPPED_OVER "JD096" Warning "mapped_size that reaches over other code"
    problem "Within `mapped_size` bytes after the end of the function, rounded up to 8 bytes, is another function that was loaded earlier and whose memory was not reused, as far as the jitdump shows."
    readers "perf extends the mapping of the function by `mapped_size` where it was loaded, and so hides the start of the other one: its samples are shown as raw addresses."
    remedy "Leave that much space after the code, as CPython does, or write 0 if the tables are not after the code."

    rule NO_HEADER "JD097" Warning "UNWINDING_INFO without an .eh_frame_hdr"
    problem "The `eh_frame_hdr_size` is 0, though there is an .eh_frame."
    readers "perf 6.1 to 6.12 keeps such tables, and their `mapped_size`, for all functions that are loaded later. Without the header, its unwinders don't find the .eh_frame."
    remedy "Write an .eh_frame_hdr after the .eh_frame."

    rule MAPPED_SIZE "JD098" Warning "mapped_size that is not the size of the tables"
    problem "By the specification, `mapped_size` is `unwind_data_size` or 0; rounded up by less than a page, it is accepted as well."
    readers "perf extends the mapping of the function by it: with a larger size, over the memory after the code, whose samples then belong to this function; with a smaller one, the tables are cut. jitinject does not use it."
    remedy "Write `unwind_data_size` if the tables are mapped directly after the code, and 0 otherwise."

    rule BAD_HEADER "JD099" Error "invalid .eh_frame_hdr"
    problem "The header after the .eh_frame does not have version 1, or the first row of its table is not the start of an entry for the function and the place of that entry."
    readers "perf writes it to the object as it is. Unwinders expect version 1 and find entries by the table: call chains end at the function. jitinject writes a header of its own."
    remedy "Write an .eh_frame_hdr by the Linux Standard Base: version 1, the encodings, and a row of the two distances from the header."

    rule NO_ENTRY "JD100" Error "unwinding tables without an entry for the function"
    problem "No entry (FDE) of the .eh_frame is for addresses of the function, or those that are have invalid instructions or an invalid CIE. Distances in them are from where perf puts the tables: after the code, rounded up to 8 bytes."
    readers "Call chains end at the function in perf, whose unwinders find no entry, and in jitinject (JI260)."
    remedy "Write an entry with the start and the size of the code."

    rule PARTIAL_ENTRIES "JD101" Warning "unwinding tables for a part of the function"
    problem "The entries (FDE) of the .eh_frame begin after the start of the function, or end 16 bytes or more before its end, which is more than padding."
    readers "In perf and jitinject, call chains end at the function where its code has no entry."
    remedy "Write an entry with the start and the size of the code."
}
