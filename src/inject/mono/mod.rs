//! Logs of Mono's profiler: symbols for a profile's JIT-compiled methods, events of the profile, and call chains.
//!
//! ```text
//! files ─► [open] ─► ReadLog ─► functions of the timeline
//!                       └─► [prepare]: clocks, [threads] by the profile's IDs, [frame_addresses]
//!                              └─► [replay] in time order
//!                                     ├─► [event_selection] [events] of a profile
//!                                     └─► [splice]: call chains of the profile's own samples
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
use crate::diagnostics::{Diagnostic, Issue};
use crate::files::MappedFile;
use crate::files::search::shown;
use crate::inject::dumps::FoundDump;
use crate::inject::events::synthetic_symbols::SyntheticSymbol;
use crate::inject::mono::memory::Memory;
use crate::inject::mono::prepare::Prepared;
use crate::machine::Machine;
use crate::perf::event::Backing;
use crate::range_map::RangeMap;
use crate::runtime::FileKind;
use crate::runtime::mono::{Index, Log};
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
    /// The file, decompressed if it was compressed, and its process.
    pub found: &'a FoundDump,
    /// Reader of the log's header and events.
    pub log: Log<'a>,
    /// The log's code and names.
    pub index: Index<'a>,
    /// Errors found while decompressing the file.
    pub packing_faults: &'a Tally<Issue>,
    /// Clock, threads and addresses used to convert events and stacks; `None` until [`prepare()`] was called.
    pub prepared: Option<Prepared<'a>>,
    /// Events that could not be converted in full.
    pub losses: Tally<Issue>,
}

impl<'a> ReadLog<'a> {
    /// Reads a log, and indexes its code and names.
    pub fn of(opened: &'a OpenLog) -> Result<Self, Diagnostic> {
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

    /// Returns the ID of the log's process.
    pub fn pid(&self) -> Pid {
        self.found.pids.first().copied().unwrap_or(Pid(0))
    }

    /// Returns the log's functions, except those that were compiled ahead of time: their code is in a mapped file,
    /// which has better names for them. `core` supplies the code bytes, where it has them; `recorded` is the machine
    /// that the profile was recorded on.
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
            // A call of a method may be logged before its JIT event.
            let first_use = places.and_then(|places| places.first_use(number));
            code.load(named, first_use.unwrap_or(function.time).min(function.time));
        }
        for SyntheticSymbol { name, range } in places.map_or(&[][..], |places| places.synthetic_symbols()) {
            let named = NamedFunction {
                name: name.clone().into(),
                range: *range,
                code: None,
            };
            // Before its first event, the process may have run another program.
            let (first, _) = self.index.times.unwrap_or_default();
            code.load(named, first);
        }
        code.sort();
        code
    }

    /// Returns a diagnostic if the log does not record where code was placed while the program ran. Most of its
    /// names then belong to methods without a known address.
    fn without_addresses(&self) -> Option<Diagnostic> {
        let code = &self.index.code;
        let unplaced = code.without_range();
        let has_buffers = code.functions().iter().any(|function| function.is_compiled);
        (unplaced > 0 && !has_buffers).then(|| {
            let without = Diagnostic::new(Issue::MonoNoCodeAddresses).in_file_called(self.name());
            without.with("methods", unplaced)
        })
    }

    /// Returns the log's path for messages.
    pub fn name(&self) -> String {
        shown(self.found.file.path())
    }
}

/// The logs that belong to a profile.
#[derive(Debug)]
pub struct Logs<'a> {
    /// Logs that were read.
    pub all: Vec<ReadLog<'a>>,
    /// Core file with their code, if the user gave one.
    pub core: Option<&'a Memory>,
    /// Compressed files that logs were read from.
    pub packed: Vec<&'a MappedFile>,
    /// What to report of them as a whole.
    pub diagnostics: Vec<Diagnostic>,
}

impl Logs<'_> {
    /// Returns all input files: the logs, and the compressed files that some of them came from.
    pub fn files(&self) -> impl Iterator<Item = &MappedFile> {
        let logs = self.all.iter().map(|log| &*log.found.file);
        logs.chain(self.packed.iter().copied())
    }
}

/// Reads the logs that were opened. Fails if one has an invalid header.
pub fn read(opened: &Opened) -> Result<Logs<'_>, Diagnostic> {
    let logs = opened
        .logs
        .iter()
        .map(|log| ReadLog::of(log).map_err(|error| error.in_file(log.found.file.path())));
    let all = logs.collect::<Result<Vec<_>, _>>()?;
    let mut diagnostics = opened.diagnostics.clone();
    diagnostics.extend(all.iter().filter_map(ReadLog::without_addresses));
    Ok(Logs {
        core: opened.core.as_ref(),
        all,
        packed: opened
            .logs
            .iter()
            .filter_map(|log| log.packed.as_deref())
            .collect(),
        diagnostics,
    })
}

/// Returns the addresses where a process had a file mapped at any time.
fn files_of(processes: &Processes, pid: Pid) -> RangeMap<()> {
    let mut files = RangeMap::default();
    for map in processes.spaces_of(pid).flat_map(|(_, space)| &space.maps) {
        if map.backing == Backing::File {
            files.insert(map.range, (), |_, ()| {});
        }
    }
    files
}

/// Returns the architecture of the first log as `uname -m` prints it; empty without a log.
pub fn architecture<'a>(logs: &[ReadLog<'a>]) -> &'a [u8] {
    match logs.first().map(|log| log.log.header().architecture) {
        Some(b"x86-64" | b"amd64") => b"x86_64",
        Some(b"arm64") => b"aarch64",
        Some(b"x86") => b"i686",
        Some(other) => other,
        None => b"",
    }
}
