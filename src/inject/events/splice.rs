//! Call chains of a profile's samples, from the calls that a log or a trace tells of.
//!
//! Where code keeps no frame pointer, what the kernel takes for callers is whatever lay on the stack. Who was told of
//! each call knows the stack of each thread at each sample_key: it replaces all above the sampled function.

use std::io::{self, Write};
use std::path::Path;

use crate::files::{MappedFile, Spool};
use crate::hash::HashMap;
use crate::inject::Error;
use crate::inject::events::{Chain, SampleKey};
use crate::perf::record::Record;
use crate::perf::sample::Sample;
use crate::perf::{Profile, callchain, record};
use crate::units::{Address, Pid, Tid};

/// A log or a trace that knows the stacks of a process.
pub trait StackSource {
    /// How to call it.
    fn name(&self) -> String;

    /// The process.
    fn pid(&self) -> Pid;

    /// Whether it knows the callers of what is at an address.
    fn covers(&self, leaf: Address) -> bool;

    /// ScanBudget for the stacks at `sample_keys`, which are sorted, and keeps them by their places. Tells of how many it has
    /// got one.
    fn find(&mut self, sample_keys: &[SampleKey]) -> usize;

    /// Makes the call chain of the sample at `place`, which was taken at `leaf`; `false` if it is not known.
    fn put_chain(&mut self, place: usize, leaf: Address, chain: &mut Chain) -> bool;
}

/// A source, and what it has done.
struct Spliced<'s> {
    source: Box<dyn StackSource + 's>,
    /// Those that it covers, until their stacks were found.
    sample_keys: Vec<SampleKey>,
    found: Found,
    /// How many samples were rewritten, or not, since nothing is known.
    done: usize,
}

/// How many samples got another call chain.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Found {
    /// So many,
    pub known: usize,
    /// of all these.
    pub total: usize,
}

/// The records of a profile, with all samples that one of `sources` covers having the stack that it tells of, and for
/// each of them how many that are. No two are of the same process.
///
/// It takes 24 bytes of memory for each such sample, and what the sources keep.
pub fn splice(
    profile: &Profile<'_>,
    sources: Vec<Box<dyn StackSource + '_>>,
) -> Result<(MappedFile, Vec<Found>), Error> {
    let mut all = Splice {
        profile,
        places: (0..)
            .zip(&sources)
            .map(|(at, source)| (source.pid(), at))
            .collect(),
        sources: sources.into_iter().map(Spliced::new).collect(),
    };
    all.collect();
    all.sources.iter_mut().for_each(Spliced::find);
    let records = all.rewrite().map_err(|cause| Error::Spool { cause })?;
    Ok((records, all.sources.iter().map(|source| source.found).collect()))
}

impl<'s> Spliced<'s> {
    fn new(source: Box<dyn StackSource + 's>) -> Self {
        Self {
            source,
            sample_keys: Vec::new(),
            found: Found::default(),
            done: 0,
        }
    }

    fn find(&mut self) {
        let mut sample_keys = std::mem::take(&mut self.sample_keys);
        sample_keys.sort_unstable();
        self.found = Found {
            known: self.source.find(&sample_keys),
            total: sample_keys.len(),
        };
    }
}

/// The work.
struct Splice<'p, 's> {
    profile: &'p Profile<'p>,
    sources: Vec<Spliced<'s>>,
    /// Where among them that of each process is.
    places: HashMap<Pid, usize>,
}

impl<'s> Splice<'_, 's> {
    /// The source of a sample that is to get another call chain, and where it was taken.
    fn source(&mut self, record: &Record<'_>, sample: &Sample<'_>) -> Option<(&mut Spliced<'s>, Address)> {
        sample.callchain_offset?;
        let spliced = self.sources.get_mut(*self.places.get(&sample.pid?)?)?;
        let leaf = callchain::user_address(record, sample)?;
        spliced.source.covers(leaf).then_some((spliced, leaf))
    }

    /// Notes the sample_keys of all samples.
    fn collect(&mut self) {
        let Profile { attrs, order, .. } = self.profile;
        for record in self.profile.records() {
            let Some(attr) = attrs
                .of(&record, *order)
                .filter(|_| record.kind == record::SAMPLE)
            else {
                continue;
            };
            let sample = Sample::parse(&record, attr, *order);
            if let Some((spliced, _)) = self.source(&record, &sample) {
                spliced.sample_keys.push(SampleKey {
                    tid: sample.tid.unwrap_or(Tid(spliced.source.pid().0)),
                    time: attrs.time_of(&record, *order).unwrap_or_default(),
                    place: spliced.sample_keys.len(),
                });
            }
        }
    }

    /// All records, with other call chains where they are known.
    fn rewrite(&mut self) -> io::Result<MappedFile> {
        let mut spool = Spool::create()?;
        let mut buffer = Vec::new();
        let mut chain = Chain::default();
        for record in self.profile.records() {
            buffer.clear();
            if record.kind == record::SAMPLE && self.put(&record, &mut chain, &mut buffer).is_some() {
                spool.write_all(&buffer)?;
            } else {
                spool.write_all(record.bytes)?;
                spool.write_all(record.payload)?;
            }
        }
        spool.map(Path::new("records"))
    }

    /// A sample with another call chain, if there is one for it.
    fn put(&mut self, record: &Record<'_>, chain: &mut Chain, out: &mut Vec<u8>) -> Option<()> {
        let Profile { attrs, order, .. } = self.profile;
        let attr = attrs.of(record, *order)?;
        let (spliced, leaf) = self.source(record, &Sample::parse(record, attr, *order))?;
        let place = spliced.done;
        spliced.done = place.saturating_add(1);
        chain.restart(Some(leaf));
        let is_known = spliced.source.put_chain(place, leaf, chain);
        let callers = chain.callers().iter().copied();
        is_known.then(|| callchain::put_with_callers(out, *order, record, attr, callers))?
    }
}
