//! Making of profiles from events, alone or added to what was recorded.

use std::io;
use std::path::Path;

use jitdump::Time;

use crate::files::temp_file::temp_file_error;
use crate::files::{StreamedFile, TempFile};
use crate::perf::Profile;
use crate::perf::record::data::ProfileBytes;
use crate::results::diagnostics::Diagnostic;
use crate::traces::conversion::merge::{Ahead, Merge};
use crate::traces::conversion::synthesis::{Definition, EventOrigin, Synthesis, Synthesized};

/// Writer of a new profile's records.
pub type Out<'p> = Synthesis<'p, TempFile>;

/// A log or trace to convert to events.
pub trait EventSource {
    /// Returns the time of the next event on the profile's clock, or `None` if there are no more.
    fn next_time(&mut self) -> Option<Time>;

    /// Writes what the profile lacks, as of `start` and before all events: threads, and mappings of files.
    /// With `is_alone`, the profile has neither.
    fn write_start(&self, out: &mut Out<'_>, start: Time, is_alone: bool) -> io::Result<()>;

    /// Writes the records of the next event.
    fn write_next(&mut self, out: &mut Out<'_>) -> io::Result<()>;

    /// Counts what is incomplete when there are no more events.
    fn finish(self: Box<Self>);
}

impl Ahead for Box<dyn EventSource + '_> {
    type Time = Time;

    fn time(&mut self) -> Option<Time> {
        self.next_time()
    }
}

/// A synthesized profile.
#[derive(Debug)]
pub struct SynthesizedProfile {
    /// Everything but the records.
    pub synthesized: Synthesized,
    /// The records.
    pub records: StreamedFile,
}

impl SynthesizedProfile {
    /// Returns the profile.
    pub fn profile(&self) -> Profile<'_> {
        self.synthesized.profile(ProfileBytes::of_file(&self.records))
    }
}

/// What a new profile is made of.
#[derive(Debug)]
pub enum BaseProfile<'p, 'o> {
    /// A recorded profile, with events added to it.
    Recorded(&'p Profile<'p>),
    /// Events alone.
    Nothing(EventOrigin<'o>),
}

/// Makes a profile of `sources`, whose events are `definitions`.
pub fn synthesize(
    base: &BaseProfile<'_, '_>,
    definitions: &[Definition<'_>],
    sources: Vec<Box<dyn EventSource + '_>>,
) -> Result<SynthesizedProfile, Diagnostic> {
    write(base, definitions, sources).map_err(temp_file_error)
}

/// Writes the events of all sources by time, into a copy of the recorded profile or a new one.
fn write(
    base: &BaseProfile<'_, '_>,
    definitions: &[Definition<'_>],
    mut sources: Vec<Box<dyn EventSource + '_>>,
) -> io::Result<SynthesizedProfile> {
    let temp_file = TempFile::create()?;
    let mut out = match base {
        BaseProfile::Recorded(profile) => Synthesis::with_recording(profile, definitions, temp_file)?,
        BaseProfile::Nothing(origin) => Synthesis::stand_alone(origin, definitions, temp_file),
    };
    let first = sources.iter_mut().filter_map(|source| source.next_time()).min();
    // Before the first event, so that their order is unambiguous.
    let start = Time(first.unwrap_or_default().0.saturating_sub(1));
    for source in &sources {
        source.write_start(&mut out, start, matches!(base, BaseProfile::Nothing(_)))?;
    }
    let mut merge = Merge::new(sources);
    while let Some(source) = merge.next() {
        source.write_next(&mut out)?;
    }
    merge.sources.into_iter().for_each(|source| source.finish());
    let (synthesized, temp_file) = out.finish()?;
    Ok(SynthesizedProfile {
        synthesized,
        records: temp_file.into_streamed(Path::new("records"))?,
    })
}
