//! Records, raw and in file order: where each one lies, what type it says it is, and its bytes.

use crate::bytes::{ByteOrder, Reader, put_padded};

/// `PERF_RECORD_MMAP`: a file or anonymous memory was mapped.
pub const MMAP: u32 = 1;
/// `PERF_RECORD_COMM`: a process changed its name, or executed another program.
pub const COMM: u32 = 3;
/// `PERF_RECORD_EXIT`: a thread is gone.
pub const EXIT: u32 = 4;
/// `PERF_RECORD_FORK`: a process or thread was started.
pub const FORK: u32 = 7;
/// `PERF_RECORD_SAMPLE`.
pub const SAMPLE: u32 = 9;
/// `PERF_RECORD_MMAP2`: as MMAP, with the file's identity or build-id.
pub const MMAP2: u32 = 10;
/// `PERF_RECORD_AUX`: data arrived in the AUX area (Intel PT, Arm SPE …).
pub const AUX: u32 = 11;
/// `PERF_RECORD_NAMESPACES`.
pub const NAMESPACES: u32 = 16;
/// `PERF_RECORD_CALLCHAIN_DEFERRED`: the call chain of an earlier sample.
pub const CALLCHAIN_DEFERRED: u32 = 22;
/// The first type of the records that perf itself writes; the kernel's are lower.
pub const USER_TYPE_START: u32 = 64;
/// `PERF_RECORD_HEADER_ATTR`: in a pipe, an attribute and its ids.
pub const HEADER_ATTR: u32 = 64;
/// `PERF_RECORD_HEADER_TRACING_DATA`: in a pipe, the formats of tracepoints, which follow the record and are
/// not part of its size.
pub const HEADER_TRACING_DATA: u32 = 66;
/// `PERF_RECORD_HEADER_BUILD_ID`: in a pipe, an entry of the table of build-ids.
pub const HEADER_BUILD_ID: u32 = 67;
/// `PERF_RECORD_FINISHED_ROUND`: no record behind it is earlier than the latest before the one before it.
pub const FINISHED_ROUND: u32 = 68;
/// `PERF_RECORD_ID_INDEX`: which counter has which id.
pub const ID_INDEX: u32 = 69;
/// `PERF_RECORD_AUXTRACE_INFO`.
pub const AUXTRACE_INFO: u32 = 70;
/// `PERF_RECORD_AUXTRACE`: a piece of AUX data, which follows the record and is not part of its size.
pub const AUXTRACE: u32 = 71;
/// `PERF_RECORD_THREAD_MAP`: which threads are recorded.
pub const THREAD_MAP: u32 = 73;
/// `PERF_RECORD_CPU_MAP`: which processors are recorded.
pub const CPU_MAP: u32 = 74;
/// `PERF_RECORD_EVENT_UPDATE`: something about an event, such as its name.
pub const EVENT_UPDATE: u32 = 78;
/// `PERF_RECORD_TIME_CONV`: how cycle counts become times.
pub const TIME_CONV: u32 = 79;
/// `PERF_RECORD_HEADER_FEATURE`: in a pipe, a feature section.
pub const HEADER_FEATURE: u32 = 80;
/// `PERF_RECORD_COMPRESSED`: other records, compressed.
pub const COMPRESSED: u32 = 81;
/// `PERF_RECORD_FINISHED_INIT`: what was there before the recording has been told.
pub const FINISHED_INIT: u32 = 82;
/// `PERF_RECORD_COMPRESSED2`: the same, with its size and padding (`perf record -z` since Linux 6.16).
pub const COMPRESSED2: u32 = 83;

/// The size in bytes of a record's own header: type, misc, size.
pub const HEADER_SIZE: usize = 8;

/// Records' sizes are multiples of this.
const ALIGNMENT: usize = 8;

/// The size in bytes of the fields that every record of a type has, with its header.
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

/// The bits of `misc` that say which mode the processor was in.
pub const MISC_CPUMODE_MASK: u16 = 7;
/// In user space.
pub const MISC_USER: u16 = 2;
/// In the kernel of a guest.
pub const MISC_GUEST_KERNEL: u16 = 4;
/// In user space of a guest.
pub const MISC_GUEST_USER: u16 = 5;
/// On [`COMM`]: the name changed because another program was executed.
pub const MISC_COMM_EXEC: u16 = 1 << 13;
/// `PERF_RECORD_MISC_FORK_EXEC`, on [`FORK`]: perf made the record, for a process that is there at the start of the
/// recording.
pub const MISC_FORK_EXEC: u16 = 1 << 13;
/// `PERF_RECORD_MISC_MMAP_DATA`: the map is no code.
pub const MISC_MMAP_DATA: u16 = 1 << 13;
/// On [`MMAP2`]: a build-id stands where device and inode would.
pub const MISC_MMAP_BUILD_ID: u16 = 1 << 14;

/// One record where it stands.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    /// Bytes from the start of the first record.
    pub offset: u64,
    /// Its type, one of the constants of this module or anything else.
    pub kind: u32,
    /// Bits whose meaning depends on the type.
    pub misc: u16,
    /// All of its bytes, with its header.
    pub bytes: &'a [u8],
    /// The data of an [`AUXTRACE`] or [`HEADER_TRACING_DATA`] record, which follow it; empty for all others.
    pub payload: &'a [u8],
}

impl<'a> Record<'a> {
    /// Its bytes behind its header.
    pub fn body(&self, order: ByteOrder) -> Reader<'a> {
        Reader::new(self.bytes.get(HEADER_SIZE..).unwrap_or_default(), order)
    }

    /// Where its own fields end, and a trailer can start: after the fixed fields of its type, and after a name. A name
    /// without its NUL reaches to the end.
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

    /// How many bytes lie between its start and the next record's.
    pub fn len(&self) -> u64 {
        (self.bytes.len() as u64).saturating_add(self.payload.len() as u64)
    }

    /// Never: a record has a header.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Where the next record starts, in bytes from the first one.
    pub fn end(&self) -> u64 {
        self.offset.saturating_add(self.len())
    }

    /// Whether it holds other records, compressed.
    pub fn is_compressed(&self) -> bool {
        matches!(self.kind, COMPRESSED | COMPRESSED2)
    }

    /// Whether it is a record of perf's own whose size should be a multiple of 8 and is not.
    ///
    /// perf 7.3 stops at such records (`perf_session__process_event`). Older versions wrote them: perf inject's
    /// HEADER_BUILD_ID records in pipes, and CPU_MAP and EVENT_UPDATE records (perf 4.16; the regression test
    /// `perf_versions::records_of_odd_sizes_are_padded`). Three types may have any size.
    pub fn is_misaligned(&self) -> bool {
        self.kind >= USER_TYPE_START
            && !self.bytes.len().is_multiple_of(ALIGNMENT)
            && !matches!(self.kind, HEADER_TRACING_DATA | HEADER_FEATURE | COMPRESSED)
    }

    /// Appends it, with zeros up to a multiple of 8 bytes if it is misaligned: its last field is a string or an array
    /// with a count. A record that would become too large stays as it is.
    pub fn put_aligned(&self, out: &mut Vec<u8>, order: ByteOrder) {
        let size = self.bytes.len();
        let aligned = u16::try_from(size.next_multiple_of(ALIGNMENT));
        match aligned {
            Ok(aligned) if self.is_misaligned() => {
                put_header(out, order, self.kind, self.misc, aligned);
                let body = self.bytes.get(HEADER_SIZE..).unwrap_or_default();
                put_padded(out, body, usize::from(aligned).saturating_sub(HEADER_SIZE));
            }
            _ => out.extend_from_slice(self.bytes),
        }
        out.extend_from_slice(self.payload);
    }

    /// Appends it with an empty trailer of `size` bytes, as perf's own records have it: without a time, and of the first
    /// event. A record that would become too large stays as it is.
    pub fn put_with_trailer(&self, out: &mut Vec<u8>, order: ByteOrder, size: usize) {
        let grown = self.bytes.len().saturating_add(size);
        match u16::try_from(grown) {
            Ok(grown) => {
                put_header(out, order, self.kind, self.misc, grown);
                let body = self.bytes.get(HEADER_SIZE..).unwrap_or_default();
                put_padded(out, body, usize::from(grown).saturating_sub(HEADER_SIZE));
            }
            Err(_) => out.extend_from_slice(self.bytes),
        }
        out.extend_from_slice(self.payload);
    }

    /// The mode that the processor was in.
    pub fn cpu_mode(&self) -> u16 {
        self.misc & MISC_CPUMODE_MASK
    }

    /// Whether it is about a virtual machine's processes, whose addresses are not this machine's.
    pub fn is_of_guest(&self) -> bool {
        matches!(self.cpu_mode(), MISC_GUEST_KERNEL | MISC_GUEST_USER)
    }
}

/// Appends the header of a record of `size` bytes in all.
pub fn put_header(out: &mut Vec<u8>, order: ByteOrder, kind: u32, misc: u16, size: u16) {
    order.put_u32(out, kind);
    order.put_u16(out, misc);
    order.put_u16(out, size);
}

/// Walks records in file order and stops for good at the first that is cut or can't be one.
#[derive(Clone, Debug)]
pub struct Records<'a> {
    data: &'a [u8],
    offset: u64,
    order: ByteOrder,
}

impl<'a> Records<'a> {
    /// Walks `data`, whose first byte is byte `offset` of all records.
    pub fn new(data: &'a [u8], offset: u64, order: ByteOrder) -> Self {
        Self { data, offset, order }
    }

    /// After the walk: where it had to stop, in bytes from the first record, and what it could not read;
    /// `None` where it came to the end.
    pub fn undecoded(&self) -> Option<(u64, &'a [u8])> {
        (!self.data.is_empty()).then_some((self.offset, self.data))
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = Record<'a>;

    fn next(&mut self) -> Option<Record<'a>> {
        let mut header = Reader::new(self.data, self.order);
        let kind = header.u32()?;
        let misc = header.u16()?;
        let size = usize::from(header.u16()?);
        if size < HEADER_SIZE {
            return None;
        }
        let (bytes, rest) = self.data.split_at_checked(size)?;
        // The first field is the size of the data that follow.
        let mut body = Reader::new(bytes.get(HEADER_SIZE..)?, self.order);
        let payload_size = match kind {
            AUXTRACE => usize::try_from(body.u64()?).ok()?,
            HEADER_TRACING_DATA => body.u32()? as usize,
            _ => 0,
        };
        let (payload, rest) = rest.split_at_checked(payload_size)?;
        let record = Record {
            offset: self.offset,
            kind,
            misc,
            bytes,
            payload,
        };
        self.data = rest;
        self.offset = record.end();
        Some(record)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(kind: u32, body: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        let size = (body.len() + HEADER_SIZE) as u16;
        put_header(&mut out, ByteOrder::Little, kind, 0, size);
        out.extend_from_slice(body);
        out
    }

    #[test]
    fn the_data_behind_an_auxtrace_record_belong_to_it() {
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
    fn a_record_too_short_for_the_size_of_its_data_ends_the_walk() {
        for kind in [AUXTRACE, HEADER_TRACING_DATA] {
            let data = [record(kind, b""), record(COMM, b"next")].concat();
            let mut records = Records::new(&data, 0, ByteOrder::Little);
            assert!(records.next().is_none());
            assert_eq!(records.undecoded().unwrap().0, 0);
        }
    }

    #[test]
    fn a_cut_record_ends_the_walk_and_is_reported() {
        let mut data = record(COMM, b"whole");
        let cut = record(COMM, b"cut off");
        data.extend_from_slice(&cut[..10]);
        let mut records = Records::new(&data, 0, ByteOrder::Little);
        assert!(records.next().is_some());
        assert!(records.next().is_none());
        assert_eq!(records.undecoded().unwrap(), (13, &cut[..10]));
    }

    #[test]
    fn sizes_that_lie_end_the_walk() {
        for size in [0u16, 1, 7] {
            let mut data = record(COMM, b"");
            data[6..8].copy_from_slice(&size.to_le_bytes());
            assert_eq!(Records::new(&data, 0, ByteOrder::Little).count(), 0);
        }
        let data = record(AUXTRACE, &u64::MAX.to_le_bytes());
        assert_eq!(Records::new(&data, 0, ByteOrder::Little).count(), 0);
    }
}
