//! A whole jitdump: an index of its functions and of what happened to them.
//!
//! Reading a file touches the prefixes and fixed fields of its records only, and the strings of DEBUG_INFO2,
//! which tell it from other records. Names, code, lines and tables stay where they are until
//! [`Dump::function`] and [`Dump::sources`] ask for those of one function.

use std::fmt;

use crate::debug_info::DebugInfo;
use crate::hash::HashMap;
use crate::machine::Machine;
use crate::runtime::jitdump::debug_info::{self, DebugInfoQuirks, FunctionRef, Lines};
use crate::runtime::jitdump::debug_info2;
use crate::runtime::jitdump::header::{self, Error, Header};
use crate::runtime::jitdump::load::Load;
use crate::runtime::jitdump::moves::{self, Loaded, Moved};
use crate::runtime::jitdump::record::{self, Place, Record, Records, Step};
use crate::runtime::jitdump::record_association::Pending;
use crate::runtime::jitdump::repeats;
use crate::runtime::jitdump::source_file::EmbeddedSource;
use crate::runtime::jitdump::tier;
use crate::runtime::jitdump::unwinding::{Placement, Unwinding};
use crate::runtime::{Change, CodeEvent, FunctionView, RuntimeTime, names};
use crate::tally::Tally;
use crate::units::{Address, AddressRange};

/// What in a jitdump could not be used, or only in part.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[non_exhaustive]
pub enum Fault {
    /// A version of the format that is not known.
    Version(u32),
    /// The header's size of itself can't be.
    HeaderSize,
    /// Bits are set in the header's flags that have no meaning.
    UnknownFlags,
    /// Bytes between records that are no records.
    SkippedBytes,
    /// A record whose size was wrong.
    RepairedSize,
    /// The file ends inside its last record.
    CutTail,
    /// A record that is there already, bit for bit.
    Duplicate,
    /// A LOAD record whose name or code leaves it, or whose code leaves the address space.
    BadLoad,
    /// A name of a function that is longer than any compiler makes one.
    LongName,
    /// A MOVE record of a function that was never loaded, or cut.
    BadMove,
    /// Debug information for a function that was never loaded.
    DebugInfoUnpaired,
    /// Unwinding information for a function that was never loaded.
    UnwindingUnpaired,
    /// Unwinding information that can't be understood.
    BadUnwinding,
    /// Records of types that are not known, which were passed over.
    UnknownRecord,
    /// A JIT_TIER record of a function that was never loaded.
    TierUnpaired,
    /// A record of samply's extensions that can't be understood.
    BadExtension,
    /// A DEBUG_INFO or DEBUG_INFO2 record that can't be understood.
    BadDebugInfo,
    /// An entry of debug information whose file name was damaged and could be told.
    RepairedName,
    /// An entry of debug information outside its function.
    EntryOutside,
    /// An entry of debug information that leads nowhere or in circles.
    EntryAstray,
    /// An inlined call that does not fit into its caller.
    CallAstray,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Version(version) => {
                return write!(f, "unknown version {version}, read as version 1");
            }
            Self::HeaderSize => "impossible size of its header, read as 40 bytes",
            Self::UnknownFlags => "unknown flags in its header, ignored",
            Self::SkippedBytes => "bytes that are no records, passed over",
            Self::RepairedSize => "records of a wrong size, which was made out from the next ones",
            Self::CutTail => "last record cut off by the end of the file",
            Self::Duplicate => "records written twice, used once",
            Self::BadLoad => "LOAD records whose name or code does not fit, passed over",
            Self::LongName => "names of functions longer than 64 KiB, cut",
            Self::BadMove => "MOVE records of unknown functions, passed over",
            Self::DebugInfoUnpaired => "DEBUG_INFO records without their LOAD record, passed over",
            Self::UnwindingUnpaired => "UNWINDING_INFO records without their LOAD record, passed over",
            Self::BadUnwinding => "UNWINDING_INFO records that can't be understood, passed over",
            Self::UnknownRecord => "records of unknown types, passed over",
            Self::TierUnpaired => "JIT_TIER records without their LOAD record, passed over",
            Self::BadExtension => "records of samply's extensions that can't be understood, passed over",
            Self::BadDebugInfo => "DEBUG_INFO records that can't be understood, passed over",
            Self::RepairedName => {
                "lines with damaged file names, which could be told from what was left of them"
            }
            Self::EntryOutside => "lines outside their function, dropped",
            Self::EntryAstray => "lines without a file or with a caller that leads nowhere, dropped",
            Self::CallAstray => "inlined calls that don't fit into their callers, dropped",
        })
    }
}

/// One function, by where its records lie in the file.
#[derive(Clone, Copy, Debug)]
pub struct Function {
    /// Its LOAD record.
    pub load: Place,
    /// Where it was loaded.
    pub start: Address,
    /// How many bytes of code it has.
    pub size: u32,
    /// Its DEBUG_INFO record.
    pub debug_info: Option<Place>,
    /// Its DEBUG_INFO2 record.
    pub debug_info2: Option<Place>,
    /// Its UNWINDING_INFO record, which others may have too.
    pub unwinding: Option<Place>,
    /// Its JIT_TIER record.
    pub tier: Option<Place>,
}

/// A jitdump and its index.
#[derive(Clone, Debug)]
pub struct Dump<'a> {
    file: &'a [u8],
    header: Header,
    machine: Machine,
    functions: Vec<Function>,
    events: Vec<CodeEvent>,
    faults: Tally<Fault>,
    first_time: Option<RuntimeTime>,
    conventions: DebugInfoQuirks,
    /// The source files in it by their paths, each with where its record lies, in the order of the file.
    sources: HashMap<&'a [u8], Vec<(u64, &'a [u8])>>,
}

/// Where in its sources a function's code comes from, and what was wrong with what the file says of it.
#[derive(Clone, Debug, Default)]
pub struct FunctionSources<'a> {
    /// Lines and inlined calls; `None` where nothing is known.
    pub info: Option<DebugInfo<'a>>,
    /// What was wrong.
    pub faults: Tally<Fault>,
}

impl<'a> Dump<'a> {
    /// Reads a file. Only what is no jitdump is an error; of a damaged one, all that is whole is kept.
    ///
    /// `recorded` is the machine that the profile was recorded on, for what the file does not tell of its
    /// own.
    pub fn parse(file: &'a [u8], recorded: Machine) -> Result<Self, Error> {
        let header = Header::parse(file)?;
        let mut faults = Tally::default();
        if !header.has_known_version() {
            faults.add(Fault::Version(header.version), 4);
        }
        if header.has_unknown_flags() {
            faults.add(Fault::UnknownFlags, 32);
        }
        let start = header.first_record(file).unwrap_or_else(|| {
            faults.add(Fault::HeaderSize, 8);
            header::SIZE as usize
        });
        let mut index = Index {
            header,
            functions: Vec::new(),
            faults,
            loads: Vec::new(),
            moves: Vec::new(),
            pending: Pending::default(),
            sources: HashMap::default(),
        };
        let mut first_time = None;
        for step in Records::new(file, start, header.order) {
            first_time = first_time.or(time_of(step));
            index.add(step);
        }
        index.pending.drop_all(&mut index.faults);
        for (function, place) in index.pending.reassigned() {
            if let Some(function) = index.functions.get_mut(function as usize) {
                function.debug_info = function.debug_info.or(Some(place));
            }
        }
        let range = |function: u32| {
            let function = index.functions.get(function as usize)?;
            AddressRange::new(function.start, function.size.into())
        };
        repeats::drop_repeated(
            file,
            &index.functions,
            &mut index.loads,
            &mut index.moves,
            &mut index.faults,
        );
        let ends = index
            .functions
            .iter()
            .map(|function| function.start.0.saturating_add(function.size.into()));
        let code_end = ends.max().unwrap_or(0);
        let mut dump = Self {
            file,
            header,
            machine: Machine::of_file(header.elf_machine, header.order, recorded, code_end),
            events: moves::in_order(index.loads, index.moves, range, &mut index.faults),
            functions: index.functions,
            faults: index.faults,
            first_time,
            conventions: DebugInfoQuirks::default(),
            sources: index.sources,
        };
        dump.conventions = dump.find_conventions();
        Ok(dump)
    }

    /// The header.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// The machine that the code is for.
    pub fn machine(&self) -> Machine {
        self.machine
    }

    /// What happened to the functions, in the order of time.
    pub fn events(&self) -> &[CodeEvent] {
        &self.events
    }

    /// What could not be used.
    pub fn faults(&self) -> &Tally<Fault> {
        &self.faults
    }

    /// The time of the first record in the file, of whatever type.
    pub fn first_time(&self) -> Option<RuntimeTime> {
        self.first_time
    }

    /// What the entries of its DEBUG_INFO records mean.
    pub fn conventions(&self) -> DebugInfoQuirks {
        self.conventions
    }

    /// Where the records of a function lie. Functions are numbered in the order of the file.
    pub fn records(&self, function: u32) -> Option<&Function> {
        self.functions.get(usize::try_from(function).ok()?)
    }

    /// Where all records of a function start, but for MOVE records.
    pub fn record_offsets(&self, function: u32) -> Option<impl Iterator<Item = u64>> {
        let function = self.records(function)?;
        let more = [
            function.debug_info,
            function.debug_info2,
            function.unwinding,
            function.tier,
        ];
        let places = more.into_iter().flatten().chain([function.load]);
        Some(places.map(|place| place.offset))
    }

    /// Where a function's code was put at first; `None` where it has no code.
    pub fn range(&self, function: u32) -> Option<AddressRange> {
        let function = self.records(function)?;
        AddressRange::new(function.start, function.size.into())
    }

    /// All about one function.
    pub fn function(&self, number: u32) -> Option<FunctionView<'a>> {
        let function = self.records(number)?;
        let order = self.header.order;
        let content = |place| Records::content(self.file, place);
        let load = Load::parse(content(function.load)?, order)?;
        Some(FunctionView {
            number,
            name: load.name.get(..record::MAX_NAME).unwrap_or(load.name),
            code: Some(load.code),
            range: AddressRange::new(function.start, function.size.into())?,
            index: load.index,
            unwinding: self.unwinding(number),
            recorded_tier: function.tier.and_then(content).and_then(tier::parse),
        })
    }

    /// How to unwind a function.
    pub fn unwinding(&self, function: u32) -> Option<Unwinding<'a>> {
        let place = self.records(function)?.unwinding?;
        Unwinding::parse(Records::content(self.file, place)?, self.header.order).ok()?
    }

    /// How many bytes the texts of source files in it have together.
    pub fn source_bytes(&self) -> u64 {
        let texts = self.sources.values().flatten();
        texts.map(|(_, text)| text.len() as u64).sum()
    }

    /// How many bytes the records of a function have together, but for tables that serve others too.
    pub fn record_bytes(&self, function: u32) -> u64 {
        let unwinding = self.unwinding(function);
        let has_own = unwinding.is_some_and(|it| matches!(it.placement, Placement::BehindCode(_)));
        let Some(function) = self.records(function) else {
            return 0;
        };
        let tables = function.unwinding.filter(|_| has_own);
        let more = [function.debug_info, function.debug_info2, tables];
        let places = more.into_iter().flatten().chain([function.load]);
        places.map(|place| u64::from(place.size)).sum()
    }

    /// Where in its sources a function's code comes from. DEBUG_INFO2 knows more than DEBUG_INFO, and that
    /// more than the name.
    pub fn sources(&self, view: &FunctionView<'a>) -> FunctionSources<'a> {
        let mut found = FunctionSources::default();
        let Some(function) = self.records(view.number) else {
            return found;
        };
        let order = self.header.order;
        let mut read = |place: Option<Place>, parse: &dyn Fn(&'a [u8]) -> Option<Lines<'a>>| {
            let place = place?;
            let lines = parse(Records::content(self.file, place)?);
            consistent(lines, function.size, place, &mut found.faults)
        };
        let by_lists = |content| debug_info2::parse(content, function.size, order);
        let by_entries = |content| debug_info::parse(content, subject(view), self.conventions, order);
        let info = read(function.debug_info2, &by_lists)
            .or_else(|| read(function.debug_info, &by_entries))
            .or_else(|| names::declaration(view.name));
        found.info = info.map(|mut info| {
            self.add_texts(&mut info, function.load.offset);
            info
        });
        found
    }

    /// Gives files the text that was embedded for them, for a function loaded at `offset` of the file.
    fn add_texts(&self, info: &mut DebugInfo<'a>, offset: u64) {
        for file in &mut info.files {
            let Some(versions) = self.sources.get(&file.path[..]) else {
                continue;
            };
            let before = versions.partition_point(|&(at, _)| at < offset);
            let version = versions.get(before.saturating_sub(1));
            file.text = version.map(|&(_, text)| text);
        }
    }

    fn find_conventions(&self) -> DebugInfoQuirks {
        /// As many functions as are looked at: a dump is by one runtime.
        const ENOUGH: usize = 1000;
        let with_lines = (0u32..).zip(&self.functions).filter_map(|(number, function)| {
            let content = Records::content(self.file, function.debug_info?)?;
            Some((subject(&self.function(number)?), content))
        });
        DebugInfoQuirks::find(with_lines.take(ENOUGH), self.header.order, self.machine.is_64)
    }
}

/// What the names of source files in a DEBUG_INFO record are checked against.
fn subject<'a>(view: &FunctionView<'a>) -> FunctionRef<'a> {
    FunctionRef {
        name: view.name,
        range: view.range,
    }
}

/// What a record said, made consistent for a function of `size` bytes, and what was wrong with it noted. One
/// that says nothing does not count, as the reader has it that knows both formats.
fn consistent<'a>(
    lines: Option<Lines<'a>>,
    size: u32,
    place: Place,
    faults: &mut Tally<Fault>,
) -> Option<DebugInfo<'a>> {
    let Some(mut lines) = lines else {
        faults.add(Fault::BadDebugInfo, place.offset);
        return None;
    };
    let dropped = lines.info.normalise(size);
    for (fault, count) in [
        (Fault::RepairedName, lines.repaired),
        (Fault::EntryOutside, lines.outside.saturating_add(dropped.rows)),
        (Fault::EntryAstray, lines.astray.saturating_add(dropped.files)),
        (Fault::CallAstray, lines.calls_lost.saturating_add(dropped.calls)),
    ] {
        if count > 0 {
            faults.add_many(fault, count, place.offset);
        }
    }
    let says_something = !lines.info.rows.is_empty() || !lines.info.calls.is_empty();
    says_something.then_some(lines.info)
}

/// The time of the first record in a file, without a look at the others.
pub fn first_time(file: &[u8], header: &Header) -> Option<RuntimeTime> {
    time_of(records(file, header).next()?)
}

/// The latest time of any record in a file, without a look at what else is in it.
pub fn last_time(file: &[u8], header: &Header) -> Option<RuntimeTime> {
    records(file, header).filter_map(time_of).max()
}

/// The time of the record that a step came by, if it is one.
fn time_of(step: Step<'_>) -> Option<RuntimeTime> {
    step.record().map(|record| RuntimeTime(record.time))
}

/// Walks the records of a file.
pub fn records<'a>(file: &'a [u8], header: &Header) -> Records<'a> {
    let start = header.first_record(file).unwrap_or(header::SIZE as usize);
    Records::new(file, start, header.order)
}

/// What is collected while the records are walked.
struct Index<'a> {
    header: Header,
    functions: Vec<Function>,
    faults: Tally<Fault>,
    loads: Vec<Loaded>,
    moves: Vec<Moved>,
    pending: Pending,
    sources: HashMap<&'a [u8], Vec<(u64, &'a [u8])>>,
}

impl<'a> Index<'a> {
    fn add(&mut self, step: Step<'a>) {
        let record = match step {
            Step::Record(record) => record,
            Step::Repaired(record) => {
                self.faults.add(Fault::RepairedSize, record.offset);
                record
            }
            Step::Damage { offset, size } => {
                // What waits for its LOAD may have lost it.
                self.pending.drop_all(&mut self.faults);
                return self.faults.add_many(Fault::SkippedBytes, size, offset);
            }
            Step::CutTail { offset } => return self.faults.add(Fault::CutTail, offset),
        };
        match record.kind {
            record::LOAD => self.load(&record),
            record::MOVE => match Moved::parse(&record, self.header.order) {
                Some(moved) => self.moves.push(moved),
                None => self.faults.add(Fault::BadMove, record.offset),
            },
            record::DEBUG_INFO => {
                let order = self.header.order;
                self.pending.debug_info(&record, order, &mut self.faults);
            }
            record::UNWINDING_INFO => {
                let order = self.header.order;
                self.pending.unwinding(&record, order, &mut self.faults);
            }
            record::CLOSE => {}
            record::EXTENSION_FIRST..=record::EMBEDDED_SOURCE_FILE => self.extension(&record),
            _ => self.faults.add(Fault::UnknownRecord, record.offset),
        }
    }

    /// A record of samply's extensions, told by its structure first, as their numbers have changed.
    fn extension(&mut self, record: &Record<'a>) {
        let order = self.header.order;
        if let Some(layout) = debug_info2::layout(record.content, order) {
            return self.pending.debug_info2(layout, record.place(), &mut self.faults);
        }
        match record.kind {
            record::JIT_TIER if tier::parse(record.content).is_some() => {
                self.pending.tier(record, &mut self.faults);
            }
            record::EMBEDDED_SOURCE_FILE => match EmbeddedSource::parse(record.content, order) {
                Some(source) => {
                    let versions = self.sources.entry(source.path).or_default();
                    versions.push((record.offset, source.text));
                }
                None => self.faults.add(Fault::BadExtension, record.offset),
            },
            _ => self.faults.add(Fault::BadExtension, record.offset),
        }
    }

    fn load(&mut self, record: &Record<'_>) {
        let load = Load::parse(record.content, self.header.order);
        let next = u32::try_from(self.functions.len());
        let (Some(load), Ok(function)) = (load, next) else {
            // What says nothing of whose it is was this function's.
            self.pending.drop_nameless(&mut self.faults);
            return self.faults.add(Fault::BadLoad, record.offset);
        };
        if load.name.len() > record::MAX_NAME {
            self.faults.add(Fault::LongName, record.offset);
        }
        let range = AddressRange::new(load.start, load.size.into());
        self.functions.push(Function {
            load: record.place(),
            start: load.start,
            size: load.size,
            debug_info: self.pending.take_debug_info(function, load.start, load.size),
            debug_info2: self.pending.take_debug_info2(load.start),
            unwinding: self.pending.take_unwinding(),
            tier: self.pending.take_tier(),
        });
        // The format allows functions without code; there is nothing of them to be seen.
        if range.is_some() {
            self.loads.push(Loaded {
                event: CodeEvent {
                    time: RuntimeTime(record.time),
                    pid: load.pid,
                    function,
                    change: Change::Load,
                },
                index: load.index,
                offset: record.offset,
            });
        }
    }
}
