//! Definitions of synthetic events: their attributes and IDs.

use jitdump::ByteOrder;
use linux_perf_event_reader::constants::{
    PERF_COUNT_SW_BPF_OUTPUT, PERF_COUNT_SW_CPU_CLOCK, PERF_COUNT_SW_EMULATION_FAULTS, PERF_TYPE_SOFTWARE,
};
use linux_perf_event_reader::{AttrFlags, ReadFormat, SampleFormat};

use crate::perf::attr::{Attr, Attrs, flag_bits, offset};

/// Name and type of a synthetic event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Definition<'a> {
    /// Name of the event, without a NUL and shorter than 4096 bytes. Readers look for no modifiers in names
    /// like `mono/alloc-bytes/`.
    pub name: &'a [u8],
    /// What its samples measure.
    pub measure: SampleContent,
}

/// What the samples of an event contain besides time, thread and call chain.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SampleContent {
    /// Periods in nanoseconds. The event is a software clock, whose periods readers show as time.
    Nanoseconds,
    /// Periods in any other unit. The event is emulation faults, which hardly any machine has. Readers treat
    /// them like any event, unlike dummies: if there are only those, `perf script` prints no call chains
    /// (`find_first_output_type`).
    Count,
    /// Raw bytes written by a program. The event is BPF output, whose bytes `perf script` prints.
    Bytes,
}

impl SampleContent {
    /// The software event (`enum perf_sw_ids`).
    fn config(self) -> u64 {
        match self {
            Self::Nanoseconds => PERF_COUNT_SW_CPU_CLOCK,
            Self::Count => PERF_COUNT_SW_EMULATION_FAULTS,
            Self::Bytes => PERF_COUNT_SW_BPF_OUTPUT,
        }
    }

    /// The fields of its samples, if samples have times.
    fn sample_format(self) -> SampleFormat {
        let common = SampleFormat::IDENTIFIER
            | SampleFormat::IP
            | SampleFormat::TID
            | SampleFormat::TIME
            | SampleFormat::CPU
            | SampleFormat::PERIOD
            | SampleFormat::CALLCHAIN;
        match self {
            Self::Nanoseconds | Self::Count => common,
            Self::Bytes => common | SampleFormat::RAW,
        }
    }
}

/// Properties shared by all attributes of a profile.
#[derive(Clone, Copy, Debug)]
pub(super) struct AttrTemplate {
    pub endian: ByteOrder,
    /// Size in bytes of each attribute. Readers of a file expect the section of the IDs right after an
    /// attribute's declared size, so all attributes must have the same size.
    pub attr_size: usize,
    /// Clock of all times; `None` for the scheduler's clock.
    pub clock_id: Option<i32>,
    /// Whether records other than samples have a trailer (`evlist__valid_sample_id_all` in perf).
    pub has_trailer: bool,
    /// Whether records have times. If not, readers process them in file order.
    pub has_times: bool,
}

/// A synthetic event of a profile.
#[derive(Clone, Debug)]
pub(super) struct SyntheticEvent {
    pub name: Vec<u8>,
    pub id: u64,
    pub attr_bytes: Vec<u8>,
    pub attr: Attr,
}

impl SyntheticEvent {
    pub fn new(definition: &Definition<'_>, id: u64, template: &AttrTemplate) -> Self {
        let attr_bytes = attr_bytes(definition.measure, template);
        Self {
            name: definition.name.to_vec(),
            id,
            attr: Attr::parse(&attr_bytes, template.endian),
            attr_bytes,
        }
    }
}

/// Returns the attribute of an event.
fn attr_bytes(measure: SampleContent, template: &AttrTemplate) -> Vec<u8> {
    let endian = template.endian;
    let mut flags = AttrFlags::DISABLED
        | AttrFlags::MMAP
        | AttrFlags::MMAP2
        | AttrFlags::COMM
        | AttrFlags::COMM_EXEC
        | AttrFlags::TASK;
    // Without these, perf warns that it could not read kernel symbols.
    flags |= AttrFlags::EXCLUDE_KERNEL | AttrFlags::EXCLUDE_HV;
    flags.set(AttrFlags::SAMPLE_ID_ALL, template.has_trailer);
    flags.set(AttrFlags::USE_CLOCKID, template.clock_id.is_some());
    let mut bytes = Vec::new();
    endian.write_u32(&mut bytes, PERF_TYPE_SOFTWARE);
    endian.write_u32(&mut bytes, u32::try_from(template.attr_size).unwrap_or(u32::MAX));
    endian.write_u64(&mut bytes, measure.config());
    // One sample per occurrence.
    endian.write_u64(&mut bytes, 1);
    let mut format = measure.sample_format();
    format.set(SampleFormat::TIME, template.has_times);
    endian.write_u64(&mut bytes, format.bits());
    endian.write_u64(&mut bytes, ReadFormat::ID.bits());
    endian.write_u64(&mut bytes, flag_bits(flags.bits(), endian));
    bytes.resize(template.attr_size, 0);
    if let Some(clock_id) = template.clock_id {
        endian.set_u32(&mut bytes, offset::CLOCKID, clock_id.cast_unsigned());
    }
    bytes
}

/// Allocates event IDs that a profile does not use.
#[derive(Clone, Debug)]
pub(super) struct IdAllocator {
    next: u64,
}

impl IdAllocator {
    /// The first ID, far above those of kernels, which count all events since boot. Readers that synthesize
    /// events from AUX data count on from the recorded IDs (`intel_pt_synth_events` in perf: 10^9 higher).
    const START: u64 = 1 << 62;

    pub fn new() -> Self {
        Self { next: Self::START }
    }

    /// Returns an ID that none of `attrs` has, a different one for each call.
    pub fn take(&mut self, attrs: &Attrs) -> u64 {
        // A file cannot have 2^64 IDs, so the loop ends long before it wraps around.
        while attrs.by_id(self.next).is_some() {
            self.next = self.next.wrapping_add(1);
        }
        let id = self.next;
        self.next = id.wrapping_add(1);
        id
    }
}
