//! Reading the files of runtimes, and putting what they say onto the profile's processes and clock.

use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::code::clock::{Alignment, CLOCK_MONOTONIC, ProfileClock, RuntimeClock, distance_by_maps};
use crate::code::live_code::{LiveCode, RuntimeEvent};
use crate::code::process::{AddressSpace, Processes};
use crate::code::profile_index::ProfileIndex;
use crate::code::selection::{Doubts, DumpState};
use crate::code::timeline::{FunctionId, PlacedEvent, ranges};
use crate::files::search::shown;
use crate::hash::{HashMap, HashSet};
use crate::inject::dumps::{Found, FoundDump, Missing};
use crate::inject::mono::memory::Memory;
use crate::inject::mono::{Logs, ReadLog};
use crate::inject::pid_resolver::PidResolver;
use crate::inject::xray::Traces;
use crate::machine::Machine;
use crate::perf::Profile;
use crate::perf::feature::{self, ClockData};
use crate::runtime::jitdump::Dump;
use crate::runtime::{Change, CodeEvent, CodeFile, FunctionView};
use crate::summary::Warning;
use crate::units::{Pid, Time};

/// A file of a runtime that is used.
#[derive(Debug)]
pub struct UsedFile<'a> {
    /// The file.
    pub found: &'a FoundDump,
    /// What is in it.
    pub code: CodeFile<'a>,
    /// How its times become the profile's.
    pub alignment: Alignment,
    /// How many of its events are of a process that can't be told.
    pub ownerless: u64,
    /// How many of its events are left out for the processes that had it before the profile began.
    pub uncopied: u64,
}

/// How the times of files, by their paths, become a profile's.
pub type Alignments = BTreeMap<PathBuf, Alignment>;

/// All that runtimes wrote about a profile's processes.
#[derive(Debug)]
pub struct Sources<'a> {
    /// The files that are used.
    pub used: Vec<UsedFile<'a>>,
    /// When the profile began.
    start: Time,
    /// Processes whose dump is lost or can't be used.
    unusable: Vec<Pid>,
    /// What went wrong with dumps as a whole.
    pub warnings: Vec<Warning>,
    /// What else is to be told.
    pub notes: &'a [String],
}

impl<'a> Sources<'a> {
    /// Adds the functions of traces that have no code, and so are named like code that is there all the time.
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

/// Reads the dumps that were found. `recorded` is the machine of the profile, and `clock_offset` what must be
/// added to their times, in nanoseconds, if somebody knows. Files in `aligned` keep the alignment that they have there:
/// what samples say about clocks is asked once, before anything is added to them.
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
        warnings: Vec::new(),
        notes: &found.notes,
    };
    sources.add_missing(&found.missing);
    let spaces = profile_index.processes.spaces().iter();
    let maps: usize = spaces.map(|space| space.maps.len()).sum();
    let mut clocks = Clocks {
        aligned,
        profile: profile_clock(profile, profile_index, clock_offset),
        processes: &profile_index.processes,
        scan_budget: maps.saturating_mul(MAX_LOOKS),
    };
    for dump in &found.dumps {
        match use_dump(dump, recorded, &mut clocks) {
            Ok(used) => sources.used.push(used),
            Err(reason) => {
                sources.unusable.extend(&dump.pids);
                sources.warnings.push(Warning {
                    file: Some(shown(dump.file.path())),
                    ..Warning::new(reason)
                });
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

/// What a profile says about its clock. `distance` is what must be added to the times of runtimes, in nanoseconds, if
/// somebody knows.
pub fn profile_clock(
    profile: &Profile<'_>,
    profile_index: &ProfileIndex,
    distance: Option<i64>,
) -> ProfileClock {
    ProfileClock {
        id: profile.attrs.clock_id(),
        data: profile
            .feature(feature::CLOCK_DATA)
            .and_then(|content| ClockData::parse(content, profile.order)),
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
) -> Result<UsedFile<'a>, String> {
    let dump = Dump::parse(&found.file, recorded).map_err(|error| error.to_string())?;
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

/// How many programs of one process are looked at for how far its clock is from the profile's, each with all the
/// file's loads, and how often each map may be, for one file after the other. A process starts one program or two, and
/// writes one dump.
const MAX_PROGRAMS: usize = 16;
const MAX_LOOKS: usize = 16;

/// How many loads may be copied, all together, to processes that had a dump mapped before the profile began. A server
/// with 200 processes and 10,000 functions needs that.
const MAX_COPIES: usize = 1 << 21;

/// What is known of clocks beside what a file tells itself.
struct Clocks<'p> {
    /// How the times of files become the profile's, where that is known already.
    aligned: &'p Alignments,
    profile: ProfileClock,
    processes: &'p Processes,
    /// How many maps may still be looked at.
    scan_budget: usize,
}

impl Clocks<'_> {
    /// When the process that wrote a file was started, if the profile has that.
    fn born(&self, found: &FoundDump) -> Option<Time> {
        let mut spaces = self.processes.spaces_of(*found.pids.first()?);
        let (_, first) = spaces.next()?;
        Some(first.since).filter(|&since| since != Time(0))
    }

    /// How far a file's clock is from the profile's, by the maps of the process that wrote it.
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
            self.warnings.push(Warning {
                file: Some(shown(core.path())),
                ..Warning::new(format!(
                    "has none of the code that {} names; take the core file of that process while it runs",
                    log.name()
                ))
            });
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
            Err(reason) => self.warnings.push(Warning {
                file: Some(log.name()),
                ..Warning::new(reason)
            }),
        }
    }

    /// Notes processes whose dump is lost: the first of them each by itself.
    fn add_missing(&mut self, missing: &[Missing]) {
        /// A machine with more processes than that in one profile was recorded as a whole.
        const TOLD: usize = 10;
        self.unusable.extend(missing.iter().map(|missing| missing.pid));
        let (told, rest) = missing.split_at(missing.len().min(TOLD));
        self.warnings.extend(told.iter().map(|missing| {
            let Missing { pid, path, reason } = missing;
            Warning::new(format!("the jitdump of process {pid}, {path}: {reason}"))
        }));
        if !rest.is_empty() {
            self.warnings.push(Warning {
                count: rest.len() as u64,
                ..Warning::new("jitdumps of other processes that could not be had either")
            });
        }
    }

    /// What is known of each address space.
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

    /// Settles how far apart the clocks are, where the files leave that open.
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

    /// How the times of each file become the profile's.
    pub fn alignments(&self) -> Alignments {
        let files = self.used.iter();
        files
            .map(|used| (used.found.file.path().to_owned(), used.alignment))
            .collect()
    }

    /// How certain the times of code are in a profile with records of the times `span`.
    pub fn doubts(&self, span: Option<(Time, Time)>) -> Doubts {
        Doubts {
            of_files: self.used.iter().map(|used| used.alignment.doubt()).collect(),
            span,
        }
    }

    /// All events of all dumps, in the address spaces and at the times of the profile.
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
                // Processes that were forked before the profile began have what there was by then: those that have the
                // dump mapped, and those whose maps show it.
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

/// What is known of a function of one of `files`.
pub fn function_of<'f>(files: &'f [UsedFile<'_>], id: FunctionId) -> Option<FunctionView<'f>> {
    files.get(id.file as usize)?.code.function(id.function)
}

impl<'a> UsedFile<'a> {
    /// Finds out how the times of a file become the profile's. `own_clock` is its own, without what maps tell.
    fn new(
        found: &'a FoundDump,
        code: CodeFile<'a>,
        own_clock: RuntimeClock,
        clocks: &mut Clocks<'_>,
    ) -> Result<Self, String> {
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
            alignment: alignment.map_err(|reason| reason.to_string())?,
            ownerless: 0,
            uncopied: 0,
        })
    }

    /// Adds what happened to code, by the file's own clock.
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
        // An address space starts at a FORK or at the start of a program; a reader would forget what it was
        // told before.
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
