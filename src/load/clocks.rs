//! Evidence about clocks from outside a runtime's file: the profile and the maps of the process that wrote it.

use jitdump::{Change, Time};

use crate::code::CodeFile;
use crate::code::clock::{Alignment, CLOCK_MONOTONIC, ProfileClock, RuntimeClock, distance_by_maps};
use crate::code::process::Processes;
use crate::code::profile_index::IndexedProfile;
use crate::load::find::found_file::FoundFile;
use crate::results::diagnostics::Diagnostic;

/// Limits for finding a clock offset in the maps of a process: the number of its programs to compare with all
/// loads of a file, and how often each map may be examined for one file after the other. A process starts one
/// program or two, and writes one dump.
const MAX_PROGRAMS: usize = 16;
const MAX_SCANNED: usize = 16;

/// Aligns the clocks of runtimes' files with that of a profile.
pub struct Clocks<'p> {
    /// Clock of the profile.
    pub profile: ProfileClock,
    processes: &'p Processes,
    /// Number of maps that may still be examined.
    scan_budget: usize,
}

impl<'p> Clocks<'p> {
    /// Creates the evidence of a profile. `clock_offset` is the number of nanoseconds to add to runtime times, if
    /// known.
    pub fn of(recorded: &'p IndexedProfile<'_>, clock_offset: Option<i64>) -> Self {
        let processes = &recorded.index.processes;
        let maps: usize = processes.spaces.iter().map(|space| space.maps.len()).sum();
        Self {
            profile: ProfileClock::of(recorded, clock_offset),
            processes,
            scan_budget: maps.saturating_mul(MAX_SCANNED),
        }
    }

    /// Determines the alignment of a file, as far as the file itself (`own_clock`), its marker and the maps of its
    /// process show it. Fails if none is possible.
    pub fn align(
        &mut self,
        found: &FoundFile,
        code: &CodeFile<'_>,
        own_clock: RuntimeClock,
    ) -> Result<Alignment, Diagnostic> {
        let needs_maps = found.marked.is_none() && self.profile.id != Some(CLOCK_MONOTONIC);
        let own_clock = RuntimeClock {
            born: self.born(found),
            distance_by_maps: needs_maps.then(|| self.by_maps(found, code)).flatten(),
            ..own_clock
        };
        match code.events().next() {
            None => Ok(Alignment::Same),
            Some(_) => Alignment::choose(&self.profile, &own_clock, found.marked),
        }
    }

    /// Start time of the process that wrote a file; `None` if it started before the profile.
    fn born(&self, found: &FoundFile) -> Option<Time> {
        let mut spaces = self.processes.spaces_of(*found.pids.first()?);
        let (_, first) = spaces.next()?;
        Some(first.since).filter(|&since| since != Time(0))
    }

    /// Lower bound of a file's clock offset in nanoseconds, from the maps of the process that wrote it.
    fn by_maps(&mut self, found: &FoundFile, code: &CodeFile<'_>) -> Option<i128> {
        let pid = found.pids.first()?;
        let spaces = self.processes.spaces_of(*pid).take(MAX_PROGRAMS);
        let distances = spaces.filter_map(|(_, space)| {
            self.scan_budget = self.scan_budget.checked_sub(space.maps.len())?;
            let loads = code.events().filter(|event| event.change == Change::Load);
            let placed = loads.filter_map(|event| Some((code.range(event.function)?.start, event.time)));
            distance_by_maps(&space.maps, placed)
        });
        distances.max()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    use crate::code::process::{Map, ProcessEvent};
    use crate::code::profile_index::ProfileIndex;
    use crate::code::symbol_only_code::{SymbolOnlyCode, SymbolOnlyFunction};
    use crate::files::{InputFile, PagedFile};
    use crate::perf::process_records::Backing;
    use crate::perf::{Profile, testing};
    use crate::results::FileKind;
    use crate::units::Pid;
    use jitdump::{Address, AddressRange, Machine, RuntimeTime};

    const PID: Pid = Pid(7);

    /// Returns the bounds that the maps of a process show for one file after the other. Each of its programs maps new
    /// memory, the first one 601 ns after the load of the file's only function, and the others each a nanosecond later.
    fn bounds(programs: u64, files: usize) -> Vec<Option<i128>> {
        let attr = testing::attr(128, 4, testing::SAMPLE_ID_ALL);
        let profile = testing::pipe(&attr);
        let range = AddressRange::new(Address(0x1000), 0x1000).unwrap();
        let program = |at| {
            let map = Map::private(1000 + at, range, Backing::Anonymous);
            [ProcessEvent::Exec(PID, map.time), ProcessEvent::Map(PID, map)]
        };
        let mut index = ProfileIndex::default();
        index.processes = Processes::new((1..=programs).flat_map(program).collect());
        let recorded = IndexedProfile {
            profile: Profile::parse(&profile).unwrap(),
            index,
        };
        let mut code = SymbolOnlyCode::new(PID.0, Machine::X86_64, FileKind::MonoLog);
        let function = SymbolOnlyFunction {
            name: b"function".into(),
            range,
            code: None,
        };
        code.load(function, RuntimeTime(400)).unwrap();
        let code = CodeFile::SymbolOnly(code);
        let file = Arc::new(InputFile::open(tempfile::NamedTempFile::new().unwrap().path()).unwrap());
        let found = FoundFile::of_process(Arc::new(PagedFile::from(file)), PID);
        let mut clocks = Clocks::of(&recorded, None);
        (0..files).map(|_| clocks.by_maps(&found, &code)).collect()
    }

    #[test]
    fn the_maps_of_a_process_are_compared_with_sixteen_files() {
        let mut expected = vec![Some(601); 16];
        expected.push(None);
        assert_eq!(bounds(1, 17), expected);
    }

    #[test]
    fn a_file_is_compared_with_sixteen_programs_of_its_process() {
        assert_eq!(bounds(16, 1), [Some(616)]);
        assert_eq!(bounds(17, 1), [Some(616)]);
    }
}
