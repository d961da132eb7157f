//! Writes records and table entries that perf did not record.

use jitdump::{AddressRange, ByteOrder, Time};
use linux_perf_event_reader::SampleFormat;
use linux_perf_event_reader::constants::PERF_RECORD_MISC_BUILD_ID_SIZE;

use crate::bytes::write_padded;
use crate::perf::attr::{Attr, TRAILER_FIELDS};
use crate::perf::record::{self, Record};
use crate::units::{BuildId, Pid, Tid};

/// A thread of a process.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct SyntheticThread {
    /// Process ID.
    pub pid: Pid,
    /// Thread ID.
    pub tid: Tid,
}

impl SyntheticThread {
    /// Returns the first thread of a process, whose TID equals the PID.
    pub fn first_of(pid: Pid) -> Self {
        Self { pid, tid: Tid(pid.0) }
    }
}

/// A mapping for an MMAP2 record.
#[derive(Clone, Copy, Debug)]
pub struct SyntheticMapping<'a> {
    /// Process of the mapping.
    pub pid: Pid,
    /// Time of the mapping.
    pub time: Time,
    /// Mapped addresses.
    pub range: AddressRange,
    /// Offset of the mapping in the file, in bytes.
    pub file_offset: u64,
    /// Path of the file.
    pub name: &'a [u8],
    /// Build ID of the file, if jitinject wrote it.
    pub build_id: Option<BuildId>,
    /// Whether the mapping is executable. Those of unwinding tables are not.
    pub is_code: bool,
}

/// Event of a synthetic record, which determines its trailer.
#[derive(Clone, Copy, Debug)]
pub struct RecordEvent<'a> {
    /// Attribute of the event.
    pub attr: &'a Attr,
    /// ID of one of its counters.
    pub id: u64,
}

/// Appends an MMAP2 record. `mapping.name` must be shorter than 4096 bytes (PATH_MAX).
pub fn write_mmap2(
    out: &mut Vec<u8>,
    endian: ByteOrder,
    mapping: &SyntheticMapping<'_>,
    event: RecordEvent<'_>,
) {
    const PROT_READ: u32 = 1;
    const PROT_EXEC: u32 = 4;
    const MAP_PRIVATE: u32 = 2;
    /// Size in bytes without the name and the trailer.
    const FIXED: usize = 72;
    let name_size = padded(mapping.name.len(), 8);
    let misc = record::MISC_USER | mapping.build_id.map_or(0, |_| record::MISC_MMAP_BUILD_ID);
    let size = FIXED.saturating_add(name_size);
    write_header(out, endian, record::MMAP2, misc, size, event);
    endian.write_u32(out, mapping.pid.0);
    endian.write_u32(out, mapping.pid.0);
    endian.write_u64(out, mapping.range.start.0);
    endian.write_u64(out, mapping.range.size());
    endian.write_u64(out, mapping.file_offset);
    // Device, inode and generation; or size, three bytes of padding and build ID.
    match mapping.build_id {
        Some(build_id) => {
            out.extend_from_slice(&[BuildId::SIZE as u8, 0, 0, 0]);
            out.extend_from_slice(&build_id.0);
        }
        None => out.extend_from_slice(&[0; 24]),
    }
    let protection = if mapping.is_code {
        PROT_READ | PROT_EXEC
    } else {
        PROT_READ
    };
    endian.write_u32(out, protection);
    endian.write_u32(out, MAP_PRIVATE);
    write_padded(out, mapping.name, name_size);
    write_trailer(
        out,
        endian,
        SyntheticThread::first_of(mapping.pid),
        mapping.time,
        event,
    );
}

/// Appends the header of a record of `size` bytes and a trailer.
pub fn write_header(
    out: &mut Vec<u8>,
    endian: ByteOrder,
    kind: u32,
    misc: u16,
    size: usize,
    event: RecordEvent<'_>,
) {
    let size = size.saturating_add(event.attr.trailer_size());
    record::write_header(out, endian, kind, misc, size);
}

/// Appends the trailer of records other than samples, which profiles with `sample_id_all` have: all since
/// Linux 2.6.38.
pub fn write_trailer(
    out: &mut Vec<u8>,
    endian: ByteOrder,
    thread: SyntheticThread,
    time: Time,
    event: RecordEvent<'_>,
) {
    if !event.attr.has_trailer {
        return;
    }
    for field in TRAILER_FIELDS {
        if !event.attr.sample_format.contains(field) {
            continue;
        }
        if field == SampleFormat::TID {
            endian.write_u32(out, thread.pid.0);
            endian.write_u32(out, thread.tid.0);
        } else if field == SampleFormat::TIME {
            endian.write_u64(out, time.0);
        } else if field == SampleFormat::CPU {
            endian.write_u64(out, 0);
        } else {
            // ID, IDENTIFIER, and STREAM_ID, which equals the ID for counters that are not inherited.
            endian.write_u64(out, event.id);
        }
    }
}

/// Appends a copy of an MMAP or MMAP2 record that maps only `range`, a part of the original range.
pub fn write_clipped_mmap(
    out: &mut Vec<u8>,
    endian: ByteOrder,
    original: &Record<'_>,
    range: AddressRange,
    file_offset: u64,
) {
    /// Offset of the start address, which size and file offset follow, in bytes.
    const START: usize = record::HEADER_SIZE + 8;
    let start = out.len().saturating_add(START);
    out.extend_from_slice(original.bytes);
    for (at, word) in (start..)
        .step_by(8)
        .zip([range.start.0, range.size(), file_offset])
    {
        endian.set_u64(out, at, word);
    }
}

/// Appends an entry to a build ID table ([`crate::perf::feature::BUILD_ID`]), in the layout of perf's
/// `write_buildid`.
pub fn write_build_id_entry(out: &mut Vec<u8>, endian: ByteOrder, build_id: &BuildId, name: &[u8]) {
    const FIXED: usize = 8 + 4 + 24;
    const ANY_PID: u32 = u32::MAX;
    let name_size = padded(name.len(), 64);
    let size = name_size.saturating_add(FIXED);
    let misc = record::MISC_USER | PERF_RECORD_MISC_BUILD_ID_SIZE;
    record::write_header(out, endian, 0, misc, size);
    endian.write_u32(out, ANY_PID);
    out.extend_from_slice(&build_id.0);
    out.extend_from_slice(&[BuildId::SIZE as u8, 0, 0, 0]);
    write_padded(out, name, name_size);
}

/// Size of a name with its NUL, rounded up to a multiple of `align`.
pub fn padded(length: usize, align: usize) -> usize {
    length.saturating_add(1).next_multiple_of(align)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::perf::process_records::Mmap;
    use crate::perf::record::Records;
    use crate::perf::testing;
    use jitdump::Address;

    #[test]
    fn a_synthetic_mapping_reads_back_with_time_and_id() {
        let format = SampleFormat::TID | SampleFormat::TIME | SampleFormat::CPU | SampleFormat::IDENTIFIER;
        let attr = testing::attr(128, format.bits(), testing::SAMPLE_ID_ALL);
        let attr = Attr::parse(&attr, ByteOrder::Little);
        let range = AddressRange::new(Address(0x7000), 0x123).unwrap();
        let mapping = SyntheticMapping {
            pid: Pid(5),
            time: Time(77),
            range,
            file_offset: 0x100,
            name: b"/tmp/x.so",
            build_id: Some(BuildId([7; 20])),
            is_code: true,
        };
        for endian in [ByteOrder::Little, ByteOrder::Big] {
            let mut out = Vec::new();
            write_mmap2(&mut out, endian, &mapping, RecordEvent { attr: &attr, id: 9 });
            let mut records = Records::new(&out, 0, endian);
            let record = records.next().unwrap();
            assert!(records.undecoded().is_none());
            let map = Mmap::parse(&record, endian).unwrap();
            assert_eq!((map.pid, map.range, map.file_offset), (Pid(5), range, 0x100));
            assert_eq!((map.name, map.file), (&b"/tmp/x.so"[..], None));
            assert_eq!(attr.time_of(&record, endian), Some(Time(77)));
            assert_eq!(attr.id_of(&record, endian), Some(9));

            let part = AddressRange::new(Address(0x7020), 0x10).unwrap();
            let mut out = Vec::new();
            write_clipped_mmap(&mut out, endian, &record, part, 0x120);
            let mut records = Records::new(&out, 0, endian);
            let record = records.next().unwrap();
            assert!(records.next().is_none() && records.undecoded().is_none());
            let map = Mmap::parse(&record, endian).unwrap();
            assert_eq!((map.pid, map.range, map.file_offset), (Pid(5), part, 0x120));
            assert_eq!(map.build_id, Some(&[7; 20][..]));
            assert_eq!(attr.time_of(&record, endian), Some(Time(77)));
        }
    }
}
