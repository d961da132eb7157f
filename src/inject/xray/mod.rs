//! Traces of LLVM's XRay: events of a profile, and call chains.
//!
//! ```text
//! files ─► [open] ─► [read]: clocks ([clock]), [threads] by the profile's numbers, functions of the [binary] at [places]
//!                       └─► [replay] in the order of time, without short calls if asked for ([long_calls])
//!                              ├─► [event_selection] [events] of a profile
//!                              └─► [splice]: stacks of the profile's own samples
//! ```

pub mod binary;
mod clock;
pub mod event_selection;
pub mod events;
mod frame_addresses;
mod long_calls;
mod open;
mod read;
mod replay;
mod splice;
mod threads;

use std::collections::BTreeMap;

use crate::files::MappedFile;
use crate::files::search::shown;
use crate::inject::dumps::FoundDump;
use crate::inject::events::synthetic_symbols::SyntheticSymbol;
use crate::inject::events::{EventSet, Loss};
use crate::inject::xray::binary::{Base, Binary};
use crate::inject::xray::clock::FoundClock;
use crate::inject::xray::frame_addresses::FrameAddresses;
use crate::inject::xray::threads::TracedThread;
use crate::machine::Machine;
use crate::runtime::named_code::{NamedFunction, SymbolOnlyCode};
use crate::runtime::xray::{Fault, Index, Trace};
use crate::runtime::{FileKind, RuntimeTime};
use crate::summary::{TraceSummary, Warning};
use crate::tally::Tally;
use crate::units::{Pid, Time};

pub use event_selection::{select_events, wanted};
pub use events::event_sources;
pub use open::{Opened, open};
pub use read::read;
pub use splice::stack_sources;

/// A trace that was read.
#[derive(Debug)]
pub struct ReadTrace<'a> {
    /// The file.
    pub file: &'a MappedFile,
    /// Its records.
    pub trace: Trace<'a>,
    /// Where they are.
    pub index: Index,
    /// Its clock.
    pub clock: FoundClock,
    /// Its threads, in the order of the index; `None` for those of processes that the profile has not.
    pub threads: Vec<Option<TracedThread>>,
}

/// What was seen of a trace when it was replayed.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// How many calls.
    pub calls: u64,
    /// How many events that the program logged.
    pub events: u64,
    /// What could not be used of its records.
    pub faults: Tally<Fault>,
    /// What of them could not be told.
    pub losses: Tally<Loss>,
}

/// A process of traces.
#[derive(Debug)]
pub struct TracedProcess<'a> {
    /// It, as one with a file that has code: the first trace that tells of it.
    pub found: FoundDump,
    /// Where its functions are.
    pub places: FrameAddresses<'a>,
    /// Where the binary is.
    pub base: Option<Base>,
    /// Before what is told of it first.
    pub since: Time,
}

/// The traces that belong to a profile.
#[derive(Debug, Default)]
pub struct Traces<'a> {
    /// They.
    pub all: Vec<ReadTrace<'a>>,
    /// What was seen of each.
    pub seen: Vec<Seen>,
    /// Their processes.
    pub processes: BTreeMap<Pid, TracedProcess<'a>>,
    /// The instrumented binary, if there is one.
    pub binary: Option<&'a Binary>,
    /// What went wrong.
    pub warnings: Vec<Warning>,
    /// What else the user should know.
    pub notes: Vec<String>,
}

impl Traces<'_> {
    /// The architecture of the first one, as `uname -m` has it, as far as that is known.
    pub fn architecture(&self) -> &'static [u8] {
        self.binary.map_or(b"", |binary| binary.code.architecture)
    }

    /// All files that were read.
    pub fn files(&self) -> impl Iterator<Item = &MappedFile> {
        let binary = self.binary.map(|binary| &*binary.file);
        self.all.iter().map(|trace| trace.file).chain(binary)
    }

    /// The functions of each process that have no code, and so need some place and a name there.
    pub fn code(&self, machine: Machine) -> impl Iterator<Item = (&FoundDump, SymbolOnlyCode<'_>)> {
        self.processes.iter().filter_map(move |(pid, process)| {
            let synthetic_symbols = process.places.synthetic_symbols().all();
            let mut code = SymbolOnlyCode::new(pid.0, machine, FileKind::XrayTrace);
            for SyntheticSymbol { name, range } in synthetic_symbols {
                let named = NamedFunction {
                    name: name.into(),
                    range: *range,
                    code: None,
                };
                // Before that, the process may have been another program.
                code.load(named, RuntimeTime(process.since.0));
            }
            (!synthetic_symbols.is_empty()).then_some((&process.found, code))
        })
    }

    /// ScanBudget through all records for what is to be told of them, where no events are made of them.
    pub fn look_through(&mut self) {
        let event_set = EventSet::new(0, std::iter::empty());
        events::count(self, &event_set);
    }

    /// What there is to tell of each.
    pub fn summaries(&self) -> Vec<TraceSummary> {
        let all = self.all.iter().zip(&self.seen);
        let summaries = all.map(|(trace, seen)| TraceSummary {
            path: trace.name(),
            version: trace.trace.header().version,
            threads: trace.threads.iter().flatten().count() as u64,
            calls: seen.calls,
            events: seen.events,
            clock: trace.clock.note.clone(),
        });
        summaries.collect()
    }
}

impl ReadTrace<'_> {
    /// How to call it.
    pub fn name(&self) -> String {
        shown(self.file.path())
    }
}
