//! Second pass over a profile: finds the functions that samples hit and counts the samples by whether they have a
//! name.

mod counts;

pub use self::counts::{FrameCounts, SampleCounts, SpaceCounts, StackCounts};
use crate::code::clock::Doubt;
use crate::code::perf_map_symbols::{PlacedSymbol, SymbolId};
use crate::code::process::{Processes, SpaceId};
use crate::code::profile_index::TimeMarks;
use crate::code::recent::Recent;
use crate::code::samples::{Located, SampleFields, SampleVisitor, Samples};
use crate::code::timeline::{Code, Extent, FileIndex, FreedRangeIndex, Lookup, MappingIndex, Timeline};
use crate::code::unknown_addresses::UnknownAddresses;
use crate::collections::hash::{HashMap, HashSet};
use crate::collections::indexed_table::{IndexedTable, TableIndex};
use crate::perf::Profile;
use crate::perf::record::Record;
use crate::perf::sample::{Sample, deferred_callers};
use crate::units::{Address, AddressRange, Time};

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
    pub spaces: IndexedTable<SpaceId, SpaceCounts>,
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
}

impl Selection {
    /// An empty selection for a timeline.
    fn nothing(processes: &Processes, timeline: &Timeline, doubts: &Doubts) -> Self {
        Self {
            doubtful: doubts.of_files.map(|_| 0),
            mappings: timeline.mappings().map(|_| false),
            hits: timeline.mappings().map(|_| 0),
            freed_ranges: timeline.freed_ranges().map(|_| false),
            spaces: processes.spaces().map(|_| SpaceCounts::default()),
            unknown: UnknownAddresses::default(),
            symbols: HashSet::default(),
            has_all_symbols: true,
            symbol_hits: HashMap::default(),
            samples: SampleCounts::default(),
        }
    }

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
        for (other, own) in other.spaces.iter().zip(&mut self.spaces) {
            own.add(other);
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
    }

    /// Returns the number of mappings and the number of symbols that samples hit. Valid only before
    /// [`Selection::add_all`].
    pub fn marked(&self) -> (u64, u64) {
        let functions = self.mappings.iter().filter(|&&is_touched| is_touched).count();
        let symbols: HashSet<SymbolId> = self.symbols.iter().map(|place| place.id).collect();
        (functions as u64, symbols.len() as u64)
    }

    /// Adds all code that no sample hits.
    pub fn add_all(&mut self, timeline: &Timeline) {
        self.mappings.fill(true);
        self.freed_ranges.fill(true);
        let mut symbols = timeline.all_symbols();
        self.symbols.extend(symbols.by_ref().take(MAX_SYMBOLS));
        self.has_all_symbols = symbols.next().is_none();
    }

    /// Returns the symbols, sorted.
    pub fn sorted_symbols(&self) -> Vec<PlacedSymbol> {
        let mut symbols: Vec<PlacedSymbol> = self.symbols.iter().copied().collect();
        symbols.sort_unstable();
        symbols
    }
}

/// Maximum number of symbols added without samples. A symbol is repeated each time that its memory is mapped again;
/// only crafted profiles exceed this.
const MAX_SYMBOLS: usize = 1 << 22;

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
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum SampledCode {
    /// A function: an index into [`Timeline::mappings`].
    Function(MappingIndex),
    /// A perf map symbol.
    Symbol(PlacedSymbol),
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
}

impl<'a> Selector<'a> {
    /// Reads the first `end` bytes of the records in several threads. Calls `progress` with the number of bytes just
    /// read. `marks` must be those of the same profile.
    pub fn walk(&self, marks: &TimeMarks, end: u64, mut progress: impl FnMut(u64)) -> Selection {
        let mut selection = Selection::nothing(self.processes, self.timeline, &self.doubts);
        let walk = || Walk {
            selector: self,
            selection: Selection::nothing(self.processes, self.timeline, &self.doubts),
            recent: Recent::default(),
        };
        self.samples()
            .visit(marks, end, walk, |found| selection.merge(found), &mut progress);
        selection
    }

    /// Returns the samples of the profile.
    pub fn samples(&self) -> Samples<'_> {
        Samples {
            profile: self.profile,
            processes: self.processes,
        }
    }

    /// Returns the frames of a sample in JIT code: of its call chain, and the sampled address, which is in `leaf`.
    pub fn jit_frames(&self, located: &Located<SampleFields<'_>>, leaf: Option<SampledCode>) -> FrameCounts {
        let mut frames = FrameCounts::default();
        if let Some(leaf) = leaf {
            frames.add(leaf.is_named());
        }
        let Some(space) = located.space.filter(|_| !located.content.record.is_guest()) else {
            return frames;
        };
        let bounds = [self.timeline.code_bounds(space), self.timeline.jit_bounds(space)];
        let sample = &located.content.sample;
        for (index, address) in sample.chain_addresses().enumerate() {
            let is_sampled = index == 0 && Some(address) == sample.ip;
            if is_sampled || !bounds.iter().flatten().any(|bounds| bounds.contains(address)) {
                continue;
            }
            let lookup = self.timeline.at(space, address, located.lookup_time());
            if let Some(is_named) = lookup.frame_has_name() {
                frames.add(is_named);
            }
        }
        frames
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
            Lookup::Symbol(symbol) => SampledCode::Symbol(symbol),
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

    /// Returns the file of mapping `at` if a sample at `ip` would be in another function at the limits of the file's
    /// clock uncertainty.
    fn doubtful_file(&self, space: SpaceId, ip: Address, time: Time, at: MappingIndex) -> Option<FileIndex> {
        let file = self.timeline.mappings()[at].function.file;
        let time_bounds = self.doubts.time_bounds(file, time)?;
        let is_another = |context| match self.timeline.at(space, ip, context) {
            Lookup::Function(other) => other != at,
            _ => false,
        };
        time_bounds.into_iter().any(is_another).then_some(file)
    }
}

/// Address space and time in which the frames of a sample are looked up.
#[derive(Clone, Copy)]
struct FrameContext {
    space: SpaceId,
    time: Time,
    /// Range of addresses that ever held functions.
    code_bounds: Option<AddressRange>,
    /// Range of addresses that ever were JIT memory.
    jit_bounds: Option<AddressRange>,
    /// Whether there are functions or symbols.
    has_code: bool,
}

/// State while reading one chunk of the records.
struct Walk<'a> {
    selector: &'a Selector<'a>,
    selection: Selection,
    recent: Recent,
}

impl SampleVisitor for Walk<'_> {
    type Found = Selection;

    fn finish(self) -> Selection {
        self.selection
    }

    fn sample(&mut self, located: &Located<SampleFields<'_>>) {
        let SampleFields { record, sample } = &located.content;
        self.selection.samples.total += 1;
        self.selection.samples.cut += u64::from(sample.is_truncated);
        let (Some(space), time) = (located.space, located.lookup_time()) else {
            return;
        };
        let of_space = &mut self.selection.spaces[space];
        of_space.samples = of_space.samples.saturating_add(1);
        let mut frames = FrameCounts::default();
        let mut is_in_function = false;
        if let Some(ip) = located.content.user_ip() {
            let (lookup, _) = self.find(space, ip, time);
            is_in_function = lookup.is_function();
            self.mark(space, ip, lookup);
            self.note_unknown(space, ip, lookup);
            if let Some(is_named) = self.count(space, ip, time, lookup) {
                frames.add(is_named);
            }
        }
        if let Some(context) = self.context(space, time)
            && !record.is_guest()
        {
            self.add_chain(sample, context, is_in_function, &mut frames);
            if context.has_code {
                self.add_possible_callers(sample, context);
            }
        }
        self.selection.samples.stacks.add_sample(frames);
        let of_space = &mut self.selection.spaces[space];
        of_space.with_jit_frame = of_space.with_jit_frame.saturating_add(u32::from(frames.jit > 0));
    }

    fn deferred_chain(&mut self, chain: &Located<Record<'_>>) {
        if let Some(context) = chain
            .space
            .and_then(|space| self.context(space, chain.lookup_time()))
        {
            let mut frames = FrameCounts::default();
            for address in deferred_callers(&chain.content, self.selector.profile.endian) {
                if let Some(is_named) = self.mark_frame(address, context) {
                    frames.add(is_named);
                }
            }
            self.selection.samples.stacks.add_sample(frames);
        }
    }
}

impl Walk<'_> {
    /// Returns the lookup context for frames; `None` if the address space never has JIT code or memory.
    fn context(&self, space: SpaceId, time: Time) -> Option<FrameContext> {
        let timeline = self.selector.timeline;
        let code_bounds = timeline.code_bounds(space);
        let jit_bounds = timeline.jit_bounds(space);
        let has_code = code_bounds.is_some() || timeline.has_symbols(space);
        (has_code || jit_bounds.is_some()).then_some(FrameContext {
            space,
            time,
            code_bounds,
            jit_bounds,
            has_code,
        })
    }

    /// Adds the call chain of a sample, and its frames in JIT code except the sampled one to `frames`. `is_in_stack` is
    /// whether the sampled address is in a function.
    fn add_chain(
        &mut self,
        sample: &Sample<'_>,
        context: FrameContext,
        mut is_in_stack: bool,
        frames: &mut FrameCounts,
    ) {
        // The chain starts with the sampled address.
        let mut sampled = sample.ip;
        for address in sample.chain_addresses() {
            let is_named = self.mark_frame(address, context);
            is_in_stack |= is_named == Some(true);
            if let Some(is_named) = is_named
                && sampled.take() != Some(address)
            {
                frames.add(is_named);
            }
            sampled = None;
        }
        self.selection.samples.with_named_frame += u64::from(is_in_stack);
    }

    /// Adds the branches, registers and stack of a sample.
    fn add_possible_callers(&mut self, sample: &Sample<'_>, context: FrameContext) {
        for address in sample.branches.iter() {
            self.mark_address(address, context);
        }
        // Words of the stack may be return addresses; only unwinding shows which.
        for address in sample.registers.iter().chain(sample.stack.iter()) {
            self.mark_caller(address, context);
        }
    }

    /// Marks the code at a frame's address, or records the address as unknown. Returns whether the frame has a name, if
    /// it is in JIT code.
    fn mark_frame(&mut self, address: Address, context: FrameContext) -> Option<bool> {
        let (lookup, is_in_function) = self.mark_caller(address, context);
        let is_within = |bounds: Option<AddressRange>| bounds.is_some_and(|bounds| bounds.contains(address));
        if let Some(lookup) = lookup
            && is_within(context.code_bounds)
        {
            self.note_unknown(context.space, address, lookup);
        }
        if is_in_function {
            return Some(true);
        }
        let lookup = match lookup {
            None if is_within(context.jit_bounds) => Some(self.find(context.space, address, context.time).0),
            lookup => lookup,
        };
        lookup?.frame_has_name()
    }

    /// Records an address among code as unknown if it matches no code, or if it is in a file where the address space
    /// or an ancestor ever has code: an object for that code may already cover it.
    fn note_unknown(&mut self, space: SpaceId, address: Address, lookup: Lookup) {
        let is_unknown = match lookup {
            Lookup::Anonymous | Lookup::Unmapped => true,
            Lookup::File => self.selector.timeline.ever_has_code(space, address),
            Lookup::Function(_) | Lookup::Freed(_) | Lookup::Symbol(_) => false,
        };
        if is_unknown {
            self.selection.unknown.insert(space, address);
        }
    }

    /// Marks the code at an address of a call chain. Returns what is there, if the address can be code, and whether
    /// the call is in a function. If the caller ends with a call, the return address is one past its last byte.
    #[inline]
    fn mark_caller(&mut self, address: Address, context: FrameContext) -> (Option<Lookup>, bool) {
        let before = Address(address.0.saturating_sub(1));
        // Most frames are in recently marked functions.
        if context
            .code_bounds
            .is_some_and(|code_bounds| code_bounds.contains(address))
            && let Some(found) = self.recent.get(context.space, address, context.time)
            && let Code::Function(mapping) = found.code
            && found.extent.range.contains(before)
        {
            return (Some(Lookup::Function(mapping)), true);
        }
        self.mark_unfamiliar_caller(address, before, context)
    }

    fn mark_unfamiliar_caller(
        &mut self,
        address: Address,
        before: Address,
        context: FrameContext,
    ) -> (Option<Lookup>, bool) {
        let (lookup, extent) = self.mark_lookup(address, context);
        let is_in_function = lookup.is_some_and(Lookup::is_function);
        if extent.is_some_and(|extent| extent.range.contains(before)) {
            return (lookup, is_in_function);
        }
        (lookup, self.mark_address(before, context) | is_in_function)
    }

    fn mark_address(&mut self, address: Address, context: FrameContext) -> bool {
        let (lookup, _) = self.mark_lookup(address, context);
        lookup.is_some_and(Lookup::is_function)
    }

    /// Marks the code at an address. Returns what is there, if the address can be code, and the extent around it.
    fn mark_lookup(&mut self, address: Address, context: FrameContext) -> (Option<Lookup>, Option<Extent>) {
        let FrameContext {
            space,
            time,
            code_bounds,
            ..
        } = context;
        let timeline = self.selector.timeline;
        let is_near_function = code_bounds.is_some_and(|code_bounds| code_bounds.contains(address));
        if !is_near_function && !timeline.may_have_symbol(space, address) {
            return (None, None);
        }
        let (lookup, extent) = self.find(space, address, time);
        self.mark(space, address, lookup);
        (Some(lookup), extent)
    }

    /// Returns the content of an address at a time, and for code the extent around it.
    fn find(&mut self, space: SpaceId, address: Address, time: Time) -> (Lookup, Option<Extent>) {
        self.recent.lookup(self.selector.timeline, space, address, time)
    }

    /// Marks the code at an address as hit.
    fn mark(&mut self, space: SpaceId, address: Address, lookup: Lookup) {
        match lookup {
            Lookup::Function(at) => self.selection.mappings[at] = true,
            Lookup::Freed(at) => {
                self.selection.freed_ranges[at] = true;
                self.mark_withheld(space, address);
            }
            Lookup::Symbol(symbol) => {
                self.selection.symbols.insert(symbol);
            }
            Lookup::Anonymous | Lookup::Unmapped => self.mark_withheld(space, address),
            Lookup::File => {}
        }
    }

    /// Marks the functions that hide perf map symbols at an address. When jitinject reads its own output, it must not
    /// find a symbol there either, and it recognizes only functions that have an object.
    fn mark_withheld(&mut self, space: SpaceId, address: Address) {
        for mapping in self.selector.timeline.symbols_withheld_by(space, address) {
            self.selection.mappings[mapping] = true;
        }
    }

    /// Counts a sampled address. Returns whether it has a name, if it is in JIT code.
    fn count(&mut self, space: SpaceId, ip: Address, time: Time, lookup: Lookup) -> Option<bool> {
        let leaf = self.selector.classify_ip(space, ip, time, lookup)?;
        let samples = &mut self.selection.samples;
        let of_space = &mut self.selection.spaces[space];
        let (counter, part) = match leaf {
            SampledCode::Function(at) => (&mut samples.named, Some(&mut self.selection.hits[at])),
            SampledCode::Symbol(symbol) => {
                samples.named_by_map += 1;
                let hits = self.selection.symbol_hits.entry(symbol.id).or_default();
                (&mut samples.named, Some(hits))
            }
            SampledCode::Doubtful(file) => {
                self.selection.doubtful[file] += 1;
                (&mut samples.doubtful, None)
            }
            SampledCode::BeforeLoad => (&mut samples.before_load, Some(&mut of_space.before_load)),
            SampledCode::NotInDump => (&mut samples.not_in_dump, Some(&mut of_space.not_in_dump)),
            SampledCode::DumpUnusable => (&mut samples.dump_unusable, Some(&mut of_space.dump_unusable)),
            SampledCode::NoDump => (&mut samples.no_dump, Some(&mut of_space.no_dump)),
        };
        *counter += 1;
        if let Some(part) = part {
            *part = part.saturating_add(1);
        }
        Some(leaf.is_named())
    }
}
