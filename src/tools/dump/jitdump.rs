//! Dumps the records of a jitdump.

mod content;
mod fields;
mod selection;

use jitdump::ByteOrder;
use jitdump::internals::format::header::{self, Header, byte_order};
use jitdump::internals::format::record::{PREFIX_SIZE, Record, Records, Step};

use crate::bytes::Reader;
use crate::results::diagnostics::Issue;
use crate::tools::dump::entry::{CUT, DumpEntry, Fields, PADDING, REPAIRED, Value};
pub(crate) use crate::tools::dump::jitdump::content::kind_name;
use crate::tools::dump::jitdump::content::{ContentDecoder, DecodedContent};
use crate::tools::dump::jitdump::selection::SelectedRecords;
use crate::tools::dump::{EntrySink, Options};

/// Passes the header, records and unreadable bytes of a jitdump to `sink`, as far as the filter selects them.
pub fn dump<E>(file: &[u8], options: &Options, sink: &mut EntrySink<'_, E>) -> Result<(), E> {
    let filter = &options.filter;
    let decoder = RecordDecoder {
        file,
        endian: byte_order(file).unwrap_or(ByteOrder::NATIVE),
        with_code: options.with_code,
    };
    let selection = filter
        .selects_functions()
        .then(|| SelectedRecords::of(file, filter));
    let mut sink = |entry: &DumpEntry<'_>| {
        let is_wanted = filter.is_empty()
            || filter.matches_time(entry.time)
                && selection
                    .as_ref()
                    .is_none_or(|selection| selection.selects(entry));
        if is_wanted { sink(entry) } else { Ok(()) }
    };
    let header = decoder.header();
    let mut position = header.size;
    sink(&header)?;
    let start = usize::try_from(position).unwrap_or(usize::MAX);
    let mut records = Records::new(file, start, decoder.endian);
    while let Some(step) = records.next() {
        let entry = decoder.entry(step, &records);
        position = entry.offset.saturating_add(entry.size);
        sink(&entry)?;
    }
    let left = (file.len() as u64).saturating_sub(position);
    if left == 0 {
        return Ok(());
    }
    sink(&DumpEntry::new(position, left, PADDING, Fields::new()))
}

/// Everything that is needed to decode a record.
struct RecordDecoder<'a> {
    file: &'a [u8],
    endian: ByteOrder,
    with_code: bool,
}

impl<'a> RecordDecoder<'a> {
    /// Decodes the header.
    fn header(&self) -> DumpEntry<'a> {
        let mut fields = Fields::new().byte_order(self.endian);
        let mut reader = Reader::new(self.file, self.endian);
        let is_complete = fields::read(&mut reader, fields::HEADER, &mut fields);
        if let Some(number) = fields.get_number("elf_mach")
            && let Some(name) = fields::machine_name(number)
        {
            fields.push("machine", Value::Word(name));
        }
        let mut size = self.file.len();
        if is_complete && let Ok(header) = Header::parse(self.file) {
            let first_record_offset = header.first_record_offset(self.file.len() as u64);
            size = first_record_offset.unwrap_or(header::SIZE as usize);
            if header.counts_cycles() {
                fields.push("counts_cycles", Value::Flag(true));
            }
            let faults = [
                (!header.has_known_version()).then_some(Issue::JitdumpVersion),
                header.has_unknown_flags().then_some(Issue::JitdumpUnknownFlags),
                first_record_offset.is_none().then_some(Issue::JitdumpHeaderSize),
            ];
            let faults: Vec<String> = faults.iter().flatten().map(Issue::to_string).collect();
            if !faults.is_empty() {
                fields = fields.fault(faults.join("; "));
            }
        }
        DumpEntry::new(0, size as u64, "header", fields)
    }

    /// Converts a step of the record reader into an entry. `ahead` starts at the record after it.
    fn entry(&self, step: Step<'a>, ahead: &Records<'a>) -> DumpEntry<'a> {
        match step {
            Step::Record(record) => self.record(&record, ahead),
            Step::Repaired(record) => {
                let mut entry = self.record(&record, ahead);
                entry.fields.push(REPAIRED, Value::Flag(true));
                if let Some(size) = self.recorded_size(record.offset) {
                    entry.fields.push("total_size", Value::Number(size));
                }
                entry
            }
            Step::Damage { offset, size } => DumpEntry::damage(offset, size, Issue::JitdumpSkippedBytes),
            Step::CutTail { offset } => self.cut_tail(offset),
        }
    }

    /// Returns the size in the prefix of a record, before it was repaired.
    fn recorded_size(&self, offset: u64) -> Option<u64> {
        let at = usize::try_from(offset).ok()?.checked_add(4)?;
        self.endian.u32_at(self.file, at).map(u64::from)
    }

    fn record(&self, record: &Record<'a>, ahead: &Records<'a>) -> DumpEntry<'a> {
        let content = self.content(record.kind, record.content, ahead, false);
        DumpEntry {
            offset: record.offset,
            size: (record.content.len() as u64).saturating_add(PREFIX_SIZE as u64),
            kind: content.kind,
            time: Some(record.time),
            fields: content.fields,
        }
    }

    /// Decodes the content of a record of type `id`, of which the file may have a part only. `ahead` are the records
    /// after it.
    fn content(&self, id: u32, bytes: &'a [u8], ahead: &Records<'a>, is_cut: bool) -> DecodedContent<'a> {
        let reader = ContentDecoder {
            bytes,
            endian: self.endian,
            with_code: self.with_code,
            is_cut,
        };
        reader.read(id, ahead)
    }

    /// Decodes an incomplete last record as far as possible.
    fn cut_tail(&self, offset: u64) -> DumpEntry<'a> {
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        let tail = self.file.get(start..).unwrap_or_default();
        let nothing = Records::new(&[], 0, self.endian);
        let mut reader = Reader::new(tail, self.endian);
        let mut prefix = Fields::new();
        let is_complete = fields::read(&mut reader, fields::PREFIX, &mut prefix);
        let id = prefix.get_number("id").and_then(|id| u32::try_from(id).ok());
        let mut entry = DumpEntry {
            offset,
            size: tail.len() as u64,
            kind: CUT,
            time: prefix.get_number("timestamp"),
            fields: Fields::new(),
        };
        if let Some(id) = id {
            let content = self.content(id, reader.rest(), &nothing, true);
            entry.kind = content.kind;
            if is_complete {
                entry.fields = content.fields;
            }
        }
        if !is_complete && let Some(Value::Word(field)) = prefix.get(CUT) {
            entry.fields.push(CUT, Value::Word(field));
        } else if !entry.fields.has(CUT) {
            entry.fields.push(CUT, Value::Word("padding"));
        }
        if let Some(size) = prefix.get_number("total_size") {
            entry.fields.push("total_size", Value::Number(size));
            entry
                .fields
                .push("missing", Value::Number(size.saturating_sub(entry.size)));
        }
        entry
    }
}
