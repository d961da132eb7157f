//! The event whose samples are on the page.

use crate::frames::events;
use crate::perf::Profile;
use crate::perf::record::{self, Record};
use crate::results::diagnostics::Diagnostic;

/// An event.
#[derive(Debug)]
pub struct CountedEvent {
    /// Its name.
    pub name: String,
    /// Whether samples count for it, by the index of their attributes.
    attrs: Vec<bool>,
}

impl CountedEvent {
    /// Returns the event with a name, or the first one with samples.
    pub fn of(profile: &Profile<'_>, name: Option<&str>) -> Result<Self, Diagnostic> {
        let (events, counted_as) = events::of_profile(profile, name);
        let counted = match name {
            Some(name) => events::position(&events, name)?,
            None => first(profile, &counted_as),
        };
        let event = events.into_iter().nth(counted as usize);
        Ok(Self {
            name: event.map_or_else(String::new, |event| event.name),
            attrs: counted_as.iter().map(|&event| event == counted).collect(),
        })
    }

    /// Whether a record is one of its samples, or belongs to one.
    pub fn has(&self, record: &Record<'_>, profile: &Profile<'_>) -> bool {
        let attr = profile.attrs.index_of(record, profile.endian);
        self.attrs.get(attr) == Some(&true)
    }
}

/// Returns the first event with samples; that is mostly the one of the first sample.
fn first(profile: &Profile<'_>, counted_as: &[u32]) -> u32 {
    let mut first = None;
    let mut records = profile.records();
    while let Some(record) = records.next() {
        if record.kind != record::SAMPLE {
            continue;
        }
        let attr = profile.attrs.index_of(&record, profile.endian);
        let event = counted_as.get(attr).copied().unwrap_or_default();
        if event == 0 {
            return 0;
        }
        first = Some(first.map_or(event, |first: u32| first.min(event)));
    }
    first.unwrap_or_default()
}
