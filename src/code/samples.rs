//! The samples of a profile, each with its process, time and address space.

use std::ops::{ControlFlow, Range};

use jitdump::{Address, Time};

use crate::code::process::{Processes, SpaceId};
use crate::code::profile_index::{IndexedProfile, TimeMarks};
use crate::perf::Profile;
use crate::perf::record::reader::RecordReader;
use crate::perf::record::{self, Record};
use crate::perf::sample::Sample;
use crate::threads;
use crate::units::Pid;

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
    /// Address space of the process at that time; `None` if the process is unknown or the profile does not have it.
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

/// Collects what it needs of samples.
pub trait SampleVisitor {
    /// What it has found in the end.
    type Found: Send;

    /// Adds a sample.
    fn sample(&mut self, sample: &Located<SampleFields<'_>>);

    /// Adds the user callers of an earlier sample, recorded later (`perf record --call-graph fp,defer`).
    fn deferred_chain(&mut self, _chain: &Located<Record<'_>>) {}

    /// Ends the visit, and frees everything else.
    fn finish(self) -> Self::Found;
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

    /// Calls `visit` with all samples in file order, until it returns a break.
    pub fn try_for_each(self, mut visit: impl FnMut(&Located<SampleFields<'_>>) -> ControlFlow<()>) {
        let mut records = self.profile.records();
        while let Some(record) = records.next() {
            if record.kind == record::SAMPLE
                && let Some(sample) = self.sample(record)
                && visit(&sample).is_break()
            {
                return;
            }
        }
    }

    /// Reads the first `end` bytes of the records in chunks, in several threads. `start` makes a visitor for each
    /// chunk. `merge` gets what they found in file order, and `progress` the number of bytes just read. `marks` must be
    /// those of the same profile.
    pub fn visit<V: SampleVisitor>(
        self,
        marks: &TimeMarks,
        end: u64,
        start: impl Fn() -> V + Sync,
        merge: impl FnMut(V::Found),
        progress: impl FnMut(u64),
    ) {
        let visit = |mut records: RecordReader<'a>| {
            let mut visitor = start();
            while let Some(record) = records.next() {
                match record.kind {
                    record::SAMPLE => {
                        if let Some(sample) = self.sample(record) {
                            visitor.sample(&sample);
                        }
                    }
                    record::CALLCHAIN_DEFERRED => {
                        if let Some(chain) = self.deferred_chain(record) {
                            visitor.deferred_chain(&chain);
                        }
                    }
                    _ => {}
                }
            }
            visitor.finish()
        };
        self.visit_records(marks, end, visit, merge, progress);
    }

    /// Like [`Self::visit`], but calls `visit` with all records of each chunk.
    pub fn visit_records<F: Send>(
        self,
        marks: &TimeMarks,
        end: u64,
        visit: impl Fn(RecordReader<'a>) -> F + Sync,
        mut merge: impl FnMut(F),
        mut progress: impl FnMut(u64),
    ) {
        let visit = |chunk: &Range<u64>| visit(self.profile.records_between(chunk.start, chunk.end));
        for batch in chunks(marks, end).chunks(threads::count().saturating_mul(CHUNKS_OF_THREAD)) {
            threads::map(batch, visit).into_iter().for_each(&mut merge);
            let lengths = batch.iter().map(|chunk| chunk.end.saturating_sub(chunk.start));
            progress(lengths.sum());
        }
    }

    #[inline]
    fn sample<'r>(self, record: Record<'r>) -> Option<Located<SampleFields<'r>>> {
        let Profile { attrs, endian, .. } = self.profile;
        let sample = Sample::parse(&record, attrs.event_of(&record, *endian)?, *endian);
        Some(self.locate(&record, sample.pid, SampleFields { record, sample }))
    }

    fn deferred_chain<'r>(self, record: Record<'r>) -> Option<Located<Record<'r>>> {
        let Profile { attrs, endian, .. } = self.profile;
        let pid = attrs.event_of(&record, *endian)?.trailer_pid(&record, *endian)?;
        Some(self.locate(&record, Some(pid), record))
    }

    #[inline]
    fn locate<T>(self, record: &Record<'_>, pid: Option<Pid>, content: T) -> Located<T> {
        let time = self.profile.attrs.time_of(record, self.profile.endian);
        let space = pid.and_then(|pid| self.processes.space_at(pid, time.unwrap_or(Time::LAST)));
        Located {
            content,
            pid,
            time,
            space,
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
