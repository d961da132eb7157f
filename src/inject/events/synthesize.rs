//! Profiles out of events: of them alone, or of them and what was recorded.

use std::io;
use std::path::Path;

use crate::files::{MappedFile, Spool};
use crate::inject::Error;
use crate::inject::events::{Ahead, Merge};
use crate::perf::Profile;
use crate::perf::synthesis::{Definition, Origin, Synthesis, Synthesized};
use crate::units::Time;

/// Where the records of a profile in the making go.
pub type Out<'p> = Synthesis<'p, Spool>;

/// A log or a trace that becomes events.
pub trait EventSource {
    /// When the next event is, on the profile's clock; `None` if there are no more.
    fn next_time(&mut self) -> Option<Time>;

    /// Adds what the profile does not know, before anything else: threads, and where files were mapped, as of `start`.
    /// If the events are alone, it knows nothing.
    fn write_start(&self, out: &mut Out<'_>, start: Time, is_alone: bool) -> io::Result<()>;

    /// Adds what the next event becomes.
    fn write_next(&mut self, out: &mut Out<'_>) -> io::Result<()>;

    /// Counts what has not come to an end when there are no more events.
    fn finish(&mut self);
}

impl Ahead for Box<dyn EventSource + '_> {
    type Time = Time;

    fn time(&mut self) -> Option<Time> {
        self.next_time()
    }
}

/// A profile that was made.
#[derive(Debug)]
pub struct Made<'p> {
    /// All but the records.
    pub synthesized: Synthesized<'p>,
    /// The records.
    pub records: MappedFile,
}

impl Made<'_> {
    /// The profile.
    pub fn profile(&self) -> Profile<'_> {
        self.synthesized.profile(&self.records)
    }
}

/// What a profile is made of.
#[derive(Debug)]
pub enum Base<'p, 'o> {
    /// Of what was recorded, and events beside that.
    Recorded(&'p Profile<'p>),
    /// Of events alone.
    Nothing(Origin<'o>),
}

/// Makes a profile of `sources`, whose events are `definitions`.
pub fn synthesize<'p>(
    base: &Base<'p, '_>,
    definitions: &[Definition<'_>],
    sources: Vec<Box<dyn EventSource + '_>>,
) -> Result<Made<'p>, Error> {
    write(base, definitions, sources).map_err(|cause| Error::Spool { cause })
}

fn write<'p>(
    base: &Base<'p, '_>,
    definitions: &[Definition<'_>],
    mut sources: Vec<Box<dyn EventSource + '_>>,
) -> io::Result<Made<'p>> {
    let spool = Spool::create()?;
    let mut out = match base {
        Base::Recorded(profile) => Synthesis::beside(profile, definitions, spool)?,
        Base::Nothing(origin) => Synthesis::stand_alone(origin, definitions, spool),
    };
    let first = sources.iter_mut().filter_map(|source| source.next_time()).min();
    // Before the first event, so that nobody has to ask which of the two was first.
    let start = Time(first.unwrap_or_default().0.saturating_sub(1));
    for source in &sources {
        source.write_start(&mut out, start, matches!(base, Base::Nothing(_)))?;
    }
    let mut merge = Merge::new(sources);
    while let Some(source) = merge.next() {
        source.write_next(&mut out)?;
    }
    merge.into_sources().iter_mut().for_each(|source| source.finish());
    let (synthesized, spool) = out.finish()?;
    Ok(Made {
        synthesized,
        records: spool.map(Path::new("records"))?,
    })
}
