//! Records and table entries of our own making, and whole events: [`Synthesis`] makes a profile of them, or adds
//! them to a recorded one.
//!
//! ```text
//!                        definitions ──► attributes, ids, names ───────┐
//! samples, names, forks, maps ──► records ──┐                          ▼
//! recorded profile ──► with identifiers ────┴── in order of time ──► a profile like any other
//! ```

mod definition;
mod event_desc;
mod identifier;
mod loss;
mod parts;
mod process;
mod recording;
mod sample;
mod stand_alone;
mod stream;

use linux_perf_event_reader::SampleFormat;
use linux_perf_event_reader::constants::PERF_RECORD_MISC_BUILD_ID_SIZE;

use crate::bytes::{ByteOrder, put_padded};
use crate::perf::attr::{Attr, TRAILER_FIELDS};
use crate::perf::record::{self, Record};
use crate::units::{AddressRange, BuildId, Pid, Time};

pub use definition::{Definition, Measure};
pub use loss::Loss;
pub use parts::Synthesized;
pub use process::{Comm, Task, Thread, put_comm, put_exit, put_fork};
pub use sample::Sample;
pub use stand_alone::Origin;
pub use stream::Synthesis;

/// A map that an MMAP2 record is to announce.
#[derive(Clone, Copy, Debug)]
pub struct Mapping<'a> {
    /// Whose map.
    pub pid: Pid,
    /// From when on.
    pub time: Time,
    /// Which addresses.
    pub range: AddressRange,
    /// Where in the file the first of them lies, in bytes.
    pub file_offset: u64,
    /// The file.
    pub name: &'a [u8],
    /// The build-id in the file, if it is one of ours.
    pub build_id: Option<BuildId>,
    /// Whether it is code; tables for unwinding are not.
    pub is_code: bool,
}

/// Which event a made record belongs to, and so what its trailer holds.
#[derive(Clone, Copy, Debug)]
pub struct Event<'a> {
    /// The event.
    pub attr: &'a Attr,
    /// The id of one of its counters.
    pub id: u64,
}

/// Appends an MMAP2 record. `mapping.name` must be shorter than 4096 bytes, as any path is (PATH_MAX).
pub fn put_mmap2(out: &mut Vec<u8>, order: ByteOrder, mapping: &Mapping<'_>, event: Event<'_>) {
    const PROT_READ: u32 = 1;
    const PROT_EXEC: u32 = 4;
    const MAP_PRIVATE: u32 = 2;
    /// All but the name and the trailer.
    const FIXED: usize = 72;
    let name_size = padded(mapping.name.len(), 8);
    let size = FIXED
        .saturating_add(name_size)
        .saturating_add(event.attr.trailer_size());
    let build_id_misc = mapping.build_id.map_or(0, |_| record::MISC_MMAP_BUILD_ID);
    let size = u16::try_from(size).unwrap_or(u16::MAX);
    record::put_header(out, order, record::MMAP2, record::MISC_USER | build_id_misc, size);
    order.put_u32(out, mapping.pid.0);
    order.put_u32(out, mapping.pid.0);
    order.put_u64(out, mapping.range.start.0);
    order.put_u64(out, mapping.range.size());
    order.put_u64(out, mapping.file_offset);
    // Device, inode and generation, or in their place: size, three bytes of padding, build-id.
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
    order.put_u32(out, protection);
    order.put_u32(out, MAP_PRIVATE);
    put_padded(out, mapping.name, name_size);
    put_trailer(out, order, Thread::first_of(mapping.pid), mapping.time, event);
}

/// The trailer that every record has when the profile was recorded with `sample_id_all`, as all are since
/// Linux 2.6.38.
fn put_trailer(out: &mut Vec<u8>, order: ByteOrder, thread: Thread, time: Time, event: Event<'_>) {
    if !event.attr.has_trailer {
        return;
    }
    for field in TRAILER_FIELDS {
        if !event.attr.sample_format.contains(field) {
            continue;
        }
        if field == SampleFormat::TID {
            order.put_u32(out, thread.pid.0);
            order.put_u32(out, thread.tid.0);
        } else if field == SampleFormat::TIME {
            order.put_u64(out, time.0);
        } else if field == SampleFormat::CPU {
            order.put_u64(out, 0);
        } else {
            // ID, IDENTIFIER, and STREAM_ID, which for a counter that is not inherited is the id
            order.put_u64(out, event.id);
        }
    }
}

/// Appends a copy of an MMAP or MMAP2 record that maps only `range`, a part of what the original maps.
pub fn put_part_of_mmap(
    out: &mut Vec<u8>,
    order: ByteOrder,
    original: &Record<'_>,
    range: AddressRange,
    file_offset: u64,
) {
    /// Up to the thread's number.
    const BEFORE: usize = 16;
    /// From the file's identity or name on.
    const BEHIND: usize = 40;
    out.extend_from_slice(original.bytes.get(..BEFORE).unwrap_or_default());
    for word in [range.start.0, range.size(), file_offset] {
        order.put_u64(out, word);
    }
    out.extend_from_slice(original.bytes.get(BEHIND..).unwrap_or_default());
}

/// Appends an entry to a build-id table ([`super::feature::BUILD_ID`]), in the form of perf's
/// `write_buildid`.
pub fn put_build_id_entry(out: &mut Vec<u8>, order: ByteOrder, build_id: &BuildId, name: &[u8]) {
    const FIXED: usize = 8 + 4 + 24;
    const ANY_PID: u32 = u32::MAX;
    let name_size = padded(name.len(), 64);
    let size = u16::try_from(name_size.saturating_add(FIXED)).unwrap_or(u16::MAX);
    let misc = record::MISC_USER | PERF_RECORD_MISC_BUILD_ID_SIZE;
    record::put_header(out, order, 0, misc, size);
    order.put_u32(out, ANY_PID);
    out.extend_from_slice(&build_id.0);
    out.extend_from_slice(&[BuildId::SIZE as u8, 0, 0, 0]);
    put_padded(out, name, name_size);
}

/// The size of a name with its NUL, rounded up to a multiple of `align`.
fn padded(length: usize, align: usize) -> usize {
    length.saturating_add(1).next_multiple_of(align)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::perf::event::Mmap;
    use crate::perf::record::Records;
    use crate::units::Address;

    fn attr(sample_type: u64, flags: u64) -> Attr {
        let mut bytes = vec![0; 128];
        bytes[4..8].copy_from_slice(&128u32.to_le_bytes());
        bytes[24..32].copy_from_slice(&sample_type.to_le_bytes());
        bytes[40..48].copy_from_slice(&flags.to_le_bytes());
        Attr::parse(&bytes, ByteOrder::Little)
    }

    #[test]
    fn a_made_map_reads_back_with_time_and_id_where_the_event_has_them() {
        let format = SampleFormat::TID | SampleFormat::TIME | SampleFormat::CPU | SampleFormat::IDENTIFIER;
        let attr = attr(format.bits(), 1 << 18);
        let range = AddressRange::new(Address(0x7000), 0x123).unwrap();
        let mapping = Mapping {
            pid: Pid(5),
            time: Time(77),
            range,
            file_offset: 0x100,
            name: b"/tmp/x.so",
            build_id: Some(BuildId([7; 20])),
            is_code: true,
        };
        for order in [ByteOrder::Little, ByteOrder::Big] {
            let mut out = Vec::new();
            put_mmap2(&mut out, order, &mapping, Event { attr: &attr, id: 9 });
            let mut records = Records::new(&out, 0, order);
            let record = records.next().unwrap();
            assert!(records.undecoded().is_none());
            let map = Mmap::parse(&record, order).unwrap();
            assert_eq!((map.pid, map.range, map.file_offset), (Pid(5), range, 0x100));
            assert_eq!((map.name, map.file), (&b"/tmp/x.so"[..], None));
            assert_eq!(attr.time_of(&record, order), Some(Time(77)));
            assert_eq!(attr.id_of(&record, order), Some(9));
        }
    }
}
