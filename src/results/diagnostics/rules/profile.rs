//! Rules for profiles, as perf record and jitinject write them.

super::rules! {
    rule UNREADABLE "PD001" Error "not readable as a profile"
    problem "The header or the attributes of the events are damaged or missing, so no record can be read."
    readers "perf, linux-perf-data and jitinject reject the file."
    remedy "Copy the whole file, or record again. perf writes a profile without events where it could not open any."

    rule UNFINISHED "PD002" Error "unfinished recording"
    problem "The header has no size of the records: perf record was killed before it completed the file. Feature sections, such as build IDs and names of events, are missing."
    readers "perf and jitinject read the records up to the end of the file. linux-perf-data, which samply uses, rejects the file or finds no records."
    remedy "Let perf record exit normally. jitinject writes a complete file."

    rule CUT "PD003" Error "truncated file"
    problem "The file ends before its records, or inside the last one."
    readers "perf stops at the end. linux-perf-data rejects the file, or loses all records that it has not returned before. jitinject reads all complete records."
    remedy "Copy the whole file. jitinject writes a file without the incomplete record."

    rule DAMAGE "PD004" Error "bytes between records that are not a record"
    problem "A record has an impossible size or content, or there are other bytes in its place."
    readers "perf and linux-perf-data stop there, or read the bytes as records. jitinject continues at the next plausible record."
    remedy "Copy the file again. jitinject writes a file without the damage."

    rule FEATURE "PD005" Error "feature section outside the file"
    problem "A section of metadata, such as the names of events or build IDs, is not in the file, or is there twice."
    readers "perf and linux-perf-data reject the file or ignore the section. jitinject leaves it out."
    remedy "Copy the whole file."

    rule IDS "PD006" Error "event IDs outside the file"
    problem "The list of the IDs that the records of an event have is not in the file."
    readers "perf rejects the file. jitinject and linux-perf-data may count samples for another event."
    remedy "Copy the whole file."

    rule COMPRESSION "PD007" Error "compressed records that cannot be read"
    problem "The Zstandard data are damaged, continue a stream of another file, expand to an impossible size, or end inside a record."
    readers "perf and linux-perf-data stop there. jitinject leaves out what it cannot read."
    remedy "Copy the file again; record without --switch-output or without -z."

    rule REFUSED "PD008" Warning "records that some readers refuse"
    problem "A record lacks the trailer that its event has, or one of perf's own has a size that is not a multiple of 8 bytes."
    readers "perf 7.3 stops there. Older versions and linux-perf-data read other bytes as the trailer. jitinject writes such records with a trailer and padded."
    remedy "Use the output of jitinject, or another program to record."

    rule CUT_SAMPLE "PD009" Warning "samples shorter than their fields"
    problem "The size of the record is too small for the fields that its event has."
    readers "perf rejects the sample. linux-perf-data cannot parse it. jitinject reads the fields before the cut."
    remedy "The file is damaged, or the program that wrote it has an error."

    rule ORDER "PD010" Warning "records after their round"
    problem "After a FINISHED_ROUND record, no record may be older than the latest one before the previous FINISHED_ROUND."
    readers "perf reports them as out of order, and processes them late, as linux-perf-data does: samples in between may have other mappings. jitinject sorts by time."
    remedy "perf writes it if it cannot read the buffers of all CPUs in time: use larger ones (-m), or record fewer events."

    rule REJECTED "PD020" Error "rejected by linux-perf-data"
    problem "linux-perf-data cannot open the file, or stops before its end."
    readers "samply and other programs that use the crate cannot open the profile. perf and jitinject may read it."
    remedy "Use another event or clock if it does not know the recorded one. Otherwise the file is damaged, where other rules report it."

    rule CRASH "PD021" Error "crash of linux-perf-data"
    problem "linux-perf-data panics while it reads the file."
    readers "samply and other programs that use the crate end with this message. perf and jitinject may read the file."
    remedy "The file is damaged, or the crate has an error: report it to its authors."

    rule LOST "PD022" Error "records that linux-perf-data does not see"
    problem "jitinject reads records that linux-perf-data does not return, or returns with other bytes."
    readers "samply and other programs that use the crate lose these samples, mappings or processes."
    remedy "If no other rule is broken, one of the two readers has an error: report it."

    rule OTHER_VALUES "PD023" Warning "records in which linux-perf-data reads other values"
    problem "Both readers have the record, but not the same event, time, process, thread, address, size, file offset, build ID, name, period or call chain."
    readers "samply and other programs that use the crate show other values than perf and jitinject."
    remedy "If no other rule is broken, it is an error of one of the two readers, such as those below: report it."
    seen "Recordings on big-endian machines (times of mappings), groups of events ({a,b}:S; call chains), several events in a file without their descriptions."

    rule TRACING_DATA "PD024" Error "formats of tracepoints in a pipe"
    problem "In a pipe, the formats of tracepoints follow their record, which does not include them in its size."
    readers "linux-perf-data reads the formats as records, and loses records after them. perf and jitinject read all."
    remedy "Write the profile to a file: jitinject -o FILE, or perf inject -o FILE."

    rule NOT_COMPARED "PD025" Note "not read with linux-perf-data"
    problem "linux-perf-data would need too much memory or time: it keeps all records between two FINISHED_ROUND records."
    readers "samply and other programs that use the crate may fail. perf and jitinject read the file."
    remedy "None, if the file is sound: the rest of the check is complete."
}
