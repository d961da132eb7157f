//! The second walk over a profile: which functions its samples touch, and how many samples have a name.

use std::ops::Range;

use crate::code::clock::Doubt;
use crate::code::perf_map_symbols::{PlacedSymbol, SymbolId};
use crate::code::pieces::in_pieces;
use crate::code::process::{Processes, SpaceId};
use crate::code::profile_index::TimeMarks;
use crate::code::recent::{Found, Recent};
use crate::code::timeline::{Code, Extent, Lookup, Timeline};
use crate::code::unknown_addresses::UnknownAddresses;
use crate::hash::{HashMap, HashSet};
use crate::perf::Profile;
use crate::perf::record::{self, Record};
use crate::perf::sample::{Sample, deferred_callers};
use crate::units::{Address, AddressRange, Pid, Time};

/// How much the profile can know about the code of a process.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub enum DumpState {
    /// Its runtime wrote nothing that was found, or was not asked to.
    #[default]
    None,
    /// It did, but the file is lost or can't be used.
    Unusable,
    /// It did.
    Read,
}

/// Samples, counted by what is known of the address where they were taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SampleCounts {
    /// All.
    pub total: u64,
    /// In a function that is known.
    pub named: u64,
    /// Of these, in one of which only a perf map tells the name.
    pub named_by_map: u64,
    /// In a function that is known, and in another one if the clocks are as far apart as they can be.
    pub doubtful: u64,
    /// In memory of JIT code at an address that gets a function only later.
    pub before_load: u64,
    /// In memory of JIT code of a process whose dump was read, at an address that it says nothing of.
    pub not_in_dump: u64,
    /// In memory of JIT code of a process whose dump is lost or can't be used.
    pub dump_unusable: u64,
    /// In memory of JIT code of a process without a dump.
    pub no_dump: u64,
    /// With a known function anywhere in their recorded call chain.
    pub with_named_frame: u64,
    /// That end before their fields do.
    pub cut: u64,
}

impl SampleCounts {
    fn add(&mut self, other: &Self) {
        self.total += other.total;
        self.named += other.named;
        self.named_by_map += other.named_by_map;
        self.doubtful += other.doubtful;
        self.before_load += other.before_load;
        self.not_in_dump += other.not_in_dump;
        self.dump_unusable += other.dump_unusable;
        self.no_dump += other.no_dump;
        self.with_named_frame += other.with_named_frame;
        self.cut += other.cut;
    }

    /// Those taken in JIT code, as far as can be known.
    pub fn jit(&self) -> u64 {
        self.named + self.unnamed()
    }

    /// Those of them that have no name, or none that is certain.
    pub fn unnamed(&self) -> u64 {
        self.doubtful + self.before_load + self.not_in_dump + self.dump_unusable + self.no_dump
    }

    /// The share of the samples in JIT code that have a name, in percent; all, if there are none.
    pub fn named_percent(&self) -> f64 {
        match self.jit() {
            0 => 100.0,
            jit => self.named as f64 * 100.0 / jit as f64,
        }
    }
}

/// Samples of one address space.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SpaceCounts {
    /// All.
    pub samples: u32,
    /// Those taken where a function came only later.
    pub before_load: u32,
    /// See [`SampleCounts::not_in_dump`].
    pub not_in_dump: u32,
    /// See [`SampleCounts::dump_unusable`].
    pub dump_unusable: u32,
    /// See [`SampleCounts::no_dump`].
    pub no_dump: u32,
}

impl SpaceCounts {
    fn add(&mut self, other: &Self) {
        let add = |own: &mut u32, other: u32| *own = own.saturating_add(other);
        add(&mut self.samples, other.samples);
        add(&mut self.before_load, other.before_load);
        add(&mut self.not_in_dump, other.not_in_dump);
        add(&mut self.dump_unusable, other.dump_unusable);
        add(&mut self.no_dump, other.no_dump);
    }

    /// Whether samples in JIT code have no name.
    pub fn has_unnamed(&self) -> bool {
        [
            self.before_load,
            self.not_in_dump,
            self.dump_unusable,
            self.no_dump,
        ] != [0; 4]
    }
}

/// What the samples touch.
#[derive(Clone, Debug)]
pub struct Selection {
    /// For each of the timeline's mappings, whether a sample holds an address in it.
    pub mappings: Vec<bool>,
    /// And how many samples were taken in it.
    pub hits: Vec<u32>,
    /// As `mappings`, for the timeline's freed ranges.
    pub freed_ranges: Vec<bool>,
    /// The samples of each address space.
    pub spaces: Vec<SpaceCounts>,
    /// For each file of a runtime, how many samples were taken in its functions that have no certain name.
    pub doubtful: Vec<u64>,
    /// Addresses of frames among the code of an address space where nothing is known. A perf map that the reader of the
    /// profile has may name them.
    pub unknown: UnknownAddresses,
    /// The symbols that a sample holds an address in.
    pub symbols: HashSet<PlacedSymbol>,
    /// Whether there was not too much of them, where all were asked for.
    pub has_all_symbols: bool,
    /// How many samples were taken in them.
    pub symbol_hits: HashMap<SymbolId, u32>,
    /// The samples.
    pub samples: SampleCounts,
}

impl Selection {
    /// Nothing of a timeline.
    fn nothing(processes: &Processes, timeline: &Timeline, doubts: &Doubts) -> Self {
        Self {
            doubtful: vec![0; doubts.of_files.len()],
            mappings: vec![false; timeline.mappings().len()],
            hits: vec![0; timeline.mappings().len()],
            freed_ranges: vec![false; timeline.freed_ranges().len()],
            spaces: vec![SpaceCounts::default(); processes.spaces().len()],
            unknown: UnknownAddresses::default(),
            symbols: HashSet::default(),
            has_all_symbols: true,
            symbol_hits: HashMap::default(),
            samples: SampleCounts::default(),
        }
    }

    /// Adds what other samples of the same profile touch.
    fn merge(&mut self, other: Self) {
        let set = |own: &mut [bool], other: &[bool]| {
            for (own, other) in own.iter_mut().zip(other) {
                *own |= other;
            }
        };
        let add = |own: &mut [u32], other: &[u32]| {
            for (own, &other) in own.iter_mut().zip(other) {
                *own = own.saturating_add(other);
            }
        };
        set(&mut self.mappings, &other.mappings);
        set(&mut self.freed_ranges, &other.freed_ranges);
        self.unknown.merge(other.unknown);
        add(&mut self.hits, &other.hits);
        for (own, other) in self.spaces.iter_mut().zip(&other.spaces) {
            own.add(other);
        }
        for (own, other) in self.doubtful.iter_mut().zip(&other.doubtful) {
            *own += other;
        }
        self.symbols.extend(other.symbols);
        for (symbol, count) in other.symbol_hits {
            let hits = self.symbol_hits.entry(symbol).or_default();
            *hits = hits.saturating_add(count);
        }
        self.samples.add(&other.samples);
    }

    /// How many functions, each once for each place that it was at, and how many symbols samples touch, as
    /// long as no others were added.
    pub fn marked(&self) -> (u64, u64) {
        let functions = self.mappings.iter().filter(|&&is_touched| is_touched).count();
        let symbols: HashSet<SymbolId> = self.symbols.iter().map(|place| place.id).collect();
        (functions as u64, symbols.len() as u64)
    }

    /// Adds all that no sample touches.
    pub fn add_all(&mut self, processes: &Processes, timeline: &Timeline) {
        self.mappings.fill(true);
        self.freed_ranges.fill(true);
        let mut symbols = timeline.all_symbols(processes);
        self.symbols.extend(symbols.by_ref().take(MAX_SYMBOLS));
        self.has_all_symbols = symbols.next().is_none();
    }

    /// The symbols in their order.
    pub fn sorted_symbols(&self) -> Vec<PlacedSymbol> {
        let mut symbols: Vec<PlacedSymbol> = self.symbols.iter().copied().collect();
        symbols.sort_unstable();
        symbols
    }
}

/// How many symbols are added that no sample touches, at most: each may be there as often as memory was
/// mapped anew. Only profiles that are made so have as many.
const MAX_SYMBOLS: usize = 1 << 22;

/// Finds out what samples touch.
#[derive(Clone, Copy, Debug)]
pub struct Selector<'a> {
    /// The profile.
    pub profile: &'a Profile<'a>,
    /// Its processes.
    pub processes: &'a Processes,
    /// Their code.
    pub timeline: &'a Timeline,
    /// What is known of each of their address spaces.
    pub dumps: &'a [DumpState],
    /// How certain the times of their code are.
    pub doubts: &'a Doubts,
}

/// How certain the times of code are.
#[derive(Clone, Debug, Default)]
pub struct Doubts {
    /// For each file of a runtime, how much its clock can be off, where that can change names.
    pub of_files: Vec<Option<Doubt>>,
    /// The times of the first and the last record of the profile.
    pub span: Option<(Time, Time)>,
}

impl Doubts {
    /// The earliest and the latest moment that a sample can be from by the clock of a file.
    fn moments(&self, file: u32, time: Time) -> Option<[Time; 2]> {
        let doubt = self.of_files.get(file as usize)?.as_ref()?;
        let (start, end) = self.span?;
        let earliest = Time(time.0.saturating_sub(doubt.more)).max(start);
        let latest = Time(time.0.saturating_add(doubt.less)).min(end);
        Some([earliest, latest])
    }
}

/// What is known of the JIT code that a sample was taken in.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Leaf {
    /// A function: an index into [`Timeline::mappings`].
    Function(u32),
    /// A symbol of a perf map.
    Symbol(PlacedSymbol),
    /// A function of this file of a runtime, but which one depends on how far its clock is off.
    Doubtful(u32),
    /// A function comes to that address only later.
    BeforeLoad,
    /// The dump of the process says nothing of that address.
    NotInDump,
    /// The dump of the process is lost or can't be used.
    DumpUnusable,
    /// The process has no dump.
    NoDump,
}

impl<'a> Selector<'a> {
    /// Walks the first `end` bytes of the records, in several threads, and tells `progress` how many bytes it
    /// has come. `marks` are those of the same profile.
    pub fn walk(&self, marks: &TimeMarks, end: u64, mut progress: impl FnMut(u64)) -> Selection {
        let mut selection = Selection::nothing(self.processes, self.timeline, self.doubts);
        let walk = |piece: &_| self.walk_piece(piece);
        in_pieces(marks, end, walk, |one| selection.merge(one), &mut progress);
        selection
    }

    /// What is known of a sample that was taken at `ip`, where `lookup` is; `None` if that is no JIT code.
    pub fn classify_ip(&self, space: SpaceId, ip: Address, time: Time, lookup: Lookup) -> Option<Leaf> {
        let dump = self.dumps.get(space.index()).copied().unwrap_or_default();
        Some(match lookup {
            Lookup::Function(at) => match self.doubtful_file(space, ip, time, at) {
                Some(file) => Leaf::Doubtful(file),
                None => Leaf::Function(at),
            },
            Lookup::Symbol(symbol) => Leaf::Symbol(symbol),
            Lookup::File => return None,
            Lookup::Unmapped if dump == DumpState::None => return None,
            _ if self.timeline.has_later_code(space, ip, time) => Leaf::BeforeLoad,
            Lookup::Unmapped if !self.timeline.may_be_jit(space, ip) => return None,
            _ => match dump {
                DumpState::Read => Leaf::NotInDump,
                DumpState::Unusable => Leaf::DumpUnusable,
                DumpState::None => Leaf::NoDump,
            },
        })
    }

    /// The file of the mapping `at`, if a sample at `ip` can be of another function as well, since the file's clock is not known
    /// well enough.
    fn doubtful_file(&self, space: SpaceId, ip: Address, time: Time, at: u32) -> Option<u32> {
        let file = self.timeline.mappings().get(at as usize)?.function.file;
        let moments = self.doubts.moments(file, time)?;
        let is_another = |context| match self.timeline.at(space, ip, context) {
            Lookup::Function(other) => other != at,
            _ => false,
        };
        moments.into_iter().any(is_another).then_some(file)
    }

    fn walk_piece(&self, piece: &Range<u64>) -> Selection {
        let mut walk = Walk {
            selector: *self,
            selection: Selection::nothing(self.processes, self.timeline, self.doubts),
            recent: Recent::new(),
        };
        for record in self.profile.records_between(piece.start, piece.end) {
            match record.kind {
                record::SAMPLE => walk.add(&record),
                record::CALLCHAIN_DEFERRED => walk.add_deferred(&record),
                _ => {}
            }
        }
        walk.selection
    }
}

fn set_mark(marks: &mut [bool], at: u32) {
    if let Some(mark) = marks.get_mut(at as usize) {
        *mark = true;
    }
}

/// Where and when a sample was taken.
#[derive(Clone, Copy)]
struct FrameContext {
    space: SpaceId,
    time: Time,
    /// Where functions were, ever.
    code_bounds: Option<AddressRange>,
}

/// A walk over a piece of the records.
struct Walk<'a> {
    selector: Selector<'a>,
    selection: Selection,
    recent: Recent,
}

impl Walk<'_> {
    fn time_of(&self, record: &Record<'_>) -> Time {
        let time = self
            .selector
            .profile
            .attrs
            .time_of(record, self.selector.profile.order);
        time.unwrap_or(Time::LAST)
    }

    /// The call chain of an earlier sample.
    fn add_deferred(&mut self, record: &Record<'_>) {
        let order = self.selector.profile.order;
        let attr = self.selector.profile.attrs.of(record, order);
        let pid = attr.and_then(|attr| attr.trailer_pid(record, order));
        let time = self.time_of(record);
        let space = pid.and_then(|pid| self.selector.processes.space_at(pid, time));
        if let Some(context) = space.and_then(|space| self.context(space, time)) {
            for address in deferred_callers(record, order) {
                self.mark_frame(address, context);
            }
        }
    }

    /// Where and when frames are to be looked up, if there is ever code in the address space.
    fn context(&self, space: SpaceId, time: Time) -> Option<FrameContext> {
        let code_bounds = self.selector.timeline.code_bounds(space);
        (code_bounds.is_some() || self.selector.timeline.has_symbols(space)).then_some(FrameContext {
            space,
            time,
            code_bounds,
        })
    }

    fn add(&mut self, record: &Record<'_>) {
        let order = self.selector.profile.order;
        let Some(attr) = self.selector.profile.attrs.of(record, order) else {
            return;
        };
        let sample = Sample::parse(record, attr, order);
        self.selection.samples.total += 1;
        self.selection.samples.cut += u64::from(sample.is_cut);
        let pid = sample.pid.unwrap_or(Pid(0));
        let time = self.time_of(record);
        let Some(space) = self.selector.processes.space_at(pid, time) else {
            return;
        };
        if let Some(of_space) = self.selection.spaces.get_mut(space.index()) {
            of_space.samples = of_space.samples.saturating_add(1);
        }
        let mut is_in_function = false;
        if let Some(ip) = sample.ip.filter(|_| record.cpu_mode() == record::MISC_USER) {
            let (lookup, _) = self.find(space, ip, time);
            is_in_function = lookup.is_function();
            self.mark(space, ip, lookup);
            self.note_unknown(space, ip, lookup);
            self.count(space, ip, time, lookup);
        }
        if let Some(context) = self.context(space, time)
            && !record.is_of_guest()
        {
            self.add_callers(&sample, context, is_in_function);
        }
    }

    /// The addresses that came with a sample, whose own is in a function or not.
    fn add_callers(&mut self, sample: &Sample<'_>, context: FrameContext, mut is_in_stack: bool) {
        for address in sample.callers() {
            is_in_stack |= self.mark_frame(address, context);
        }
        self.selection.samples.with_named_frame += u64::from(is_in_stack);
        for address in sample.branches.iter() {
            self.mark_address(address, context);
        }
        // Words of the stack may be return addresses; unwinding will show which are.
        for address in sample.registers.iter().chain(sample.stack.iter()) {
            self.mark_caller(address, context);
        }
    }

    /// Touches what a frame of a call chain may stand for, and notes it where nothing is known; says whether it is in a
    /// function.
    fn mark_frame(&mut self, address: Address, context: FrameContext) -> bool {
        let (lookup, is_in_function) = self.mark_caller(address, context);
        if let Some(lookup) = lookup
            && context
                .code_bounds
                .is_some_and(|code_bounds| code_bounds.contains(address))
        {
            self.note_unknown(context.space, address, lookup);
        }
        is_in_function
    }

    /// Notes an address among code where nothing is known, or a file is while code that lies there later, or in a
    /// process that this one is a copy of, may be in an object already.
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

    /// Touches what an address of a call chain may stand for; says what is there, where that can be code, and whether the
    /// call is in a function. A return address can lie one byte behind its caller, where that ends in a call.
    #[inline]
    fn mark_caller(&mut self, address: Address, context: FrameContext) -> (Option<Lookup>, bool) {
        let before = Address(address.0.saturating_sub(1));
        // Most frames are in functions that were touched lately.
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

    /// Touches what is at an address, and says what that is, where it can be code, and where around it the same is.
    fn mark_lookup(&mut self, address: Address, context: FrameContext) -> (Option<Lookup>, Option<Extent>) {
        let FrameContext {
            space,
            time,
            code_bounds,
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

    /// What is at an address at a time, and if it is code, where around there.
    fn find(&mut self, space: SpaceId, address: Address, time: Time) -> (Lookup, Option<Extent>) {
        if let Some(found) = self.recent.get(space, address, time) {
            return (found.code.into(), Some(found.extent));
        }
        let (lookup, extent) = self.selector.timeline.lookup_with_extent(space, address, time);
        if let (Some(extent), Some(code)) = (extent, lookup.code()) {
            self.recent.put(address, Found { space, extent, code });
        }
        (lookup, extent)
    }

    /// Notes that what is at an address is touched.
    fn mark(&mut self, space: SpaceId, address: Address, lookup: Lookup) {
        match lookup {
            Lookup::Function(at) => set_mark(&mut self.selection.mappings, at),
            Lookup::Freed(at) => {
                set_mark(&mut self.selection.freed_ranges, at);
                self.mark_withheld(space, address);
            }
            Lookup::Symbol(symbol) => {
                self.selection.symbols.insert(symbol);
            }
            Lookup::Anonymous | Lookup::Unmapped => self.mark_withheld(space, address),
            Lookup::File => {}
        }
    }

    /// Touches the functions that keep symbols of perf maps from an address: a run on the output must not find a symbol there
    /// either, and only functions with an object are known to it.
    fn mark_withheld(&mut self, space: SpaceId, address: Address) {
        for mapping in self.selector.timeline.symbols_withheld_by(space, address) {
            set_mark(&mut self.selection.mappings, mapping);
        }
    }

    fn count(&mut self, space: SpaceId, ip: Address, time: Time, lookup: Lookup) {
        let Some(leaf) = self.selector.classify_ip(space, ip, time, lookup) else {
            return;
        };
        let samples = &mut self.selection.samples;
        let mut unused = SpaceCounts::default();
        let of_space = self
            .selection
            .spaces
            .get_mut(space.index())
            .unwrap_or(&mut unused);
        let (counter, part) = match leaf {
            Leaf::Function(at) => {
                let hits = self.selection.hits.get_mut(at as usize);
                (&mut samples.named, hits)
            }
            Leaf::Symbol(symbol) => {
                samples.named_by_map += 1;
                let hits = self.selection.symbol_hits.entry(symbol.id).or_default();
                (&mut samples.named, Some(hits))
            }
            Leaf::Doubtful(file) => {
                if let Some(count) = self.selection.doubtful.get_mut(file as usize) {
                    *count += 1;
                }
                (&mut samples.doubtful, None)
            }
            Leaf::BeforeLoad => (&mut samples.before_load, Some(&mut of_space.before_load)),
            Leaf::NotInDump => (&mut samples.not_in_dump, Some(&mut of_space.not_in_dump)),
            Leaf::DumpUnusable => (&mut samples.dump_unusable, Some(&mut of_space.dump_unusable)),
            Leaf::NoDump => (&mut samples.no_dump, Some(&mut of_space.no_dump)),
        };
        *counter += 1;
        if let Some(part) = part {
            *part = part.saturating_add(1);
        }
    }
}
