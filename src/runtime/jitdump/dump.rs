//! A parsed jitdump: an index of its functions and code events.
//!
//! [`Dump::parse`] and [`Dump::index`] read only the prefixes and fixed fields of records, and the strings of
//! DEBUG_INFO2 records, because those distinguish them from other records. Names, code, lines and unwinding
//! tables stay in the file until [`Dump::function`] and [`Dump::sources`] read those of one function.

mod events;
mod function_table;

use std::ops::ControlFlow;

use crate::bytes::{ByteOrder, RandomAccess};
use crate::debug_info::DebugInfo;
use crate::diagnostics::{Diagnostic, Issue};
use crate::hash::HashMap;
use crate::machine::Machine;
use crate::runtime::jitdump::debug_info::{self, DebugInfoQuirks, FunctionRef, LineEntry, ParsedDebugInfo};
use crate::runtime::jitdump::debug_info2;
use crate::runtime::jitdump::dump::events::Events;
pub use crate::runtime::jitdump::dump::function_table::FunctionRecords;
pub(super) use crate::runtime::jitdump::dump::function_table::FunctionTable;
use crate::runtime::jitdump::duplicates;
use crate::runtime::jitdump::header::{self, Header};
use crate::runtime::jitdump::load::Load;
use crate::runtime::jitdump::moves::Move;
use crate::runtime::jitdump::record::{self, Contents, Record, RecordLocation, Records, Step};
use crate::runtime::jitdump::record_association::PendingRecords;
use crate::runtime::jitdump::source_file::EmbeddedSource;
use crate::runtime::jitdump::tier;
use crate::runtime::jitdump::unwinding::{Placement, Unwinding};
use crate::runtime::{CodeEvent, FunctionView, RuntimeTime, names};
use crate::tally::Tally;
use crate::units::AddressRange;

/// A jitdump with its index.
#[derive(Clone, Debug)]
pub struct Dump<'a> {
    contents: Contents<'a>,
    header: Header,
    machine: Machine,
    functions: FunctionTable,
    events: Events,
    faults: Tally<Issue>,
    first_time: Option<RuntimeTime>,
    quirks: DebugInfoQuirks,
    sources: EmbeddedSources,
}

/// Embedded source files by path, in file order.
type EmbeddedSources = HashMap<Vec<u8>, Vec<EmbeddedText>>;

/// The text of an embedded source file.
#[derive(Clone, Copy, Debug)]
struct EmbeddedText {
    record: RecordLocation,
    /// Size of the text, in bytes.
    size: u64,
}

/// The debug information of a function, and the faults found in it.
#[derive(Clone, Debug, Default)]
pub struct FunctionSources<'a> {
    /// Lines and inlined calls; `None` if the file has none.
    pub info: Option<DebugInfo<'a>>,
    /// Faults found in the debug information.
    pub faults: Tally<Issue>,
}

impl<'a> Dump<'a> {
    /// Parses a file. Damaged records are skipped and counted; it is an error only if the file is not a
    /// jitdump.
    ///
    /// `recorded` is the machine on which the profile was recorded. It is used as far as the file does not
    /// specify a machine.
    pub fn parse(file: &'a [u8], recorded: Machine) -> Result<Self, Diagnostic> {
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
    pub fn index(file: &'a dyn RandomAccess, recorded: Machine) -> Result<Self, Diagnostic> {
        let header = Header::read(file)?;
        Ok(Self::read(
            Contents::OnDemand(file),
            file.size(),
            header,
            recorded,
        ))
    }

    fn read(contents: Contents<'a>, size: u64, header: Header, recorded: Machine) -> Self {
        let mut faults = Tally::default();
        if !header.has_known_version() {
            faults.add(Issue::JitdumpVersion, 4);
        }
        if header.has_unknown_flags() {
            faults.add(Issue::JitdumpUnknownFlags, 32);
        }
        let start = header.first_record_offset(size).unwrap_or_else(|| {
            faults.add(Issue::JitdumpHeaderSize, 8);
            header::SIZE as usize
        });
        let mut index = IndexBuilder {
            header,
            functions: FunctionTable::default(),
            faults,
            moves: Vec::new(),
            pending: PendingRecords::default(),
            sources: HashMap::default(),
        };
        let mut first_time = None;
        let _ = contents.walk(start, header.endian, |step| {
            first_time = first_time.or(time_of(step));
            index.add(step);
            ControlFlow::Continue(())
        });
        index.pending.drop_all(&mut index.faults);
        index.functions.add_debug_info(index.pending.take_reassigned());
        index.functions.shrink();
        let mut loads: Vec<u32> = index.functions.with_code().collect();
        duplicates::drop_duplicates(
            contents,
            &index.functions,
            &mut loads,
            &mut index.moves,
            &mut index.faults,
        );
        let events = match index.moves.is_empty() {
            true => Events::of_loads(loads, &index.functions),
            false => {
                let code_indices = code_indices(contents, start, header.endian, index.functions.len());
                Events::with_moves(
                    loads,
                    index.moves,
                    &index.functions,
                    &code_indices,
                    &mut index.faults,
                )
            }
        };
        let code_end = index.functions.code_end();
        let mut dump = Self {
            contents,
            header,
            machine: Machine::of_file(header.elf_machine, header.endian, recorded, code_end),
            events,
            functions: index.functions,
            faults: index.faults,
            first_time,
            quirks: DebugInfoQuirks::default(),
            sources: index.sources,
        };
        dump.quirks = dump.detect_quirks();
        dump
    }

    /// Returns the header.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Returns the machine that the code was compiled for.
    pub fn machine(&self) -> Machine {
        self.machine
    }

    /// Returns the loads and moves, sorted by time.
    pub fn events(&self) -> impl DoubleEndedIterator<Item = CodeEvent> {
        self.events.iter(&self.functions)
    }

    /// Whether any code was moved.
    pub fn has_moves(&self) -> bool {
        self.events.have_moves()
    }

    /// Returns the faults found in the file.
    pub fn faults(&self) -> &Tally<Issue> {
        &self.faults
    }

    /// Returns the time of the first record in the file, whatever its type.
    pub fn first_time(&self) -> Option<RuntimeTime> {
        self.first_time
    }

    /// Returns how to interpret the entries of DEBUG_INFO records.
    pub fn quirks(&self) -> DebugInfoQuirks {
        self.quirks
    }

    /// Returns the locations of a function's records. Functions are indexed in file order.
    pub fn function_records(&self, function: u32) -> Option<FunctionRecords> {
        self.functions.get(function)
    }

    /// Returns the offsets of all records of a function, except MOVE records.
    pub fn record_offsets(&self, function: u32) -> Option<impl Iterator<Item = u64>> {
        let function = self.function_records(function)?;
        let optional = [
            function.debug_info,
            function.debug_info2,
            function.unwinding,
            function.tier,
        ];
        let locations = optional.into_iter().flatten().chain([function.load]);
        Some(locations.map(|location| location.offset))
    }

    /// Returns the addresses at which a function was first loaded; `None` if it has no code.
    pub fn range(&self, function: u32) -> Option<AddressRange> {
        self.functions.range(function)
    }

    /// Returns the description of the function with index `number`.
    pub fn function(&self, number: u32) -> Option<FunctionView<'a>> {
        let function = self.function_records(number)?;
        let endian = self.header.endian;
        let content = |location| self.contents.of(location);
        let load = Load::parse(content(function.load)?, endian)?;
        if (load.start, load.size) != (function.start, function.size) {
            // The file has changed since the index was made.
            return None;
        }
        Some(FunctionView {
            number,
            name: load.name.get(..record::MAX_NAME).unwrap_or(load.name),
            code: Some(load.code),
            range: self.range(number)?,
            code_index: load.code_index,
            unwinding: self.unwinding(number),
            recorded_tier: function.tier.and_then(content).and_then(tier::parse),
        })
    }

    /// Returns the unwinding table of a function.
    pub fn unwinding(&self, function: u32) -> Option<Unwinding<'a>> {
        let location = self.functions.unwinding(function)?;
        Unwinding::parse(self.contents.of(location)?, self.header.endian).ok()?
    }

    /// Returns the total size of the embedded source texts, in bytes.
    pub fn source_bytes(&self) -> u64 {
        let texts = self.sources.values().flatten();
        texts.map(|text| text.size).sum()
    }

    /// Returns the total size of a function's name, code, debug information and unwinding table, in bytes. An
    /// unwinding table that other functions share is not counted.
    pub fn record_bytes(&self, function: u32) -> u64 {
        let unwinding = self.unwinding(function);
        let is_shared = unwinding.is_none_or(|it| matches!(it.placement, Placement::At(_)));
        let Some(function) = self.function_records(function) else {
            return 0;
        };
        let tables = function.unwinding.filter(|_| !is_shared);
        let optional = [function.debug_info, function.debug_info2, tables];
        let locations = optional.into_iter().flatten().chain([function.load]);
        locations.map(|location| u64::from(location.size)).sum()
    }

    /// Returns the lines and inlined calls of a function, from its DEBUG_INFO2 record, else from its
    /// DEBUG_INFO record, else from its name.
    pub fn sources(&self, view: &FunctionView<'a>) -> FunctionSources<'a> {
        let mut found = FunctionSources::default();
        let Some(function) = self.function_records(view.number) else {
            return found;
        };
        let endian = self.header.endian;
        let mut read = |location: Option<RecordLocation>,
                        parse: &dyn Fn(&'a [u8]) -> Option<ParsedDebugInfo<'a>>| {
            let location = location?;
            let lines = parse(self.contents.of(location)?);
            normalised(lines, function.size, location, &mut found.faults)
        };
        let by_lists = |content| debug_info2::parse(content, function.size, endian);
        let by_entries = |content| debug_info::parse(content, function_ref(view), self.quirks, endian);
        let info = read(function.debug_info2, &by_lists)
            .or_else(|| read(function.debug_info, &by_entries))
            .or_else(|| names::declaration(view.name));
        found.info = info.map(|mut info| {
            self.add_texts(&mut info, function.load.offset);
            info
        });
        found
    }

    /// Returns the entries of a function's DEBUG_INFO record as they are in the file.
    pub fn line_entries(&self, view: &FunctionView<'a>) -> Option<Vec<LineEntry<'a>>> {
        let location = self.function_records(view.number)?.debug_info?;
        let content = self.contents.of(location)?;
        debug_info::entries(content, function_ref(view), self.header.endian)
    }

    /// Returns the number of functions.
    pub fn function_count(&self) -> usize {
        self.functions.len()
    }

    /// Adds the embedded texts to files, for a function whose LOAD record is at `offset`.
    fn add_texts(&self, info: &mut DebugInfo<'a>, offset: u64) {
        for file in &mut info.files {
            let Some(versions) = self.sources.get(&file.path[..]) else {
                continue;
            };
            let before = versions.partition_point(|version| version.record.offset < offset);
            let version = versions.get(before.saturating_sub(1));
            file.text = version.and_then(|version| {
                let content = self.contents.of(version.record)?;
                Some(EmbeddedSource::parse(content, self.header.endian)?.text)
            });
        }
    }

    fn detect_quirks(&self) -> DebugInfoQuirks {
        /// Number of functions to examine. All functions of a file come from the same runtime.
        const ENOUGH: usize = 1000;
        let with_lines = self.functions.with_debug_info();
        let with_lines = with_lines.filter_map(|(number, debug_info)| {
            let content = self.contents.of(debug_info)?;
            Some((function_ref(&self.function(number)?), content))
        });
        DebugInfoQuirks::detect(with_lines.take(ENOUGH), self.header.endian, self.machine.is_64)
    }
}

/// The function that a DEBUG_INFO record is checked against.
fn function_ref<'a>(view: &FunctionView<'a>) -> FunctionRef<'a> {
    FunctionRef {
        name: view.name,
        range: view.range,
    }
}

/// Normalises the debug information of a function of `size` bytes, and counts its faults.
///
/// Returns `None` if it has neither lines nor inlined calls. samply, which reads both formats, ignores such
/// records too.
fn normalised<'a>(
    lines: Option<ParsedDebugInfo<'a>>,
    size: u32,
    location: RecordLocation,
    faults: &mut Tally<Issue>,
) -> Option<DebugInfo<'a>> {
    let Some(mut lines) = lines else {
        faults.add(Issue::JitdumpBadDebugInfo, location.offset);
        return None;
    };
    let dropped = lines.info.normalise(size);
    for (fault, count) in [
        (Issue::JitdumpRepairedFileName, lines.repaired),
        (
            Issue::JitdumpLineOutside,
            lines.outside.saturating_add(dropped.rows),
        ),
        (
            Issue::JitdumpLineInvalid,
            lines.invalid.saturating_add(dropped.files),
        ),
        (
            Issue::JitdumpCallInvalid,
            lines.calls_lost.saturating_add(dropped.calls),
        ),
    ] {
        if count > 0 {
            faults.add_many(fault, count, location.offset);
        }
    }
    let has_content = !lines.info.rows.is_empty() || !lines.info.calls.is_empty();
    has_content.then_some(lines.info)
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
        match indices.len() < count {
            true => ControlFlow::Continue(()),
            false => ControlFlow::Break(()),
        }
    });
    indices
}

/// The state of [`Dump::parse`] while it reads the records.
struct IndexBuilder {
    header: Header,
    functions: FunctionTable,
    faults: Tally<Issue>,
    moves: Vec<Move>,
    pending: PendingRecords,
    sources: EmbeddedSources,
}

impl IndexBuilder {
    fn add(&mut self, step: Step<'_>) {
        let record = match step {
            Step::Record(record) => record,
            Step::Repaired(record) => {
                self.faults.add(Issue::JitdumpRepairedSize, record.offset);
                record
            }
            Step::Damage { offset, size } => {
                // The LOADs of pending records may be lost.
                self.pending.drop_all(&mut self.faults);
                return self.faults.add_many(Issue::JitdumpSkippedBytes, size, offset);
            }
            Step::CutTail { offset } => return self.faults.add(Issue::JitdumpCutTail, offset),
        };
        match record.kind {
            record::LOAD => self.load(&record),
            record::MOVE => match Move::parse(&record, self.header.endian) {
                Some(moved) => self.moves.push(moved),
                None => self.faults.add(Issue::JitdumpBadMove, record.offset),
            },
            record::DEBUG_INFO => {
                let endian = self.header.endian;
                self.pending.add_debug_info(&record, endian, &mut self.faults);
            }
            record::UNWINDING_INFO => {
                let endian = self.header.endian;
                self.pending.add_unwinding(&record, endian, &mut self.faults);
            }
            record::CLOSE => {}
            record::EXTENSION_FIRST..=record::EMBEDDED_SOURCE_FILE => self.extension(&record),
            _ => self.faults.add(Issue::JitdumpUnknownRecord, record.offset),
        }
    }

    /// Adds a record of one of samply's extensions. Its structure decides before its type, as the type
    /// numbers changed.
    fn extension(&mut self, record: &Record<'_>) {
        let endian = self.header.endian;
        if let Some(layout) = debug_info2::layout(record.content, endian) {
            return self
                .pending
                .add_debug_info2(layout, record.location(), &mut self.faults);
        }
        match record.kind {
            record::JIT_TIER if tier::parse(record.content).is_some() => {
                self.pending.add_tier(record, &mut self.faults);
            }
            record::EMBEDDED_SOURCE_FILE => match EmbeddedSource::parse(record.content, endian) {
                Some(source) => {
                    let text = EmbeddedText {
                        record: record.location(),
                        size: source.text.len() as u64,
                    };
                    self.sources.entry(source.path.to_vec()).or_default().push(text);
                }
                None => self.faults.add(Issue::JitdumpBadExtension, record.offset),
            },
            _ => self.faults.add(Issue::JitdumpBadExtension, record.offset),
        }
    }

    fn load(&mut self, record: &Record<'_>) {
        let load = Load::parse(record.content, self.header.endian);
        let next = u32::try_from(self.functions.len());
        let (Some(load), Ok(function)) = (load, next) else {
            // Pending records without an address belong to this function.
            self.pending.drop_without_address(&mut self.faults);
            return self.faults.add(Issue::JitdumpBadLoad, record.offset);
        };
        if load.name.len() > record::MAX_NAME {
            self.faults.add(Issue::JitdumpLongName, record.offset);
        }
        let records = FunctionRecords {
            load: record.location(),
            time: RuntimeTime(record.time),
            pid: load.pid,
            start: load.start,
            size: load.size,
            debug_info: self.pending.take_debug_info(function, load.start, load.size),
            debug_info2: self.pending.take_debug_info2(load.start),
            unwinding: self.pending.take_unwinding(),
            tier: self.pending.take_tier(),
        };
        self.functions.push(function, &records);
    }
}
