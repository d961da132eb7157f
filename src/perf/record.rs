//! Raw records in file order: offset, type and bytes of each.

pub mod data;
pub mod kept;
pub mod pieces;
pub mod reader;
pub mod resync;
pub mod validation;

use crate::bytes::{Reader, write_padded};
use jitdump::ByteOrder;

/// `PERF_RECORD_MMAP`: a mapping of a file or of anonymous memory.
pub const MMAP: u32 = 1;
/// `PERF_RECORD_LOST`: records for which there was no room.
pub const LOST: u32 = 2;
/// `PERF_RECORD_COMM`: a new name of a thread, or the execution of another program.
pub const COMM: u32 = 3;
/// `PERF_RECORD_EXIT`: the end of a thread.
pub const EXIT: u32 = 4;
/// `PERF_RECORD_FORK`: the start of a process or thread.
pub const FORK: u32 = 7;
/// `PERF_RECORD_SAMPLE`.
pub const SAMPLE: u32 = 9;
/// `PERF_RECORD_MMAP2`: as MMAP, with the device and inode of the file or its build ID.
pub const MMAP2: u32 = 10;
/// `PERF_RECORD_AUX`: new data in the AUX area (Intel PT, Arm SPE …).
pub const AUX: u32 = 11;
/// `PERF_RECORD_LOST_SAMPLES`: samples for which there was no room.
pub const LOST_SAMPLES: u32 = 13;
/// `PERF_RECORD_NAMESPACES`.
pub const NAMESPACES: u32 = 16;
/// `PERF_RECORD_KSYMBOL`: code that the kernel has made or removed, such as an eBPF program.
pub const KSYMBOL: u32 = 17;
/// `PERF_RECORD_CALLCHAIN_DEFERRED`: the call chain of an earlier sample.
pub const CALLCHAIN_DEFERRED: u32 = 22;
/// The kernel's last type in Linux 7.3. A later one may need a [`Role`] of its own.
pub const LAST_KERNEL_TYPE: u32 = CALLCHAIN_DEFERRED;
/// The lowest type of perf's own records; the kernel's types are lower.
pub const USER_TYPE_START: u32 = 64;
/// `PERF_RECORD_HEADER_ATTR`: in a pipe, an attribute and its IDs.
pub const HEADER_ATTR: u32 = 64;
/// `PERF_RECORD_HEADER_TRACING_DATA`: in a pipe, the formats of tracepoints, which follow the record and do
/// not count in its size.
pub const HEADER_TRACING_DATA: u32 = 66;
/// `PERF_RECORD_HEADER_BUILD_ID`: in a pipe, an entry of the build ID table.
pub const HEADER_BUILD_ID: u32 = 67;
/// `PERF_RECORD_FINISHED_ROUND`: all later records are at least as late as the latest record before the previous
/// FINISHED_ROUND.
pub const FINISHED_ROUND: u32 = 68;
/// `PERF_RECORD_ID_INDEX`: the IDs of all counters.
pub const ID_INDEX: u32 = 69;
/// `PERF_RECORD_AUXTRACE_INFO`.
pub const AUXTRACE_INFO: u32 = 70;
/// `PERF_RECORD_AUXTRACE`: a block of AUX data, which follows the record and does not count in its size.
pub const AUXTRACE: u32 = 71;
/// `PERF_RECORD_THREAD_MAP`: the recorded threads.
pub const THREAD_MAP: u32 = 73;
/// `PERF_RECORD_CPU_MAP`: the recorded CPUs.
pub const CPU_MAP: u32 = 74;
/// `PERF_RECORD_EVENT_UPDATE`: a property of an event, such as its name.
pub const EVENT_UPDATE: u32 = 78;
/// `PERF_RECORD_TIME_CONV`: the conversion from cycle counts to times.
pub const TIME_CONV: u32 = 79;
/// `PERF_RECORD_HEADER_FEATURE`: in a pipe, a feature section.
pub const HEADER_FEATURE: u32 = 80;
/// `PERF_RECORD_COMPRESSED`: compressed records.
pub const COMPRESSED: u32 = 81;
/// `PERF_RECORD_FINISHED_INIT`: the end of the records about processes and mappings older than the
/// recording.
pub const FINISHED_INIT: u32 = 82;
/// `PERF_RECORD_COMPRESSED2`: as COMPRESSED, with its size and padding (`perf record -z` since Linux 6.16).
pub const COMPRESSED2: u32 = 83;

/// What a record says about processes. Readers match on it without a default, so that none of them overlooks a new
/// role.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// What one of them did.
    Sample,
    /// What is in its memory.
    Mapping,
    /// The start, name or end of a thread.
    Thread,
    /// Nothing, or only what one reader needs.
    Other,
}

impl Role {
    /// Returns the role of a type of records.
    #[inline]
    pub fn of(kind: u32) -> Self {
        match kind {
            SAMPLE => Self::Sample,
            MMAP | MMAP2 => Self::Mapping,
            COMM | FORK | EXIT => Self::Thread,
            _ => Self::Other,
        }
    }
}

/// Size of a record header in bytes: type, misc, size.
pub const HEADER_SIZE: usize = 8;

/// Offset of the flags in a record header, in bytes.
const MISC_OFFSET: usize = 4;

/// Offset of the size in a record header, in bytes.
pub const SIZE_OFFSET: usize = 6;

/// Record sizes are multiples of this many bytes.
const ALIGNMENT: usize = 8;

/// Returns the size in bytes of the header and the fields that every record of a type has.
pub fn fixed_size(kind: u32) -> usize {
    match kind {
        MMAP => 40,
        MMAP2 => 72,
        COMM => 16,
        EXIT | FORK => 32,
        HEADER_ATTR => 72,
        HEADER_TRACING_DATA => 12,
        HEADER_BUILD_ID => 36,
        AUXTRACE | HEADER_FEATURE | COMPRESSED2 => 16,
        _ => HEADER_SIZE,
    }
}

/// Bits of `misc` that hold the CPU mode.
pub const MISC_CPUMODE_MASK: u16 = 7;
/// CPU mode: the kernel.
pub const MISC_KERNEL: u16 = 1;
/// CPU mode: user space.
pub const MISC_USER: u16 = 2;
/// CPU mode: kernel of a guest.
pub const MISC_GUEST_KERNEL: u16 = 4;
/// CPU mode: user space of a guest.
pub const MISC_GUEST_USER: u16 = 5;
/// Flag of [`LOST_SAMPLES`]: a BPF filter of the user rejected the samples (`PERF_RECORD_MISC_LOST_SAMPLES_BPF`).
pub const MISC_LOST_SAMPLES_BPF: u16 = 1 << 15;
/// On [`COMM`]: the name changed because the process executed another program.
pub const MISC_COMM_EXEC: u16 = 1 << 13;
/// `PERF_RECORD_MISC_FORK_EXEC`, on [`FORK`]: perf made the record for a process that existed before the
/// recording.
pub const MISC_FORK_EXEC: u16 = 1 << 13;
/// `PERF_RECORD_MISC_MMAP_DATA`: the mapping is not executable.
pub const MISC_MMAP_DATA: u16 = 1 << 13;
/// On [`MMAP2`]: the record has a build ID instead of device and inode.
pub const MISC_MMAP_BUILD_ID: u16 = 1 << 14;

/// A raw record and its offset.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    /// Offset in bytes from the first record.
    pub offset: u64,
    /// Record type: one of this module's constants, or any other value.
    pub kind: u32,
    /// Flags whose meaning depends on the type.
    pub misc: u16,
    /// All bytes of the record, including its header.
    pub bytes: &'a [u8],
    /// The data after an [`AUXTRACE`] or [`HEADER_TRACING_DATA`] record; empty for all other types. Of a record in a file,
    /// it may be only the start.
    pub payload: &'a [u8],
    /// Size of all data after the record, in bytes.
    pub payload_size: u64,
}

impl<'a> Record<'a> {
    /// Reads the record at the start of `held`, `offset` bytes after the first record. `left` is the number of bytes from
    /// there to the end of all records, of which `held` has the first. `None` if the record is invalid, is truncated, or
    /// extends beyond `held`.
    #[inline]
    pub fn parse(held: &'a [u8], offset: u64, left: u64, endian: ByteOrder) -> Option<Self> {
        let kind = endian.u32_at(held, 0)?;
        let misc = endian.u16_at(held, MISC_OFFSET)?;
        let size = usize::from(endian.u16_at(held, SIZE_OFFSET)?);
        if size < HEADER_SIZE {
            return None;
        }
        let (bytes, rest) = held.split_at_checked(size)?;
        let left = left.checked_sub(size as u64)?;
        let mut record = Self {
            offset,
            kind,
            misc,
            bytes,
            payload: &[],
            payload_size: 0,
        };
        // The first field is the size of the data after the record.
        record.payload_size = match kind {
            AUXTRACE => endian.u64_at(bytes, HEADER_SIZE)?,
            HEADER_TRACING_DATA => endian.u32_at(bytes, HEADER_SIZE)?.into(),
            _ => return Some(record),
        };
        let payload = usize::try_from(record.payload_size).ok();
        record.payload = payload.and_then(|size| rest.get(..size)).unwrap_or(rest);
        (record.payload_size <= left).then_some(record)
    }

    /// Returns a reader of the bytes after the header.
    pub fn body(&self, endian: ByteOrder) -> Reader<'a> {
        Reader::new(self.bytes.get(HEADER_SIZE..).unwrap_or_default(), endian)
    }

    /// Returns the offset in the record, in bytes, of the end of its own fields, where a trailer can start:
    /// after the fixed fields of its type and after a name. A name without a NUL extends to the end of the
    /// record.
    pub fn fields_end(&self) -> usize {
        let fixed = fixed_size(self.kind);
        if !matches!(self.kind, MMAP | MMAP2 | COMM) {
            return fixed;
        }
        let name = self.bytes.get(fixed..).unwrap_or_default();
        let length = name.iter().position(|&byte| byte == 0);
        let end = length.and_then(|length| fixed.checked_add(length)?.checked_add(1));
        end.map_or(self.bytes.len(), |end| end.next_multiple_of(ALIGNMENT))
    }

    /// Returns the size in bytes of the record and its payload.
    pub fn size(&self) -> u64 {
        (self.bytes.len() as u64).saturating_add(self.payload_size)
    }

    /// Returns the offset of the next record, in bytes from the first one.
    pub fn end(&self) -> u64 {
        self.offset.saturating_add(self.size())
    }

    /// Whether the record holds compressed records.
    pub fn is_compressed(&self) -> bool {
        matches!(self.kind, COMPRESSED | COMPRESSED2)
    }

    /// Whether the record is one of perf's own with a size that should be a multiple of 8 but is not.
    ///
    /// perf 7.3 stops at such records (`perf_session__process_event`). Older versions wrote them: perf
    /// inject's HEADER_BUILD_ID records in pipes, and CPU_MAP and EVENT_UPDATE records (perf 4.16; the
    /// regression test `perf_versions::records_of_odd_sizes_are_padded`). Three types may have any size.
    pub fn is_misaligned(&self) -> bool {
        self.kind >= USER_TYPE_START
            && !self.bytes.len().is_multiple_of(ALIGNMENT)
            && !matches!(self.kind, HEADER_TRACING_DATA | HEADER_FEATURE | COMPRESSED)
    }

    /// Appends the record without the data after it, padded with zeros to a multiple of 8 bytes if it is misaligned. The
    /// padding is harmless: the last field is a string or a counted array. A record that would become too large is
    /// appended unchanged.
    pub fn write_aligned(&self, out: &mut Vec<u8>, endian: ByteOrder) {
        let size = self.bytes.len();
        let aligned = if self.is_misaligned() {
            size.next_multiple_of(ALIGNMENT)
        } else {
            size
        };
        self.write_padded(out, endian, aligned);
    }

    /// Appends the record with a zero trailer of `size` bytes, like that of perf's own records: no time, and
    /// the first event. A record that would become too large is appended unchanged.
    pub fn write_with_trailer(&self, out: &mut Vec<u8>, endian: ByteOrder, size: usize) {
        self.write_padded(out, endian, self.bytes.len().saturating_add(size));
    }

    /// Appends the record, padded with zeros to `size` bytes unless that is too large.
    fn write_padded(&self, out: &mut Vec<u8>, endian: ByteOrder, size: usize) {
        if size <= usize::from(u16::MAX) {
            write_header(out, endian, self.kind, self.misc, size);
            let body = self.bytes.get(HEADER_SIZE..).unwrap_or_default();
            write_padded(out, body, size.saturating_sub(HEADER_SIZE));
        } else {
            out.extend_from_slice(self.bytes);
        }
    }

    /// Returns the CPU mode.
    pub fn cpu_mode(&self) -> u16 {
        self.misc & MISC_CPUMODE_MASK
    }

    /// Whether the record belongs to a virtual machine, whose addresses are not those of this machine.
    pub fn is_guest(&self) -> bool {
        matches!(self.cpu_mode(), MISC_GUEST_KERNEL | MISC_GUEST_USER)
    }
}

/// Appends the header of a record of `size` bytes, including the header; at most [`u16::MAX`].
pub fn write_header(out: &mut Vec<u8>, endian: ByteOrder, kind: u32, misc: u16, size: usize) {
    endian.write_u32(out, kind);
    endian.write_u16(out, misc);
    endian.write_u16(out, u16::try_from(size).unwrap_or(u16::MAX));
}

/// Iterates over records in memory, in file order. Ends at the first truncated or invalid record.
#[derive(Clone, Debug)]
pub struct Records<'a> {
    data: &'a [u8],
    offset: u64,
    endian: ByteOrder,
}

impl<'a> Records<'a> {
    /// Iterates over `data`, which starts `offset` bytes after the first record.
    pub fn new(data: &'a [u8], offset: u64, endian: ByteOrder) -> Self {
        Self { data, offset, endian }
    }

    /// After the iteration: the offset at which it stopped, in bytes from the first record, and the unread
    /// bytes. `None` if it reached the end.
    pub fn undecoded(&self) -> Option<(u64, &'a [u8])> {
        (!self.data.is_empty()).then_some((self.offset, self.data))
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = Record<'a>;

    fn next(&mut self) -> Option<Record<'a>> {
        let record = Record::parse(self.data, self.offset, self.data.len() as u64, self.endian)?;
        let size = usize::try_from(record.size()).ok()?;
        self.data = self.data.get(size..)?;
        self.offset = record.end();
        Some(record)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(kind: u32, body: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        let size = body.len() + HEADER_SIZE;
        write_header(&mut out, ByteOrder::Little, kind, 0, size);
        out.extend_from_slice(body);
        out
    }

    #[test]
    fn data_after_an_auxtrace_record_belong_to_it() {
        let mut data = record(AUXTRACE, &5u64.to_le_bytes());
        data.extend_from_slice(b"12345");
        data.extend(record(COMM, b"next"));
        let mut records = Records::new(&data, 100, ByteOrder::Little);
        let aux = records.next().unwrap();
        assert_eq!((aux.offset, aux.payload), (100, &b"12345"[..]));
        let next = records.next().unwrap();
        assert_eq!((next.offset, next.kind), (100 + 16 + 5, COMM));
        assert!(records.next().is_none());
        assert!(records.undecoded().is_none());
    }

    #[test]
    fn a_record_too_short_for_its_data_size_ends_the_iteration() {
        for kind in [AUXTRACE, HEADER_TRACING_DATA] {
            let data = [record(kind, b""), record(COMM, b"next")].concat();
            let mut records = Records::new(&data, 0, ByteOrder::Little);
            assert!(records.next().is_none());
            assert_eq!(records.undecoded().unwrap().0, 0);
        }
    }

    #[test]
    fn a_truncated_record_ends_the_iteration() {
        let mut data = record(COMM, b"whole");
        let cut = record(COMM, b"cut off");
        data.extend_from_slice(&cut[..10]);
        let mut records = Records::new(&data, 0, ByteOrder::Little);
        assert!(records.next().is_some());
        assert!(records.next().is_none());
        assert_eq!(records.undecoded().unwrap(), (13, &cut[..10]));
    }

    #[test]
    fn invalid_sizes_end_the_iteration() {
        for size in [0u16, 1, 7] {
            let mut data = record(COMM, b"");
            data[6..8].copy_from_slice(&size.to_le_bytes());
            assert_eq!(Records::new(&data, 0, ByteOrder::Little).count(), 0);
        }
        let data = record(AUXTRACE, &u64::MAX.to_le_bytes());
        assert_eq!(Records::new(&data, 0, ByteOrder::Little).count(), 0);
    }
}
