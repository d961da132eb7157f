//! Dumps the records of an XRay trace.

use jitdump::ByteOrder;

use crate::elf::limited_reads::MemoryRoom;
use crate::elf::symbols::FunctionSymbols;
use crate::results::diagnostics::{Diagnostic, Issue};
use crate::tools::dump::entry::{CUT, DAMAGE, DumpEntry, Fields, PADDING, Value};
use crate::tools::dump::filter::EntryFilter;
use crate::tools::dump::{EntrySink, MAX_REPEATED_NAME};
use crate::traces::xray::format::{
    BASIC_RECORD_SIZE, FdrMetadata, GapReason, InstrumentationMap, RecordKind, Trace, TraceBuffer,
    TraceHeader, TraceMode, TraceRecord, TraceRecords, TraceSegment, header,
};

/// Names of the functions of an instrumented binary, by the IDs that traces have.
#[derive(Clone, Debug, Default)]
pub struct FunctionNames(Vec<Option<String>>);

impl FunctionNames {
    /// Reads the binary.
    pub fn read(binary: &[u8]) -> Result<Self, Diagnostic> {
        let functions = InstrumentationMap::read(binary)?;
        let room = MemoryRoom::default();
        let memory = room.file();
        let symbols = FunctionSymbols::read_if(binary, &memory, |_| true).unwrap_or_default();
        let names = functions.addresses().iter().map(|&address| {
            let name = symbols.name(symbols.at(address)?)?;
            let name: String = name.chars().take(MAX_REPEATED_NAME).collect();
            memory.take(name.len() as u64)?;
            Some(name)
        });
        Ok(Self(names.collect()))
    }

    fn name(&self, function: u32) -> Option<&str> {
        let index = (function as usize).checked_sub(1)?;
        self.0.get(index)?.as_deref()
    }
}

/// Passes the entries of a trace to `sink`, as far as the filter selects them.
///
/// Traces have only the IDs of functions: a filter on names needs those of the binary, and one on addresses selects nothing.
pub fn dump<E>(
    file: &[u8],
    filter: &EntryFilter,
    names: &FunctionNames,
    sink: &mut EntrySink<'_, E>,
) -> Result<(), E> {
    let matches_function = |entry: &DumpEntry<'_>| {
        let name = entry.fields.get_name("name");
        filter.address.is_none() && name.is_some_and(|name| filter.matches_name(name))
    };
    let mut sink = |entry: &DumpEntry<'_>| {
        let is_wanted = filter.is_empty()
            || filter.matches_time(entry.time) && (!filter.selects_functions() || matches_function(entry));
        if is_wanted { sink(entry) } else { Ok(()) }
    };
    let size = file.len() as u64;
    let trace = match Trace::parse(file) {
        Ok(trace) => trace,
        // The format of the rest is unknown.
        Err(error) => return sink(&DumpEntry::damage(0, size, format!("it {error}"))),
    };
    sink(&trace_header(trace.header()))?;
    let mut writer = EntryWriter {
        file,
        names,
        endian: trace.header().endian,
        mode: trace.header().mode,
        position: header::SIZE as u64,
        sink: &mut sink,
    };
    for segment in trace.segments() {
        match segment {
            TraceSegment::Buffer(buffer) => writer.emit_buffer(&trace, &buffer)?,
            TraceSegment::Gap {
                end,
                reason: GapReason::Empty,
                ..
            } => writer.emit_metadata_to(end, None)?,
            TraceSegment::Gap {
                end,
                reason: GapReason::Issue(fault),
                ..
            } => writer.emit_damage_to(end, fault)?,
        }
    }
    match trace.header().mode {
        TraceMode::Fdr => writer.emit_damage_to(size, Issue::XraySkippedBytes),
        TraceMode::Basic => writer.emit_unknown_to(size),
    }
}

struct EntryWriter<'f, 'p, E> {
    file: &'f [u8],
    names: &'f FunctionNames,
    endian: ByteOrder,
    mode: TraceMode,
    /// Offset in the file up to which entries have been passed on, in bytes.
    position: u64,
    sink: &'p mut EntrySink<'p, E>,
}

impl<'f, E> EntryWriter<'f, '_, E> {
    /// Passes on an entry of `size` bytes that starts at the current position.
    fn emit(
        &mut self,
        size: u64,
        kind: &'static str,
        time: Option<u64>,
        fields: Fields<'f>,
    ) -> Result<(), E> {
        let offset = self.position;
        self.position = offset.saturating_add(size);
        (self.sink)(&DumpEntry {
            offset,
            size,
            kind,
            time,
            fields,
        })
    }

    fn emit_damage_to(&mut self, end: u64, fault: Issue) -> Result<(), E> {
        match end.saturating_sub(self.position) {
            0 => Ok(()),
            size => self.emit(size, DAMAGE, None, Fields::new().fault(fault)),
        }
    }

    /// Returns the bytes from the current position up to `end`.
    fn bytes_to(&self, end: u64) -> &'f [u8] {
        let start = usize::try_from(self.position).unwrap_or(usize::MAX);
        let end = usize::try_from(end).unwrap_or(usize::MAX);
        self.file.get(start..end).unwrap_or_default()
    }

    /// Emits the records of a buffer, and what is skipped between them.
    fn emit_buffer(&mut self, trace: &Trace<'f>, buffer: &TraceBuffer) -> Result<(), E> {
        let mut records = trace.records(buffer);
        while let Some(record) = records.next() {
            self.emit_skipped_to(record.offset, buffer, &records)?;
            let size = records.next_offset().saturating_sub(record.offset);
            self.emit_record(&record, size, buffer)?;
        }
        self.emit_skipped_to(buffer.content().end, buffer, &records)
    }

    /// Passes on the bytes up to `end` that the record reader has skipped.
    fn emit_skipped_to(
        &mut self,
        end: u64,
        buffer: &TraceBuffer,
        records: &TraceRecords<'_>,
    ) -> Result<(), E> {
        if self.position >= end {
            return Ok(());
        }
        if self.mode == TraceMode::Basic {
            return self.emit_unknown_to(end);
        }
        /// Faults after which the rest of the buffer is not read.
        const ENDS: [Issue; 4] = [
            Issue::XrayNoEnd,
            Issue::XrayUnknownKind,
            Issue::XrayBadEventSize,
            Issue::XrayCutRecord,
        ];
        let fault = records.faults().iter().find(|(fault, _)| ENDS.contains(fault));
        match fault {
            Some((fault, at)) if (self.position..end).contains(&at.first_offset) => {
                self.emit_metadata_to(at.first_offset, Some(buffer))?;
                self.emit_damage_to(end, fault)
            }
            _ => self.emit_metadata_to(end, Some(buffer)),
        }
    }

    /// Passes on metadata records up to `end`, and an incomplete record at the end of a buffer.
    fn emit_metadata_to(&mut self, end: u64, buffer: Option<&TraceBuffer>) -> Result<(), E> {
        while self.position < end {
            let bytes = self.bytes_to(end);
            let left = end.saturating_sub(self.position);
            let Some((record, size)) = FdrMetadata::parse(bytes, self.endian) else {
                return self.emit(left, CUT, None, Fields::new().word(CUT, "record"));
            };
            let MetadataEntry {
                kind,
                size,
                time,
                fields,
            } = metadata(record, size as u64, left, buffer);
            self.emit(size, kind, time, fields)?;
            let left = end.saturating_sub(self.position);
            if record == FdrMetadata::EndOfBuffer && left > 0 {
                return self.emit(left, PADDING, None, Fields::new());
            }
        }
        Ok(())
    }

    /// Passes on records of unknown type in basic mode, one by one, and an incomplete last record.
    fn emit_unknown_to(&mut self, end: u64) -> Result<(), E> {
        while self.position < end {
            let left = end.saturating_sub(self.position);
            let size = left.min(BASIC_RECORD_SIZE as u64);
            if size < BASIC_RECORD_SIZE as u64 {
                return self.emit(size, CUT, None, Fields::new().word(CUT, "record"));
            }
            let fields = Fields::new().fault(Issue::XrayUnknownRecord);
            self.emit(size, "unknown", None, fields)?;
        }
        Ok(())
    }

    /// Emits a record of `size` bytes.
    fn emit_record(&mut self, record: &TraceRecord<'f>, size: u64, buffer: &TraceBuffer) -> Result<(), E> {
        let fields = Fields::new().signed("thread", buffer.thread);
        let fields = match buffer.process {
            Some(process) => fields.signed("pid", process),
            None => fields,
        };
        let fields = fields.number("cpu", record.cpu);
        let fields = match record.kind {
            RecordKind::Enter { function }
            | RecordKind::EnterWithArguments { function }
            | RecordKind::Exit { function }
            | RecordKind::TailExit { function } => {
                let name = self.names.name(function).unwrap_or_default();
                fields
                    .number("function", function)
                    .name_if("name", name.as_bytes())
            }
            RecordKind::Argument(argument) => fields.hex("argument", argument),
            RecordKind::Custom { payload } => fields.name("payload", payload),
            RecordKind::Typed { kind, payload } => fields.number("event_type", kind).name("payload", payload),
        };
        self.emit(size, record.kind.name(), Some(record.tick), fields)
    }
}

/// What is printed of a metadata record.
struct MetadataEntry<'a> {
    kind: &'static str,
    size: u64,
    /// Tick, if it has one.
    time: Option<u64>,
    fields: Fields<'a>,
}

/// Decodes a metadata record of `size` bytes. `left` bytes of its `buffer` are there from it on.
fn metadata<'a>(
    record: FdrMetadata,
    size: u64,
    left: u64,
    buffer: Option<&TraceBuffer>,
) -> MetadataEntry<'a> {
    let entry = |kind: &'static str, fields: Fields<'a>| MetadataEntry {
        kind,
        size,
        time: None,
        fields,
    };
    let fields = Fields::new();
    match record {
        FdrMetadata::NewBuffer { thread } => entry("new_buffer", fields.signed("thread", thread)),
        FdrMetadata::EndOfBuffer => entry("end_of_buffer", fields),
        FdrMetadata::NewCpu { cpu, tick } => MetadataEntry {
            time: Some(tick),
            ..entry("new_cpu", fields.number("cpu", cpu))
        },
        FdrMetadata::TickWrap { tick } => MetadataEntry {
            time: Some(tick),
            ..entry("tsc_wrap", fields)
        },
        FdrMetadata::WallTime {
            seconds,
            microseconds,
        } => {
            let fields = fields.number("seconds", seconds);
            entry("wall_time", fields.number("microseconds", microseconds))
        }
        FdrMetadata::BufferExtents { size } => entry("buffer_extents", with_extents(fields, size, buffer)),
        FdrMetadata::Pid(pid) => entry("pid", fields.signed("pid", pid)),
        FdrMetadata::CutEvent {
            size: payload,
            is_typed,
        } => {
            // Of a negative size, it is not known how much is missing.
            let whole = u64::try_from(payload).unwrap_or_default().saturating_add(size);
            let fields = fields.word(CUT, "payload").signed("payload_size", payload);
            let kind = if is_typed { "typed_event" } else { "custom_event" };
            MetadataEntry {
                size: left,
                ..entry(kind, fields.number("missing", whole.saturating_sub(left)))
            }
        }
        FdrMetadata::Argument(argument) => entry("argument", fields.hex("argument", argument)),
        FdrMetadata::Function(record) => {
            let fields = fields.number("action", record.action);
            let fields = fields.number("function", record.function);
            let fields = fields.number("delta", record.delta);
            entry("unknown", fields.fault(Issue::XrayUnknownRecord))
        }
        FdrMetadata::Unknown(number) => {
            let fields = fields.number("kind", number);
            entry("unknown", fields.fault(Issue::XrayUnknownKind))
        }
    }
}

/// Adds the size of a buffer, and the number of missing bytes if it is incomplete.
fn with_extents<'a>(fields: Fields<'a>, size: u64, buffer: Option<&TraceBuffer>) -> Fields<'a> {
    let fields = fields.number("buffer_size", size);
    let there = buffer.map(|buffer| buffer.records_size());
    match there {
        Some(there) if there < size => fields
            .word(CUT, "buffer")
            .number("missing", size.saturating_sub(there)),
        _ => fields,
    }
}

/// Returns the entry of the header of a trace.
fn trace_header<'a>(header: &TraceHeader) -> DumpEntry<'a> {
    let fields = Fields::new()
        .byte_order(header.endian)
        .number("version", header.version)
        .word(
            "mode",
            match header.mode {
                TraceMode::Basic => "xray-basic",
                TraceMode::Fdr => "xray-fdr",
            },
        )
        .with("constant_tsc", Value::Flag(header.constant_tsc))
        .with("nonstop_tsc", Value::Flag(header.nonstop_tsc))
        .number("cycle_frequency", header.frequency)
        .number_if("buffer_size", header.buffer_size);
    DumpEntry::new(0, header::SIZE as u64, "header", fields)
}
