//! The samples of a profile, each with its process, time and address space.
//!
//! Each thread has one visitor for a whole walk, with its caches. It takes chunks in file order. What
//! depends on the order of samples is merged after each batch of chunks by offsets, so the result does not
//! depend on the number of threads.

use std::ops::{ControlFlow, Range};

use jitdump::{Address, Time};

use crate::code::process::{Processes, SpaceId};
use crate::code::profile_index::{IndexedProfile, TimeMarks};
use crate::perf::Profile;
use crate::perf::attr::Attr;
use crate::perf::record::reader::RecordReader;
use crate::perf::record::{self, Record};
use crate::perf::sample::Sample;
use crate::threads;
use crate::units::Pid;

/// Maximum size of a chunk of records that one thread reads at a time, in bytes.
const CHUNK: u64 = 4 << 20;

/// Size of the records that each thread reads before the results are merged, in bytes: so many that no thread waits long for
/// the others.
const BATCH: u64 = 16 * CHUNK;

/// Minimum number of chunks of a thread in a batch.
const MIN_CHUNKS: u64 = 4;

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
pub struct SampleRecord<'a> {
    /// The record.
    pub record: Record<'a>,
    /// Its fields.
    pub sample: Sample<'a>,
}

impl SampleRecord<'_> {
    /// Returns the sampled address if it is in user space.
    pub fn user_ip(&self) -> Option<Address> {
        self.sample.ip.filter(|_| self.cpu_mode() == record::MISC_USER)
    }

    /// Returns the mode of the sampled address. BPF programs write samples of waits in the kernel.
    pub fn cpu_mode(&self) -> u16 {
        if self.sample.is_off_cpu {
            record::MISC_USER
        } else {
            self.record.cpu_mode()
        }
    }
}

/// Collects what it needs of samples. Each thread has one, for some of them, in file order.
pub trait SampleVisitor: Send {
    /// Size of the records that each thread reads before the visitors are merged, in bytes. It limits the memory of a visitor that
    /// keeps something of each sample until then.
    const BATCH: u64 = BATCH;

    /// Adds a sample.
    fn sample(&mut self, sample: &Located<SampleRecord<'_>>);

    /// Adds the user callers of an earlier sample, recorded later (`perf record --call-graph fp,defer`).
    fn deferred_chain(&mut self, _chain: &Located<Record<'_>>) {}
}

/// Collects nothing.
impl SampleVisitor for () {
    fn sample(&mut self, _: &Located<SampleRecord<'_>>) {}
}

/// Two visitors.
impl<A: SampleVisitor, B: SampleVisitor> SampleVisitor for (A, B) {
    const BATCH: u64 = if A::BATCH < B::BATCH { A::BATCH } else { B::BATCH };

    fn sample(&mut self, sample: &Located<SampleRecord<'_>>) {
        self.0.sample(sample);
        self.1.sample(sample);
    }

    fn deferred_chain(&mut self, chain: &Located<Record<'_>>) {
        self.0.deferred_chain(chain);
        self.1.deferred_chain(chain);
    }
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
    pub fn try_for_each(self, mut visit: impl FnMut(&Located<SampleRecord<'_>>) -> ControlFlow<()>) {
        let mut records = self.profile.records();
        let mut spaces = RecentSpaces::default();
        while let Some(record) = records.next() {
            if record.kind == record::SAMPLE
                && let Some(attr) = self.profile.attrs.event_of(&record, self.profile.endian)
                && visit(&self.sample(record, attr, &mut spaces)).is_break()
            {
                return;
            }
        }
    }

    /// Reads the records in chunks, in several threads. `start` makes a visitor for each thread. After each batch of chunks, calls
    /// `merge` with all visitors, and `progress` with the number of bytes just read. `marks` must be those of the same profile.
    /// Returns the visitors.
    pub fn visit<V: SampleVisitor>(
        self,
        marks: &TimeMarks,
        start: impl Fn() -> V + Sync,
        merge: impl FnMut(&mut [Visited<'a, V>]),
        progress: impl FnMut(u64),
    ) -> Vec<V> {
        let Profile { attrs, endian, .. } = self.profile;
        let visit = |visited: &mut Visited<'a, V>| {
            let Visited {
                visitor,
                records,
                spaces,
            } = visited;
            while let Some(record) = records.next() {
                match record.kind {
                    record::SAMPLE => {
                        if let Some(attr) = attrs.event_of(&record, *endian) {
                            visitor.sample(&self.sample(record, attr, spaces));
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
        };
        self.visit_chunks(&Chunks::new(marks, V::BATCH), start, visit, merge, progress)
    }

    /// Like [`Self::visit`], but calls `visit` for each chunk, with all records.
    pub fn visit_records<V: Send>(
        self,
        marks: &TimeMarks,
        start: impl Fn() -> V + Sync,
        visit: impl Fn(&mut V, &mut RecordReader<'a>) + Sync,
    ) -> Vec<V> {
        let visit = |visited: &mut Visited<'a, V>| visit(&mut visited.visitor, &mut visited.records);
        self.visit_chunks(&Chunks::new(marks, BATCH), start, visit, |_| (), |_| ())
    }

    /// Visits chunks of samples in several threads. After each batch of chunks, `merge` gets the visitors of all
    /// threads, and `progress` the size of the batch in bytes.
    fn visit_chunks<V: Send>(
        self,
        chunks: &Chunks,
        start: impl Fn() -> V + Sync,
        visit: impl Fn(&mut Visited<'a, V>) + Sync,
        mut merge: impl FnMut(&mut [Visited<'a, V>]),
        mut progress: impl FnMut(u64),
    ) -> Vec<V> {
        let start = || Visited {
            visitor: start(),
            records: self.profile.records(),
            spaces: RecentSpaces::default(),
        };
        let visit = |visited: &mut Visited<'a, V>, chunk: &Range<u64>| {
            visited
                .records
                .restrict(self.profile.data, chunk.start, chunk.end);
            visit(visited);
        };
        let mut all = Vec::new();
        for batch in chunks.ranges.chunks(chunks.per_batch) {
            threads::for_each_in_order(batch, &mut all, start, visit);
            merge(&mut all);
            let lengths = batch.iter().map(|chunk| chunk.end.saturating_sub(chunk.start));
            progress(lengths.sum());
        }
        all.into_iter().map(|visited| visited.visitor).collect()
    }

    /// Returns a sample of the event with these attributes.
    #[inline]
    fn sample<'r>(
        self,
        record: Record<'r>,
        attr: &Attr,
        spaces: &mut RecentSpaces,
    ) -> Located<SampleRecord<'r>> {
        let Profile { attrs, endian, .. } = self.profile;
        let time = attrs.sample_time(&record, attr, *endian);
        let sample = Sample::parse(&record, attr, *endian);
        let space = sample
            .pid
            .and_then(|pid| spaces.at(self.processes, pid, time.unwrap_or(Time::LAST)));
        Located {
            pid: sample.pid,
            content: SampleRecord { record, sample },
            time,
            space,
        }
    }

    fn deferred_chain<'r>(self, record: Record<'r>) -> Option<Located<Record<'r>>> {
        let Profile { attrs, endian, .. } = self.profile;
        let pid = attrs.event_of(&record, *endian)?.trailer_pid(&record, *endian)?;
        let time = attrs.time_of(&record, *endian);
        Some(Located {
            content: record,
            pid: Some(pid),
            time,
            space: self.processes.space_at(pid, time.unwrap_or(Time::LAST)),
        })
    }
}

/// A visitor with what its thread reads.
pub struct Visited<'a, V> {
    /// The visitor.
    pub visitor: V,
    records: RecordReader<'a>,
    spaces: RecentSpaces,
}

/// Address spaces of a few processes that had samples last.
#[derive(Debug, Default)]
struct RecentSpaces {
    /// By the low bits of the process ID.
    of_processes: [Option<RecentSpace>; 16],
}

/// Address space of a process.
#[derive(Clone, Debug)]
struct RecentSpace {
    pid: Pid,
    /// Times at which the process has it.
    times: Range<Time>,
    space: SpaceId,
}

impl RecentSpaces {
    /// Returns the address space of a process at a time, as [`Processes::space_at`] does.
    #[inline]
    fn at(&mut self, processes: &Processes, pid: Pid, time: Time) -> Option<SpaceId> {
        let kept = self.of_processes.get_mut(pid.0 as usize % 16)?;
        if let Some(recent) = kept
            && recent.pid == pid
            && recent.times.contains(&time)
        {
            return Some(recent.space);
        }
        let (space, times) = processes.space_with_times(pid, time)?;
        *kept = Some(RecentSpace { pid, times, space });
        Some(space)
    }
}

/// The records of a profile in chunks.
#[derive(Debug)]
struct Chunks {
    /// Positions of the chunks, in file order.
    ranges: Vec<Range<u64>>,
    /// Number of chunks that the threads read before the results are merged.
    per_batch: usize,
}

impl Chunks {
    /// Cuts the records at the marks. Each thread reads about `batch` bytes at a time.
    fn new(marks: &TimeMarks, batch: u64) -> Self {
        let (end, threads) = (marks.data_end, threads::count());
        let ChunkSize { size, per_thread } = ChunkSize::of(end, threads, batch);
        let mut ranges: Vec<Range<u64>> = Vec::new();
        for start in marks.starts() {
            match ranges.last_mut() {
                Some(last) if start.saturating_sub(last.start) < size => continue,
                Some(last) => last.end = start,
                None => {}
            }
            ranges.push(start..end);
        }
        Self {
            ranges,
            per_batch: threads.saturating_mul(per_thread),
        }
    }
}

/// How many records a thread reads at a time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct ChunkSize {
    /// Minimum size of a chunk, in bytes.
    size: u64,
    /// Number of chunks of a thread in a batch.
    per_thread: usize,
}

impl ChunkSize {
    /// Returns the size for records of `end` bytes, of which each thread reads about `batch` bytes at a time.
    fn of(end: u64, threads: usize, batch: u64) -> Self {
        /// Average number of chunks per thread of a small profile.
        const FEW: u64 = 4;
        let max_size = CHUNK.min(batch / MIN_CHUNKS).max(1);
        Self {
            size: (end / (threads as u64).saturating_mul(FEW)).clamp(1, max_size),
            per_thread: usize::try_from(batch / max_size).unwrap_or(1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the size of a chunk and the number of chunks of a thread in a batch.
    fn chunks(end: u64, threads: usize, batch: u64) -> (u64, usize) {
        let ChunkSize { size, per_thread } = ChunkSize::of(end, threads, batch);
        (size, per_thread)
    }

    #[test]
    fn each_thread_has_four_chunks_of_a_small_profile_and_of_a_small_batch() {
        const MIB: u64 = 1 << 20;
        assert_eq!(chunks(32 * MIB, 8, 64 * MIB), (MIB, 16));
        assert_eq!(chunks(1000 * MIB, 8, 64 * MIB), (4 * MIB, 16));
        assert_eq!(chunks(1000 * MIB, 8, 4 * MIB), (MIB, 4));
        assert_eq!(chunks(8 * MIB, 8, 4 * MIB), (MIB / 4, 4));
        assert_eq!(chunks(0, 8, 4 * MIB), (1, 4));
    }
}
