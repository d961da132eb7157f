//! A parsed jitdump: an index of its functions and code events.
//!
//! [`Dump::parse`] and [`Dump::index`] read only the prefixes and fixed fields of records, and the strings of
//! DEBUG_INFO2 records, because those distinguish them from other records. Names, code, lines and unwinding
//! tables stay in the file until a [`Function`] reads its own.

mod builder;
mod events;
mod function_table;
mod growing;
mod index;

use std::ops::ControlFlow;

use crate::bytes::{ByteOrder, RandomAccess};
use crate::collections::tally::Tally;
use crate::error::Error;
use crate::event::{CodeEvent, RuntimeTime};
use crate::fault::Fault;
use crate::format::debug_info::DebugInfoQuirks;
use crate::format::dump::builder::IndexBuilder;
use crate::format::dump::events::EventOrder;
pub use crate::format::dump::function_table::FunctionRecords;
pub(super) use crate::format::dump::function_table::FunctionTable;
pub use crate::format::dump::growing::{GrowingIndex, NewEvents};
pub use crate::format::dump::index::Index;
use crate::format::duplicates;
use crate::format::function::Function;
use crate::format::header;
use crate::format::header::Header;
use crate::format::load::Load;
use crate::format::record;
use crate::format::record::{Contents, Records, Step};
use crate::format::unwinding::Unwinding;
use crate::machine::Machine;
use crate::units::AddressRange;

/// Offset of the machine in the header, in bytes.
const MACHINE_OFFSET: u64 = 12;

/// A jitdump with its index.
#[derive(Clone, Debug)]
pub struct Dump<'a> {
    contents: Contents<'a>,
    index: Index,
    events: EventOrder,
    first_time: Option<RuntimeTime>,
}

impl<'a> Dump<'a> {
    /// Parses a file. Damaged records are skipped and counted; it is an error only if the file is not a
    /// jitdump.
    ///
    /// `recorded` is the machine on which the profile was recorded. It is used as far as the file does not
    /// specify a machine.
    pub fn parse(file: &'a [u8], recorded: Machine) -> Result<Self, Error> {
        let header = Header::parse(file)?;
        Ok(Self::read(
            Contents::InMemory(file),
            file.len() as u64,
            header,
            recorded,
        ))
    }

    /// Parses a file like [`Dump::parse`], and keeps only the index in memory. If the file changes before a
    /// function is read, that function may have other contents, or none.
    pub fn index(file: &'a dyn RandomAccess, recorded: Machine) -> Result<Self, Error> {
        let header = Header::read(file)?;
        Ok(Self::read(
            Contents::OnDemand(file),
            file.size(),
            header,
            recorded,
        ))
    }

    /// Reads the records of a file of `size` bytes. `recorded` is the machine of the profile, which decides if the
    /// header has none.
    fn read(contents: Contents<'a>, size: u64, header: Header, recorded: Machine) -> Self {
        let (faults, start) = header_faults(&header, size);
        let mut builder = IndexBuilder::new(header, faults);
        let mut first_time = None;
        let _ = contents.walk(start, header.endian, |step| {
            first_time = first_time.or(time_of(step));
            builder.add_step(step);
            ControlFlow::Continue(())
        });
        let (mut index, mut moves) = builder.finish();
        let mut loads: Vec<u32> = index.functions.with_code().collect();
        duplicates::drop_duplicates(
            contents,
            &index.functions,
            &mut loads,
            &mut moves,
            &mut index.faults,
        );
        index.machine = Machine::of_file(
            header.elf_machine,
            header.endian,
            recorded,
            index.functions.code_end(),
        );
        if index.machine.id == recorded.id && !index.machine.is_declared(header.elf_machine) {
            index.faults.add(Fault::OtherMachine, MACHINE_OFFSET);
        }
        index.detect_quirks(contents);
        let events = if moves.is_empty() {
            EventOrder::of_loads(loads, &index.functions)
        } else {
            let code_indices = code_indices(contents, start, header.endian, index.functions.len());
            EventOrder::with_moves(loads, moves, &index.functions, &code_indices, &mut index.faults)
        };
        Self {
            contents,
            events,
            index,
            first_time,
        }
    }

    /// Returns the header.
    pub fn header(&self) -> &Header {
        &self.index.header
    }

    /// Returns the machine that the code was compiled for.
    pub fn machine(&self) -> Machine {
        self.index.machine
    }

    /// Returns the loads and moves, sorted by time.
    pub fn events(&self) -> impl DoubleEndedIterator<Item = CodeEvent> {
        self.events.iter(&self.index.functions)
    }

    /// Whether any code was moved.
    pub fn has_moves(&self) -> bool {
        self.events.have_moves()
    }

    /// Returns the faults found in the file.
    pub fn faults(&self) -> &Tally<Fault> {
        &self.index.faults
    }

    /// Returns the time of the first record in the file, whatever its type.
    pub fn first_time(&self) -> Option<RuntimeTime> {
        self.first_time
    }

    /// Whether any function has a name of V8.
    pub fn has_v8_code(&self) -> bool {
        self.index.has_v8_code
    }

    /// Returns how to interpret the entries of DEBUG_INFO records.
    #[doc(hidden)]
    pub fn quirks(&self) -> DebugInfoQuirks {
        self.index.quirks
    }

    /// Returns the locations of a function's records. Functions are indexed in file order.
    #[doc(hidden)]
    pub fn function_records(&self, function: u32) -> Option<FunctionRecords> {
        self.index.functions.get(function)
    }

    /// Returns the offsets of all records of a function, except MOVE records.
    #[doc(hidden)]
    pub fn record_offsets(&self, function_number: u32) -> Option<impl Iterator<Item = u64>> {
        let function = self.function_records(function_number)?;
        let optional = [
            function.debug_info,
            function.debug_info2,
            function.unwinding,
            function.tier,
        ];
        let locations = optional.into_iter().flatten().chain([function.load]);
        let tracks = self.index.functions.tracks(function_number);
        Some(locations.chain(tracks).map(|location| location.offset))
    }

    /// Returns the addresses at which a function was first loaded; `None` if it has no code.
    pub fn range(&self, function: u32) -> Option<AddressRange> {
        self.index.functions.range(function)
    }

    /// Returns the function with index `number`.
    pub fn function(&self, number: u32) -> Option<Function<'_>> {
        Function::read(&self.index, self.contents, number)
    }

    /// Returns the unwinding table of a function.
    pub fn unwinding(&self, function: u32) -> Option<Unwinding<'a>> {
        let location = self.index.functions.unwinding(function)?;
        Unwinding::parse(self.contents.of(location)?, self.index.header.endian).ok()?
    }

    /// Returns the total size of the embedded source texts, in bytes.
    pub fn source_bytes(&self) -> u64 {
        let texts = self.index.sources.values().flatten();
        texts.map(|text| text.size).sum()
    }

    /// Returns the total size of a function's name, code and debug information, in bytes.
    #[doc(hidden)]
    pub fn record_bytes(&self, number: u32) -> u64 {
        let Some(function) = self.function_records(number) else {
            return 0;
        };
        let optional = [function.debug_info, function.debug_info2];
        let locations = optional.into_iter().flatten().chain([function.load]);
        let locations = locations.chain(self.index.functions.tracks(number));
        locations.map(|location| u64::from(location.size)).sum()
    }

    /// Returns the number of functions.
    pub fn function_count(&self) -> usize {
        self.index.functions.len()
    }
}

/// Returns the faults of a header, and the offset of the first record.
fn header_faults(header: &Header, file_size: u64) -> (Tally<Fault>, usize) {
    let mut faults = Tally::default();
    if !header.has_known_version() {
        faults.add(Fault::UnknownVersion, 4);
    }
    if header.has_unknown_flags() {
        faults.add(Fault::UnknownFlags, 32);
    }
    let start = header.first_record_offset(file_size).unwrap_or_else(|| {
        faults.add(Fault::InvalidHeaderSize, 8);
        header::SIZE as usize
    });
    (faults, start)
}

/// Returns the time of the first record without reading others; `None` if that record is invalid.
pub fn first_time(file: &dyn RandomAccess, header: &Header) -> Option<RuntimeTime> {
    let mut first = None;
    walk(file, header, |step| {
        first = time_of(step);
        ControlFlow::Break(())
    });
    first
}

/// Returns the latest time of any record in a file.
pub fn last_time(file: &dyn RandomAccess, header: &Header) -> Option<RuntimeTime> {
    let mut last = None;
    walk(file, header, |step| {
        last = last.max(time_of(step));
        ControlFlow::Continue(())
    });
    last
}

fn walk(file: &dyn RandomAccess, header: &Header, visit: impl FnMut(Step<'_>) -> ControlFlow<()>) {
    let start = first_record_offset(file.size(), header);
    let _ = Contents::OnDemand(file).walk(start, header.endian, visit);
}

fn time_of(step: Step<'_>) -> Option<RuntimeTime> {
    step.record().map(|record| RuntimeTime(record.time))
}

/// Returns an iterator over the records of a file.
pub fn records<'a>(file: &'a [u8], header: &Header) -> Records<'a> {
    let start = first_record_offset(file.len() as u64, header);
    Records::new(file, start, header.endian)
}

fn first_record_offset(file_size: u64, header: &Header) -> usize {
    header
        .first_record_offset(file_size)
        .unwrap_or(header::SIZE as usize)
}

/// Returns the `code_index` of the first `count` functions. Only moves need it, so it is not in the index.
fn code_indices(contents: Contents<'_>, start: usize, endian: ByteOrder, count: usize) -> Vec<u64> {
    let mut indices = Vec::new();
    let _ = contents.walk(start, endian, |step| {
        let loads = step.record().filter(|record| record.kind == record::LOAD);
        indices.extend(loads.and_then(|record| Some(Load::parse(record.content, endian)?.code_index)));
        if indices.len() < count {
            ControlFlow::Continue(())
        } else {
            ControlFlow::Break(())
        }
    });
    indices
}
