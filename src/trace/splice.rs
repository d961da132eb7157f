//! Replacement of a profile's call chains by the calls that a log or trace recorded.
//!
//! Where code keeps no frame pointer, the kernel records arbitrary data from the stack as callers. A record
//! of all calls gives the stack of each thread at each sample, which replaces all frames above the sampled
//! function.

use std::io::{self, Write};
use std::path::Path;

use crate::diagnostics::Diagnostic;
use crate::files::temp_file::temp_file_error;
use crate::files::{InputFile, TempFile};
use crate::hash::HashMap;
use crate::perf::record::Record;
use crate::perf::sample::Sample;
use crate::perf::{Profile, callchain, record};
use crate::trace::chain::Chain;
use crate::units::{Address, Pid, Tid, Time};

/// Thread and time of a sample that may get another call chain.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct SampleKey {
    /// Thread ID.
    pub tid: Tid,
    /// Time on the profile's clock.
    pub time: Time,
    /// Index among the samples of the source, in file order.
    pub index: usize,
}

/// A log or trace with the call stacks of a process.
pub trait StackSource {
    /// Returns its name for messages.
    fn name(&self) -> String;

    /// Returns its process.
    fn pid(&self) -> Pid;

    /// Whether it has the callers of code at an address.
    fn covers(&self, leaf: Address) -> bool;

    /// Finds the stacks at `sample_keys`, which must be sorted, and keeps them by index. Returns how many it
    /// found.
    fn find(&mut self, sample_keys: &[SampleKey]) -> usize;

    /// Makes the call chain of the sample with index `sample` at `leaf`; returns `false` if it is not known.
    fn write_chain(&mut self, sample: usize, leaf: Address, chain: &mut Chain) -> bool;
}

/// A source with its samples and results.
struct Spliced<'s> {
    source: Box<dyn StackSource + 's>,
    /// Samples that it covers, until their stacks are found.
    sample_keys: Vec<SampleKey>,
    found: ChainCounts,
    /// Number of samples processed so far, whether their call chains were replaced or not.
    done: usize,
}

/// Numbers of samples that a source covers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ChainCounts {
    /// Samples with a known stack.
    pub known: usize,
    /// All samples.
    pub total: usize,
}

/// Returns the records of a profile in which samples covered by one of `sources` have the call chains found
/// there, and the numbers of these samples for each source. No two sources may have the same process.
///
/// Takes 24 bytes of memory for each such sample, plus the memory of the sources.
pub fn splice(
    profile: &Profile<'_>,
    sources: Vec<Box<dyn StackSource + '_>>,
) -> Result<(InputFile, Vec<ChainCounts>), Diagnostic> {
    let mut all = Splice {
        profile,
        by_pid: (0..)
            .zip(&sources)
            .map(|(at, source)| (source.pid(), at))
            .collect(),
        sources: sources.into_iter().map(Spliced::new).collect(),
    };
    all.collect();
    all.sources.iter_mut().for_each(Spliced::find);
    let records = all.rewrite().map_err(temp_file_error)?;
    Ok((records, all.sources.iter().map(|source| source.found).collect()))
}

impl<'s> Spliced<'s> {
    fn new(source: Box<dyn StackSource + 's>) -> Self {
        Self {
            source,
            sample_keys: Vec::new(),
            found: ChainCounts::default(),
            done: 0,
        }
    }

    fn find(&mut self) {
        let mut sample_keys = std::mem::take(&mut self.sample_keys);
        sample_keys.sort_unstable();
        self.found = ChainCounts {
            known: self.source.find(&sample_keys),
            total: sample_keys.len(),
        };
    }
}

struct Splice<'p, 's> {
    profile: &'p Profile<'p>,
    sources: Vec<Spliced<'s>>,
    /// Index of the source for each process.
    by_pid: HashMap<Pid, usize>,
}

impl<'s> Splice<'_, 's> {
    /// Returns the source for a sample whose call chain is to be replaced, and the sample's address.
    fn source(&mut self, record: &Record<'_>, sample: &Sample<'_>) -> Option<(&mut Spliced<'s>, Address)> {
        sample.callchain_offset?;
        let spliced = self.sources.get_mut(*self.by_pid.get(&sample.pid?)?)?;
        let leaf = callchain::user_address(record, sample)?;
        spliced.source.covers(leaf).then_some((spliced, leaf))
    }

    /// Collects the keys of all samples.
    fn collect(&mut self) {
        let Profile { attrs, endian, .. } = self.profile;
        for record in self.profile.records() {
            let Some(attr) = attrs
                .event_of(&record, *endian)
                .filter(|_| record.kind == record::SAMPLE)
            else {
                continue;
            };
            let sample = Sample::parse(&record, attr, *endian);
            if let Some((spliced, _)) = self.source(&record, &sample) {
                spliced.sample_keys.push(SampleKey {
                    tid: sample.tid.unwrap_or(Tid(spliced.source.pid().0)),
                    time: attrs.time_of(&record, *endian).unwrap_or_default(),
                    index: spliced.sample_keys.len(),
                });
            }
        }
    }

    /// Copies all records, with new call chains where they are known.
    fn rewrite(&mut self) -> io::Result<InputFile> {
        let mut temp_file = TempFile::create()?;
        let mut buffer = Vec::new();
        let mut chain = Chain::default();
        for record in self.profile.records() {
            buffer.clear();
            if record.kind == record::SAMPLE && self.write_sample(&record, &mut chain, &mut buffer).is_some()
            {
                temp_file.write_all(&buffer)?;
            } else {
                temp_file.write_all(record.bytes)?;
                temp_file.write_all(record.payload)?;
            }
        }
        temp_file.map(Path::new("records"))
    }

    /// Appends a sample with its new call chain to `out`; `None` if that is unknown.
    fn write_sample(&mut self, record: &Record<'_>, chain: &mut Chain, out: &mut Vec<u8>) -> Option<()> {
        let Profile { attrs, endian, .. } = self.profile;
        let attr = attrs.event_of(record, *endian)?;
        let (spliced, leaf) = self.source(record, &Sample::parse(record, attr, *endian))?;
        let sample = spliced.done;
        spliced.done = sample.saturating_add(1);
        chain.restart(Some(leaf));
        let is_known = spliced.source.write_chain(sample, leaf, chain);
        let callers = chain.callers().iter().copied();
        is_known.then(|| callchain::write_with_callers(out, *endian, record, attr, callers))?
    }
}
