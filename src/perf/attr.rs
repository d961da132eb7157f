//! Event attributes (`struct perf_event_attr`): the fields of each event's records.
//!
//! Only the fields that determine the layout of records are read. No value is rejected, so that events of
//! unknown types, clocks and sizes work like all others.

use jitdump::{ByteOrder, Time};
use linux_perf_event_reader::constants::{
    PERF_COUNT_HW_CPU_CYCLES, PERF_COUNT_SW_BPF_OUTPUT, PERF_COUNT_SW_CPU_CLOCK, PERF_COUNT_SW_TASK_CLOCK,
    PERF_TYPE_HARDWARE, PERF_TYPE_SOFTWARE,
};
use linux_perf_event_reader::{AttrFlags, ReadFormat, SampleFormat};

use crate::bytes::{Reader, write_padded};
use crate::collections::hash::HashMap;
use crate::perf::process_records;
use crate::perf::record::{self, Record};
use crate::perf::sample::SampleSize;
use crate::results::summary::profile::Unit;
use crate::units::Pid;

/// An attribute as stored in the file.
#[derive(Clone, Debug)]
pub struct AttrEntry {
    /// Bytes of the attribute.
    pub attr: Vec<u8>,
    /// IDs of its counters, eight bytes each.
    pub ids: Vec<u8>,
}

/// The layout of one event's records.
#[derive(Clone, Debug)]
pub struct Attr {
    /// Fields of a sample and of the trailer of other records (`sample_type`).
    pub sample_format: SampleFormat,
    /// Fields of a counter value in a sample (`read_format`).
    pub read_format: ReadFormat,
    /// `branch_sample_type`.
    pub branch_format: u64,
    /// Bit mask of the user registers in a sample (`sample_regs_user`).
    pub user_registers: u64,
    /// Bit mask of the registers in a sample at the interrupt (`sample_regs_intr`).
    pub interrupt_registers: u64,
    /// Clock selected with `use_clockid`; `None` for perf's default, the scheduler's clock.
    pub clock_id: Option<i32>,
    /// Whether records other than samples end in a trailer of PID, TID, time and so on (`sample_id_all`).
    pub has_trailer: bool,
    /// Whether this event records mappings (`mmap`, `mmap2`).
    pub tracks_maps: bool,
    /// Whether a BPF program writes the samples (`PERF_COUNT_SW_BPF_OUTPUT`).
    pub is_bpf_output: bool,
    /// What the event counts.
    pub unit: Unit,
    /// Bytes of the stack that a sample copies (`sample_stack_user`).
    stack_copy: u32,
    /// Number of units from one sample to the next, unless it varies (`sample_period` without `freq`).
    pub fixed_period: Option<u64>,
    /// Maximum number of addresses in its call chains, if that is not the kernel's (`sample_max_stack`).
    pub max_stack: Option<usize>,
    /// Whether it does not count in the kernel (`exclude_kernel`).
    pub excludes_kernel: bool,
    /// What the size of its samples depends on.
    pub(super) sample_size: SampleSize,
    /// Bytes from the start of a sample to its PID.
    sample_pid: Option<usize>,
    /// Bytes from the start of a sample to its time.
    sample_time: Option<usize>,
    /// Bytes from the start of a sample to its CPU.
    sample_cpu: Option<usize>,
    /// Bytes from the start of a sample to its event ID.
    sample_id: Option<usize>,
    /// Bytes from the PID in the trailer to the end of the record.
    trailer_pid: Option<usize>,
    /// Bytes from the time in the trailer to the end of the record.
    trailer_time: Option<usize>,
    /// Bytes from the event ID in the trailer to the end of the record.
    trailer_id: Option<usize>,
}

/// The lower half of `config` of a hardware event; the upper half has the type of CPU, on machines with several.
pub(crate) const HARDWARE_EVENT: u64 = 0xffff_ffff;

impl Unit {
    /// Returns the unit of what an event counts.
    fn of(attr: &[u8], endian: ByteOrder) -> Self {
        let config = endian.u64_at(attr, offset::CONFIG).unwrap_or(u64::MAX);
        match endian.u32_at(attr, offset::TYPE) {
            Some(PERF_TYPE_SOFTWARE)
                if [PERF_COUNT_SW_CPU_CLOCK, PERF_COUNT_SW_TASK_CLOCK].contains(&config) =>
            {
                Self::Nanoseconds
            }
            Some(PERF_TYPE_HARDWARE) if config & HARDWARE_EVENT == u64::from(PERF_COUNT_HW_CPU_CYCLES) => {
                Self::Cycles
            }
            _ => Self::Occurrences,
        }
    }
}

/// Offsets in `struct perf_event_attr`.
pub(crate) mod offset {
    pub const TYPE: usize = 0;
    pub const SIZE: usize = 4;
    pub const CONFIG: usize = 8;
    pub const SAMPLE_PERIOD: usize = 16;
    pub const SAMPLE_TYPE: usize = 24;
    pub const READ_FORMAT: usize = 32;
    pub const FLAGS: usize = 40;
    pub const BRANCH_SAMPLE_TYPE: usize = 72;
    pub const SAMPLE_REGS_USER: usize = 80;
    pub const SAMPLE_STACK_USER: usize = 88;
    pub const CLOCKID: usize = 92;
    pub const SAMPLE_REGS_INTR: usize = 96;
    pub const SAMPLE_MAX_STACK: usize = 108;
}

/// Size in bytes of the first published `struct perf_event_attr`, also meant by a size of 0.
pub const SIZE_VERSION_0: usize = 64;

/// All published sizes (`PERF_ATTR_SIZE_VER0` and on in include/uapi/linux/perf_event.h).
const PUBLISHED_SIZES: [usize; 10] = [SIZE_VERSION_0, 72, 80, 96, 104, 112, 120, 128, 136, 144];

/// The fixed-size fields at the start of a sample, in order.
const SAMPLE_FIELDS: [SampleFormat; 9] = [
    SampleFormat::IDENTIFIER,
    SampleFormat::IP,
    SampleFormat::TID,
    SampleFormat::TIME,
    SampleFormat::ADDR,
    SampleFormat::ID,
    SampleFormat::STREAM_ID,
    SampleFormat::CPU,
    SampleFormat::PERIOD,
];

/// The fields of the trailer of other records, in order.
pub(crate) const TRAILER_FIELDS: [SampleFormat; 6] = [
    SampleFormat::TID,
    SampleFormat::TIME,
    SampleFormat::ID,
    SampleFormat::STREAM_ID,
    SampleFormat::CPU,
    SampleFormat::IDENTIFIER,
];

/// Size in bytes of each field in [`SAMPLE_FIELDS`] and [`TRAILER_FIELDS`].
const FIELD_SIZE: usize = 8;

impl Attr {
    /// Reads an attribute of its declared size, or of the size of `bytes` if that is smaller.
    pub fn parse(bytes: &[u8], endian: ByteOrder) -> Self {
        let size = size(bytes, endian).unwrap_or(SIZE_VERSION_0);
        let bytes = bytes.get(..size).unwrap_or(bytes);
        let word = |at| endian.u64_at(bytes, at).unwrap_or(0);
        let sample_format = SampleFormat::from_bits_retain(word(offset::SAMPLE_TYPE));
        let flags = AttrFlags::from_bits_retain(flag_bits(word(offset::FLAGS), endian));
        let clock_id = endian.u32_at(bytes, offset::CLOCKID).unwrap_or(0);
        let has_trailer = flags.contains(AttrFlags::SAMPLE_ID_ALL);
        let from_start = |field| offset_in_sample(sample_format, field);
        let from_end = |field| {
            let at = field_offset(sample_format, &TRAILER_FIELDS, field)?;
            has_trailer.then_some(trailer_size(sample_format).saturating_sub(at))
        };
        let read_format = ReadFormat::from_bits_retain(word(offset::READ_FORMAT));
        let branch_format = word(offset::BRANCH_SAMPLE_TYPE);
        Self {
            sample_format,
            read_format,
            branch_format,
            sample_size: SampleSize::of(sample_format, read_format, branch_format),
            user_registers: word(offset::SAMPLE_REGS_USER),
            interrupt_registers: word(offset::SAMPLE_REGS_INTR),
            clock_id: flags.contains(AttrFlags::USE_CLOCKID).then_some(clock_id as i32),
            has_trailer,
            is_bpf_output: is_bpf_output(bytes, endian),
            unit: Unit::of(bytes, endian),
            stack_copy: endian.u32_at(bytes, offset::SAMPLE_STACK_USER).unwrap_or(0),
            fixed_period: (!flags.contains(AttrFlags::FREQ)).then(|| word(offset::SAMPLE_PERIOD)),
            max_stack: endian
                .u16_at(bytes, offset::SAMPLE_MAX_STACK)
                .filter(|&most| most > 0)
                .map(usize::from),
            excludes_kernel: flags.contains(AttrFlags::EXCLUDE_KERNEL),
            tracks_maps: flags.intersects(AttrFlags::MMAP | AttrFlags::MMAP2),
            sample_pid: from_start(SampleFormat::TID),
            sample_time: from_start(SampleFormat::TIME),
            sample_cpu: from_start(SampleFormat::CPU),
            sample_id: from_start(SampleFormat::IDENTIFIER).or_else(|| from_start(SampleFormat::ID)),
            trailer_pid: from_end(SampleFormat::TID),
            trailer_time: from_end(SampleFormat::TIME),
            trailer_id: from_end(SampleFormat::IDENTIFIER).or_else(|| from_end(SampleFormat::ID)),
        }
    }

    /// Whether samples have registers and a copy of the stack, which can be unwound.
    pub fn copies_stacks(&self) -> bool {
        let needed = SampleFormat::REGS_USER | SampleFormat::STACK_USER;
        self.sample_format.contains(needed)
    }

    /// Returns the process of a sample; `None` if samples have none.
    pub fn sample_pid(&self, record: &Record<'_>, endian: ByteOrder) -> Option<Pid> {
        let at = self.sample_pid?.checked_add(record::HEADER_SIZE)?;
        endian.u32_at(record.bytes, at).map(Pid)
    }

    /// Returns the CPU of a sample; `None` if samples have none.
    pub fn sample_cpu(&self, record: &Record<'_>, endian: ByteOrder) -> Option<u32> {
        let at = self.sample_cpu?.checked_add(record::HEADER_SIZE)?;
        endian.u32_at(record.bytes, at)
    }

    /// Returns the process in a record's trailer; `None` if it has no trailer.
    pub fn trailer_pid(&self, record: &Record<'_>, endian: ByteOrder) -> Option<Pid> {
        let at = in_trailer(record, self.trailer_pid?)?;
        endian.u32_at(record.bytes, at).map(Pid)
    }

    /// Returns the time of a record of this event; `None` if it has none.
    pub fn time_of(&self, record: &Record<'_>, endian: ByteOrder) -> Option<Time> {
        self.field(record, endian, self.sample_time, self.trailer_time)
            .map(Time)
    }

    /// Returns the event ID in a record, which must have the layout of this event.
    pub fn id_of(&self, record: &Record<'_>, endian: ByteOrder) -> Option<u64> {
        self.field(record, endian, self.sample_id, self.trailer_id)
    }

    /// Returns the size in bytes of the trailer of this event's records other than samples.
    pub fn trailer_size(&self) -> usize {
        if self.has_trailer {
            trailer_size(self.sample_format)
        } else {
            0
        }
    }

    /// Reads a field: of samples that `from_start` bytes after the header, of other records that `from_end` bytes
    /// before their end.
    #[inline]
    fn field(
        &self,
        record: &Record<'_>,
        endian: ByteOrder,
        from_start: Option<usize>,
        from_end: Option<usize>,
    ) -> Option<u64> {
        let at = if record.kind == record::SAMPLE {
            from_start?.checked_add(record::HEADER_SIZE)?
        } else {
            in_trailer(record, from_end?)?
        };
        endian.u64_at(record.bytes, at)
    }
}

/// Returns the offset in the record, in bytes, of the trailer field that starts `from_end` bytes before the
/// end. `None` if that is inside the record's own fields: the trailer is missing or incomplete.
fn in_trailer(record: &Record<'_>, from_end: usize) -> Option<usize> {
    let at = record.bytes.len().checked_sub(from_end)?;
    (at >= record.fields_end()).then_some(at)
}

fn is_bpf_output(attr: &[u8], endian: ByteOrder) -> bool {
    endian.u32_at(attr, offset::TYPE) == Some(PERF_TYPE_SOFTWARE)
        && endian.u64_at(attr, offset::CONFIG) == Some(PERF_COUNT_SW_BPF_OUTPUT)
}

/// Returns the declared size of an attribute in bytes; `None` if it is truncated or its size is impossible.
pub fn size(attr: &[u8], endian: ByteOrder) -> Option<usize> {
    match endian.u32_at(attr, offset::SIZE)? as usize {
        0 => Some(SIZE_VERSION_0),
        size => (size >= SIZE_VERSION_0).then_some(size),
    }
}

/// Returns the smallest published size, in bytes, that holds every nonzero field of an attribute.
///
/// perf rejects a file whose attributes are longer than its own ("incompatible file format", `read_attr` in
/// tools/perf/util/header.c, all versions), even if the rest is 0; in a pipe it ignores the rest. Missing
/// fields count as 0, so older versions can open recordings of newer ones without the trailing zeros.
pub fn needed_size(attr: &[u8], endian: ByteOrder) -> usize {
    let attr = within_declared_size(attr, endian);
    let zeros = attr.iter().rev().take_while(|&&byte| byte == 0).count();
    let needed = attr.len().saturating_sub(zeros);
    let mut published = PUBLISHED_SIZES.into_iter();
    published
        .find(|&size| size >= needed)
        .unwrap_or_else(|| needed.next_multiple_of(FIELD_SIZE))
}

/// Appends an attribute, truncated or zero-padded to `size` bytes.
pub fn write(out: &mut Vec<u8>, endian: ByteOrder, attr: &[u8], size: usize) {
    let attr = within_declared_size(attr, endian);
    let start = out.len();
    write_padded(out, attr.get(..size).unwrap_or(attr), size);
    if let Some(attr) = out.get_mut(start..) {
        set_size(attr, endian);
    }
}

/// The part of an attribute within its declared size.
fn within_declared_size(attr: &[u8], endian: ByteOrder) -> &[u8] {
    size(attr, endian)
        .and_then(|size| attr.get(..size))
        .unwrap_or(attr)
}

/// Sets the size field of an attribute to its length.
pub fn set_size(attr: &mut [u8], endian: ByteOrder) {
    let size = u32::try_from(attr.len()).unwrap_or(u32::MAX);
    endian.set_u32(attr, offset::SIZE, size);
}

/// Adds `PERF_SAMPLE_IDENTIFIER` to an attribute: records begin or end with the ID of their event.
pub fn add_identifier(attr: &mut [u8], endian: ByteOrder) {
    let Some(format) = endian.u64_at(attr, offset::SAMPLE_TYPE) else {
        return;
    };
    let format = format | SampleFormat::IDENTIFIER.bits();
    endian.set_u64(attr, offset::SAMPLE_TYPE, format);
}

/// Converts the flags of an attribute to the numbers of [`AttrFlags`], and back. They are C bit fields, which big-endian
/// compilers lay out from the most significant bit.
pub(crate) fn flag_bits(flags: u64, endian: ByteOrder) -> u64 {
    match endian {
        ByteOrder::Little => flags,
        ByteOrder::Big => flags.reverse_bits(),
    }
}

/// What samples with unwound stacks keep.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum KeptStacks {
    /// Neither registers nor stacks.
    #[default]
    Nothing,
    /// Both.
    Stacks,
}

/// Changes an attribute for samples whose stacks are unwound: they have call chains with a user part, and no registers and
/// stacks unless they are `kept`. perf inject --convert-callchain (7.3) makes the same changes. Other attributes stay.
pub fn set_unwound(attr: &mut [u8], endian: ByteOrder, kept: KeptStacks) {
    if !Attr::parse(attr, endian).copies_stacks() {
        return;
    }
    let word = |attr: &[u8], at| endian.u64_at(attr, at).unwrap_or(0);
    let mut format = SampleFormat::from_bits_retain(word(attr, offset::SAMPLE_TYPE));
    format |= SampleFormat::CALLCHAIN;
    let mut flags = word(attr, offset::FLAGS);
    let no_user_part = AttrFlags::EXCLUDE_CALLCHAIN_USER.bits();
    flags &= !flag_bits(no_user_part, endian);
    if kept == KeptStacks::Nothing {
        format.remove(SampleFormat::REGS_USER | SampleFormat::STACK_USER);
        endian.set_u64(attr, offset::SAMPLE_REGS_USER, 0);
        endian.set_u32(attr, offset::SAMPLE_STACK_USER, 0);
    }
    endian.set_u64(attr, offset::SAMPLE_TYPE, format.bits());
    endian.set_u64(attr, offset::FLAGS, flags);
}

/// Bytes from the start of a sample to a field of fixed size; `None` if `format` does not have it.
pub(super) fn offset_in_sample(format: SampleFormat, field: SampleFormat) -> Option<usize> {
    field_offset(format, &SAMPLE_FIELDS, field)
}

/// Bytes from the start of `fields` to `field`; `None` if `format` does not have it.
fn field_offset(format: SampleFormat, fields: &[SampleFormat], field: SampleFormat) -> Option<usize> {
    if !format.contains(field) {
        return None;
    }
    let before = fields.iter().take_while(|&&other| other != field);
    Some(size_of_fields(format, before))
}

fn trailer_size(format: SampleFormat) -> usize {
    size_of_fields(format, TRAILER_FIELDS.iter())
}

/// Size in bytes of those `fields` that `format` has.
fn size_of_fields<'a>(format: SampleFormat, fields: impl Iterator<Item = &'a SampleFormat>) -> usize {
    let present = fields.filter(|&&field| format.contains(field));
    present.map(|_| FIELD_SIZE).sum()
}

/// Result of looking up the event ID of a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IdMatch {
    /// The profile has a counter with this ID.
    Known,
    /// The ID is 0.
    Unset,
    /// The profile has no counter with this ID.
    Unknown,
}

/// All events of a profile.
#[derive(Clone, Debug, Default)]
pub struct Attrs {
    all: Vec<Attr>,
    by_id: HashMap<u64, usize>,
    has_times: bool,
}

impl Attrs {
    /// Reads the events of a profile.
    pub fn read(entries: &[AttrEntry], endian: ByteOrder) -> Self {
        let mut attrs = Self::default();
        for entry in entries {
            let mut ids = Reader::new(&entry.ids, endian);
            attrs.push(
                Attr::parse(&entry.attr, endian),
                std::iter::from_fn(move || ids.u64()),
            );
        }
        attrs
    }

    /// Adds an event with the IDs that its records contain.
    pub fn push(&mut self, attr: Attr, ids: impl Iterator<Item = u64>) {
        let index = self.all.len();
        self.by_id.extend(ids.map(|id| (id, index)));
        self.has_times |= attr.sample_format.contains(SampleFormat::TIME);
        self.all.push(attr);
    }

    /// Returns the events in file order.
    pub fn all(&self) -> &[Attr] {
        &self.all
    }

    /// Returns the event with a counter of this ID.
    pub fn by_id(&self, id: u64) -> Option<&Attr> {
        self.all.get(*self.by_id.get(&id)?)
    }

    /// Returns the event of a record, as [`Attrs::event_of`] does, and the result of looking up its ID: `None` if records
    /// have no ID, or if the profile lists no IDs.
    #[inline]
    pub(super) fn identify(
        &self,
        record: &Record<'_>,
        endian: ByteOrder,
    ) -> (Option<&Attr>, Option<IdMatch>) {
        let first = self.all.first();
        if self.by_id.is_empty() || record.kind >= record::USER_TYPE_START {
            return (first, None);
        }
        let Some(id) = first.and_then(|first| first.id_of(record, endian)) else {
            return (first, None);
        };
        match self.by_id.get(&id) {
            Some(&index) => (self.all.get(index), Some(IdMatch::Known)),
            // Records that perf itself makes, such as the mappings of existing processes, have no other ID.
            None if id == 0 && record.kind != record::SAMPLE => (first, Some(IdMatch::Unset)),
            None => (first, Some(IdMatch::Unknown)),
        }
    }

    /// Returns the size in bytes of the trailer that a record lacks. A record of a kernel type must have a
    /// trailer if the attribute of its event has `sample_id_all`.
    ///
    /// Quirk: profiles written by other programs may lack it. perf 7.3 stops at such a record; older versions
    /// interpret the bytes in its place as a trailer, or stop if there are several events
    /// (`perf_evsel__parse_id_sample`, `evlist__event2id` in tools/perf/util/; the regression test
    /// `records::records_without_a_trailer_get_an_empty_one`).
    pub fn missing_trailer(&self, record: &Record<'_>, endian: ByteOrder) -> Option<usize> {
        if record.kind == record::SAMPLE || record.kind >= record::USER_TYPE_START {
            return None;
        }
        let size = self.event_of(record, endian)?.trailer_size();
        (size > 0 && in_trailer(record, size).is_none()).then_some(size)
    }

    /// Returns the event of a record: the one with the ID in the record, else the first one, as in perf. The
    /// ID has the same offset in the records of all events, since perf uses PERF_SAMPLE_IDENTIFIER where
    /// their formats differ.
    #[inline]
    pub fn event_of(&self, record: &Record<'_>, endian: ByteOrder) -> Option<&Attr> {
        self.all.get(self.index_of(record, endian))
    }

    /// Returns the index of the event of a record, as [`Attrs::event_of`] does.
    #[inline]
    pub fn index_of(&self, record: &Record<'_>, endian: ByteOrder) -> usize {
        if self.all.len() <= 1 || record.kind >= record::USER_TYPE_START {
            return 0;
        }
        let id = self.all.first().and_then(|first| first.id_of(record, endian));
        id.and_then(|id| self.by_id.get(&id).copied()).unwrap_or(0)
    }

    /// Returns the clock of the profile's times; `None` for the scheduler's clock.
    pub fn clock_id(&self) -> Option<i32> {
        self.all.first()?.clock_id
    }

    /// Whether samples of any event have a copy of the stack, which readers unwind.
    pub fn copies_stacks(&self) -> bool {
        let mut attrs = self.all().iter();
        attrs.any(|attr| attr.sample_format.contains(SampleFormat::STACK_USER))
    }

    /// Returns the bytes of the stack that samples copy; 0 if they copy none.
    pub fn largest_stack_copy(&self) -> u32 {
        let copies = self.all().iter().filter(|attr| attr.copies_stacks());
        copies.map(|attr| attr.stack_copy).max().unwrap_or(0)
    }

    /// Whether records have times. `perf record --per-thread` and `--no-timestamp` omit them; readers then
    /// process records in file order.
    pub fn has_times(&self) -> bool {
        self.has_times
    }

    /// Returns the time of a sample of an event, as [`Attrs::time_of`] does.
    #[inline]
    pub fn sample_time(&self, record: &Record<'_>, attr: &Attr, endian: ByteOrder) -> Option<Time> {
        if self.has_times {
            attr.time_of(record, endian)
        } else {
            Some(Time(record.offset.saturating_add(1)))
        }
    }

    /// Returns the time of a record. `None` for perf's own records (type 64 and up), which have none. If no
    /// record has a time, the offset of the record plus 1 is used.
    #[inline]
    pub fn time_of(&self, record: &Record<'_>, endian: ByteOrder) -> Option<Time> {
        if record.kind >= record::USER_TYPE_START {
            return None;
        }
        if !self.has_times {
            return Some(Time(record.offset.saturating_add(1)));
        }
        let time = self.event_of(record, endian)?.time_of(record, endian);
        time.or_else(|| process_records::fork_time(record, endian))
    }
}
