//! Changes to the mmap records of a profile.
//!
//! - The mapping of an object is inserted before the first record, in file order, with the same or a later
//!   time. No reader gets it late, whatever its rounds.
//! - A perf map symbol is mapped just after the memory that contains it, and never beyond that memory. A
//!   damaged size cannot hide a library. A forked process inherits the mapping, unless the symbol is its
//!   own.
//! - The markers of used jitdumps are removed, and a second run finds nothing to do.

use jitdump::{Address, Tally, printable};

use crate::code::profile_index::{IndexedProfile, ProfileIndex};
use crate::code::timeline::FreedRange;
use crate::inject::mmap_trim;
use crate::inject::mmap_trim::{InsertedMap, Replaced};
use crate::inject::objects::PlacedObject;
use crate::load::RuntimeFiles;
use crate::perf::Profile;
use crate::perf::output::Edits;
use crate::perf::process_records::Mmap;
use crate::perf::synthetic;
use crate::perf::synthetic::{RecordEvent, SyntheticMapping};
use crate::results::diagnostics::{Diagnostic, Issue};

/// Longest path that perf reads from an mmap record, including its NUL (PATH_MAX).
const MAX_PATH: usize = 4096;

/// Changes, and mappings that could not be handled.
#[derive(Debug, Default)]
pub struct Changes {
    /// Changes to the records.
    pub edits: Edits,
    /// Mappings that were too complex.
    pub faults: Tally<Issue>,
}

/// Returns the changes: mappings of objects are inserted at their times, markers of used dumps are removed,
/// and mappings that would hide code are trimmed.
pub fn changes(
    recorded: &IndexedProfile<'_>,
    freed_ranges: &[FreedRange],
    runtime_files: &RuntimeFiles<'_>,
    objects: &[PlacedObject],
) -> Result<Changes, Diagnostic> {
    let (profile, profile_index) = (&recorded.profile, &recorded.index);
    let mut edits = Edits::default();
    let freed_ranges = freed_ranges.iter().map(InsertedMap::FreedRange);
    let own: Vec<InsertedMap<'_>> = objects
        .iter()
        .map(InsertedMap::Object)
        .chain(freed_ranges)
        .collect();
    let trimmed = mmap_trim::trimmed_maps(&profile_index.processes, &own);
    if let Some(event) = map_event(profile, profile_index) {
        insert_maps(&mut edits, profile, profile_index, event, own)?;
    }
    let markers = runtime_files.used.iter().flat_map(|used| &used.found.markers);
    for marker in markers.filter_map(|&marker| profile_index.markers.get(marker)) {
        if let Some(record) = profile_index.kept.at(marker.record, profile.endian) {
            edits.replace(&record, |_| {});
        }
    }
    for replaced in &trimmed.replaced {
        replace(&mut edits, recorded, replaced);
    }
    Ok(Changes {
        edits,
        faults: trimmed.faults,
    })
}

/// Event of inserted mappings: the one that the profile's own mappings belong to.
fn map_event<'a>(profile: &'a Profile<'_>, profile_index: &ProfileIndex) -> Option<RecordEvent<'a>> {
    let id = profile_index.map_event_id.unwrap_or(0);
    let attrs = profile.attrs.all();
    let attr = profile
        .attrs
        .by_id(id)
        .or_else(|| attrs.iter().find(|attr| attr.tracks_maps))
        .or(attrs.first())?;
    Some(RecordEvent { attr, id })
}

/// Inserts mappings of objects, and of memory that code was moved from, before the first records that are not earlier.
fn insert_maps(
    edits: &mut Edits,
    profile: &Profile<'_>,
    profile_index: &ProfileIndex,
    event: RecordEvent<'_>,
    mut own: Vec<InsertedMap<'_>>,
) -> Result<(), Diagnostic> {
    own.sort_by_key(InsertedMap::order);
    let mut insertion_points = profile_index.marks.insertion_points(profile);
    for own in own {
        // There may be many, so the mappings are made one after the other.
        let (first, second) = match own {
            InsertedMap::Object(object) => object_mappings(object)?,
            InsertedMap::FreedRange(freed_range) => (freed_mapping(profile_index, freed_range), None),
        };
        let (time, _) = own.order();
        edits.insert(insertion_points.offset_at(time), |out| {
            for mapping in std::iter::once(first).chain(second) {
                synthetic::write_mmap2(out, profile.endian, &mapping, event);
            }
        });
    }
    Ok(())
}

/// Mappings of an object: its code, and its unwinding tables if it has any.
fn object_mappings(
    object: &PlacedObject,
) -> Result<(SyntheticMapping<'_>, Option<SyntheticMapping<'_>>), Diagnostic> {
    if object.path.len() >= MAX_PATH {
        return Err(Diagnostic::new(Issue::PathTooLong).with("path", printable(&object.path)));
    }
    let code = SyntheticMapping {
        pid: object.pid,
        time: object.time,
        range: object.range,
        file_offset: object.file_offset,
        name: &object.path,
        build_id: Some(object.build_id),
        is_code: true,
    };
    let tables = object.tables.map(|(range, file_offset)| SyntheticMapping {
        range,
        file_offset,
        is_code: false,
        ..code
    });
    Ok((code, tables))
}

/// Mapping of addresses that code was moved away from.
fn freed_mapping(profile_index: &ProfileIndex, freed_range: &FreedRange) -> SyntheticMapping<'static> {
    SyntheticMapping {
        pid: profile_index.processes.space(freed_range.space).pid,
        time: freed_range.since,
        range: freed_range.range,
        file_offset: freed_range.range.start.0,
        name: b"//anon",
        build_id: None,
        is_code: true,
    }
}

/// Replaces a mapping with parts of it.
fn replace(edits: &mut Edits, IndexedProfile { profile, index }: &IndexedProfile<'_>, replaced: &Replaced) {
    let Some(record) = index.kept.at(replaced.record, profile.endian) else {
        return;
    };
    let Some(map) = Mmap::parse(&record, profile.endian) else {
        return;
    };
    edits.replace(&record, |out| {
        for part in &replaced.parts {
            let file_offset = file_offset_at(&map, part.start);
            synthetic::write_clipped_mmap(out, profile.endian, &record, *part, file_offset);
        }
    });
}

/// Returns the offset in the mapped file of an address in a map.
fn file_offset_at(map: &Mmap<'_>, address: Address) -> u64 {
    let into_map = address.0.saturating_sub(map.range.start.0);
    map.file_offset.wrapping_add(into_map)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inject::objects::tests::object_at;

    #[test]
    fn paths_of_up_to_4095_bytes_are_mapped_and_longer_ones_are_errors() {
        let fits = object_at(&[b'a'; 4095]);
        let (code, tables) = object_mappings(&fits).unwrap();
        assert_eq!((code.name.len(), tables.is_none()), (4095, true));
        let too_long = object_at(&[b'a'; 4096]);
        let error = object_mappings(&too_long).err().unwrap();
        assert_eq!(error.issue, Issue::PathTooLong);
    }
}
