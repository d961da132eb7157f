//! A whole jitdump: an index of its functions and of what happened to them.
//!
//! Reading a file touches the prefixes and fixed fields of its records only. Names, code and tables stay
//! where they are until [`Dump::function`] asks for those of one function.

use std::fmt;

use crate::bytes::{ByteOrder, Reader, until_nul};
use crate::runtime::jitdump::header::{self, Error, Header};
use crate::runtime::jitdump::moves::{self, Loaded, Moved};
use crate::runtime::jitdump::pairing::Pending;
use crate::runtime::jitdump::record::{self, Place, Record, Records, Step};
use crate::runtime::jitdump::unwinding::Unwinding;
use crate::runtime::{Change, CodeEvent, RuntimeTime};
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
            Self::BadMove => "MOVE records of unknown functions, passed over",
            Self::DebugInfoUnpaired => "DEBUG_INFO records without their LOAD record, passed over",
            Self::UnwindingUnpaired => "UNWINDING_INFO records without their LOAD record, passed over",
            Self::BadUnwinding => "UNWINDING_INFO records that can't be understood, passed over",
            Self::UnknownRecord => "records of unknown types, passed over",
        })
    }
}

/// One function, by where its records lie in the file.
#[derive(Clone, Copy, Debug)]
struct Function {
    load: Place,
    start: Address,
    size: u32,
    debug_info: Option<Place>,
    unwinding: Option<Place>,
}

/// A jitdump and its index.
#[derive(Clone, Debug)]
pub struct Dump<'a> {
    file: &'a [u8],
    header: Header,
    functions: Vec<Function>,
    events: Vec<CodeEvent>,
    faults: Tally<Fault>,
    first_time: Option<RuntimeTime>,
}

/// One function with what the file says about it.
#[derive(Clone, Copy, Debug)]
pub struct FunctionView<'a> {
    /// Its name as the runtime wrote it, without a NUL.
    pub name: &'a [u8],
    /// Its machine code.
    pub code: &'a [u8],
    /// Where the code was put at first.
    pub range: AddressRange,
    /// The number that the runtime knows it under (`code_index`), which need not be unique.
    pub index: u64,
    /// The content of its DEBUG_INFO record.
    pub debug_info: Option<&'a [u8]>,
    /// How to unwind it.
    pub unwinding: Option<Unwinding<'a>>,
}

impl<'a> Dump<'a> {
    /// Reads a file. Only what is no jitdump is an error; of a damaged one, all that is whole is kept.
    pub fn parse(file: &'a [u8]) -> Result<Self, Error> {
        let header = Header::parse(file)?;
        let mut faults = Tally::default();
        if header.version > 2 {
            faults.add(Fault::Version(header.version), 4);
        }
        if header.has_unknown_flags() {
            faults.add(Fault::UnknownFlags, 32);
        }
        let start = first_record(file, &header).unwrap_or_else(|| {
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
        };
        let mut first_time = None;
        for step in Records::new(file, start, header.order) {
            if let Step::Record(record) | Step::Repaired(record) = step {
                first_time = first_time.or(Some(RuntimeTime(record.time)));
            }
            index.add(step);
        }
        index.pending.start_batch(&mut index.faults);
        let range = |function: u32| {
            let function = index.functions.get(function as usize)?;
            AddressRange::new(function.start, function.size.into())
        };
        let mut dump = Self {
            file,
            header,
            events: moves::in_order(index.loads, index.moves, range, &mut index.faults),
            functions: index.functions,
            faults: index.faults,
            first_time,
        };
        dump.drop_duplicates();
        Ok(dump)
    }

    /// The header.
    pub fn header(&self) -> &Header {
        &self.header
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

    /// Where a function's code was put at first; `None` where it has no code.
    pub fn range(&self, function: u32) -> Option<AddressRange> {
        let function = self.functions.get(usize::try_from(function).ok()?)?;
        AddressRange::new(function.start, function.size.into())
    }

    /// All about one function.
    pub fn function(&self, function: u32) -> Option<FunctionView<'a>> {
        let function = self.functions.get(usize::try_from(function).ok()?)?;
        let order = self.header.order;
        let content = |place| Records::content(self.file, place);
        let load = Load::parse(content(function.load)?, order)?;
        let unwinding = function.unwinding.and_then(content);
        Some(FunctionView {
            name: load.name,
            code: load.code,
            range: AddressRange::new(function.start, function.size.into())?,
            index: load.index,
            debug_info: function.debug_info.and_then(content),
            unwinding: unwinding.and_then(|content| Unwinding::parse(content, order).ok()?),
        })
    }

    /// Quirk: when CPython 3.13 forks, parent and children each write out what the parent's buffer held, so
    /// the parent's dump has the same records up to three times (capture cpython313-fork).
    fn drop_duplicates(&mut self) {
        let mut by_place: Vec<u32> = (0u32..).zip(&self.events).map(|(at, _)| at).collect();
        let key = |at: u32| {
            let event = self.events.get(at as usize)?;
            let function = self.functions.get(event.function as usize)?;
            Some((event.time, function.start, function.size))
        };
        by_place.sort_by_key(|&at| key(at));
        let mut is_duplicate = vec![false; self.events.len()];
        for pair in by_place.windows(2) {
            let &[first, second] = pair else { continue };
            if key(first) == key(second)
                && self.is_same_load(first, second)
                && let Some(mark) = is_duplicate.get_mut(second as usize)
            {
                *mark = true;
            }
        }
        let mut marks = is_duplicate.iter();
        let (functions, faults) = (&self.functions, &mut self.faults);
        self.events.retain(|event| {
            let is_duplicate = marks.next().is_some_and(|&mark| mark);
            if is_duplicate && let Some(function) = functions.get(event.function as usize) {
                faults.add(Fault::Duplicate, function.load.offset);
            }
            !is_duplicate
        });
    }

    fn is_same_load(&self, first: u32, second: u32) -> bool {
        let load = |at: u32| {
            let event = self.events.get(at as usize)?;
            let function = self.functions.get(event.function as usize)?;
            (event.change == Change::Load).then(|| Records::content(self.file, function.load))?
        };
        match (load(first), load(second)) {
            (Some(first), Some(second)) => first == second,
            _ => false,
        }
    }
}

/// The time of the first record in a file, without a look at the others.
pub fn first_time(file: &[u8], header: &Header) -> Option<RuntimeTime> {
    match records(file, header).next()? {
        Step::Record(record) | Step::Repaired(record) => Some(RuntimeTime(record.time)),
        Step::Damage { .. } | Step::CutTail { .. } => None,
    }
}

/// The latest time of any record in a file, without a look at what else is in it.
pub fn last_time(file: &[u8], header: &Header) -> Option<RuntimeTime> {
    let times = records(file, header).filter_map(|step| match step {
        Step::Record(record) | Step::Repaired(record) => Some(RuntimeTime(record.time)),
        Step::Damage { .. } | Step::CutTail { .. } => None,
    });
    times.max()
}

fn records<'a>(file: &'a [u8], header: &Header) -> Records<'a> {
    let start = first_record(file, header).unwrap_or(header::SIZE as usize);
    Records::new(file, start, header.order)
}

/// Where the records start: behind the header as long as it says it is, if that can be.
fn first_record(file: &[u8], header: &Header) -> Option<usize> {
    let says = usize::try_from(header.size).ok()?;
    (header.size >= header::SIZE && says <= file.len()).then_some(says)
}

/// The content of a LOAD record.
struct Load<'a> {
    pid: u32,
    start: Address,
    size: u32,
    index: u64,
    name: &'a [u8],
    code: &'a [u8],
}

impl<'a> Load<'a> {
    fn parse(content: &'a [u8], order: ByteOrder) -> Option<Self> {
        let mut content = Reader::new(content, order);
        let pid = content.u32()?;
        let _tid = content.u32()?;
        // Quirk: the field before the address, `vma`, is 0 from LLVM 14 (captures lli14-mcjit, postgres15).
        let _vma = content.u64()?;
        let start = Address(content.u64()?);
        let size = u32::try_from(content.u64()?).ok()?;
        let index = content.u64()?;
        start.checked_add(size.into())?;
        // The code is what the record ends with, so that padding may stand between it and the name: perf
        // reads it so.
        let name_size = content.rest().len().checked_sub(size as usize)?;
        let (name, code) = content.rest().split_at_checked(name_size)?;
        memchr::memchr(0, name)?;
        Some(Self {
            pid,
            start,
            size,
            index,
            name: until_nul(name),
            code,
        })
    }
}

/// What is collected while the records are walked.
struct Index {
    header: Header,
    functions: Vec<Function>,
    faults: Tally<Fault>,
    loads: Vec<Loaded>,
    moves: Vec<Moved>,
    pending: Pending,
}

impl Index {
    fn add(&mut self, step: Step<'_>) {
        let record = match step {
            Step::Record(record) => record,
            Step::Repaired(record) => {
                self.faults.add(Fault::RepairedSize, record.offset);
                record
            }
            Step::Damage { offset, size } => {
                // What waits for its LOAD may have lost it.
                self.pending.start_batch(&mut self.faults);
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
            _ => self.faults.add(Fault::UnknownRecord, record.offset),
        }
    }

    fn load(&mut self, record: &Record<'_>) {
        let load = Load::parse(record.content, self.header.order);
        let next = u32::try_from(self.functions.len());
        let (Some(load), Ok(function)) = (load, next) else {
            return self.faults.add(Fault::BadLoad, record.offset);
        };
        let range = AddressRange::new(load.start, load.size.into());
        self.functions.push(Function {
            load: record.place(),
            start: load.start,
            size: load.size,
            debug_info: self.pending.take_debug_info(load.start, load.size),
            unwinding: self.pending.take_unwinding(),
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
