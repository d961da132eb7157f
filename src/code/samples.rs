//! The samples of a profile, each with its process, time and address space.

use std::ops::Range;

use crate::code::process::{Processes, SpaceId};
use crate::code::profile_index::{IndexedProfile, TimeMarks};
use crate::perf::Profile;
use crate::perf::record::{self, Record};
use crate::perf::sample::Sample;
use crate::threads;
use crate::units::{Address, Pid, Time};

/// Maximum size of a chunk of records that one thread reads at a time, in bytes.
const CHUNK: u64 = 16 << 20;

/// Average number of chunks per thread before the results are merged, so that no thread waits long for the others.
const CHUNKS_OF_THREAD: usize = 4;

/// The samples of a profile.
#[derive(Clone, Copy, Debug)]
pub struct Samples<'a> {
    /// Profile with the samples.
    pub profile: &'a Profile<'a>,
    /// Processes of the profile.
    pub processes: &'a Processes,
}

/// A sample, or call chain of an earlier sample, with the address space that it was taken in.
#[derive(Clone, Copy, Debug)]
pub struct Located<T> {
    /// The sample or call chain.
    pub content: T,
    /// Process ID, if recorded.
    pub pid: Option<Pid>,
    /// Time, if recorded.
    pub time: Option<Time>,
    /// Address space of the process at that time; `None` if the profile does not have the process.
    pub space: Option<SpaceId>,
}

/// Fields of a sample record.
#[derive(Clone, Copy, Debug)]
pub struct SampleFields<'a> {
    /// The record.
    pub record: Record<'a>,
    /// Its fields.
    pub sample: Sample<'a>,
}

impl SampleFields<'_> {
    /// Returns the sampled address if it is in user space.
    pub fn user_ip(&self) -> Option<Address> {
        self.sample
            .ip
            .filter(|_| self.record.cpu_mode() == record::MISC_USER)
    }
}

/// A record with addresses of code that a process executed.
#[derive(Clone, Copy, Debug)]
pub enum SampleRecord<'a> {
    /// A sample.
    Sample(Located<SampleFields<'a>>),
    /// User callers of an earlier sample, recorded later (`perf record --call-graph fp,defer`).
    DeferredChain(Located<Record<'a>>),
}

impl<T> Located<T> {
    /// Returns the time to look up code at. Without times, all code exists.
    pub fn lookup_time(&self) -> Time {
        self.time.unwrap_or(Time::LAST)
    }
}

impl<'a> Samples<'a> {
    /// Returns the samples of a profile.
    pub fn of(IndexedProfile { profile, index }: &'a IndexedProfile<'_>) -> Self {
        Self {
            profile,
            processes: &index.processes,
        }
    }

    /// Iterates over all samples, in file order.
    pub fn all(self) -> impl Iterator<Item = Located<SampleFields<'a>>> {
        let records = self.profile.records();
        records.filter_map(move |record| self.locate(record)?.sample())
    }

    /// Reads the first `end` bytes of the records in chunks, in several threads. For each chunk, `start` makes an
    /// accumulator, and `add` adds the samples and deferred call chains to it. `merge` gets the accumulators in file
    /// order, and `progress` the number of bytes just read. `marks` must be those of the same profile.
    pub fn fold_chunks<T: Send>(
        self,
        marks: &TimeMarks,
        end: u64,
        start: impl Fn() -> T + Sync,
        add: impl Fn(&mut T, SampleRecord<'a>) + Sync,
        mut merge: impl FnMut(T),
        mut progress: impl FnMut(u64),
    ) {
        let fold = |chunk: &Range<u64>| {
            let mut accumulator = start();
            for record in self.profile.records_between(chunk.start, chunk.end) {
                if let Some(record) = self.locate(record) {
                    add(&mut accumulator, record);
                }
            }
            accumulator
        };
        for batch in chunks(marks, end).chunks(threads::count().saturating_mul(CHUNKS_OF_THREAD)) {
            threads::map(batch, fold).into_iter().for_each(&mut merge);
            let lengths = batch.iter().map(|chunk| chunk.end.saturating_sub(chunk.start));
            progress(lengths.sum());
        }
    }

    #[inline]
    fn locate(self, record: Record<'a>) -> Option<SampleRecord<'a>> {
        let Profile { attrs, endian, .. } = self.profile;
        match record.kind {
            record::SAMPLE => {
                let sample = Sample::parse(&record, attrs.of(&record, *endian)?, *endian);
                let fields = SampleFields { record, sample };
                Some(SampleRecord::Sample(self.at(&record, sample.pid, fields)))
            }
            record::CALLCHAIN_DEFERRED => {
                let pid = attrs.of(&record, *endian)?.trailer_pid(&record, *endian);
                Some(SampleRecord::DeferredChain(self.at(&record, pid, record)))
            }
            _ => None,
        }
    }

    #[inline]
    fn at<T>(self, record: &Record<'a>, pid: Option<Pid>, content: T) -> Located<T> {
        let time = self.profile.attrs.time_of(record, self.profile.endian);
        let space = self
            .processes
            .space_at(pid.unwrap_or(Pid(0)), time.unwrap_or(Time::LAST));
        Located {
            content,
            pid,
            time,
            space,
        }
    }
}

impl<'a> SampleRecord<'a> {
    /// Returns the sample, if it is one.
    pub fn sample(self) -> Option<Located<SampleFields<'a>>> {
        match self {
            Self::Sample(sample) => Some(sample),
            Self::DeferredChain(_) => None,
        }
    }
}

fn chunks(marks: &TimeMarks, end: u64) -> Vec<Range<u64>> {
    let size = (end / threads::count() as u64).clamp(1, CHUNK);
    let mut chunks: Vec<Range<u64>> = Vec::new();
    for start in marks.starts() {
        match chunks.last_mut() {
            Some(last) if start.saturating_sub(last.start) < size => continue,
            Some(last) => last.end = start,
            None => {}
        }
        chunks.push(start..end);
    }
    chunks
}
