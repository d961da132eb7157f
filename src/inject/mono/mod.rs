//! Logs of Mono's profiler: names for the profile's code, and events.
//!
//! ```text
//! files ─► [open] ─► ReadLog ─► functions of the timeline
//!                       └─► [prepare]: clocks, [threads] by the profile's numbers, [places] for frames of stacks
//!                              └─► [replay] in the order of time
//!                                     ├─► [event_selection] [events] of a profile
//!                                     └─► [splice]: stacks of the profile's own samples
//! ```

pub mod event_selection;
mod events;
mod frame_addresses;
pub mod memory;
mod open;
mod prepare;
mod replay;
mod splice;
mod threads;

use crate::code::process::Processes;
use crate::files::MappedFile;
use crate::files::search::shown;
use crate::inject::Error;
use crate::inject::dumps::FoundDump;
use crate::inject::events::Loss;
use crate::inject::events::synthetic_symbols::SyntheticSymbol;
use crate::inject::mono::memory::Memory;
use crate::inject::mono::prepare::Prepared;
use crate::machine::Machine;
use crate::perf::event::Backing;
use crate::range_map::RangeMap;
use crate::runtime::FileKind;
use crate::runtime::mono::{self, Index, Log};
use crate::runtime::named_code::{NamedFunction, SymbolOnlyCode};
use crate::tally::Tally;
use crate::units::Pid;

pub use event_selection::{select_events, wanted};
pub use events::event_sources;
pub use open::{OpenLog, Opened, open};
pub use prepare::prepare;
pub use splice::stack_sources;

/// A log that was read.
#[derive(Debug)]
pub struct ReadLog<'a> {
    /// The file, unpacked if it was packed, and its process.
    pub found: &'a FoundDump,
    /// Its events.
    pub log: Log<'a>,
    /// Its code and names.
    pub index: Index<'a>,
    /// What could not be unpacked.
    pub packing_faults: &'a Tally<mono::Fault>,
    /// What its events and stacks need to become the profile's, if they are asked for.
    pub prepared: Option<Prepared<'a>>,
    /// What of its events could not be told.
    pub losses: Tally<Loss>,
}

impl<'a> ReadLog<'a> {
    /// Reads a log.
    pub fn of(opened: &'a OpenLog) -> Result<Self, mono::Error> {
        let log = Log::parse(&opened.found.file)?;
        Ok(Self {
            found: &opened.found,
            log,
            index: Index::of(&log),
            packing_faults: &opened.faults,
            prepared: None,
            losses: Tally::default(),
        })
    }

    /// The process that it is of.
    pub fn pid(&self) -> Pid {
        self.found.pids.first().copied().unwrap_or(Pid(0))
    }

    /// Its functions, but for those that were compiled ahead of time and lie in files of their own, which have
    /// better names for them. `core` has the code, if anything has; `recorded` is the machine that the profile was recorded on.
    pub fn code(
        &self,
        processes: &Processes,
        core: Option<&Memory>,
        recorded: Machine,
    ) -> SymbolOnlyCode<'a> {
        let machine = Machine {
            is_64: self.log.header().pointer_size == 8,
            ..recorded
        };
        let pid = self.pid();
        let in_files = files_of(processes, pid);
        let places = self.prepared.as_ref().map(|prepared| &prepared.places);
        let mut code = SymbolOnlyCode::new(pid.0, machine, FileKind::MonoLog);
        for (number, function) in (0u32..).zip(self.index.code.functions()) {
            if in_files.overlapping(function.range).next().is_some() {
                continue;
            }
            let named = NamedFunction {
                name: function.name().unwrap_or_default().into(),
                range: function.range,
                code: core.and_then(|core| core.bytes(function.range)),
            };
            // The log may tell of a method later than of calls to it.
            let first_use = places.and_then(|places| places.first_use(number));
            code.load(named, first_use.unwrap_or(function.time).min(function.time));
        }
        for SyntheticSymbol { name, range } in places.map_or(&[][..], |places| places.synthetic_symbols()) {
            let named = NamedFunction {
                name: name.clone().into(),
                range: *range,
                code: None,
            };
            // Before that, its process may have been another program.
            let (first, _) = self.index.times.unwrap_or_default();
            code.load(named, first);
        }
        code.sort();
        code
    }

    /// What to say if it does not tell where code was put while the program ran: then the names that it has are mostly
    /// of methods whose place was not known yet.
    fn note_on_code(&self) -> Option<String> {
        let code = &self.index.code;
        let unplaced = code.without_range();
        let has_buffers = code.functions().iter().any(|function| function.is_compiled);
        (unplaced > 0 && !has_buffers).then(|| {
            format!(
                "{} does not tell where the code of {unplaced} methods is; start Mono with --profile=log:jit, and what else is wanted \
                 behind a comma",
                self.name()
            )
        })
    }

    /// How to call it.
    pub fn name(&self) -> String {
        shown(self.found.file.path())
    }
}

/// The logs that belong to a profile.
#[derive(Debug)]
pub struct Logs<'a> {
    /// They.
    pub all: Vec<ReadLog<'a>>,
    /// The memory that has their code.
    pub core: Option<&'a Memory>,
    /// The files that they are packed in.
    pub packed: Vec<&'a MappedFile>,
    /// What else the user should know.
    pub notes: Vec<String>,
}

impl Logs<'_> {
    /// All files that were read.
    pub fn files(&self) -> impl Iterator<Item = &MappedFile> {
        let logs = self.all.iter().map(|log| &*log.found.file);
        logs.chain(self.packed.iter().copied())
    }
}

/// Reads the logs that were opened.
pub fn read(opened: &Opened) -> Result<Logs<'_>, Error> {
    let logs = opened.logs.iter().map(|log| {
        ReadLog::of(log).map_err(|cause| Error::Log {
            path: log.found.file.path().to_owned(),
            cause,
        })
    });
    let all = logs.collect::<Result<Vec<_>, _>>()?;
    let mut notes = opened.notes.clone();
    notes.extend(all.iter().filter_map(ReadLog::note_on_code));
    Ok(Logs {
        core: opened.core.as_ref(),
        all,
        packed: opened
            .logs
            .iter()
            .filter_map(|log| log.packed.as_deref())
            .collect(),
        notes,
    })
}

/// Where a process has files mapped, ever.
fn files_of(processes: &Processes, pid: Pid) -> RangeMap<()> {
    let mut files = RangeMap::default();
    for map in processes.spaces_of(pid).flat_map(|(_, space)| &space.maps) {
        if map.backing == Backing::File {
            files.insert(map.range, (), |_, ()| {});
        }
    }
    files
}

/// The architecture of the first log, as `uname -m` has it.
pub fn architecture<'a>(logs: &[ReadLog<'a>]) -> &'a [u8] {
    match logs.first().map(|log| log.log.header().architecture) {
        Some(b"x86-64" | b"amd64") => b"x86_64",
        Some(b"arm64") => b"aarch64",
        Some(b"x86") => b"i686",
        Some(other) => other,
        None => b"",
    }
}
