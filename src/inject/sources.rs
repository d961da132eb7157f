//! Reading runtime files, and placing their events in a profile's processes and on its clock.

use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::code::clock::{Alignment, CLOCK_MONOTONIC, ProfileClock, RuntimeClock, distance_by_maps};
use crate::code::live_code::{LiveCode, RuntimeEvent};
use crate::code::process::{AddressSpace, Processes};
use crate::code::profile_index::ProfileIndex;
use crate::code::selection::{Doubts, DumpState};
use crate::code::timeline::{FunctionId, PlacedEvent, ranges};
use crate::diagnostics::{Diagnostic, Issue};
use crate::hash::{HashMap, HashSet};
use crate::inject::dumps::{Found, FoundDump};
use crate::inject::mono::memory::Memory;
use crate::inject::mono::{Logs, ReadLog};
use crate::inject::pid_resolver::PidResolver;
use crate::inject::xray::Traces;
use crate::machine::Machine;
use crate::perf::Profile;
use crate::perf::feature::{self, ClockData};
use crate::runtime::jitdump::Dump;
use crate::runtime::{Change, CodeEvent, CodeFile, FunctionView};
use crate::units::{Pid, Time};

/// A runtime file in use.
#[derive(Debug)]
pub struct UsedFile<'a> {
    /// The file and its processes.
    pub found: &'a FoundDump,
    /// Functions and code events of the file.
    pub code: CodeFile<'a>,
    /// Conversion of its times to profile times.
    pub alignment: Alignment,
    /// Number of events whose process is ambiguous.
    pub ownerless: u64,
    /// Number of events not copied to processes that shared the file before the profile began: there are too
    /// many.
    pub uncopied: u64,
}

/// Alignments of files with the clock of a profile, by path.
pub type Alignments = BTreeMap<PathBuf, Alignment>;

/// All runtime files of a profile's processes.
#[derive(Debug)]
pub struct Sources<'a> {
    /// Files in use.
    pub used: Vec<UsedFile<'a>>,
    /// Time of the first record in the profile.
    start: Time,
    /// Processes whose jitdump is missing or unusable.
    unusable: Vec<Pid>,
    /// What to report of the files as a whole.
    pub diagnostics: Vec<Diagnostic>,
}

impl<'a> Sources<'a> {
    /// Adds functions of traces that have no code, as symbols that are never unloaded.
    pub fn add_traces(&mut self, traces: &'a Traces<'_>, recorded: Machine) {
        let used = traces.code(recorded).map(|(found, code)| UsedFile {
            found,
            code: CodeFile::Named(code),
            alignment: Alignment::Same,
            ownerless: 0,
            uncopied: 0,
        });
        self.used.extend(used);
    }
}

/// Reads the runtime files that were found. `recorded` is the machine of the profile, and `clock_offset` the
/// number of nanoseconds to add to runtime times, if known. Files in `aligned` keep that alignment: samples
/// are evidence about clocks only before events are added to the profile.
pub fn read<'a>(
    profile: &Profile<'_>,
    profile_index: &ProfileIndex,
    found: &'a Found,
    logs: &Logs<'a>,
    recorded: Machine,
    clock_offset: Option<i64>,
    aligned: &Alignments,
) -> Sources<'a> {
    let mut sources = Sources {
        used: Vec::new(),
        start: profile_index.times.map_or(Time(0), |(start, _)| start),
        unusable: Vec::new(),
        diagnostics: found.diagnostics.clone(),
    };
    sources.add_missing(&found.missing);
    let spaces = profile_index.processes.spaces().iter();
    let maps: usize = spaces.map(|space| space.maps.len()).sum();
    let mut clocks = Clocks {
        aligned,
        profile: profile_clock(profile, profile_index, clock_offset),
        processes: &profile_index.processes,
        scan_budget: maps.saturating_mul(MAX_SCANNED),
    };
    for dump in &found.dumps {
        match use_dump(dump, recorded, &mut clocks) {
            Ok(used) => sources.used.push(used),
            Err(error) => {
                sources.unusable.extend(&dump.pids);
                sources
                    .diagnostics
                    .push(error.in_file(dump.file.path()).as_unused());
            }
        }
    }
    for log in &logs.all {
        sources.add_log(log, logs.core, recorded, &mut clocks);
    }
    if aligned.is_empty() {
        sources.settle(profile, &profile_index.processes, &clocks.profile);
    }
    sources
}

/// Returns what the profile contains about its clock. `distance` is the number of nanoseconds to add to
/// runtime times, if known.
pub fn profile_clock(
    profile: &Profile<'_>,
    profile_index: &ProfileIndex,
    distance: Option<i64>,
) -> ProfileClock {
    ProfileClock {
        id: profile.attrs.clock_id(),
        data: profile
            .feature(feature::CLOCK_DATA)
            .and_then(|content| ClockData::parse(content, profile.endian)),
        conversion: profile_index.time_conversion,
        span: profile_index.times,
        has_times: profile.attrs.has_times(),
        first_sample: profile_index.first_sample.unwrap_or_default(),
        distance,
    }
}

fn use_dump<'a>(
    found: &'a FoundDump,
    recorded: Machine,
    clocks: &mut Clocks<'_>,
) -> Result<UsedFile<'a>, Diagnostic> {
    let dump = Dump::parse(&found.file, recorded)?;
    let own_clock = RuntimeClock {
        born: None,
        distance_by_maps: None,
        counts_cycles: dump.header().counts_cycles(),
        made: dump.header().time,
        first: dump.first_time().unwrap_or_default(),
        last: dump.events().last().map(|event| event.time).unwrap_or_default(),
    };
    UsedFile::new(found, CodeFile::Jitdump(dump), own_clock, clocks)
}

/// Limits for finding a clock offset in the maps of a process: the number of its programs to compare with all
/// loads of a file, and how often each map may be examined for one file after the other. A process starts one
/// program or two, and writes one dump.
const MAX_PROGRAMS: usize = 16;
const MAX_SCANNED: usize = 16;

/// Maximum number of loads to copy to processes that had a dump mapped before the profile began. A server
/// with 200 processes and 10,000 functions needs that many.
const MAX_COPIES: usize = 1 << 21;

/// Evidence about clocks from outside a file.
struct Clocks<'p> {
    /// Alignments that are already known.
    aligned: &'p Alignments,
    profile: ProfileClock,
    processes: &'p Processes,
    /// Number of maps that may still be examined.
    scan_budget: usize,
}

impl Clocks<'_> {
    /// Start time of the process that wrote a file; `None` if it started before the profile.
    fn born(&self, found: &FoundDump) -> Option<Time> {
        let mut spaces = self.processes.spaces_of(*found.pids.first()?);
        let (_, first) = spaces.next()?;
        Some(first.since).filter(|&since| since != Time(0))
    }

    /// Lower bound of a file's clock offset in nanoseconds, from the maps of the process that wrote it.
    fn by_maps(&mut self, found: &FoundDump, code: &CodeFile<'_>) -> Option<i128> {
        let pid = found.pids.first()?;
        let spaces = self.processes.spaces_of(*pid).take(MAX_PROGRAMS);
        let distances = spaces.filter_map(|(_, space)| {
            self.scan_budget = self.scan_budget.checked_sub(space.maps.len())?;
            let loads = code.events().iter().filter(|event| event.change == Change::Load);
            let placed = loads.filter_map(|event| Some((code.range(event.function)?.start, event.time)));
            distance_by_maps(&space.maps, placed)
        });
        distances.max()
    }
}

impl<'a> Sources<'a> {
    /// Adds a log of Mono's profiler.
    fn add_log(
        &mut self,
        log: &ReadLog<'a>,
        core: Option<&Memory>,
        recorded: Machine,
        clocks: &mut Clocks<'_>,
    ) {
        let code = log.code(clocks.processes, core, recorded);
        if let Some(core) = core.filter(|_| !code.is_empty() && !code.has_code()) {
            let without = Diagnostic::new(Issue::CoreWithoutCode).in_file(core.path());
            self.diagnostics.push(without.with("log", log.name()));
        }
        let (first, last) = log.index.times.unwrap_or_default();
        let own_clock = RuntimeClock {
            born: None,
            distance_by_maps: None,
            counts_cycles: false,
            made: log.log.header().startup_ns.unwrap_or(first.0),
            first,
            last,
        };
        match UsedFile::new(log.found, CodeFile::Named(code), own_clock, clocks) {
            Ok(used) => self.used.push(used),
            Err(error) => self
                .diagnostics
                .push(error.in_file_called(log.name()).as_unused()),
        }
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
    pub fn states(&self, processes: &Processes) -> Vec<DumpState> {
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
    fn settle(&mut self, profile: &Profile<'_>, processes: &Processes, clock: &ProfileClock) {
        if !self.used.iter().any(|used| used.alignment.is_estimate()) {
            return;
        }
        let owners = PidResolver::new(self.used.iter().map(|used| used.found), processes);
        let mut events = Vec::new();
        for (file, used) in (0u32..).zip(&self.used) {
            if used.alignment.is_estimate() {
                used.add_runtime_events(file, &owners, processes, &mut events);
            }
        }
        let windows = LiveCode::new(events).windows(profile, processes);
        let alignments = self.used.iter_mut().map(|used| &mut used.alignment);
        let mut alignments: Vec<(u32, &mut Alignment)> = (0u32..).zip(alignments).collect();
        Alignment::settle(&mut alignments, clock, &windows);
    }

    /// Returns the alignment of each file.
    pub fn alignments(&self) -> Alignments {
        let files = self.used.iter();
        files
            .map(|used| (used.found.file.path().to_owned(), used.alignment))
            .collect()
    }

    /// Returns how certain the times of code are, for a profile with records from `span`.
    pub fn doubts(&self, span: Option<(Time, Time)>) -> Doubts {
        Doubts {
            of_files: self.used.iter().map(|used| used.alignment.doubt()).collect(),
            span,
        }
    }

    /// Returns the code events of all files, with the address spaces and times of the profile.
    pub fn events(&mut self, processes: &Processes) -> Vec<PlacedEvent> {
        let owners = PidResolver::new(self.used.iter().map(|used| used.found), processes);
        let mut events = Vec::new();
        let mut copies_left = MAX_COPIES;
        let earlier_copies = processes.earlier_copies();
        for (file, used) in (0u32..).zip(&mut self.used) {
            let header_pid = used.code.pid();
            let owner_of = |pid| owners.of(used.found, header_pid, pid, processes);
            let creator = owner_of(header_pid);
            let with_dump: HashSet<Pid> = used.found.pids_before.iter().copied().collect();
            let others = creator.and_then(|pid| earlier_copies.get(&pid));
            let others = others.map_or(&[][..], Vec::as_slice);
            let mut known: HashMap<u32, Option<Pid>> = HashMap::default();
            (used.ownerless, used.uncopied) = (0, 0);
            for event in used.code.events() {
                let owner = *known.entry(event.pid).or_insert_with(|| owner_of(event.pid));
                let Some(pid) = owner else {
                    used.ownerless += 1;
                    continue;
                };
                events.extend(used.place(file, event, pid, processes));
                // Processes that were forked before the profile began have the code that existed then. These
                // are the processes that have the dump mapped, and those whose maps show that they are
                // copies.
                if owner == creator && used.alignment.time(event.time) <= self.start {
                    let count = with_dump.len().saturating_add(others.len());
                    let Some(left) = copies_left.checked_sub(count) else {
                        used.uncopied += 1;
                        continue;
                    };
                    copies_left = left;
                    let others = others.iter().filter(|other| !with_dump.contains(other));
                    let copies = used.found.pids_before.iter().chain(others);
                    let copies = copies.filter(|&&other| other != pid);
                    events.extend(copies.filter_map(|&other| used.place(file, event, other, processes)));
                }
            }
        }
        events
    }
}

/// Returns a function of one of `files`.
pub fn function_of<'f>(files: &'f [UsedFile<'_>], id: FunctionId) -> Option<FunctionView<'f>> {
    files.get(id.file as usize)?.code.function(id.function)
}

impl<'a> UsedFile<'a> {
    /// Determines the alignment of a file. `own_clock` is what the file itself contains, without evidence
    /// from maps.
    fn new(
        found: &'a FoundDump,
        code: CodeFile<'a>,
        own_clock: RuntimeClock,
        clocks: &mut Clocks<'_>,
    ) -> Result<Self, Diagnostic> {
        let needs_maps = found.marked.is_none() && clocks.profile.id != Some(CLOCK_MONOTONIC);
        let own_clock = RuntimeClock {
            born: clocks.born(found),
            distance_by_maps: needs_maps.then(|| clocks.by_maps(found, &code)).flatten(),
            ..own_clock
        };
        let alignment = match (code.events(), clocks.aligned.get(found.file.path())) {
            (_, Some(&aligned)) => Ok(aligned),
            ([], None) => Ok(Alignment::Same),
            (_, None) => Alignment::find(&clocks.profile, &own_clock, found.marked),
        };
        Ok(Self {
            found,
            code,
            alignment: alignment?,
            ownerless: 0,
            uncopied: 0,
        })
    }

    /// Adds the code events of a file, on the clock of its runtime.
    fn add_runtime_events(
        &self,
        file: u32,
        owners: &PidResolver,
        processes: &Processes,
        events: &mut Vec<RuntimeEvent>,
    ) {
        let header_pid = self.code.pid();
        let mut known: HashMap<u32, Option<Pid>> = HashMap::default();
        for event in self.code.events() {
            let owner_of = |pid| owners.of(self.found, header_pid, pid, processes);
            let owner = *known.entry(event.pid).or_insert_with(|| owner_of(event.pid));
            let placed = self
                .code
                .range(event.function)
                .and_then(|loaded_at| ranges(event, loaded_at));
            if let (Some(pid), Some((range, left))) = (owner, placed) {
                events.push(RuntimeEvent {
                    file,
                    pid,
                    time: event.time,
                    range,
                    left,
                });
            }
        }
    }

    fn place(&self, file: u32, event: &CodeEvent, pid: Pid, processes: &Processes) -> Option<PlacedEvent> {
        let time = self.alignment.time(event.time);
        let space = processes.space_at(pid, time)?;
        let loaded_at = self.code.range(event.function)?;
        // A FORK or exec record starts an address space. A reader drops earlier maps there, so code comes
        // after it.
        let since = processes.space(space)?.since;
        let earliest = Time(since.0.saturating_add(1));
        let time = time.clamp(earliest, Time::LAST.max(earliest));
        let function = FunctionId {
            file,
            function: event.function,
        };
        PlacedEvent::new(event, function, loaded_at, space, time)
    }
}
