//! Samples: the sampled address and all other code addresses in a sample record.

use jitdump::{Address, ByteOrder, Time};
use linux_perf_event_reader::constants::{
    PERF_CONTEXT_USER, PERF_SAMPLE_BRANCH_HW_INDEX, PERF_SAMPLE_REGS_ABI_32,
};
use linux_perf_event_reader::{ReadFormat, SampleFormat};

use crate::bytes::Reader;
use crate::perf::attr::{self, Attr};
use crate::perf::record::{HEADER_SIZE, Record};
use crate::units::{Pid, Tid};

/// `PERF_FORMAT_LOST`, which linux-perf-event-reader lacks.
const READ_FORMAT_LOST: u64 = 1 << 4;

/// `PERF_SAMPLE_BRANCH_COUNTERS`, which it lacks too: the branches are followed by a counter for each of
/// them.
const BRANCH_COUNTERS: u64 = 1 << 19;

/// The fields of a [`super::record::SAMPLE`] record that can contain code addresses, and the process and
/// thread.
#[derive(Clone, Copy, Debug)]
pub struct Sample<'a> {
    /// Sampled address.
    pub ip: Option<Address>,
    /// Process ID.
    pub pid: Option<Pid>,
    /// Thread ID.
    pub tid: Option<Tid>,
    /// Number of units of the event since the last sample, if recorded.
    pub period: Option<u64>,
    /// Call chain, innermost first: the sampled address, its callers, and context markers such as
    /// `PERF_CONTEXT_USER`.
    pub callchain: CodeAddressWords<'a>,
    /// Offset in the record, in bytes, of the length of the call chain.
    pub callchain_offset: Option<usize>,
    /// Offset in the record, in bytes, at which the call chain is or would be.
    pub callchain_place: Option<usize>,
    /// Branch stack: source, target and flags of each branch in turn.
    pub branches: CodeAddressWords<'a>,
    /// User registers.
    pub registers: CodeAddressWords<'a>,
    /// Whether the registers are those of a 32-bit process.
    pub has_narrow_registers: bool,
    /// Offset in the record, in bytes, of the registers.
    pub registers_offset: Option<usize>,
    /// Top of the user stack, copied for unwinding.
    pub stack: CodeAddressWords<'a>,
    /// Offset in the record, in bytes, of the size of the stack copy.
    pub stack_offset: Option<usize>,
    /// Offset in the record, in bytes, of the first field after the stack copy.
    pub stack_end: Option<usize>,
    /// Whether the record ends before its last field. The fields before the cut are set.
    pub is_truncated: bool,
    /// Whether the fields are those of a wait in user space, whatever mode the record has (`perf record --off-cpu`).
    pub is_off_cpu: bool,
}

/// Words in a sample that are or could be code addresses.
#[derive(Clone, Copy, Debug)]
pub struct CodeAddressWords<'a> {
    bytes: &'a [u8],
    endian: ByteOrder,
    /// Bytes per word: 4 in the stack of a 32-bit process, else 8.
    width: u8,
}

impl<'a> CodeAddressWords<'a> {
    fn new(bytes: &'a [u8], endian: ByteOrder, width: u8) -> Self {
        Self { bytes, endian, width }
    }

    /// Returns the bytes of the words.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Returns the words of 8 bytes, as they are in the record.
    pub fn words(&self) -> &'a [[u8; 8]] {
        self.bytes.as_chunks().0
    }

    /// Whether there are no words.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Returns the number of words.
    pub fn count(&self) -> usize {
        self.bytes.chunks_exact(self.width.into()).len()
    }

    /// Iterates over the words in the order of the record.
    pub fn iter(self) -> impl Iterator<Item = Address> + use<'a> {
        let Self { bytes, endian, width } = self;
        bytes.chunks_exact(width.into()).filter_map(move |chunk| {
            let mut reader = Reader::new(chunk, endian);
            let word = if width == 4 {
                reader.u32().map(u64::from)
            } else {
                reader.u64()
            };
            word.map(Address)
        })
    }
}

/// The lowest context marker of a call chain (`PERF_CONTEXT_MAX`). Context markers such as
/// `PERF_CONTEXT_USER` separate the parts of the chain.
pub const FIRST_CONTEXT_MARKER: u64 = -4095i64 as u64;

/// Context marker for a user part that follows in a later [`super::record::CALLCHAIN_DEFERRED`] record with
/// the same cookie (`PERF_CONTEXT_USER_DEFERRED`, `perf record --call-graph fp,defer` since Linux 6.19).
pub const USER_DEFERRED: u64 = -640i64 as u64;

/// Time of the first of the samples that `perf record --off-cpu` appends at the end, each with the total time
/// that a thread waited at one address (`OFF_CPU_TIMESTAMP`). It only sorts them after all other samples.
pub const OFF_CPU_SUMMARY_TIME: Time = Time(u64::MAX << 32);

/// An entry of a call chain.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ChainEntry {
    /// A code address.
    Address(Address),
    /// A context marker, which applies to the entries after it.
    Marker(u64),
    /// The cookie after [`USER_DEFERRED`].
    Cookie,
}

impl<'a> Sample<'a> {
    /// Iterates over the call chain.
    pub fn chain_entries(&self) -> impl Iterator<Item = ChainEntry> + use<'a> {
        let mut is_cookie = false;
        self.callchain.iter().map(move |address| {
            if std::mem::take(&mut is_cookie) {
                return ChainEntry::Cookie;
            }
            is_cookie = address.0 == USER_DEFERRED;
            match address.0 {
                FIRST_CONTEXT_MARKER.. => ChainEntry::Marker(address.0),
                _ => ChainEntry::Address(address),
            }
        })
    }

    /// Iterates over the addresses of the call chain, without context markers and cookies.
    pub fn chain_addresses(&self) -> impl Iterator<Item = Address> + use<'a> {
        self.chain_entries().filter_map(|entry| match entry {
            ChainEntry::Address(address) => Some(address),
            ChainEntry::Marker(_) | ChainEntry::Cookie => None,
        })
    }

    #[inline]
    fn empty(endian: ByteOrder) -> Self {
        let none = CodeAddressWords::new(&[], endian, 8);
        Self {
            ip: None,
            pid: None,
            tid: None,
            period: None,
            callchain: none,
            callchain_offset: None,
            callchain_place: None,
            branches: none,
            registers: none,
            has_narrow_registers: false,
            registers_offset: None,
            stack: none,
            stack_offset: None,
            stack_end: None,
            is_truncated: false,
            is_off_cpu: false,
        }
    }

    /// Reads a sample of an event. Never fails: fields that are missing or invalid are left empty.
    #[inline]
    pub fn parse(record: &Record<'a>, attr: &Attr, endian: ByteOrder) -> Self {
        let mut sample = Self::empty(endian);
        if sample.read_chain(record, attr, endian).is_none() {
            sample = Self::of_fields(record, attr, endian);
        }
        sample
    }

    /// Reads a sample whose fields have known offsets; `None` if they have not, or if the record is too short.
    #[inline]
    fn read_chain(&mut self, record: &Record<'a>, attr: &Attr, endian: ByteOrder) -> Option<()> {
        let SampleSize::OfChain {
            offsets,
            place,
            has_chain,
            ..
        } = attr.sample_size
        else {
            return None;
        };
        let bytes = record.bytes;
        let fields = bytes.get(..place)?;
        let word = |at: usize| endian.u64_at(fields, at);
        let half = |at: usize| endian.u32_at(fields, at);
        let mut end = place;
        if has_chain {
            let start = place.checked_add(8)?;
            let size = usize::try_from(endian.u64_at(bytes, place)?.checked_mul(8)?).ok()?;
            end = start.checked_add(size)?;
            self.callchain.bytes = bytes.get(start..end)?;
            self.callchain_offset = Some(place);
        }
        self.ip = offsets.ip.and_then(word).map(Address);
        self.pid = offsets.ids.and_then(half).map(Pid);
        self.tid = offsets.ids.and_then(|at| half(at.checked_add(4)?)).map(Tid);
        self.period = offsets.period.and_then(word);
        self.callchain_place = Some(place);
        self.registers_offset = Some(end);
        self.stack_end = Some(end);
        Some(())
    }

    #[inline(never)]
    fn of_fields(record: &Record<'a>, attr: &Attr, endian: ByteOrder) -> Self {
        let mut sample = Self::empty(endian);
        sample.is_truncated = sample
            .read_fields(&mut record.body(endian), attr, endian)
            .is_none();
        sample
    }

    /// Reads all fields; `None` if the record ends before one of them. Their order and size are those of `perf_output_sample` in
    /// Linux' kernel/events/core.c.
    // Inlined, so that `fields_end` does not store fields that it never reads.
    #[inline(always)]
    fn read_fields(&mut self, body: &mut Reader<'a>, attr: &Attr, endian: ByteOrder) -> Option<()> {
        let size = body.rest().len().saturating_add(HEADER_SIZE);
        let offset = |body: &Reader<'a>| size.checked_sub(body.rest().len());
        let has = |field| attr.sample_format.contains(field);
        if has(SampleFormat::IDENTIFIER) {
            body.skip(8)?;
        }
        if has(SampleFormat::IP) {
            self.ip = Some(Address(body.u64()?));
        }
        if has(SampleFormat::TID) {
            self.pid = Some(Pid(body.u32()?));
            self.tid = Some(Tid(body.u32()?));
        }
        for field in [
            SampleFormat::TIME,
            SampleFormat::ADDR,
            SampleFormat::ID,
            SampleFormat::STREAM_ID,
            SampleFormat::CPU,
        ] {
            if has(field) {
                body.skip(8)?;
            }
        }
        if has(SampleFormat::PERIOD) {
            self.period = Some(body.u64()?);
        }
        if has(SampleFormat::READ) {
            skip_read(body, attr.read_format)?;
        }
        self.callchain_place = offset(body);
        if has(SampleFormat::CALLCHAIN) {
            self.callchain_offset = self.callchain_place;
            let count = body.u64()?;
            self.callchain = CodeAddressWords::new(body.bytes(count.checked_mul(8)?)?, endian, 8);
        }
        if has(SampleFormat::RAW) {
            let size = body.u32()?;
            let raw = Reader::new(body.bytes(size.into())?, endian);
            if attr.is_bpf_output {
                self.read_off_cpu(raw, endian);
            }
        }
        if has(SampleFormat::BRANCH_STACK) {
            let count = body.u64()?;
            if attr.branch_format & PERF_SAMPLE_BRANCH_HW_INDEX != 0 {
                body.skip(8)?;
            }
            self.branches = CodeAddressWords::new(body.bytes(count.checked_mul(24)?)?, endian, 8);
            if attr.branch_format & BRANCH_COUNTERS != 0 {
                body.skip(count.checked_mul(8)?)?;
            }
        }
        let mut width = 8;
        self.registers_offset = offset(body);
        if has(SampleFormat::REGS_USER) {
            let abi = body.u64()?;
            if abi == PERF_SAMPLE_REGS_ABI_32 {
                width = 4;
                self.has_narrow_registers = true;
            }
            // 0 is PERF_SAMPLE_REGS_ABI_NONE: a kernel thread has no user registers.
            if abi != 0 {
                let count = u64::from(attr.user_registers.count_ones());
                self.registers = CodeAddressWords::new(body.bytes(count * 8)?, endian, 8);
            }
        }
        if has(SampleFormat::STACK_USER) {
            self.stack_offset = offset(body);
            let size = body.u64()?;
            if size > 0 {
                let stack = body.bytes(size)?;
                // The size that was actually copied.
                let copied = usize::try_from(body.u64()?).ok()?;
                self.stack = CodeAddressWords::new(stack.get(..copied).unwrap_or(stack), endian, width);
            }
        }
        self.stack_end = offset(body);
        Some(())
    }

    /// Reads the raw data of an `offcpu-time` event, which replaces the sample's own fields as in perf
    /// (`__set_offcpu_sample` in tools/perf/util/evsel.c): PID and TID, time waited, call chain, cgroup.
    ///
    /// `perf record --off-cpu` writes it since Linux 6.16; before, such samples used their own fields. The data of
    /// other BPF programs is recognized by its call chain, which does not start with the user-space marker.
    fn read_off_cpu(&mut self, mut raw: Reader<'a>, endian: ByteOrder) -> Option<()> {
        let ids = raw.u64()?;
        let (low, high) = (ids as u32, (ids >> 32) as u32);
        let period = raw.u64()?;
        let count = raw.u64()?;
        let chain = CodeAddressWords::new(raw.bytes(count.checked_mul(8)?)?, endian, 8);
        let _cgroup = raw.u64()?;
        let mut entries = chain.iter();
        entries.next().filter(|mark| mark.0 == PERF_CONTEXT_USER)?;
        // The samples that perf appends at the end, whose own fields are 0, have the PID in the lower half.
        // Those of its BPF program have the TID there (`off_cpu_write`, `off_cpu_dump`).
        let is_summed = self.ip == Some(Address(0));
        let (pid, tid) = if is_summed { (low, high) } else { (high, low) };
        (self.pid, self.tid) = (Some(Pid(pid)), Some(Tid(tid)));
        self.period = Some(period);
        self.ip = entries.next();
        self.is_off_cpu = true;
        self.callchain = chain;
        Some(())
    }
}

/// Where the fields of a sample end in its record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FieldsEnd {
    /// At this offset in the record, in bytes.
    At(usize),
    /// After the end of the record.
    Outside,
    /// Unknown: the event has fields of unknown size.
    Unknown,
}

/// Finds the end of a sample's fields. The kernel writes nothing after them.
#[inline]
pub fn fields_end(record: &Record<'_>, attr: &Attr, endian: ByteOrder) -> FieldsEnd {
    match attr.sample_size {
        SampleSize::Unknown => FieldsEnd::Unknown,
        SampleSize::OfChain {
            place,
            has_chain,
            after,
            ..
        } => {
            let end = || {
                let entries = if has_chain {
                    endian.u64_at(record.bytes, place)?.checked_add(1)?
                } else {
                    0
                };
                let chain = usize::try_from(entries.checked_mul(8)?).ok()?;
                place.checked_add(chain)?.checked_add(after)
            };
            match end().filter(|&end| end <= record.bytes.len()) {
                Some(end) => FieldsEnd::At(end),
                None => FieldsEnd::Outside,
            }
        }
        SampleSize::OfFields => end_of_all_fields(record, attr, endian),
    }
}

/// Finds the end of the fields of a sample by reading all of them.
fn end_of_all_fields(record: &Record<'_>, attr: &Attr, endian: ByteOrder) -> FieldsEnd {
    let mut body = record.body(endian);
    let filled = Sample::empty(endian).read_fields(&mut body, attr, endian);
    if filled.and_then(|()| skip_rest(&mut body, attr)).is_none() {
        return FieldsEnd::Outside;
    }
    FieldsEnd::At(record.bytes.len().saturating_sub(body.rest().len()))
}

/// Offsets in a sample record, in bytes, of fields of fixed size; `None` without the field.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct FieldOffsets {
    ip: Option<usize>,
    /// Of the process ID, which the thread ID follows.
    ids: Option<usize>,
    period: Option<usize>,
}

/// What the size of an event's samples depends on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum SampleSize {
    /// The length of the call chain, if there is one.
    OfChain {
        /// Where the fields before the call chain are.
        offsets: FieldOffsets,
        /// Offset in the record, in bytes, of the call chain's length, or where that would be.
        place: usize,
        /// Whether there is a call chain.
        has_chain: bool,
        /// Size in bytes of the fields after the call chain.
        after: usize,
    },
    /// The sizes of several fields.
    OfFields,
    /// Fields of unknown size.
    Unknown,
}

impl SampleSize {
    /// Returns what the size of samples with these fields depends on.
    pub fn of(format: SampleFormat, read_format: ReadFormat, branch_format: u64) -> Self {
        const KNOWN_READ: u64 = ReadFormat::all().bits() | READ_FORMAT_LOST;
        let is_known = SampleFormat::all().contains(format)
            && KNOWN_READ | read_format.bits() == KNOWN_READ
            // Samples without branches may lack the index nevertheless.
            && branch_format & PERF_SAMPLE_BRANCH_HW_INDEX == 0;
        if !is_known {
            return Self::Unknown;
        }
        let varies = SampleFormat::RAW
            | SampleFormat::BRANCH_STACK
            | SampleFormat::REGS_USER
            | SampleFormat::STACK_USER
            | SampleFormat::REGS_INTR
            | SampleFormat::AUX;
        let reads_group = format.contains(SampleFormat::READ) && read_format.contains(ReadFormat::GROUP);
        if format.intersects(varies) || reads_group {
            return Self::OfFields;
        }
        let words = |fields: SampleFormat| format.intersection(fields).bits().count_ones() as usize;
        let after_chain = SampleFormat::DATA_SRC
            | SampleFormat::TRANSACTION
            | SampleFormat::PHYS_ADDR
            | SampleFormat::CGROUP
            | SampleFormat::DATA_PAGE_SIZE
            | SampleFormat::CODE_PAGE_SIZE;
        let weight = SampleFormat::WEIGHT | SampleFormat::WEIGHT_STRUCT;
        // The counter has a size of its own, and the two kinds of weights are one word.
        let others = after_chain | weight | SampleFormat::READ | SampleFormat::CALLCHAIN;
        let words_of_counter = if format.contains(SampleFormat::READ) {
            words_of_value(read_format).saturating_add(words_of_times(read_format))
        } else {
            0
        };
        let words_before = words(SampleFormat::all().difference(others));
        let words_before = words_before.saturating_add(words_of_counter as usize);
        let words_after = words(after_chain).saturating_add(usize::from(format.intersects(weight)));
        let bytes = |words: usize| words.saturating_mul(8).saturating_add(HEADER_SIZE);
        let at = |field| attr::offset_in_sample(format, field)?.checked_add(HEADER_SIZE);
        Self::OfChain {
            offsets: FieldOffsets {
                ip: at(SampleFormat::IP),
                ids: at(SampleFormat::TID),
                period: at(SampleFormat::PERIOD),
            },
            place: bytes(words_before),
            has_chain: format.contains(SampleFormat::CALLCHAIN),
            after: words_after.saturating_mul(8),
        }
    }
}

/// Skips the fields after those with addresses; `None` if the record ends before.
fn skip_rest(body: &mut Reader<'_>, attr: &Attr) -> Option<()> {
    let has = |field| attr.sample_format.intersects(field);
    for field in [
        SampleFormat::WEIGHT | SampleFormat::WEIGHT_STRUCT,
        SampleFormat::DATA_SRC,
        SampleFormat::TRANSACTION,
    ] {
        body.skip(if has(field) { 8 } else { 0 })?;
    }
    if has(SampleFormat::REGS_INTR) && body.u64()? != 0 {
        body.skip(u64::from(attr.interrupt_registers.count_ones()).checked_mul(8)?)?;
    }
    for field in [
        SampleFormat::PHYS_ADDR,
        SampleFormat::CGROUP,
        SampleFormat::DATA_PAGE_SIZE,
        SampleFormat::CODE_PAGE_SIZE,
    ] {
        body.skip(if has(field) { 8 } else { 0 })?;
    }
    if has(SampleFormat::AUX) {
        let size = body.u64()?;
        body.skip(size)?;
    }
    Some(())
}

/// Iterates over the call chain of an earlier sample, in a [`super::record::CALLCHAIN_DEFERRED`] record.
/// Newer kernels write it when the thread returns to user space.
pub fn deferred_callers<'a>(
    record: &Record<'a>,
    endian: ByteOrder,
) -> impl Iterator<Item = Address> + use<'a> {
    let mut body = record.body(endian);
    let mut chain = || {
        let _cookie = body.u64()?;
        let count = body.u64()?;
        body.bytes(count.checked_mul(8)?)
    };
    let chain = CodeAddressWords::new(chain().unwrap_or_default(), endian, 8);
    chain.iter().filter(|address| address.0 < FIRST_CONTEXT_MARKER)
}

/// Skips the value of a counter or of its group.
fn skip_read(body: &mut Reader<'_>, format: ReadFormat) -> Option<()> {
    let values = if format.contains(ReadFormat::GROUP) {
        body.u64()?
    } else {
        1
    };
    let words = values
        .checked_mul(words_of_value(format))?
        .checked_add(words_of_times(format))?;
    body.skip(words.checked_mul(8)?)
}

/// Number of words of a counter's value: the value itself, its ID, its lost samples.
fn words_of_value(format: ReadFormat) -> u64 {
    let has_lost = format.bits() & READ_FORMAT_LOST != 0;
    count([true, format.contains(ReadFormat::ID), has_lost])
}

/// Number of words of the times that the values of a group have in common.
fn words_of_times(format: ReadFormat) -> u64 {
    count([
        format.contains(ReadFormat::TOTAL_TIME_ENABLED),
        format.contains(ReadFormat::TOTAL_TIME_RUNNING),
    ])
}

fn count<const N: usize>(parts: [bool; N]) -> u64 {
    parts.into_iter().map(u64::from).fold(0, u64::saturating_add)
}

#[cfg(test)]
mod tests;
