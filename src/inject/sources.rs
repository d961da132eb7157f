//! Reading the files of runtimes, and putting what they say onto the profile's processes and clock.

use rustc_hash::FxHashMap;

use crate::bytes::printable;
use crate::code::clock::{Alignment, ProfileClock, RuntimeClock};
use crate::code::process::Processes;
use crate::code::selection::{DumpState, least_slack};
use crate::code::survey::Survey;
use crate::code::timeline::{FunctionId, PlacedEvent, Timeline};
use crate::inject::dumps::{Found, FoundDump};
use crate::perf::Profile;
use crate::perf::feature::{self, ClockData};
use crate::runtime::jitdump::Dump;
use crate::runtime::{Change, CodeEvent};
use crate::summary::Warning;
use crate::units::{AddressRange, Pid, Time};

/// A dump that is used.
#[derive(Debug)]
pub struct UsedDump<'a> {
    /// The file.
    pub found: &'a FoundDump,
    /// What is in it.
    pub dump: Dump<'a>,
    /// How its times become the profile's.
    pub alignment: Alignment,
}

/// All that runtimes wrote about a profile's processes.
#[derive(Debug)]
pub struct Sources<'a> {
    /// The dumps that are used.
    pub used: Vec<UsedDump<'a>>,
    /// Processes whose dump is lost or can't be used.
    unusable: Vec<Pid>,
    /// What went wrong with dumps as a whole.
    pub warnings: Vec<Warning>,
    /// What else is to be told.
    pub notes: &'a [String],
}

/// Reads the dumps that were found.
pub fn read<'a>(profile: &Profile<'_>, survey: &Survey, found: &'a Found) -> Sources<'a> {
    let clock = ProfileClock {
        id: profile.attrs.clock_id(),
        data: profile
            .feature(feature::CLOCK_DATA)
            .and_then(|content| ClockData::parse(content, profile.order)),
        conversion: survey.time_conversion,
        span: survey.times,
        has_times: profile.attrs.has_times(),
        first_sample: survey.first_sample.unwrap_or_default(),
    };
    let mut sources = Sources {
        used: Vec::new(),
        unusable: Vec::new(),
        warnings: Vec::new(),
        notes: &found.notes,
    };
    for missing in &found.missing {
        sources.unusable.push(missing.pid);
        sources.warnings.push(Warning::new(format!(
            "the jitdump of process {}, {}: {}",
            missing.pid, missing.path, missing.reason
        )));
    }
    for dump in &found.dumps {
        match use_dump(dump, &clock) {
            Ok(used) => sources.used.push(used),
            Err(reason) => {
                sources.unusable.extend(&dump.pids);
                sources.warnings.push(Warning {
                    file: Some(printable(dump.file.path().as_os_str().as_encoded_bytes())),
                    ..Warning::new(reason)
                });
            }
        }
    }
    sources
}

fn use_dump<'a>(found: &'a FoundDump, clock: &ProfileClock) -> Result<UsedDump<'a>, String> {
    /// Nanoseconds by which a marker may be later than the code: some runtimes map their dump only after they
    /// have written to it.
    const SLACK: u64 = 1_000_000_000;
    let dump = Dump::parse(&found.file).map_err(|error| error.to_string())?;
    let runtime_clock = RuntimeClock {
        counts_cycles: dump.header().counts_cycles(),
        made: dump.header().time,
        first: dump.first_time().unwrap_or_default(),
        last: dump.events().last().map(|event| event.time).unwrap_or_default(),
    };
    let alignment =
        Alignment::find(clock, &runtime_clock, found.marked).map_err(|reason| reason.to_string())?;
    if let (Alignment::Same, Some(marked), Some(last)) = (alignment, found.marked, dump.events().last())
        && last.time.0.saturating_add(SLACK) < marked.0
    {
        return Err("belongs to another run: it was complete before the process mapped it".into());
    }
    Ok(UsedDump {
        found,
        dump,
        alignment,
    })
}

impl Sources<'_> {
    /// What is known of each address space.
    pub fn states(&self, processes: &Processes) -> Vec<DumpState> {
        let mut by_pid: FxHashMap<Pid, DumpState> = FxHashMap::default();
        by_pid.extend(self.unusable.iter().map(|&pid| (pid, DumpState::Unusable)));
        let used = self.used.iter().flat_map(|used| &used.found.pids);
        by_pid.extend(used.map(|&pid| (pid, DumpState::Read)));
        let mut states: Vec<DumpState> = Vec::new();
        for space in processes.spaces() {
            let own = by_pid.get(&space.pid).copied().unwrap_or_default();
            let parent = space.parent.and_then(|(parent, _)| states.get(parent.index()));
            states.push(own.max(parent.copied().unwrap_or_default()));
        }
        states
    }

    /// Settles how far apart the clocks are, where that is an estimate, by what the samples say.
    pub fn refine(&mut self, profile: &Profile<'_>, processes: &Processes, timeline: &Timeline) {
        let slack = least_slack(profile, processes, timeline, self.used.len());
        for (used, slack) in self.used.iter_mut().zip(slack) {
            used.alignment.refine(slack);
        }
    }

    /// Whether there is something to settle.
    pub fn has_estimates(&self) -> bool {
        self.used.iter().any(|used| used.alignment.is_estimate())
    }

    /// All events of all dumps, in the address spaces and at the times of the profile.
    pub fn events(&self, processes: &Processes) -> Vec<PlacedEvent> {
        let mut events = Vec::new();
        for (file, used) in (0u32..).zip(&self.used) {
            let mut pids = FxHashMap::default();
            for event in used.dump.events() {
                let pid = *pids
                    .entry(event.pid)
                    .or_insert_with(|| used.process_of(event.pid, processes));
                events.extend(used.place(file, event, pid, processes));
            }
        }
        events
    }
}

impl UsedDump<'_> {
    /// The process, by the profile's number, that the dump means by `pid`.
    ///
    /// It is the one that mapped the dump, whatever the dump says: in a container (capture node20-pidns) it
    /// says 1. But a child that goes on writing to its parent's dump after a fork means itself.
    fn process_of(&self, pid: u32, processes: &Processes) -> Pid {
        let says = Pid(pid);
        let first = self.found.pids.first().copied().unwrap_or(says);
        if self.found.pids.contains(&says) {
            return says;
        }
        if pid != self.dump.header().pid && processes.descends(says, first) {
            return says;
        }
        first
    }

    fn place(&self, file: u32, event: &CodeEvent, pid: Pid, processes: &Processes) -> Option<PlacedEvent> {
        let time = self.alignment.time(event.time);
        let space = processes.space_at(pid, time)?;
        let loaded_at = self.dump.range(event.function)?;
        let (range, moved_from) = match event.change {
            Change::Load => (loaded_at, None),
            Change::Move { from, to } => (AddressRange::new(to, loaded_at.size())?, Some(from)),
        };
        // An address space starts at a FORK or at the start of a program; a reader would forget what it was
        // told before.
        let since = processes.space(space)?.since;
        let earliest = Time(since.0.saturating_add(1));
        Some(PlacedEvent {
            time: time.clamp(earliest, Time::LAST.max(earliest)),
            space,
            function: FunctionId {
                file,
                function: event.function,
            },
            range,
            moved_from,
        })
    }
}
