//! First pass over a profile: indexes everything except the samples, and the file offsets of records by time.

use std::collections::BTreeSet;

use jitdump::{AddressRange, ByteOrder, Time};

use crate::bytes::{Reader, base_name};
use crate::code::process::{Map, ProcessEvent, Processes, SpaceId};
use crate::collections::hash::HashMap;
use crate::files::objects::store;
use crate::perf::Profile;
use crate::perf::process_records::{self, Fork, Mmap};
use crate::perf::record::data::{FilePart, ProfileBytes};
use crate::perf::record::kept::KeptRecords;
use crate::perf::record::pieces::{RecordSlice, visit_pieces};
use crate::perf::record::reader::RecordReader;
use crate::perf::record::resync::needs_repair;
use crate::perf::record::validation::RecordValidator;
use crate::perf::record::{self, Record, Role};
use crate::perf::sample::{OFF_CPU_SUMMARY_TIME, Sample};
use crate::units::Pid;

/// Result of the first pass over a profile.
#[derive(Clone, Debug, Default)]
pub struct ProfileIndex {
    /// Processes and their address spaces.
    pub processes: Processes,
    /// Maps that point to files of runtimes, in the order of time.
    pub markers: Vec<FileMarker>,
    /// The records about mappings, threads, processes and code of the kernel.
    pub kept: KeptRecords,
    /// Index from times to record offsets.
    pub marks: TimeMarks,
    /// End of the readable records, in bytes from the first one.
    pub data_end: u64,
    /// Whether there is AUX data (Intel PT, Arm SPE …), whose addresses only a decoder can extract.
    pub has_aux: bool,
    /// AUXTRACE records, as the offset from the first record and the size without the AUX data, in bytes.
    pub auxtrace: Vec<(u64, u64)>,
    /// Maps of objects injected by an earlier run.
    pub injected: Vec<EarlierMap>,
    /// Whether any records are compressed, so that their content is not indexed.
    pub has_compressed: bool,
    /// Whether any records are damaged, so that readers that trust record sizes lose synchronization.
    pub has_damage: bool,
    /// Whether the profile is in a file and damaged, so that it has to be in memory to find the records after the damage,
    /// which are not indexed.
    pub needs_memory: bool,
    /// Whether any records have sizes that readers reject ([`needs_repair`]).
    pub has_refused: bool,
    /// Conversion from cycle counts to times, if the profile has a TIME_CONV record.
    pub time_conversion: Option<TimeConversion>,
    /// Time of the earliest sample.
    pub first_sample: Option<Time>,
    /// Earliest and latest record time, without zero and the placeholder [`OFF_CPU_SUMMARY_TIME`]; `None` if records
    /// have no times.
    pub times: Option<(Time, Time)>,
    /// Inode of the mount namespace of each process, if it was recorded.
    pub mount_namespaces: HashMap<Pid, u64>,
    /// ID of the event that the first map's record belongs to.
    pub map_event_id: Option<u64>,
    /// Whether the first event leaves out the kernel.
    pub excludes_kernel: bool,
    /// Records that the kernel lost because perf did not read its buffers in time (LOST).
    lost_records: u64,
    /// The samples among them (LOST_SAMPLES), which perf 6.1 and later count.
    lost_samples: u64,
    /// Processes that have a name.
    seen: BTreeSet<Pid>,
    /// Process of the last name.
    last_pid: Option<Pid>,
    /// Processes that have samples.
    sampled: BTreeSet<Pid>,
    /// Process of the last sample.
    last_sampled: Option<Pid>,
}

/// Map of an object injected by this program or by perf inject.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EarlierMap {
    /// Process that has the map.
    pub pid: Pid,
    /// Time of the map.
    pub time: Time,
    /// Addresses that were mapped.
    pub range: AddressRange,
    /// Whether the object has code of a dump or a log, rather than of a perf map.
    pub is_dumped: bool,
}

/// A map that points to a file of a runtime.
#[derive(Clone, Debug)]
pub struct FileMarker {
    /// Process that has the map.
    pub pid: Pid,
    /// Time of the map; 0 if it is older than the profile.
    pub time: Time,
    /// Path of the file in the mount namespace of the process.
    pub path: Vec<u8>,
    /// Device and inode of the file, if recorded.
    pub file: Option<process_records::FileId>,
    /// Offset of its record from the first record, in bytes.
    pub record: u64,
}

/// A profile and its index.
#[derive(Clone, Debug)]
pub struct IndexedProfile<'a> {
    /// The profile.
    pub profile: Profile<'a>,
    /// Its processes, mappings and markers.
    pub index: ProfileIndex,
}

impl<'a> IndexedProfile<'a> {
    /// Indexes a profile, as [`ProfileIndex::of`] does.
    pub fn new(profile: Profile<'a>, marked_path: impl Fn(&[u8]) -> Option<&[u8]> + Sync) -> Self {
        Self {
            index: ProfileIndex::of(&profile, marked_path),
            profile,
        }
    }
}

impl ProfileIndex {
    /// Indexes a profile. `marked_path` returns the runtime file that a map name points to, if any.
    pub fn of(profile: &Profile<'_>, marked_path: impl Fn(&[u8]) -> Option<&[u8]> + Sync) -> Self {
        let found = match profile.data {
            ProfileBytes::File(part) => Part::of_file(profile, part, &marked_path),
            ProfileBytes::Memory(_) => None,
        };
        let Part { mut index, events } = found.unwrap_or_else(|| Part::of(profile, &marked_path));
        index.marks.data_end = index.data_end;
        index.processes = Processes::new(events);
        index.processes.add(index.seen.union(&index.sampled).copied());
        index.seen = BTreeSet::new();
        let mut attrs = profile.attrs.all().iter();
        index.excludes_kernel = attrs.next().is_some_and(|attr| attr.excludes_kernel);
        let kept = &index.kept;
        let name = |map: &Map| {
            let record = kept.at(map.record, profile.endian)?;
            Some(Mmap::parse(&record, profile.endian)?.name)
        };
        index.processes.find_copies(|one, other| name(one) == name(other));
        index.markers.sort_by_key(|marker| marker.time);
        index
    }

    /// Adds the index of the records after those of this one.
    fn append(&mut self, later: Self) {
        self.markers.extend(later.markers);
        self.kept.append(later.kept);
        self.marks.append(later.marks);
        self.has_aux |= later.has_aux;
        self.auxtrace.extend(later.auxtrace);
        self.injected.extend(later.injected);
        self.has_compressed |= later.has_compressed;
        self.has_refused |= later.has_refused;
        self.time_conversion = later.time_conversion.or(self.time_conversion);
        self.first_sample = [self.first_sample, later.first_sample]
            .into_iter()
            .flatten()
            .min();
        if let Some((first, last)) = later.times {
            self.add_time(first);
            self.add_time(last);
        }
        self.mount_namespaces.extend(later.mount_namespaces);
        self.map_event_id = self.map_event_id.or(later.map_event_id);
        self.add_lost(later.lost_records, later.lost_samples);
        self.seen.extend(later.seen);
        self.sampled.extend(later.sampled);
    }

    fn add_time(&mut self, time: Time) {
        let (first, last) = self.times.unwrap_or((time, time));
        self.times = Some((first.min(time), last.max(time)));
    }

    fn add_lost(&mut self, records: u64, samples: u64) {
        self.lost_records = self.lost_records.saturating_add(records);
        self.lost_samples = self.lost_samples.saturating_add(samples);
    }

    /// Returns the number of samples that were lost while recording. Of older versions of perf, it is that of all records.
    pub fn lost(&self) -> u64 {
        match self.lost_samples {
            0 => self.lost_records,
            samples => samples,
        }
    }

    /// Whether the process of an address space has samples.
    pub fn has_samples(&self, space: SpaceId) -> bool {
        self.sampled.contains(&self.processes.space(space).pid)
    }

    /// Adds a record at its time, and to `events` what it says about processes.
    fn add_record(
        &mut self,
        profile: &Profile<'_>,
        record: &Record<'_>,
        time: Option<Time>,
        marked_path: &impl Fn(&[u8]) -> Option<&[u8]>,
        events: &mut Vec<ProcessEvent>,
    ) {
        let endian = profile.endian;
        let is_time = |time: &Time| *time != Time(0) && *time < OFF_CPU_SUMMARY_TIME;
        if let Some(time) = time.filter(is_time).filter(|_| profile.attrs.has_times()) {
            self.add_time(time);
        }
        let time = time.unwrap_or_default();
        match Role::of(record.kind) {
            Role::Sample => return self.add_sample(profile, record, time),
            Role::Mapping => {
                self.kept.push(record);
                events.extend(self.add_map(profile, record, time, marked_path));
            }
            Role::Thread => {
                self.kept.push(record);
                events.extend(self.add_thread(record, time, endian));
            }
            Role::Other => self.add_other(record, endian),
        }
        self.has_refused |= needs_repair(record, &profile.attrs, endian);
    }

    /// Adds a record about a thread. Returns what it says about the process, if anything.
    fn add_thread(&mut self, record: &Record<'_>, time: Time, endian: ByteOrder) -> Option<ProcessEvent> {
        match record.kind {
            record::COMM => {
                let pid = process_records::comm_pid(record, endian);
                see(&mut self.seen, &mut self.last_pid, pid);
                process_records::exec_pid(record, endian).map(|pid| ProcessEvent::Exec(pid, time))
            }
            record::FORK => {
                let fork = Fork::parse(record, endian)?;
                let Fork { child, parent, .. } = fork;
                Some(if fork.is_synthesized {
                    ProcessEvent::Earlier {
                        pid: child,
                        parent,
                        time,
                    }
                } else {
                    ProcessEvent::Fork { child, parent, time }
                })
            }
            // An EXIT record without a time could be of any process that had this ID.
            _ if time == Time(0) => None,
            _ => process_records::exited_pid(record, endian).map(|pid| ProcessEvent::Exit(pid, time)),
        }
    }

    /// Adds a record that says nothing about memory or threads.
    fn add_other(&mut self, record: &Record<'_>, endian: ByteOrder) {
        match record.kind {
            record::KSYMBOL => self.kept.push(record),
            record::NAMESPACES => {
                self.mount_namespaces
                    .extend(process_records::mount_namespace(record, endian));
            }
            record::AUXTRACE => {
                self.has_aux = true;
                self.auxtrace.push((record.offset, record.bytes.len() as u64));
            }
            record::AUX | record::AUXTRACE_INFO => self.has_aux = true,
            record::COMPRESSED | record::COMPRESSED2 => self.has_compressed = true,
            record::LOST => {
                let mut body = record.body(endian);
                let number = body.u64().and_then(|_id| body.u64());
                self.add_lost(number.unwrap_or(0), 0);
            }
            // A filter has rejected the others.
            record::LOST_SAMPLES if record.misc & record::MISC_LOST_SAMPLES_BPF == 0 => {
                self.add_lost(0, record.body(endian).u64().unwrap_or(0));
            }
            record::TIME_CONV => {
                self.time_conversion = TimeConversion::parse(record.body(endian)).or(self.time_conversion);
            }
            _ => {}
        }
    }

    /// Adds the time and the process of a sample.
    #[inline]
    fn add_sample(&mut self, profile: &Profile<'_>, record: &Record<'_>, time: Time) {
        let first = self.first_sample.unwrap_or(time);
        self.first_sample = Some(first.min(time));
        let attr = profile.attrs.event_of(record, profile.endian);
        let pid = attr.and_then(|attr| {
            if attr.is_bpf_output {
                Sample::parse(record, attr, profile.endian).pid
            } else {
                attr.sample_pid(record, profile.endian)
            }
        });
        see(&mut self.sampled, &mut self.last_sampled, pid);
    }

    /// Adds a mapping that may be a marker or an object. Returns it as an event of its process, if it is valid.
    fn add_map(
        &mut self,
        profile: &Profile<'_>,
        record: &Record<'_>,
        time: Time,
        marked_path: &impl Fn(&[u8]) -> Option<&[u8]>,
    ) -> Option<ProcessEvent> {
        let mmap = Mmap::parse(record, profile.endian)?;
        if self.map_event_id.is_none() {
            let attr = profile.attrs.event_of(record, profile.endian);
            self.map_event_id = attr.and_then(|attr| attr.id_of(record, profile.endian));
        }
        if let Some(path) = marked_path(mmap.name) {
            self.markers.push(FileMarker {
                pid: mmap.pid,
                time,
                path: path.to_vec(),
                file: mmap.file,
                record: record.offset,
            });
        }
        let is_dumped = store::has_functions(base_name(mmap.name));
        self.injected.extend(is_dumped.map(|is_dumped| EarlierMap {
            pid: mmap.pid,
            time,
            range: mmap.range,
            is_dumped,
        }));
        let map = Map {
            time,
            range: mmap.range,
            backing: mmap.backing(),
            is_shared: mmap.is_shared,
            is_data: mmap.is_data || record.misc & record::MISC_MMAP_DATA != 0,
            record: record.offset,
        };
        Some(ProcessEvent::Map(mmap.pid, map))
    }
}

/// Adds the ID of a process, except for the idle process (0) and for threads that have exited (-1). `last` is the one that was
/// added last.
fn see(seen: &mut BTreeSet<Pid>, last: &mut Option<Pid>, pid: Option<Pid>) {
    const NONE: [u32; 2] = [0, u32::MAX];
    if pid != *last {
        *last = pid;
        seen.extend(pid.filter(|pid| !NONE.contains(&pid.0)));
    }
}

/// Index of some consecutive records.
#[derive(Default)]
struct Part {
    index: ProfileIndex,
    events: Vec<ProcessEvent>,
}

impl Part {
    /// Indexes all records that are intact.
    fn of(profile: &Profile<'_>, marked_path: &impl Fn(&[u8]) -> Option<&[u8]>) -> Self {
        let mut part = Self::default();
        let mut records = profile.intact_records();
        while let Some(record) = records.next() {
            part.add_record(profile, &record, marked_path);
        }
        part.index.data_end = records.undecoded().unwrap_or(profile.data.len());
        part.index.has_damage = !records.damage().is_empty();
        part.index.needs_memory = records.needs_memory();
        part
    }

    /// Indexes all records of a file in several threads; `None` unless all of them are certainly intact.
    fn of_file(
        profile: &Profile<'_>,
        file: FilePart<'_>,
        marked_path: &(impl Fn(&[u8]) -> Option<&[u8]> + Sync),
    ) -> Option<Self> {
        let validator = RecordValidator {
            attrs: &profile.attrs,
            endian: profile.endian,
        };
        let visit = |records: RecordSlice<'_>| {
            let mut part = Self::default();
            for record in records {
                if !validator.is_certain(&record) {
                    return None;
                }
                part.add_record(profile, &record, marked_path);
            }
            Some(part)
        };
        let mut whole = Self::default();
        let end = visit_pieces(file, profile.endian, visit, |part: Self| {
            whole.index.append(part.index);
            whole.events.extend(part.events);
        })?;
        whole.index.data_end = end;
        (end == profile.data.len()).then_some(whole)
    }

    /// Adds a record, which comes after all that were added.
    #[inline]
    fn add_record(
        &mut self,
        profile: &Profile<'_>,
        record: &Record<'_>,
        marked_path: &impl Fn(&[u8]) -> Option<&[u8]>,
    ) {
        let time = profile.attrs.time_of(record, profile.endian);
        self.index.marks.pass(record, time);
        self.index
            .add_record(profile, record, time, marked_path, &mut self.events);
    }
}

/// Index from times to record offsets, with one mark per chunk of records, so that its size does not grow with every
/// sample.
#[derive(Clone, Debug, Default)]
pub struct TimeMarks {
    marks: Vec<Mark>,
    latest: Time,
    /// End of the readable records, in bytes from the first one.
    pub(super) data_end: u64,
}

#[derive(Clone, Copy, Debug)]
struct Mark {
    /// Offset at which a record starts, in bytes from the first one.
    offset: u64,
    /// Latest time of all records before it.
    latest_before: Time,
}

impl TimeMarks {
    /// Minimum distance between two marks, in bytes.
    const STRETCH: u64 = 64 * 1024;

    /// Notes the record that comes next, and starts a mark where the last one is far enough away.
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

    /// Adds the marks of the records after those of these.
    fn append(&mut self, later: Self) {
        let latest = self.latest;
        self.marks.extend(later.marks.into_iter().map(|mark| Mark {
            latest_before: mark.latest_before.max(latest),
            ..mark
        }));
        self.latest = latest.max(later.latest);
    }

    /// Returns the offsets at which chunks start, in bytes from the first record.
    pub fn starts(&self) -> impl Iterator<Item = u64> {
        self.marks.iter().map(|mark| mark.offset)
    }

    /// Starts a search for insertion points in `profile`, which must be the indexed one.
    pub fn insertion_points<'a>(&'a self, profile: &'a Profile<'a>) -> InsertionPoints<'a> {
        InsertionPoints {
            profile,
            marks: self,
            records: profile.records(),
            position: 0,
        }
    }
}

/// Finds the file offset at which a record of a given time belongs: before the first record, in file order, that is
/// not earlier. Readers then never get it too late, however they sort records.
#[derive(Debug)]
pub struct InsertionPoints<'a> {
    profile: &'a Profile<'a>,
    marks: &'a TimeMarks,
    records: RecordReader<'a>,
    /// Offset of the next record of `records`, in bytes from the first one.
    position: u64,
}

impl InsertionPoints<'_> {
    /// Returns the offset of the record that a record of `time` belongs before, or the end of the records if it is
    /// the latest. Times must not decrease from call to call.
    pub fn offset_at(&mut self, time: Time) -> u64 {
        let end = self.marks.data_end;
        if self.marks.latest < time {
            return end;
        }
        let marks = &self.marks.marks;
        let after = marks.partition_point(|mark| mark.latest_before < time);
        if let Some(mark) = marks.get(after.saturating_sub(1))
            && mark.offset > self.position
        {
            self.records.seek(mark.offset);
            self.position = mark.offset;
        }
        let attrs = &self.profile.attrs;
        let is_earlier = |record: &Record<'_>| {
            let found = attrs.time_of(record, self.profile.endian);
            found.is_none_or(|found| found < time)
        };
        while let Some(record) = self.records.peek().filter(is_earlier) {
            self.position = record.end();
            self.records.seek(self.position);
        }
        self.position.min(end)
    }
}

/// Conversion from a processor's cycle counter to perf's time, from a TIME_CONV record. The formula is that of
/// `struct perf_event_mmap_page` in include/uapi/linux/perf_event.h.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TimeConversion {
    shift: u32,
    multiplier: u64,
    zero: u64,
    /// Base count and bit mask, for counters narrower than 64 bits.
    short: Option<(u64, u64)>,
}

impl TimeConversion {
    /// Parses a TIME_CONV record; `None` if it converts nothing.
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
        // Linux 5.10 and later append these fields.
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

    /// Returns the time of a cycle count.
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
