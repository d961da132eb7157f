//! Replacement of a profile's call chains by the calls that a log or trace recorded.
//!
//! Where code keeps no frame pointer, the kernel records arbitrary data from the stack as callers. A record
//! of all calls gives the stack of each thread at each sample, which replaces all frames above the sampled
//! function.

use std::io::{self, Write};
use std::path::Path;

use jitdump::{Address, Time};

use crate::collections::hash::HashMap;
use crate::files::temp_file::temp_file_error;
use crate::files::{StreamedFile, TempFile};
use crate::perf::attr::Attr;
use crate::perf::record::Record;
use crate::perf::sample::Sample;
use crate::perf::{Profile, callchain, record};
use crate::results::diagnostics::Diagnostic;
use crate::traces::conversion::chain::CallChain;
use crate::units::{Pid, Tid};

/// Thread and time of a sample that may get another call chain.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct SampleKey {
    /// Process ID.
    pub pid: Pid,
    /// Thread ID.
    pub tid: Tid,
    /// Time on the profile's clock.
    pub time: Time,
    /// Index among the samples of the source, in file order.
    pub index: usize,
}

/// Logs or traces with the call stacks of processes.
pub trait StackSource {
    /// Returns their processes, each with its name for messages.
    fn processes(&self) -> Vec<(Pid, String)>;

    /// Whether they have the callers of code at an address.
    fn covers(&self, pid: Pid, leaf: Address) -> bool;

    /// Finds the stacks at samples, and keeps them by index.
    fn find_stacks(&mut self, sample_keys: Vec<SampleKey>);

    /// Makes the call chain of the sample with index `sample` at `leaf`; returns `false` if it is not known.
    fn write_chain(&mut self, pid: Pid, sample: usize, leaf: Address, chain: &mut CallChain) -> bool;
}

/// Call chains of a process that a source covers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReplacedChains {
    /// Name of the process or of its log, for messages.
    pub name: String,
    /// Number of samples with a known stack.
    pub known: u64,
    /// Number of all samples.
    pub total: u64,
    /// Index of the source.
    source: usize,
}

/// Returns the records of a profile in which samples covered by one of `sources` have the call chains found
/// there, and what was found for each process. No two sources may have the same process.
///
/// Takes 24 bytes of memory for each such sample, plus the memory of the sources.
pub fn splice(
    profile: &Profile<'_>,
    sources: Vec<Box<dyn StackSource + '_>>,
) -> Result<(StreamedFile, Vec<ReplacedChains>), Diagnostic> {
    let mut splice = Splice {
        profile,
        sources,
        processes: Vec::new(),
        by_pid: HashMap::default(),
    };
    for (index, source) in splice.sources.iter().enumerate() {
        for (pid, name) in source.processes() {
            splice.by_pid.insert(pid, splice.processes.len());
            splice.processes.push(ReplacedChains {
                name,
                known: 0,
                total: 0,
                source: index,
            });
        }
    }
    splice.find_stacks();
    let records = splice.rewrite().map_err(temp_file_error)?;
    Ok((records, splice.processes))
}

struct Splice<'p, 's> {
    profile: &'p Profile<'p>,
    sources: Vec<Box<dyn StackSource + 's>>,
    processes: Vec<ReplacedChains>,
    /// Index of each process.
    by_pid: HashMap<Pid, usize>,
}

/// A sample whose call chain may be replaced.
struct CoveredSample {
    pid: Pid,
    tid: Tid,
    leaf: Address,
    /// Index of the process.
    process: usize,
    /// Index of the source.
    source: usize,
}

impl Splice<'_, '_> {
    /// Returns a sample if a source covers it.
    fn covered(&self, record: &Record<'_>, attr: &Attr) -> Option<CoveredSample> {
        let sample = Sample::parse(record, attr, self.profile.endian);
        sample.callchain_offset?;
        let pid = sample.pid?;
        let process = *self.by_pid.get(&pid)?;
        let source = self.processes.get(process)?.source;
        let leaf = callchain::user_address(record, &sample)?;
        let covered = CoveredSample {
            pid,
            tid: sample.tid.unwrap_or(Tid(pid.0)),
            leaf,
            process,
            source,
        };
        self.sources.get(source)?.covers(pid, leaf).then_some(covered)
    }

    /// Finds the stacks of all samples.
    fn find_stacks(&mut self) {
        let Profile { attrs, endian, .. } = self.profile;
        let mut sample_keys = vec![Vec::new(); self.sources.len()];
        let mut records = self.profile.records();
        while let Some(record) = records.next() {
            if record.kind == record::SAMPLE
                && let Some(attr) = attrs.event_of(&record, *endian)
                && let Some(CoveredSample { pid, tid, source, .. }) = self.covered(&record, attr)
                && let Some(sample_keys) = sample_keys.get_mut(source)
            {
                sample_keys.push(SampleKey {
                    pid,
                    tid,
                    time: attrs.time_of(&record, *endian).unwrap_or_default(),
                    index: sample_keys.len(),
                });
            }
        }
        for (source, sample_keys) in self.sources.iter_mut().zip(sample_keys) {
            source.find_stacks(sample_keys);
        }
    }

    /// Copies all records, with new call chains where they are known.
    fn rewrite(&mut self) -> io::Result<StreamedFile> {
        let mut temp_file = TempFile::create()?;
        let mut buffer = Vec::new();
        let mut chain = CallChain::default();
        // Number of samples of each source so far.
        let mut done = vec![0; self.sources.len()];
        let profile = self.profile;
        let mut records = profile.records();
        while let Some(record) = records.next() {
            buffer.clear();
            let is_new = record.kind == record::SAMPLE
                && self
                    .write_sample(&record, &mut done, &mut chain, &mut buffer)
                    .is_some();
            if is_new {
                temp_file.write_all(&buffer)?;
            } else {
                profile.data.copy_record(&record, &mut temp_file)?;
            }
        }
        temp_file.into_streamed(Path::new("records"))
    }

    /// Appends a sample with its new call chain to `out`; `None` if that is unknown.
    fn write_sample(
        &mut self,
        record: &Record<'_>,
        done: &mut [usize],
        chain: &mut CallChain,
        out: &mut Vec<u8>,
    ) -> Option<()> {
        let Profile { attrs, endian, .. } = self.profile;
        let attr = attrs.event_of(record, *endian)?;
        let CoveredSample {
            pid,
            leaf,
            process,
            source,
            ..
        } = self.covered(record, attr)?;
        let done = done.get_mut(source)?;
        let sample = *done;
        *done = sample.saturating_add(1);
        chain.restart(Some(leaf));
        let is_known = self
            .sources
            .get_mut(source)?
            .write_chain(pid, sample, leaf, chain);
        let process = self.processes.get_mut(process)?;
        process.total = process.total.saturating_add(1);
        process.known = process.known.saturating_add(is_known.into());
        let callers = chain.callers().iter().copied();
        is_known.then(|| callchain::write_with_callers(out, *endian, record, attr, callers))?
    }
}
