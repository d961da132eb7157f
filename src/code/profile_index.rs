//! The first walk over a profile: everything but the samples, and where records of a given time belong.

use std::collections::BTreeSet;
use std::iter::Peekable;

use crate::bytes::{Reader, base_name};
use crate::code::process::{Map, ProcessEvent, Processes};
use crate::hash::HashMap;
use crate::perf::Profile;
use crate::perf::event::{self, Fork, Mmap};
use crate::perf::record::{self, Record, Records};
use crate::perf::resync::needs_mending;
use crate::perf::sample;
use crate::units::{AddressRange, Pid, Time};

/// What the first walk found.
#[derive(Clone, Debug, Default)]
pub struct ProfileIndex {
    /// The processes and their address spaces.
    pub processes: Processes,
    /// Maps whose name was asked for, in the order of time.
    pub markers: Vec<Marker>,
    /// Where in the stream records of what time lie.
    pub marks: TimeMarks,
    /// Bytes of whole records; what is behind them can't be read.
    pub data_end: u64,
    /// Whether there are AUX data (Intel PT, Arm SPE …), whose addresses only a decoder knows.
    pub has_aux: bool,
    /// The records with AUX data, as offset from the first record and length without the data.
    pub auxtrace: Vec<(u64, u64)>,
    /// The maps of objects that were put into it already.
    pub injected: Vec<EarlierMap>,
    /// Whether some records are compressed, so that nothing is known of what is in them.
    pub has_compressed: bool,
    /// Whether something among the records is damaged, so that walks that trust sizes would go astray.
    pub has_damage: bool,
    /// Whether some records have sizes that readers refuse ([`needs_mending`]).
    pub has_refused: bool,
    /// How cycle counts become times, if the profile says so.
    pub time_conversion: Option<TimeConversion>,
    /// When the first sample was taken.
    pub first_sample: Option<Time>,
    /// The time of the first record that has one other than 0, and of the last, if records carry times.
    pub times: Option<(Time, Time)>,
    /// The inode of each process' mount namespace, where it was recorded.
    pub mount_namespaces: HashMap<Pid, u64>,
    /// The id of the event that the first map's record belongs to.
    pub map_event_id: Option<u64>,
    /// The processes that have names or samples.
    seen: BTreeSet<Pid>,
    /// The process of the last sample.
    last_pid: Option<Pid>,
}

/// A map of an object as this program and perf inject make them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EarlierMap {
    /// The process.
    pub pid: Pid,
    /// When it was mapped.
    pub time: Time,
    /// Where.
    pub range: AddressRange,
    /// Whether it has code of a dump or a log, and not of a perf map.
    pub is_dumped: bool,
}

/// A map that points to a file of a runtime.
#[derive(Clone, Debug)]
pub struct Marker {
    /// Whose map.
    pub pid: Pid,
    /// When it was mapped; 0 if that was before the profile.
    pub time: Time,
    /// The file's path in the process' mount namespace.
    pub path: Vec<u8>,
    /// The file's number.
    pub file: Option<event::FileNumber>,
    /// The offset of its record.
    pub record: u64,
}

impl ProfileIndex {
    /// Walks a profile; `marked_path` tells the path that a map of some name points to, if it does.
    pub fn of(profile: &Profile<'_>, marked_path: impl Fn(&[u8]) -> Option<&[u8]>) -> Self {
        let mut index = Self::default();
        let mut events = Vec::new();
        let mut records = profile.whole_records();
        for record in records.by_ref() {
            let time = profile.attrs.time_of(&record, profile.order);
            index.marks.pass(&record, time);
            index.add(profile, &record, time, &marked_path, &mut events);
        }
        index.data_end = records.undecoded().unwrap_or(profile.data.len() as u64);
        index.has_damage = !records.damage().is_empty();
        index.marks.data_end = index.data_end;
        index.processes = Processes::new(events);
        index.processes.add(std::mem::take(&mut index.seen));
        let name = |map: &Map| {
            let record = profile.records_from(map.record).next()?;
            Some(Mmap::parse(&record, profile.order)?.name)
        };
        index.processes.find_copies(|one, other| name(one) == name(other));
        index.markers.sort_by_key(|marker| marker.time);
        index
    }

    /// Notes that there is a process. The idle one and those that are gone are none.
    fn see(&mut self, pid: Option<Pid>) {
        const NONE: [u32; 2] = [0, u32::MAX];
        if pid != self.last_pid {
            self.last_pid = pid;
            self.seen.extend(pid.filter(|pid| !NONE.contains(&pid.0)));
        }
    }

    fn add(
        &mut self,
        profile: &Profile<'_>,
        record: &Record<'_>,
        time: Option<Time>,
        marked_path: &impl Fn(&[u8]) -> Option<&[u8]>,
        events: &mut Vec<ProcessEvent>,
    ) {
        let order = profile.order;
        self.has_refused |= needs_mending(record, &profile.attrs, order);
        let is_time = |time: &Time| *time != Time(0) && *time < sample::SUMMED_AT_END;
        if let Some(time) = time.filter(is_time).filter(|_| profile.attrs.has_times()) {
            let (first, last) = self.times.unwrap_or((time, time));
            self.times = Some((first.min(time), last.max(time)));
        }
        let time = time.unwrap_or_default();
        match record.kind {
            record::SAMPLE => {
                let first = self.first_sample.unwrap_or(time);
                self.first_sample = Some(first.min(time));
                let attr = profile.attrs.of(record, order);
                self.see(attr.and_then(|attr| attr.sample_pid(record, order)));
            }
            record::MMAP | record::MMAP2 => {
                let Some(mmap) = Mmap::parse(record, order) else {
                    return;
                };
                if self.map_event_id.is_none() {
                    let attr = profile.attrs.of(record, order);
                    self.map_event_id = attr.and_then(|attr| attr.id_of(record, order));
                }
                if let Some(path) = marked_path(mmap.name) {
                    self.markers.push(Marker {
                        pid: mmap.pid,
                        time,
                        path: path.to_vec(),
                        file: mmap.file,
                        record: record.offset,
                    });
                }
                self.injected
                    .extend(is_dumped(mmap.name).map(|is_dumped| EarlierMap {
                        pid: mmap.pid,
                        time,
                        range: mmap.range,
                        is_dumped,
                    }));
                let map = Map {
                    time,
                    range: mmap.range,
                    backing: mmap.backing(),
                    record: record.offset,
                };
                events.push(ProcessEvent::Map(mmap.pid, map));
            }
            record::FORK => {
                let fork = Fork::parse(record, order);
                events.extend(fork.map(
                    |Fork {
                         child,
                         parent,
                         was_earlier,
                     }| match was_earlier {
                        true => ProcessEvent::Earlier {
                            pid: child,
                            parent,
                            time,
                        },
                        false => ProcessEvent::Fork { child, parent, time },
                    },
                ));
            }
            record::COMM => {
                self.see(event::named(record, order));
                events.extend(event::exec(record, order).map(|pid| ProcessEvent::Exec(pid, time)));
            }
            // One without a time could be of any.
            record::EXIT if time != Time(0) => {
                events.extend(event::exit(record, order).map(|pid| ProcessEvent::Exit(pid, time)));
            }
            record::NAMESPACES => {
                self.mount_namespaces
                    .extend(event::mount_namespace(record, order));
            }
            record::AUXTRACE => {
                self.has_aux = true;
                self.auxtrace.push((record.offset, record.bytes.len() as u64));
            }
            record::AUX | record::AUXTRACE_INFO => self.has_aux = true,
            record::COMPRESSED | record::COMPRESSED2 => self.has_compressed = true,
            record::TIME_CONV => {
                self.time_conversion = TimeConversion::parse(record.body(order)).or(self.time_conversion);
            }
            _ => {}
        }
    }
}

/// Of a map of an object as this program and perf inject make them, whether that has code of a dump: `jitted-PID-NUMBER.so`
/// and `jit-image-PID-ADDRESS.so` have, `jitted-PID-map-ADDRESS.so` has not. `None` for all others.
fn is_dumped(name: &[u8]) -> Option<bool> {
    let stem = base_name(name).strip_suffix(b".so")?;
    if stem.starts_with(b"jit-image-") {
        return Some(true);
    }
    let number = stem
        .strip_prefix(b"jitted-")?
        .splitn(2, |&byte| byte == b'-')
        .nth(1);
    Some(!number.is_some_and(|number| number.starts_with(b"map-")))
}

/// Where in the stream records of what time lie: one mark for each stretch of it, so that memory does not
/// grow with every sample.
#[derive(Clone, Debug, Default)]
pub struct TimeMarks {
    marks: Vec<Mark>,
    latest: Time,
    data_end: u64,
}

#[derive(Clone, Copy, Debug)]
struct Mark {
    /// Where a record starts.
    offset: u64,
    /// The latest time of all records before it.
    latest_before: Time,
}

impl TimeMarks {
    /// Bytes between two marks.
    const STRETCH: u64 = 64 * 1024;

    fn pass(&mut self, record: &Record<'_>, time: Option<Time>) {
        let offset = record.offset;
        let last = self.marks.last();
        if last.is_none_or(|last| offset.saturating_sub(last.offset) >= Self::STRETCH) {
            self.marks.push(Mark {
                offset,
                latest_before: self.latest,
            });
        }
        self.latest = self.latest.max(time.unwrap_or_default());
    }

    /// Where stretches of records start, in bytes from the first one.
    pub fn starts(&self) -> impl Iterator<Item = u64> {
        self.marks.iter().map(|mark| mark.offset)
    }

    /// Starts looking for places in `profile`, the one that was indexed.
    pub fn insertion_points<'a>(&'a self, profile: &'a Profile<'a>) -> InsertionPoints<'a> {
        InsertionPoints {
            profile,
            marks: self,
            records: profile.records().peekable(),
            position: 0,
        }
    }
}

/// Finds the place in the stream where a record of a given time belongs: before the first record, in file
/// order, that is not earlier. Then no reader gets it late, however it sorts records.
#[derive(Debug)]
pub struct InsertionPoints<'a> {
    profile: &'a Profile<'a>,
    marks: &'a TimeMarks,
    records: Peekable<Records<'a>>,
    /// Where the next of `records` starts.
    position: u64,
}

impl InsertionPoints<'_> {
    /// The offset of the record that one of `time` belongs before; the end of the records if it is the latest
    /// of all. Times must not go back from call to call.
    pub fn find(&mut self, time: Time) -> u64 {
        let end = self.marks.data_end;
        if self.marks.latest < time {
            return end;
        }
        let marks = &self.marks.marks;
        let after = marks.partition_point(|mark| mark.latest_before < time);
        if let Some(mark) = marks.get(after.saturating_sub(1))
            && mark.offset > self.position
        {
            self.records = self.profile.records_from(mark.offset).peekable();
            self.position = mark.offset;
        }
        let attrs = &self.profile.attrs;
        let is_earlier = |record: &Record<'_>| {
            let found = attrs.time_of(record, self.profile.order);
            found.is_none_or(|found| found < time)
        };
        while let Some(record) = self.records.next_if(is_earlier) {
            self.position = record.offset.saturating_add(record.len());
        }
        self.position.min(end)
    }
}

/// The content of a TIME_CONV record: how a processor's cycle counter becomes perf's time. The formula is
/// that of `struct perf_event_mmap_page` in include/uapi/linux/perf_event.h.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TimeConversion {
    shift: u32,
    multiplier: u64,
    zero: u64,
    /// For counters that are narrower than 64 bits: a count, and the bits that a counter has.
    short: Option<(u64, u64)>,
}

impl TimeConversion {
    fn parse(mut body: Reader<'_>) -> Option<Self> {
        let shift = u32::try_from(body.u64()?).ok().filter(|&shift| shift < 64)?;
        let multiplier = body.u64()?;
        let zero = body.u64()?;
        if multiplier == 0 {
            return None;
        }
        let mut conversion = Self {
            shift,
            multiplier,
            zero,
            short: None,
        };
        // Linux 5.10 and later append these.
        let extended = || {
            let mut body = body;
            Some((body.u64()?, body.u64()?, body.u8()?, body.u8()?))
        };
        if let Some((cycles, mask, has_zero, has_short)) = extended() {
            if has_zero == 0 {
                return None;
            }
            conversion.short = (has_short != 0).then_some((cycles, mask));
        }
        Some(conversion)
    }

    /// The time of a cycle count.
    pub fn time(&self, cycles: u64) -> Time {
        let cycles = match self.short {
            Some((base, mask)) => base.wrapping_add(cycles.wrapping_sub(base) & mask),
            None => cycles,
        };
        let quotient = cycles >> self.shift;
        let remainder = cycles & ((1u64 << self.shift) - 1);
        let whole = quotient.wrapping_mul(self.multiplier);
        let rest = remainder.wrapping_mul(self.multiplier) >> self.shift;
        Time(self.zero.wrapping_add(whole).wrapping_add(rest))
    }
}
