//! Reading of the profile: its records, complete and without damage, and their index.

use jitdump::internals::format::marker;

use crate::code::process::{AddressSpace, Processes};
use crate::code::profile_index::{IndexedProfile, ProfileIndex};
use crate::files::CompressionFormat;
use crate::files::temp_file::temp_file_error;
use crate::load::input::{InputFiles, MainFile};
use crate::load::recording_data::{RecordingData, keep};
use crate::perf::record::data::ProfileBytes;
use crate::perf::{Profile, feature};
use crate::results::diagnostics::issues::RECORD_AGAIN;
use crate::results::diagnostics::{Diagnostic, Issue};

/// Parses and indexes the profile of the input. The index of the input shows whether records have to be
/// decompressed, merged or repaired. If so, all later steps use the new records, which `data` keeps.
pub fn read<'a>(input: &'a InputFiles, data: &'a RecordingData) -> Result<IndexedProfile<'a>, Diagnostic> {
    let path = input.main.path();
    refuse_no_profile(&input.main)?;
    let index = |file| {
        let profile = Profile::of(file).map_err(|error| error.in_file(path))?;
        Ok::<_, Diagnostic>(IndexedProfile::new(profile, marker::dump_path))
    };
    let mut recorded = index(input.main.data())?;
    // The version is 0 with a copy of the kernel only (`perf record --kcore`).
    let version = recorded.profile.feature(feature::DIR_FORMAT).unwrap_or_default();
    if input.parts.is_empty() && version.iter().any(|&byte| byte != 0) {
        return Err(Diagnostic::new(Issue::ProfileParts).in_file(path));
    }
    if recorded.index.needs_memory
        && let MainFile::Streamed(file) = &input.main
    {
        let whole = file.read_whole();
        let whole = whole.map_err(|cause| Diagnostic::cannot_read(path, &cause))?;
        recorded = index(ProfileBytes::from(&keep(&data.whole, whole)[..]))?;
    }
    if recorded.index.has_compressed || is_damaged(&recorded.index) || !input.parts.is_empty() {
        recorded = expanded(input, recorded, data)?;
    }
    // Compressed records may be damaged, too.
    if is_damaged(&recorded.index) {
        let repaired = keep(&data.repaired, input.repair(&recorded.profile)?);
        recorded = with_records(recorded, ProfileBytes::of_file(&repaired.file));
    }
    if is_remapped(&recorded.index.processes) {
        return Err(Diagnostic::new(Issue::ProfileRemapped).in_file(path));
    }
    Ok(recorded)
}

/// Fails if a file is empty, or compressed by another program.
fn refuse_no_profile(main: &MainFile) -> Result<(), Diagnostic> {
    if main.is_empty() {
        let empty = Diagnostic::new(Issue::EmptyFile).in_file(main.path());
        return Err(empty.with_remedy(RECORD_AGAIN));
    }
    if let MainFile::Whole(file) = main
        && let Some(format) = CompressionFormat::detect(file)
    {
        let packed = Diagnostic::new(Issue::ProfilePacked).in_file(main.path());
        return Err(packed.with("program", format.program()));
    }
    Ok(())
}

/// Decompresses, merges and repairs the records of all files. The new ones are read whole if they have to be in memory.
fn expanded<'a>(
    input: &InputFiles,
    recorded: IndexedProfile<'a>,
    data: &'a RecordingData,
) -> Result<IndexedProfile<'a>, Diagnostic> {
    let expanded = keep(&data.expanded, input.expand(&recorded.profile)?);
    let recorded = with_records(recorded, ProfileBytes::of_file(&expanded.file));
    if !recorded.index.needs_memory {
        return Ok(recorded);
    }
    let whole = expanded.file.read_whole().map_err(temp_file_error)?;
    let whole = keep(&data.whole_expanded, whole);
    Ok(with_records(recorded, ProfileBytes::from(&whole[..])))
}

/// Indexes a profile again, with other records.
fn with_records<'a>(recorded: IndexedProfile<'a>, records: ProfileBytes<'a>) -> IndexedProfile<'a> {
    IndexedProfile::new(recorded.profile.with_records(records), marker::dump_path)
}

/// Whether there are records that readers reject, or that make them lose the boundaries of records.
fn is_damaged(index: &ProfileIndex) -> bool {
    index.has_damage || index.has_refused
}

/// Whether `perf inject --aslr` (perf 7.3) wrote the profile.
///
/// Its output has no mark, but each process gets new addresses from 2 MiB on, without gaps (`user_space_start` in
/// tools/perf/util/aslr.c). Processes of 64-bit machines have their stack, libraries and vDSO much higher. Some
/// addresses wrap around below 0 (those of files mapped at several addresses, such as Java's class archive). Anonymous memory
/// may be anywhere: all of a process has one new start, and keeps its distances, also those between address spaces.
/// `testdata/cpython313-dwarf/aslr.data` is such a profile.
fn is_remapped(processes: &Processes) -> bool {
    const FIRST: u64 = 0x20_0000;
    /// Addresses of libraries on 64-bit machines: RISC-V's Sv39 has the smallest address spaces, of 256 GiB.
    const LIBRARIES: std::ops::Range<u64> = 1 << 37..1 << 63;
    let mut first_maps = processes.iter().filter_map(|(id, space)| {
        let (first, _) = processes.spaces_of(space.pid).next()?;
        let maps = processes.spaces_of(space.pid).flat_map(|(_, space)| &space.maps);
        // Only for the first address space of each process.
        maps.take(if first == id { 1 } else { 0 }).next()
    });
    let starts = |space: &AddressSpace| {
        space
            .maps
            .iter()
            .any(|map| map.backing.is_file() && LIBRARIES.contains(&map.range.start.0))
    };
    first_maps.next().is_some_and(|map| map.range.start.0 == FIRST)
        && first_maps.all(|map| map.range.start.0 == FIRST)
        && !processes.spaces.iter().any(starts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::code::process::{Map, ProcessEvent};
    use crate::perf::process_records::Backing;
    use crate::units::Pid;
    use jitdump::{Address, AddressRange};

    fn is_remapped_with(starts: &[(u32, u64)]) -> bool {
        let files: Vec<_> = starts
            .iter()
            .map(|&(pid, start)| (pid, start, Backing::File))
            .collect();
        is_remapped_with_maps(&files)
    }

    fn is_remapped_with_maps(maps: &[(u32, u64, Backing)]) -> bool {
        let maps = maps.iter().map(|&(pid, start, backing)| {
            let range = AddressRange::new(Address(start), 0x1000).unwrap();
            ProcessEvent::Map(Pid(pid), Map::private(1, range, backing))
        });
        is_remapped(&Processes::new(maps.collect()))
    }

    #[test]
    fn ordinary_address_spaces_are_not_taken_for_replaced_ones() {
        const FIRST: u64 = 0x20_0000;
        assert!(is_remapped_with(&[(1, FIRST), (1, FIRST + 0x2000), (2, FIRST)]));
        let anonymous = (1, 0x56_a605_d000, Backing::Anonymous);
        assert!(is_remapped_with_maps(&[(1, FIRST, Backing::File), anonymous]));
        assert!(!is_remapped_with(&[]));
        // lld links programs to the same address, but their libraries are elsewhere.
        assert!(!is_remapped_with(&[(1, FIRST), (1, 0x7fff_f7fc_1000)]));
        assert!(!is_remapped_with(&[(1, FIRST), (2, 0x40_0000)]));
        assert!(!is_remapped_with(&[
            (1, FIRST),
            (1, FIRST + 0x2000),
            (2, FIRST),
            (2, 0x3f_f7fc_1000)
        ]));
    }
}
