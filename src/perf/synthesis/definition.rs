//! Events of our own: what their attributes say, and the ids that their records name them by.

use linux_perf_event_reader::constants::{
    PERF_COUNT_SW_BPF_OUTPUT, PERF_COUNT_SW_CPU_CLOCK, PERF_COUNT_SW_EMULATION_FAULTS, PERF_TYPE_SOFTWARE,
};
use linux_perf_event_reader::{AttrFlags, ReadFormat, SampleFormat};

use crate::bytes::ByteOrder;
use crate::perf::attr::{Attr, Attrs, offset};

/// What an event of our own is called, and how readers are to show it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Definition<'a> {
    /// Its name, without a NUL and shorter than 4096 bytes. In one like `mono/alloc-bytes/`, no reader looks for
    /// modifiers.
    pub name: &'a [u8],
    /// What its samples hold.
    pub measure: Measure,
}

/// What the samples of an event hold besides where, when and whose.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Measure {
    /// Periods in nanoseconds. The event is a clock in software, whose periods readers show as time.
    Nanoseconds,
    /// Periods that count anything else. The event is one that hardly any machine has, and of which readers think
    /// nothing: where there are only dummies, `perf script` shows no call chains (`find_first_output_type`).
    Count,
    /// Bytes that a program wrote. The event is the one of BPF programs' output, whose bytes `perf script` prints.
    Bytes,
}

impl Measure {
    /// The number of the software event (`enum perf_sw_ids`).
    fn config(self) -> u64 {
        match self {
            Self::Nanoseconds => PERF_COUNT_SW_CPU_CLOCK,
            Self::Count => PERF_COUNT_SW_EMULATION_FAULTS,
            Self::Bytes => PERF_COUNT_SW_BPF_OUTPUT,
        }
    }

    /// The fields of its samples, where samples have times.
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

/// In what all attributes of a profile agree.
#[derive(Clone, Copy, Debug)]
pub(super) struct AttrTemplate {
    pub order: ByteOrder,
    /// Size in bytes of each attribute. Readers expect the place of the ids right behind what an attribute says
    /// is its size, so that in a file all have the same.
    pub attr_size: usize,
    /// The clock of all times; `None` is the scheduler's.
    pub clock_id: Option<i32>,
    /// Whether records other than samples have a trailer (`evlist__valid_sample_id_all` in perf).
    pub has_trailer: bool,
    /// Whether records have times. With none, readers take them in the order of the file.
    pub has_times: bool,
}

/// An event of our own, as a profile has it.
#[derive(Clone, Debug)]
pub(super) struct OwnEvent {
    pub name: Vec<u8>,
    pub id: u64,
    pub attr_bytes: Vec<u8>,
    pub attr: Attr,
}

impl OwnEvent {
    pub fn new(definition: &Definition<'_>, id: u64, agreement: &AttrTemplate) -> Self {
        let attr_bytes = attr_bytes(definition.measure, agreement);
        Self {
            name: definition.name.to_vec(),
            id,
            attr: Attr::parse(&attr_bytes, agreement.order),
            attr_bytes,
        }
    }
}

/// The attribute of an event.
fn attr_bytes(measure: Measure, agreement: &AttrTemplate) -> Vec<u8> {
    let order = agreement.order;
    let mut flags = AttrFlags::DISABLED
        | AttrFlags::MMAP
        | AttrFlags::MMAP2
        | AttrFlags::COMM
        | AttrFlags::COMM_EXEC
        | AttrFlags::TASK;
    // Without these, perf warns that it could not look into the kernel.
    flags |= AttrFlags::EXCLUDE_KERNEL | AttrFlags::EXCLUDE_HV;
    flags.set(AttrFlags::SAMPLE_ID_ALL, agreement.has_trailer);
    flags.set(AttrFlags::USE_CLOCKID, agreement.clock_id.is_some());
    let mut bytes = Vec::new();
    order.put_u32(&mut bytes, PERF_TYPE_SOFTWARE);
    order.put_u32(&mut bytes, u32::try_from(agreement.attr_size).unwrap_or(u32::MAX));
    order.put_u64(&mut bytes, measure.config());
    // A sample for each time that it happens.
    order.put_u64(&mut bytes, 1);
    let mut format = measure.sample_format();
    format.set(SampleFormat::TIME, agreement.has_times);
    order.put_u64(&mut bytes, format.bits());
    order.put_u64(&mut bytes, ReadFormat::ID.bits());
    order.put_u64(
        &mut bytes,
        match order {
            ByteOrder::Little => flags.bits(),
            ByteOrder::Big => flags.bits().reverse_bits(),
        },
    );
    bytes.resize(agreement.attr_size, 0);
    if let Some(clock_id) = agreement.clock_id {
        order.set_u32(&mut bytes, offset::CLOCKID, clock_id.cast_unsigned());
    }
    bytes
}

/// Ids that no event of a profile has.
#[derive(Clone, Debug)]
pub(super) struct IdAllocator {
    next: u64,
}

impl IdAllocator {
    /// Far above those that a kernel gives: it counts all events since it booted. Readers that make events of
    /// their own from AUX data count on from the recorded ones (`intel_pt_synth_events` in perf: 10^9 higher).
    const START: u64 = 1 << 62;

    pub fn new() -> Self {
        Self { next: Self::START }
    }

    /// One that none of `attrs` has, another one for each call.
    pub fn take(&mut self, attrs: &Attrs) -> u64 {
        // There are fewer ids than bytes in any file, so one is found long before they are back at the start.
        while attrs.by_id(self.next).is_some() {
            self.next = self.next.wrapping_add(1);
        }
        let id = self.next;
        self.next = id.wrapping_add(1);
        id
    }
}
