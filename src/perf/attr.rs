//! Attributes of events (`struct perf_event_attr`): what each event's records hold.
//!
//! Only the fields that say where things lie in a record are looked at, and no value is refused: an event of
//! a kind, clock or size that nobody has heard of yet is an event like any other.

use linux_perf_event_reader::{AttrFlags, ReadFormat, SampleFormat};

use crate::bytes::{ByteOrder, Reader, put_padded};
use crate::hash::HashMap;
use crate::perf::event;
use crate::perf::profile::AttrEntry;
use crate::perf::record::{self, Record};
use crate::units::{Pid, Time};

/// What one event's records hold.
#[derive(Clone, Debug)]
pub struct Attr {
    /// The fields of a sample, and of the trailer of other records (`sample_type`).
    pub sample_format: SampleFormat,
    /// The fields of a counter's value inside a sample (`read_format`).
    pub read_format: ReadFormat,
    /// `branch_sample_type`.
    pub branch_format: u64,
    /// Which registers a sample holds (`sample_regs_user`).
    pub user_registers: u64,
    /// Which registers of the moment of the interrupt it holds (`sample_regs_intr`).
    pub interrupt_registers: u64,
    /// The clock that `use_clockid` chose; `None` is the scheduler's clock, perf's default.
    pub clock_id: Option<i32>,
    /// Whether records other than samples end in a trailer of pid, tid, time, and so on (`sample_id_all`).
    pub has_trailer: bool,
    /// Whether this event was asked for maps (`mmap`, `mmap2`).
    pub tracks_maps: bool,
    /// Whether a BPF program writes the samples (`PERF_COUNT_SW_BPF_OUTPUT`).
    pub is_bpf_output: bool,
    /// Bytes from a sample's start to its process.
    sample_pid: Option<usize>,
    /// Bytes from a sample's start to its time.
    sample_time: Option<usize>,
    /// Bytes from a sample's start to the id of its event.
    sample_id: Option<usize>,
    /// Bytes from another record's end back to its process.
    trailer_pid: Option<usize>,
    /// Bytes from another record's end back to its time.
    trailer_time: Option<usize>,
    /// Bytes from another record's end back to the id of its event.
    trailer_id: Option<usize>,
}

/// Offsets in `struct perf_event_attr`.
pub(super) mod offset {
    pub const TYPE: usize = 0;
    pub const SIZE: usize = 4;
    pub const CONFIG: usize = 8;
    pub const SAMPLE_TYPE: usize = 24;
    pub const READ_FORMAT: usize = 32;
    pub const FLAGS: usize = 40;
    pub const BRANCH_SAMPLE_TYPE: usize = 72;
    pub const SAMPLE_REGS_USER: usize = 80;
    pub const CLOCKID: usize = 92;
    pub const SAMPLE_REGS_INTR: usize = 96;
}

const PERF_TYPE_SOFTWARE: u32 = 1;
const PERF_COUNT_SW_BPF_OUTPUT: u64 = 10;

/// The size of the first published `struct perf_event_attr`, which is also what a size of 0 means.
pub const SIZE_VERSION_0: usize = 64;

/// The sizes that it had since then (`PERF_ATTR_SIZE_VER0` and on in include/uapi/linux/perf_event.h).
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

/// Every field of [`SAMPLE_FIELDS`] and [`TRAILER_FIELDS`] has this size in bytes.
const FIELD_SIZE: usize = 8;

impl Attr {
    /// Reads an attribute, as long as it says it is or as `bytes` are, whichever is shorter.
    pub fn parse(bytes: &[u8], order: ByteOrder) -> Self {
        let size = size(bytes, order).unwrap_or(SIZE_VERSION_0);
        let bytes = bytes.get(..size).unwrap_or(bytes);
        let word = |at| order.u64_at(bytes, at).unwrap_or(0);
        let sample_format = SampleFormat::from_bits_retain(word(offset::SAMPLE_TYPE));
        // The flags are C bit fields, which big-endian compilers lay out from the most significant bit.
        let flags = AttrFlags::from_bits_retain(match order {
            ByteOrder::Little => word(offset::FLAGS),
            ByteOrder::Big => word(offset::FLAGS).reverse_bits(),
        });
        let clock_id = order.u32_at(bytes, offset::CLOCKID).unwrap_or(0);
        let has_trailer = flags.contains(AttrFlags::SAMPLE_ID_ALL);
        let from_start = |field| field_offset(sample_format, &SAMPLE_FIELDS, field);
        let from_end = |field| {
            let at = field_offset(sample_format, &TRAILER_FIELDS, field)?;
            has_trailer.then_some(trailer_size(sample_format).saturating_sub(at))
        };
        Self {
            sample_format,
            read_format: ReadFormat::from_bits_retain(word(offset::READ_FORMAT)),
            branch_format: word(offset::BRANCH_SAMPLE_TYPE),
            user_registers: word(offset::SAMPLE_REGS_USER),
            interrupt_registers: word(offset::SAMPLE_REGS_INTR),
            clock_id: flags.contains(AttrFlags::USE_CLOCKID).then_some(clock_id as i32),
            has_trailer,
            is_bpf_output: is_bpf_output(bytes, order),
            tracks_maps: flags.intersects(AttrFlags::MMAP | AttrFlags::MMAP2),
            sample_pid: from_start(SampleFormat::TID),
            sample_time: from_start(SampleFormat::TIME),
            sample_id: from_start(SampleFormat::IDENTIFIER).or_else(|| from_start(SampleFormat::ID)),
            trailer_pid: from_end(SampleFormat::TID),
            trailer_time: from_end(SampleFormat::TIME),
            trailer_id: from_end(SampleFormat::IDENTIFIER).or_else(|| from_end(SampleFormat::ID)),
        }
    }

    /// The process of a sample; `None` where samples have none.
    pub fn sample_pid(&self, record: &Record<'_>, order: ByteOrder) -> Option<Pid> {
        let at = self.sample_pid?.checked_add(record::HEADER_SIZE)?;
        order.u32_at(record.bytes, at).map(Pid)
    }

    /// The process that a record's trailer names; `None` where it has none.
    pub fn trailer_pid(&self, record: &Record<'_>, order: ByteOrder) -> Option<Pid> {
        let at = in_trailer(record, self.trailer_pid?)?;
        order.u32_at(record.bytes, at).map(Pid)
    }

    /// The time of a record of this event; `None` where it has none.
    pub fn time_of(&self, record: &Record<'_>, order: ByteOrder) -> Option<Time> {
        self.field(record, order, self.sample_time, self.trailer_time)
            .map(Time)
    }

    /// The id of the event, as a record of this event's shape holds it.
    pub fn id_of(&self, record: &Record<'_>, order: ByteOrder) -> Option<u64> {
        self.field(record, order, self.sample_id, self.trailer_id)
    }

    /// The size in bytes of the trailer of this event's records that are no samples.
    pub fn trailer_size(&self) -> usize {
        if self.has_trailer {
            trailer_size(self.sample_format)
        } else {
            0
        }
    }

    #[inline]
    fn field(
        &self,
        record: &Record<'_>,
        order: ByteOrder,
        from_start: Option<usize>,
        from_end: Option<usize>,
    ) -> Option<u64> {
        let at = if record.kind == record::SAMPLE {
            from_start?.checked_add(record::HEADER_SIZE)?
        } else {
            in_trailer(record, from_end?)?
        };
        order.u64_at(record.bytes, at)
    }
}

/// What is `from_end` bytes before a record's end, in bytes from its start; `None` where that is one of the record's own
/// fields, so that it has no trailer, or not all of it.
fn in_trailer(record: &Record<'_>, from_end: usize) -> Option<usize> {
    let at = record.bytes.len().checked_sub(from_end)?;
    (at >= record.fields_end()).then_some(at)
}

fn is_bpf_output(attr: &[u8], order: ByteOrder) -> bool {
    let (kind, config) = (
        order.u32_at(attr, offset::TYPE),
        order.u64_at(attr, offset::CONFIG),
    );
    (kind, config) == (Some(PERF_TYPE_SOFTWARE), Some(PERF_COUNT_SW_BPF_OUTPUT))
}

/// How long an attribute says it is, in bytes; `None` where it ends before it could, or says what can't be.
pub fn size(attr: &[u8], order: ByteOrder) -> Option<usize> {
    match order.u32_at(attr, offset::SIZE)? as usize {
        0 => Some(SIZE_VERSION_0),
        size => (size >= SIZE_VERSION_0).then_some(size),
    }
}

/// The smallest published size, in bytes, that holds every field of an attribute that is not 0.
///
/// perf refuses a file whose attributes are longer than its own ("incompatible file format", `read_attr` in
/// tools/perf/util/header.c, all versions), even where the rest is 0; in a pipe it ignores the rest. Missing fields
/// count as 0, so recordings of newer versions open in older ones without the zeros.
pub fn needed_size(attr: &[u8], order: ByteOrder) -> usize {
    let attr = declared(attr, order);
    let zeros = attr.iter().rev().take_while(|&&byte| byte == 0).count();
    let needed = attr.len().saturating_sub(zeros);
    let mut published = PUBLISHED_SIZES.into_iter();
    published
        .find(|&size| size >= needed)
        .unwrap_or_else(|| needed.next_multiple_of(FIELD_SIZE))
}

/// Appends an attribute with `size` bytes.
pub fn put(out: &mut Vec<u8>, order: ByteOrder, attr: &[u8], size: usize) {
    let attr = declared(attr, order);
    let start = out.len();
    put_padded(out, attr.get(..size).unwrap_or(attr), size);
    if let Some(attr) = out.get_mut(start..) {
        set_size(attr, order);
    }
}

/// As much of an attribute as it says it has.
fn declared(attr: &[u8], order: ByteOrder) -> &[u8] {
    size(attr, order)
        .and_then(|size| attr.get(..size))
        .unwrap_or(attr)
}

/// Makes an attribute say how long it is.
pub fn set_size(attr: &mut [u8], order: ByteOrder) {
    let size = u32::try_from(attr.len()).unwrap_or(u32::MAX);
    order.set_u32(attr, offset::SIZE, size);
}

/// Makes an attribute say that records begin or end with the id of their event (`PERF_SAMPLE_IDENTIFIER`).
pub fn add_identifier(attr: &mut [u8], order: ByteOrder) {
    let Some(format) = order.u64_at(attr, offset::SAMPLE_TYPE) else {
        return;
    };
    let mut word = Vec::new();
    order.put_u64(&mut word, format | SampleFormat::IDENTIFIER.bits());
    if let Some(place) = attr.get_mut(offset::SAMPLE_TYPE..)
        && let Some(place) = place.get_mut(..word.len())
    {
        place.copy_from_slice(&word);
    }
}

/// Bytes from the start of `fields` to `field`, where `format` has it.
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

/// How many bytes those of some fields take that `format` has.
fn size_of_fields<'a>(format: SampleFormat, fields: impl Iterator<Item = &'a SampleFormat>) -> usize {
    let present = fields.filter(|&&field| format.contains(field));
    present.map(|_| FIELD_SIZE).sum()
}

/// What is known of the id in a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IdMatch {
    /// It is that of a counter.
    Known,
    /// It was left 0.
    Unset,
    /// It is none that the profile has.
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
    /// The events of a profile, from what it says of each.
    pub fn read(entries: &[AttrEntry<'_>], order: ByteOrder) -> Self {
        let mut attrs = Self::default();
        for entry in entries {
            let mut ids = Reader::new(entry.ids, order);
            attrs.push(
                Attr::parse(entry.attr, order),
                std::iter::from_fn(move || ids.u64()),
            );
        }
        attrs
    }

    /// Adds an event that its records name by any of `ids`.
    pub fn push(&mut self, attr: Attr, ids: impl Iterator<Item = u64>) {
        let index = self.all.len();
        self.by_id.extend(ids.map(|id| (id, index)));
        self.has_times |= attr.sample_format.contains(SampleFormat::TIME);
        self.all.push(attr);
    }

    /// The events, in the order of the file.
    pub fn all(&self) -> &[Attr] {
        &self.all
    }

    /// The event with a counter of this id.
    pub fn by_id(&self, id: u64) -> Option<&Attr> {
        self.all.get(*self.by_id.get(&id)?)
    }

    /// Whether the id that a record holds is that of a counter; `None` where records have none, or the profile
    /// does not tell which there are.
    pub fn knows_id_of(&self, record: &Record<'_>, order: ByteOrder) -> Option<IdMatch> {
        if self.by_id.is_empty() || record.kind >= record::USER_TYPE_START {
            return None;
        }
        Some(match self.all.first()?.id_of(record, order)? {
            id if self.by_id.contains_key(&id) => IdMatch::Known,
            // What perf makes up itself, such as the maps of processes that were there before, has no other.
            0 if record.kind != record::SAMPLE => IdMatch::Unset,
            _ => IdMatch::Unknown,
        })
    }

    /// The size in bytes of the trailer that a record lacks: of the kernel's types it must have one if its event's attribute
    /// says so.
    ///
    /// Quirk: other programs that write profiles may leave it out. perf 7.3 stops at such a record, older versions take
    /// what is in its place for a trailer, or stop if there are several events (`perf_evsel__parse_id_sample`,
    /// `evlist__event2id` in tools/perf/util/; the regression test `records::records_without_a_trailer_get_an_empty_one`).
    pub fn missing_trailer(&self, record: &Record<'_>, order: ByteOrder) -> Option<usize> {
        if record.kind == record::SAMPLE || record.kind >= record::USER_TYPE_START {
            return None;
        }
        let size = self.of(record, order)?.trailer_size();
        (size > 0 && in_trailer(record, size).is_none()).then_some(size)
    }

    /// The event that a record belongs to: by the id in the record, which lies at the same place for all
    /// events of a profile (perf sees to it with PERF_SAMPLE_IDENTIFIER where their formats differ), else the
    /// first one, as perf does.
    #[inline]
    pub fn of(&self, record: &Record<'_>, order: ByteOrder) -> Option<&Attr> {
        let first = self.all.first()?;
        if self.all.len() == 1 || record.kind >= record::USER_TYPE_START {
            return Some(first);
        }
        let id = first.id_of(record, order);
        id.and_then(|id| self.by_id(id)).or(Some(first))
    }

    /// The clock of the profile's times; `None` is the scheduler's.
    pub fn clock_id(&self) -> Option<i32> {
        self.all.first()?.clock_id
    }

    /// Whether samples of any event hold a copy of the stack, to be unwound by readers.
    pub fn copies_stacks(&self) -> bool {
        let mut attrs = self.all().iter();
        attrs.any(|attr| attr.sample_format.contains(SampleFormat::STACK_USER))
    }

    /// Whether records carry times at all. `perf record --per-thread` and `--no-timestamp` leave them out;
    /// readers then take records in file order.
    pub fn has_times(&self) -> bool {
        self.has_times
    }

    /// When a record happened, if that is known. perf's own records (type 64 and up) carry no time. Where no
    /// records do, their places in the file are their times, counted from 1.
    #[inline]
    pub fn time_of(&self, record: &Record<'_>, order: ByteOrder) -> Option<Time> {
        if record.kind >= record::USER_TYPE_START {
            return None;
        }
        if !self.has_times {
            return Some(Time(record.offset.saturating_add(1)));
        }
        let time = self.of(record, order)?.time_of(record, order);
        time.or_else(|| event::fork_time(record, order))
    }
}
