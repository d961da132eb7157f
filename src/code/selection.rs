//! The second walk over a profile: which functions its samples touch, and how many samples have a name.

use std::ops::Range;

use crate::code::clock::Doubt;
use crate::code::pieces::in_pieces;
use crate::code::process::{Processes, SpaceId};
use crate::code::recent::{Found, Recent};
use crate::code::survey::TimeMarks;
use crate::code::symbols::{PlacedSymbol, SymbolId};
use crate::code::timeline::{Code, Occupant, Stay, Timeline};
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
    /// For each of the timeline's residences, whether a sample holds an address in it.
    pub residences: Vec<bool>,
    /// And how many samples were taken in it.
    pub hits: Vec<u32>,
    /// As `residences`, for the timeline's vacancies.
    pub vacancies: Vec<bool>,
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
            residences: vec![false; timeline.residences().len()],
            hits: vec![0; timeline.residences().len()],
            vacancies: vec![false; timeline.vacancies().len()],
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
        set(&mut self.residences, &other.residences);
        set(&mut self.vacancies, &other.vacancies);
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
    pub fn touched(&self) -> (u64, u64) {
        let functions = self.residences.iter().filter(|&&is_touched| is_touched).count();
        let symbols: HashSet<SymbolId> = self.symbols.iter().map(|place| place.id).collect();
        (functions as u64, symbols.len() as u64)
    }

    /// Adds all that no sample touches.
    pub fn add_all(&mut self, processes: &Processes, timeline: &Timeline) {
        self.residences.fill(true);
        self.vacancies.fill(true);
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
    /// A function: an index into [`Timeline::residences`].
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

    /// What is known of a sample that was taken at `ip`, where `occupant` is; `None` if that is no JIT code.
    pub fn leaf(&self, space: SpaceId, ip: Address, time: Time, occupant: Occupant) -> Option<Leaf> {
        let dump = self.dumps.get(space.index()).copied().unwrap_or_default();
        Some(match occupant {
            Occupant::Function(at) => match self.doubtful_file(space, ip, time, at) {
                Some(file) => Leaf::Doubtful(file),
                None => Leaf::Function(at),
            },
            Occupant::Symbol(symbol) => Leaf::Symbol(symbol),
            Occupant::File => return None,
            Occupant::Unmapped if dump == DumpState::None => return None,
            _ if self.timeline.has_later_code(space, ip, time) => Leaf::BeforeLoad,
            Occupant::Unmapped if !self.timeline.may_be_jit(space, ip) => return None,
            _ => match dump {
                DumpState::Read => Leaf::NotInDump,
                DumpState::Unusable => Leaf::DumpUnusable,
                DumpState::None => Leaf::NoDump,
            },
        })
    }

    /// The file of the residence `at`, if a sample at `ip` can be of another function as well, since the file's clock is not known
    /// well enough.
    fn doubtful_file(&self, space: SpaceId, ip: Address, time: Time, at: u32) -> Option<u32> {
        let file = self.timeline.residences().get(at as usize)?.function.file;
        let moments = self.doubts.moments(file, time)?;
        let is_another = |moment| match self.timeline.at(space, ip, moment) {
            Occupant::Function(other) => other != at,
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

fn mark(marks: &mut [bool], at: u32) {
    if let Some(mark) = marks.get_mut(at as usize) {
        *mark = true;
    }
}

/// Where and when a sample was taken.
#[derive(Clone, Copy)]
struct Moment {
    space: SpaceId,
    time: Time,
    /// Where functions were, ever.
    extent: Option<AddressRange>,
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
        if let Some(moment) = space.and_then(|space| self.moment(space, time)) {
            for address in deferred_callers(record, order) {
                self.touch_frame(address, moment);
            }
        }
    }

    /// A moment of an address space in which there is code, ever.
    fn moment(&self, space: SpaceId, time: Time) -> Option<Moment> {
        let extent = self.selector.timeline.extent(space);
        (extent.is_some() || self.selector.timeline.has_symbols(space)).then_some(Moment {
            space,
            time,
            extent,
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
            let (occupant, _) = self.find(space, ip, time);
            is_in_function = occupant.is_function();
            self.touch(space, ip, occupant);
            self.note_unknown(space, ip, occupant);
            self.count(space, ip, time, occupant);
        }
        if let Some(moment) = self.moment(space, time)
            && !record.is_of_guest()
        {
            self.add_callers(&sample, moment, is_in_function);
        }
    }

    /// The addresses that came with a sample, whose own is in a function or not.
    fn add_callers(&mut self, sample: &Sample<'_>, moment: Moment, mut is_in_stack: bool) {
        for address in sample.callers() {
            is_in_stack |= self.touch_frame(address, moment);
        }
        self.selection.samples.with_named_frame += u64::from(is_in_stack);
        for address in sample.branches.iter() {
            self.touch_address(address, moment);
        }
        // Words of the stack may be return addresses; unwinding will show which are.
        for address in sample.registers.iter().chain(sample.stack.iter()) {
            self.touch_caller(address, moment);
        }
    }

    /// Touches what a frame of a call chain may stand for, and notes it where nothing is known; says whether it is in a
    /// function.
    fn touch_frame(&mut self, address: Address, moment: Moment) -> bool {
        let (occupant, is_in_function) = self.touch_caller(address, moment);
        if let Some(occupant) = occupant
            && moment.extent.is_some_and(|extent| extent.contains(address))
        {
            self.note_unknown(moment.space, address, occupant);
        }
        is_in_function
    }

    /// Notes an address among code where nothing is known, or a file is while code that lies there later, or in a
    /// process that this one is a copy of, may be in an object already.
    fn note_unknown(&mut self, space: SpaceId, address: Address, occupant: Occupant) {
        let is_unknown = match occupant {
            Occupant::Anonymous | Occupant::Unmapped => true,
            Occupant::File => self.selector.timeline.ever_has_code(space, address),
            Occupant::Function(_) | Occupant::Vacated(_) | Occupant::Symbol(_) => false,
        };
        if is_unknown {
            self.selection.unknown.insert(space, address);
        }
    }

    /// Touches what an address of a call chain may stand for; says what is there, where that can be code, and whether the
    /// call is in a function. A return address can lie one byte behind its caller, where that ends in a call.
    #[inline]
    fn touch_caller(&mut self, address: Address, moment: Moment) -> (Option<Occupant>, bool) {
        let before = Address(address.0.saturating_sub(1));
        // Most frames are in functions that were touched lately.
        if moment.extent.is_some_and(|extent| extent.contains(address))
            && let Some(found) = self.recent.get(moment.space, address, moment.time)
            && let Code::Function(residence) = found.code
            && found.stay.range.contains(before)
        {
            return (Some(Occupant::Function(residence)), true);
        }
        self.touch_unfamiliar_caller(address, before, moment)
    }

    fn touch_unfamiliar_caller(
        &mut self,
        address: Address,
        before: Address,
        moment: Moment,
    ) -> (Option<Occupant>, bool) {
        let (occupant, stay) = self.touch_around(address, moment);
        let is_in_function = occupant.is_some_and(Occupant::is_function);
        if stay.is_some_and(|stay| stay.range.contains(before)) {
            return (occupant, is_in_function);
        }
        (occupant, self.touch_address(before, moment) | is_in_function)
    }

    fn touch_address(&mut self, address: Address, moment: Moment) -> bool {
        let (occupant, _) = self.touch_around(address, moment);
        occupant.is_some_and(Occupant::is_function)
    }

    /// Touches what is at an address, and says what that is, where it can be code, and where around it the same is.
    fn touch_around(&mut self, address: Address, moment: Moment) -> (Option<Occupant>, Option<Stay>) {
        let Moment { space, time, extent } = moment;
        let timeline = self.selector.timeline;
        let is_near_function = extent.is_some_and(|extent| extent.contains(address));
        if !is_near_function && !timeline.may_have_symbol(space, address) {
            return (None, None);
        }
        let (occupant, stay) = self.find(space, address, time);
        self.touch(space, address, occupant);
        (Some(occupant), stay)
    }

    /// What is at an address at a time, and if it is code, where around there.
    fn find(&mut self, space: SpaceId, address: Address, time: Time) -> (Occupant, Option<Stay>) {
        if let Some(found) = self.recent.get(space, address, time) {
            return (found.code.into(), Some(found.stay));
        }
        let (occupant, stay) = self.selector.timeline.around(space, address, time);
        if let (Some(stay), Some(code)) = (stay, occupant.code()) {
            self.recent.put(address, Found { space, stay, code });
        }
        (occupant, stay)
    }

    /// Notes that what is at an address is touched.
    fn touch(&mut self, space: SpaceId, address: Address, occupant: Occupant) {
        match occupant {
            Occupant::Function(at) => mark(&mut self.selection.residences, at),
            Occupant::Vacated(at) => {
                mark(&mut self.selection.vacancies, at);
                self.touch_withheld(space, address);
            }
            Occupant::Symbol(symbol) => {
                self.selection.symbols.insert(symbol);
            }
            Occupant::Anonymous | Occupant::Unmapped => self.touch_withheld(space, address),
            Occupant::File => {}
        }
    }

    /// Touches the functions that keep symbols of perf maps from an address: a run on the output must not find a symbol there
    /// either, and only functions with an object are known to it.
    fn touch_withheld(&mut self, space: SpaceId, address: Address) {
        for residence in self.selector.timeline.symbols_withheld_by(space, address) {
            mark(&mut self.selection.residences, residence);
        }
    }

    fn count(&mut self, space: SpaceId, ip: Address, time: Time, occupant: Occupant) {
        let Some(leaf) = self.selector.leaf(space, ip, time, occupant) else {
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
