//! Second pass over a profile: finds the functions that samples hit and counts the samples by whether they have a
//! name.

mod counts;
#[cfg(test)]
mod tests;
mod walk;

pub use self::counts::{FrameCounts, SampleCounts, SpaceCounts, StackCounts};
use crate::code::clock::Doubt;
use crate::code::paged_table::PagedTable;
use crate::code::perf_map_symbols::{PlacedSymbol, SymbolId};
use crate::code::process::{Processes, SpaceId};
use crate::code::profile_index::TimeMarks;
use crate::code::samples::Samples;
pub use crate::code::selection::walk::SelectionWalk;
use crate::code::timeline::{FileIndex, FreedRangeIndex, Lookup, MappingIndex, Timeline};
use crate::code::unknown_addresses::UnknownAddresses;
use crate::collections::hash::{HashMap, HashSet};
use crate::collections::indexed_table::{IndexedTable, TableIndex};
use crate::perf::Profile;
use jitdump::{Address, Time};

/// State of the dumps of a process.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub enum DumpState {
    /// No dump was found; the runtime may not have been configured to write one.
    #[default]
    None,
    /// A dump existed, but is lost or unusable.
    Unusable,
    /// A dump was read.
    Read,
}

/// Code hit by samples.
#[derive(Clone, Debug)]
pub struct Selection {
    /// For each of the timeline's mappings, whether any address recorded with a sample is in it, including its call
    /// chain, branches, registers and stack.
    pub mappings: IndexedTable<MappingIndex, bool>,
    /// For each of the timeline's mappings, the number of samples taken in it.
    pub hits: IndexedTable<MappingIndex, u32>,
    /// Like `mappings`, for the timeline's freed ranges.
    pub freed_ranges: IndexedTable<FreedRangeIndex, bool>,
    /// Sample counts of each address space.
    pub spaces: PagedTable<SpaceId, SpaceCounts>,
    /// For each file of a runtime, the number of samples in its functions whose name is uncertain.
    pub doubtful: IndexedTable<FileIndex, u64>,
    /// Addresses of frames among the code of an address space that match no code. The reader of the profile may have
    /// a perf map that names them.
    pub unknown: UnknownAddresses,
    /// Symbols with any address recorded with a sample.
    pub symbols: HashSet<PlacedSymbol>,
    /// Whether all symbols fit after [`Selection::add_all`].
    pub has_all_symbols: bool,
    /// Number of samples taken in each symbol.
    pub symbol_hits: HashMap<SymbolId, u32>,
    /// Sample counts of the whole profile.
    pub samples: SampleCounts,
    /// Number of addresses of samples and callers that were looked up, because they were not known from earlier samples.
    pub lookups: u64,
}

/// Numbers of functions and symbols that samples hit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TouchedCounts {
    /// Functions. A moved function counts once per address.
    pub functions: u64,
    /// Symbols of perf maps.
    pub symbols: u64,
}

impl Selection {
    /// Adds the selection from other samples of the same profile.
    fn merge(&mut self, other: Self) {
        fn set<I: TableIndex>(own: &mut IndexedTable<I, bool>, other: &IndexedTable<I, bool>) {
            for (other, own) in other.iter().zip(own) {
                *own |= other;
            }
        }
        set(&mut self.mappings, &other.mappings);
        set(&mut self.freed_ranges, &other.freed_ranges);
        self.unknown.merge(other.unknown);
        for (&other, own) in other.hits.iter().zip(&mut self.hits) {
            *own = own.saturating_add(other);
        }
        for (space, other) in other.spaces.iter() {
            self.spaces.get_mut(space).add(other);
        }
        for (other, own) in other.doubtful.iter().zip(&mut self.doubtful) {
            *own += other;
        }
        self.symbols.extend(other.symbols);
        for (symbol, count) in other.symbol_hits {
            let hits = self.symbol_hits.entry(symbol).or_default();
            *hits = hits.saturating_add(count);
        }
        self.samples.add(&other.samples);
        self.lookups += other.lookups;
    }

    /// Returns what samples hit. Valid only before [`Selection::add_all`].
    pub fn touched_counts(&self) -> TouchedCounts {
        let functions = self.mappings.iter().filter(|&&is_touched| is_touched).count();
        let symbols: HashSet<SymbolId> = self.symbols.iter().map(|place| place.id).collect();
        TouchedCounts {
            functions: functions as u64,
            symbols: symbols.len() as u64,
        }
    }

    /// Adds all code that no sample hits.
    pub fn add_all(&mut self, timeline: &Timeline) {
        self.mappings.fill(true);
        self.freed_ranges.fill(true);
        let all = timeline.all_symbols();
        self.has_all_symbols = take_symbols(all, timeline.symbols.count(), |symbol| {
            self.symbols.insert(symbol);
        });
    }

    /// Returns the symbols, sorted.
    pub fn sorted_symbols(&self) -> Vec<PlacedSymbol> {
        let mut symbols: Vec<PlacedSymbol> = self.symbols.iter().copied().collect();
        symbols.sort_unstable();
        symbols
    }
}

/// Number of symbols that are always added without samples. A symbol is repeated each time that its memory is mapped again;
/// only crafted profiles exceed this and [`MAX_REPEATS`].
const MANY_SYMBOLS: usize = 1 << 20;

/// How often symbols of larger perf maps are added, on average.
const MAX_REPEATS: usize = 16;

/// Adds symbols of perf maps with `different` ones, as far as the limit allows. Returns whether these are all.
fn take_symbols<T>(mut all: impl Iterator<Item = T>, different: usize, add: impl FnMut(T)) -> bool {
    let limit = MANY_SYMBOLS.max(different.saturating_mul(MAX_REPEATS));
    all.by_ref().take(limit).for_each(add);
    all.next().is_none()
}

/// Finds the code that samples hit.
#[derive(Clone, Debug)]
pub struct Selector<'a> {
    /// Profile to read the samples from.
    pub profile: &'a Profile<'a>,
    /// Processes of the profile.
    pub processes: &'a Processes,
    /// Code of the processes.
    pub timeline: &'a Timeline,
    /// State of the dumps, for each address space.
    pub dumps: IndexedTable<SpaceId, DumpState>,
    /// Clock uncertainty of each dump.
    pub doubts: Doubts,
}

/// Uncertainty of the times of code.
#[derive(Clone, Debug, Default)]
pub struct Doubts {
    /// For each file of a runtime, the error of its clock alignment, where that can change names. Empty if the times
    /// of all files are certain.
    pub of_files: IndexedTable<FileIndex, Option<Doubt>>,
    /// Times of the first and the last record of the profile.
    pub span: Option<(Time, Time)>,
}

impl Doubts {
    /// Returns the earliest and the latest time that a sample can have on the clock of a file, within the profile.
    fn time_bounds(&self, file: FileIndex, time: Time) -> Option<[Time; 2]> {
        let doubt = self.of_files.row(file)?.as_ref()?;
        let (start, end) = self.span?;
        let earliest = Time(time.0.saturating_sub(doubt.more)).max(start);
        let latest = Time(time.0.saturating_add(doubt.less)).min(end);
        Some([earliest, latest])
    }
}

/// JIT code that a sample was taken in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SampledCode {
    /// A function: an index into [`Timeline::mappings`].
    Function(MappingIndex),
    /// A perf map symbol.
    Symbol(SymbolId),
    /// A function of this file of a runtime, but which one depends on the error of the clock alignment.
    Doubtful(FileIndex),
    /// Code that is loaded only later.
    BeforeLoad,
    /// Code that the dump of the process does not have.
    NotInDump,
    /// Code of a process whose dump is lost or unusable.
    DumpUnusable,
    /// Code of a process without a dump.
    NoDump,
}

impl SampledCode {
    /// Whether it has a name.
    pub fn is_named(self) -> bool {
        matches!(self, Self::Function(_) | Self::Symbol(_))
    }

    /// Whether it is in a function, even if it is uncertain in which one.
    pub fn is_in_function(self) -> bool {
        match self {
            Self::Function(_) | Self::Symbol(_) | Self::Doubtful(_) => true,
            Self::BeforeLoad | Self::NotInDump | Self::DumpUnusable | Self::NoDump => false,
        }
    }
}

impl<'a> Selector<'a> {
    /// Reads the records in several threads. Calls `progress` with the number of bytes just read. `marks` must be those of the
    /// same profile.
    pub fn walk(&self, marks: &TimeMarks, progress: impl FnMut(u64)) -> Selection {
        let walks = self
            .samples()
            .visit(marks, || SelectionWalk::new(self), |_| (), progress);
        self.combine(walks)
    }

    /// Returns what walks have found together.
    pub fn combine<'w>(&self, walks: impl IntoIterator<Item = SelectionWalk<'w>>) -> Selection {
        let found = walks.into_iter().map(SelectionWalk::into_selection);
        let all = found.reduce(|mut all, one| {
            all.merge(one);
            all
        });
        all.unwrap_or_else(|| self.nothing())
    }

    /// Returns an empty selection.
    fn nothing(&self) -> Selection {
        let timeline = self.timeline;
        Selection {
            doubtful: self.doubts.of_files.map(|_| 0),
            mappings: timeline.mappings.map(|_| false),
            hits: timeline.mappings.map(|_| 0),
            freed_ranges: timeline.freed_ranges.map(|_| false),
            spaces: PagedTable::default(),
            unknown: UnknownAddresses::default(),
            symbols: HashSet::default(),
            has_all_symbols: true,
            symbol_hits: HashMap::default(),
            samples: SampleCounts::default(),
            lookups: 0,
        }
    }

    /// Returns the samples of the profile.
    pub fn samples(&self) -> Samples<'_> {
        Samples {
            profile: self.profile,
            processes: self.processes,
        }
    }

    /// Classifies a sample taken at `ip`, given the `lookup` result there. Returns `None` if it is not JIT code.
    pub fn classify_ip(
        &self,
        space: SpaceId,
        ip: Address,
        time: Time,
        lookup: Lookup,
    ) -> Option<SampledCode> {
        let dump = self.dumps[space];
        Some(match lookup {
            Lookup::Function(at) => match self.doubtful_file(space, ip, time, at) {
                Some(file) => SampledCode::Doubtful(file),
                None => SampledCode::Function(at),
            },
            Lookup::Symbol(symbol) => SampledCode::Symbol(symbol.id),
            Lookup::File => return None,
            Lookup::Unmapped if dump == DumpState::None => return None,
            _ if self.timeline.has_later_code(space, ip, time) => SampledCode::BeforeLoad,
            Lookup::Unmapped if !self.timeline.may_be_jit(space, ip) => return None,
            _ => match dump {
                DumpState::Read => SampledCode::NotInDump,
                DumpState::Unusable => SampledCode::DumpUnusable,
                DumpState::None => SampledCode::NoDump,
            },
        })
    }

    /// Whether the function of a mapping at an address may depend on the error of the clock alignment.
    pub fn is_uncertain(&self, at: MappingIndex) -> bool {
        let file = self.timeline.mappings[at].function.file;
        self.doubts.of_files.row(file).is_some_and(Option::is_some)
    }

    /// Returns the file of mapping `at` if a sample at `ip` would be in another function at the limits of the file's
    /// clock uncertainty.
    fn doubtful_file(&self, space: SpaceId, ip: Address, time: Time, at: MappingIndex) -> Option<FileIndex> {
        let file = self.timeline.mappings[at].function.file;
        let time_bounds = self.doubts.time_bounds(file, time)?;
        let is_another = |context| match self.timeline.at(space, ip, context) {
            Lookup::Function(other) => other != at,
            _ => false,
        };
        time_bounds.into_iter().any(is_another).then_some(file)
    }
}
