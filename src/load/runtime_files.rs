//! Runtime files in use, and their code events in a profile's processes and on its clock.

mod placement;

use std::sync::Arc;

use jitdump::{AddressRange, Change, Dump, Function, Machine, Time};

use crate::code::CodeFile;
use crate::code::clock::windows::{LiveCode, RuntimeEvent};
use crate::code::clock::{Alignment, RuntimeClock, Timeless};
use crate::code::process::{AddressSpace, Processes, SpaceId};
use crate::code::profile_index::IndexedProfile;
use crate::code::recorded_addresses::RecordedAddresses;
use crate::code::samples::Samples;
use crate::code::selection::{Doubts, DumpState};
use crate::code::symbol_only_code::SymbolOnlyCode;
use crate::code::timeline::{FileIndex, FunctionId, ranges};
use crate::collections::hash::HashMap;
use crate::collections::indexed_table::IndexedTable;
use crate::collections::range_map::RangeSet;
use crate::files::{InputFile, PagedFile};
use crate::load::clocks::Clocks;
use crate::load::find::found_file::FoundFile;
use crate::load::find::jitdumps::FoundDumps;
use crate::load::mapped_code::MappedCode;
use crate::load::pid_resolver::PidResolver;
use crate::results::diagnostics::{Diagnostic, Issue};
use crate::traces::conversion::LogConversion;
use crate::traces::used_logs::LoggedCode;
use crate::units::Pid;

/// A runtime file in use.
#[derive(Debug)]
pub struct UsedFile<'a> {
    /// The file and its processes.
    pub found: FoundFile,
    /// Functions of the file, and its code events.
    pub code: CodeFile<'a>,
    /// Conversion of its times to profile times.
    pub alignment: Alignment,
    /// Numbers of its code events, once they were placed.
    pub counts: CodeEventCounts,
}

/// Numbers of code events of a file.
#[derive(Clone, Copy, Debug, Default)]
pub struct CodeEventCounts {
    /// Number of loads.
    pub loads: u64,
    /// Number of moves.
    pub moves: u64,
    /// Number of events whose process is ambiguous.
    pub ownerless: u64,
    /// Number of events not copied to processes that shared the file before the profile began: there are too
    /// many.
    pub uncopied: u64,
}

/// A function that a runtime compiled in a process of the profile.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Compilation {
    /// Time at which its code was loaded, on the profile's clock; `None` if that is unknown.
    pub time: Option<Time>,
    /// Process in the profile.
    pub pid: Pid,
    /// PID as the runtime sees it.
    pub recorded_pid: u32,
    /// The function.
    pub function: FunctionId,
}

/// All runtime files of a profile's processes.
#[derive(Debug, Default)]
pub struct RuntimeFiles<'a> {
    /// Files in use: jitdumps, logs of Mono's profiler, and XRay traces.
    pub used: IndexedTable<FileIndex, UsedFile<'a>>,
    /// Index of each log in `used`; `None` if it is not used.
    logs: Vec<Option<FileIndex>>,
    /// Processes whose jitdump is missing or unusable.
    unusable: Vec<Pid>,
    /// What to report of the files as a whole.
    pub diagnostics: Vec<Diagnostic>,
}

impl<'a> RuntimeFiles<'a> {
    /// Reads the runtime files that were found, and aligns their clocks with that of `profile`: all files at once,
    /// by the files, the maps of the processes and the samples. The profile must not have any events of logs or
    /// traces yet, because samples made from them are no evidence. `with_bytes` is whether the bytes of functions of
    /// logs are needed, `clock_offset` what the user gave.
    pub fn read(
        profile: &IndexedProfile<'_>,
        found: &'a FoundDumps,
        conversion: &LogConversion<'a>,
        with_bytes: bool,
        clock_offset: Option<i64>,
    ) -> Self {
        let mut files = Self {
            diagnostics: found.diagnostics.clone(),
            ..Self::default()
        };
        files.add_missing(&found.missing);
        let machine = machine_of(profile);
        let mut clocks = Clocks::of(profile, clock_offset);
        let (marked, unmarked): (Vec<&FoundFile>, Vec<&FoundFile>) =
            found.dumps.iter().partition(|dump| !dump.markers.is_empty());
        for dump in marked {
            files.add_dump(dump, machine, &mut clocks, None);
        }
        let mapped_code = (!unmarked.is_empty()).then(|| MappedCode::of(&files.used));
        for dump in unmarked {
            files.add_dump(dump, machine, &mut clocks, mapped_code.as_ref());
        }
        for logged in conversion.code(profile, machine, with_bytes) {
            files.add_log(logged, &mut clocks);
        }
        files.settle(profile, &clocks);
        files
    }

    /// Returns the alignment of each log that is used.
    pub fn log_alignments(&self) -> Vec<Option<Alignment>> {
        let logs = self.logs.iter();
        logs.map(|&used| Some(self.used[used?].alignment)).collect()
    }

    /// Reads the code of logs again, once events and call chains were made from them: these add synthetic symbols,
    /// and functions that were called before the log mentions them.
    pub fn update_logs(&mut self, profile: &IndexedProfile<'_>, conversion: &LogConversion<'a>) {
        let code = conversion.code(profile, machine_of(profile), true);
        for (logged, used) in code.zip(std::mem::take(&mut self.logs)) {
            self.diagnostics.extend(logged.diagnostic);
            if let Some(used) = used {
                self.used[used].code = CodeFile::SymbolOnly(logged.code);
            }
        }
    }

    /// Adds the synthetic symbols of processes without other code.
    pub fn add_symbols(&mut self, profile: &IndexedProfile<'_>, conversion: &LogConversion<'_>) {
        let code = conversion.symbols(machine_of(profile));
        let used = code.map(|(file, pid, code)| UsedFile::of_process(file, pid, code));
        self.used.extend(used);
    }

    /// Adds a jitdump, unless it is unreadable, its times cannot be aligned with those of the profile, or `mapped_code`,
    /// that of the dumps with a marker, shows that it is not of its process.
    fn add_dump(
        &mut self,
        dump: &'a FoundFile,
        machine: Machine,
        clocks: &mut Clocks<'_>,
        mapped_code: Option<&MappedCode>,
    ) {
        let path = dump.file.path();
        let used = match read_dump(dump, machine, clocks) {
            Ok(used) => used,
            Err(error) => {
                self.unusable.extend(&dump.pids);
                self.diagnostics.push(error.in_file(path).as_unused());
                return;
            }
        };
        if let Some(pid) = mapped_code.and_then(|code| code.contradicts(&used)) {
            let other = Diagnostic::new(Issue::OtherDumpMapped).with("pid", pid);
            self.diagnostics.push(other.in_file(path));
            return;
        }
        if used.is_without_order() {
            let unordered = Diagnostic::new(Issue::ClockWithoutConversion);
            self.diagnostics.push(unordered.in_file(path));
        }
        self.used.push(used);
    }

    /// Adds the code of a log, unless its times cannot be aligned with those of the profile.
    fn add_log(&mut self, logged: LoggedCode<'a>, clocks: &mut Clocks<'_>) {
        self.diagnostics.extend(logged.diagnostic);
        let mut used = UsedFile::of_process(logged.file, logged.pid, logged.code);
        let index = match clocks.align(&used.found, &used.code, logged.clock) {
            Ok(alignment) => {
                used.alignment = alignment;
                Some(self.used.push(used))
            }
            Err(error) => {
                let unused = error.in_file_called(logged.name).as_unused();
                self.diagnostics.push(unused);
                None
            }
        };
        self.logs.push(index);
    }

    /// Adds warnings about processes with missing jitdumps: the first ones individually.
    fn add_missing(&mut self, missing: &[(Pid, Diagnostic)]) {
        /// More than that are missing only where a whole machine was recorded.
        const MAX_LISTED: usize = 10;
        self.unusable.extend(missing.iter().map(|&(pid, _)| pid));
        let (listed, rest) = missing.split_at(missing.len().min(MAX_LISTED));
        self.diagnostics
            .extend(listed.iter().map(|(_, missing)| missing.clone()));
        if !rest.is_empty() {
            let more = Diagnostic::new(Issue::MoreDumpsMissing);
            self.diagnostics.push(more.times(rest.len() as u64));
        }
    }

    /// Returns the state of the jitdumps for each address space.
    pub fn states(&self, processes: &Processes) -> IndexedTable<SpaceId, DumpState> {
        let mut by_pid: HashMap<Pid, DumpState> = HashMap::default();
        by_pid.extend(self.unusable.iter().map(|&pid| (pid, DumpState::Unusable)));
        let used = self.used.iter().flat_map(|used| &used.found.pids);
        by_pid.extend(used.map(|&pid| (pid, DumpState::Read)));
        let own = |space: &AddressSpace| by_pid.get(&space.pid).copied().unwrap_or_default();
        let states = processes.iter().map(|(id, space)| {
            let inherited = processes.all_ancestors(id).map(|(_, ancestor)| own(ancestor));
            inherited.fold(own(space), DumpState::max)
        });
        states.collect()
    }

    /// Determines clock offsets that the files alone leave open, using the samples in their code.
    fn settle(&mut self, profile: &IndexedProfile<'_>, clocks: &Clocks<'_>) {
        let files = self.used.enumerate();
        let estimates = files.filter(|(_, used)| used.alignment.is_estimate());
        let estimates: Vec<FileIndex> = estimates.map(|(file, _)| file).collect();
        if estimates.is_empty() {
            return;
        }
        let processes = &profile.index.processes;
        let owners = PidResolver::new(self.used.iter().map(|used| &used.found), processes);
        let code = self.code_of_samples(profile);
        let is_needed = |range| code.as_ref().is_none_or(|code| code.overlaps(range));
        let mut events = Vec::new();
        for file in estimates {
            let of_file = self.used[file].runtime_events(file, &owners, processes);
            events.extend(of_file.filter(|event| is_needed(event.range)));
        }
        let windows = LiveCode::new(events).windows(Samples::of(profile));
        if windows.unchecked > 0 {
            let partly = Diagnostic::new(Issue::ClockSamplesUnchecked);
            self.diagnostics.push(partly.times(windows.unchecked));
        }
        let alignments = self
            .used
            .enumerate_mut()
            .map(|(file, used)| (file, &mut used.alignment));
        let mut alignments: Vec<(FileIndex, &mut Alignment)> = alignments.collect();
        Alignment::settle(&mut alignments, &clocks.profile, &windows);
    }

    /// Returns how certain the times of code are, for a profile with records from `span`.
    pub fn doubts(&self, span: Option<(Time, Time)>) -> Doubts {
        Doubts {
            of_files: self.used.map(|used| used.alignment.doubt()),
            span,
        }
    }

    /// Returns the addresses recorded with the samples of a profile that are in or near code or `others`; `None` if
    /// functions at other addresses are needed too, or if there are so few functions that leaving out some does not pay.
    pub fn recorded_addresses(
        &self,
        profile: &IndexedProfile<'_>,
        others: impl Iterator<Item = AddressRange>,
    ) -> Option<RecordedAddresses> {
        /// They take a few MB of memory.
        const FEW_FUNCTIONS: u64 = 1 << 14;
        /// Bytes of records that take as long to walk over as it takes to place a function.
        const RECORDS_OF_FUNCTION: u64 = 256;
        /// Gaps between functions, in bytes, that are not worth remembering.
        const GAP: u64 = 64 << 10;
        // A move frees what nothing else was loaded to since.
        let has_moves = self.used.iter().any(|used| used.code.has_moves());
        let few = (profile.profile.data.len() / RECORDS_OF_FUNCTION).max(FEW_FUNCTIONS);
        let mut further = self.loads().skip(usize::try_from(few).unwrap_or(usize::MAX));
        if has_moves || further.next().is_none() {
            return None;
        }
        let mut code = RangeSet::with_gap(GAP);
        self.loads().chain(others).for_each(|range| code.insert(range));
        RecordedAddresses::of(profile, &code)
    }

    /// Returns the addresses of the functions that samples can be in. Only these, and what was loaded over them, show
    /// anything of a clock. Returns `None` if that may be all functions.
    fn code_of_samples(&self, profile: &IndexedProfile<'_>) -> Option<RangeSet> {
        let recorded = self.recorded_addresses(profile, std::iter::empty())?;
        let mut code = RangeSet::with_gap(0);
        let of_samples = self.loads().filter(|&range| recorded.may_be_in(range));
        of_samples.for_each(|range| code.insert(range));
        Some(code)
    }

    /// Returns the addresses of each load of all files, and of each function that was moved.
    pub fn loads(&self) -> impl Iterator<Item = AddressRange> {
        self.used.iter().flat_map(UsedFile::loads)
    }

    /// Returns the functions that runtimes compiled, except those whose process is ambiguous.
    pub fn compilations(&self, processes: &Processes) -> impl Iterator<Item = Compilation> {
        let owners = PidResolver::new(self.used.iter().map(|used| &used.found), processes);
        let mut known: HashMap<(FileIndex, u32), Option<Pid>> = HashMap::default();
        let loads = self.used.enumerate().flat_map(|(file, used)| {
            let events = used.code.events();
            let loads = events.filter(|event| event.change == Change::Load);
            let compiled = loads.filter(|event| used.code.is_compiled(event.function));
            compiled.map(move |event| (file, used, event))
        });
        loads.filter_map(move |(file, used, event)| {
            let owner = known.entry((file, event.pid));
            let owner = owner
                .or_insert_with(|| owners.process_of(&used.found, used.code.pid(), event.pid, processes));
            Some(Compilation {
                time: used
                    .alignment
                    .has_times()
                    .then(|| used.alignment.time(event.time)),
                pid: (*owner)?,
                recorded_pid: event.pid,
                function: FunctionId {
                    file,
                    function: event.function,
                },
            })
        })
    }
}

/// Machine that a profile was recorded on.
pub fn machine_of(IndexedProfile { profile, .. }: &IndexedProfile<'_>) -> Machine {
    Machine::of_profile(profile.architecture(), profile.endian)
}

/// Indexes a jitdump, and aligns its clock.
fn read_dump<'a>(
    found: &'a FoundFile,
    machine: Machine,
    clocks: &mut Clocks<'_>,
) -> Result<UsedFile<'a>, Diagnostic> {
    let dump = Dump::index(&*found.file, machine)?;
    let own_clock = RuntimeClock {
        born: None,
        distance_by_maps: None,
        counts_cycles: dump.header().counts_cycles(),
        made: dump.header().time,
        first: dump.first_time().unwrap_or_default(),
        last: dump
            .events()
            .next_back()
            .map(|event| event.time)
            .unwrap_or_default(),
    };
    let code = CodeFile::Jitdump(Box::new(dump));
    Ok(UsedFile {
        alignment: clocks.align(found, &code, own_clock)?,
        found: found.clone(),
        code,
        counts: CodeEventCounts::default(),
    })
}

/// Returns a function of one of `files`.
pub fn function_of<'f>(
    files: &'f IndexedTable<FileIndex, UsedFile<'_>>,
    id: FunctionId,
) -> Option<Function<'f>> {
    files[id.file].code.function(id.function)
}

impl<'a> UsedFile<'a> {
    /// Returns the addresses of each load, and of each function that was moved.
    pub fn loads(&self) -> impl Iterator<Item = AddressRange> {
        let events = self.code.events();
        events.filter_map(|event| self.code.range(event.function))
    }

    /// Creates the entry of a log or trace of one process, as if on the profile's clock.
    fn of_process(file: &Arc<InputFile>, pid: Pid, code: SymbolOnlyCode<'a>) -> Self {
        Self {
            found: FoundFile::of_process(Arc::new(PagedFile::from(file.clone())), pid),
            code: CodeFile::SymbolOnly(code),
            alignment: Alignment::Same,
            counts: CodeEventCounts::default(),
        }
    }

    /// Whether nothing shows when functions were loaded.
    pub fn is_without_order(&self) -> bool {
        matches!(self.alignment, Alignment::AllAt(_, Timeless::Cycles))
    }

    /// Returns the code events of a file, on the clock of its runtime.
    fn runtime_events(
        &self,
        file: FileIndex,
        owners: &PidResolver,
        processes: &Processes,
    ) -> impl Iterator<Item = RuntimeEvent> {
        let header_pid = self.code.pid();
        let mut known: HashMap<u32, Option<Pid>> = HashMap::default();
        self.code.events().filter_map(move |event| {
            let owner_of = |pid| owners.process_of(&self.found, header_pid, pid, processes);
            let owner = *known.entry(event.pid).or_insert_with(|| owner_of(event.pid));
            let (range, left) = ranges(&event, self.code.range(event.function)?)?;
            Some(RuntimeEvent {
                file,
                pid: owner?,
                time: event.time,
                range,
                left,
            })
        })
    }
}

#[cfg(test)]
mod tests;
