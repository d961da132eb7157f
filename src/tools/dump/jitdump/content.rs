//! Decodes the content of jitdump records, which follows their prefix.

use std::borrow::Cow;
use std::rc::Rc;

use jitdump::debug_info::{DebugInfo, InlinedCall, LineRow, SourceFunction};
use jitdump::internals::format::debug_info2::DebugInfo2Layout;
use jitdump::internals::format::debug_info2::lists::EncodedLists;
use jitdump::internals::format::debug_info2::source_track::SourceTrack;
use jitdump::internals::format::load::Load;
use jitdump::internals::format::record::{RecordType, Records};
use jitdump::internals::format::source_file::EmbeddedSource;
use jitdump::internals::format::unwinding::{EhFrameEntries, Placement, Unwinding};
use jitdump::internals::format::{debug_info, debug_info2, record, tier};
use jitdump::{Address, AddressRange, ByteOrder};

use crate::bytes::Reader;
use crate::results::diagnostics::Issue;
use crate::tools::dump::entry::{CUT, Fields, REPAIRED, SAME_NAME, Value, ValueList};
use crate::tools::dump::jitdump::fields;
use crate::tools::dump::jitdump::fields::FieldLayout;
use crate::tools::dump::shortened;

/// Number of records to search for a function's LOAD record, whose name is needed to repair damaged file
/// names. Writers that damage file names write it next; other records about the function may come between.
const MAX_LOOKAHEAD: usize = 4;

/// Decoded content of a record.
pub struct DecodedContent<'a> {
    /// Name of the record's type.
    pub kind: &'static str,
    /// Decoded fields.
    pub fields: Fields<'a>,
}

/// Decodes the content of records.
#[derive(Clone, Copy)]
pub struct ContentDecoder<'a> {
    /// Content of the record.
    pub bytes: &'a [u8],
    /// Endianness of the file.
    pub endian: ByteOrder,
    /// Whether to include the bytes of code.
    pub with_code: bool,
    /// Whether the file ends inside the record. Missing bytes are then not reported as faults.
    pub is_cut: bool,
}

impl<'a> ContentDecoder<'a> {
    /// Decodes the content of a record with this ID. `ahead` iterates over the records after it.
    pub fn read(self, id: u32, ahead: &Records<'a>) -> DecodedContent<'a> {
        let kind = kind_name(id, self.bytes, self.endian);
        let fields = match RecordType::of(id) {
            Some(RecordType::Load) => self.load(),
            Some(RecordType::Move) => self.moved(),
            Some(RecordType::DebugInfo) => self.debug_info(ahead),
            Some(RecordType::Close) => self.with_padding(Fields::new(), self.bytes.len()),
            Some(RecordType::UnwindingInfo) => self.unwinding(),
            Some(RecordType::Extension) => self.extension(id, ahead),
            Some(RecordType::SourceTrack) => self.track_fields(),
            None => Fields::new().number("id", id),
        };
        DecodedContent { kind, fields }
    }

    /// Reads fixed fields. Returns a reader for the rest if all of them are present.
    fn read_fixed(&self, layout: FieldLayout) -> (Fields<'a>, Option<Reader<'a>>) {
        let mut fields = Fields::new();
        let mut reader = Reader::new(self.bytes, self.endian);
        let is_complete = fields::read(&mut reader, layout, &mut fields);
        (fields, is_complete.then_some(reader))
    }

    /// Adds the number of padding bytes, if there are any.
    fn with_padding(&self, fields: Fields<'a>, padding: usize) -> Fields<'a> {
        match padding {
            0 => fields,
            _ => fields.number("padding", padding as u64),
        }
    }

    /// Adds a fault, unless the file ends inside the record.
    fn fault(&self, fields: Fields<'a>, fault: Issue) -> Fields<'a> {
        if self.is_cut { fields } else { fields.fault(fault) }
    }

    /// Decodes a LOAD record.
    fn load(&self) -> Fields<'a> {
        let (mut fields, rest) = self.read_fixed(fields::LOAD);
        if let Some(mut reader) = rest {
            let name = reader.c_string();
            let size = fields.get_number("code_size").unwrap_or_default();
            let size = usize::try_from(size).unwrap_or(usize::MAX);
            let rest = reader.rest();
            if name.is_none() {
                fields = fields.word(CUT, "name").name("name", rest);
            } else if let Some(padding) = rest.len().checked_sub(size) {
                fields = self.with_padding(fields, padding);
                if self.with_code {
                    fields.push("code", Value::Bytes(rest.get(padding..).unwrap_or_default()));
                }
            } else {
                fields = fields.word(CUT, "code").number("code_there", rest.len() as u64);
                if self.with_code {
                    fields.push("code", Value::Bytes(rest));
                }
            }
            if let Some(name) = name {
                fields = fields.name("name", name);
            }
        }
        match Load::parse(self.bytes, self.endian) {
            Some(_) => fields,
            None => self.fault(fields, Issue::JitdumpBadLoad),
        }
    }

    fn moved(&self) -> Fields<'a> {
        let (fields, rest) = self.read_fixed(fields::MOVE);
        match rest {
            Some(reader) => self.with_padding(fields, reader.rest().len()),
            None => self.fault(fields, Issue::JitdumpBadMove),
        }
    }

    /// Decodes a DEBUG_INFO record.
    fn debug_info(&self, ahead: &Records<'a>) -> Fields<'a> {
        let (fields, rest) = self.read_fixed(fields::DEBUG_INFO);
        let Some(reader) = rest else {
            return self.fault(fields, Issue::JitdumpBadDebugInfo);
        };
        let address = fields.get_number("code_addr").map(Address);
        let load = next_load(ahead, self.endian, address);
        let function = load.and_then(|load| {
            let name = load.name.get(..record::MAX_NAME).unwrap_or(load.name);
            Some((name, AddressRange::new(load.start, load.size.into())?))
        });
        let everywhere = AddressRange {
            start: Address(0),
            end: Address(u64::MAX),
        };
        let (name, range) = function.unwrap_or((b"", everywhere));
        if let Some(entries) = debug_info::entries(self.bytes, name, range, self.endian) {
            let sizes = entries.iter().map(|entry| entry.size as usize);
            let used = sizes.fold(0, usize::saturating_add);
            let fields = self.with_padding(fields, reader.rest().len().saturating_sub(used));
            return fields.list("entries", ValueList::from_vec(entries, line_entry));
        }
        let entries = debug_info::entries_until_truncated(self.bytes, self.endian);
        let there = entries.clone().count() as u64;
        let is_short = fields.get_number("nr_entry").is_some_and(|count| there < count);
        let fields = if is_short {
            fields.word(CUT, "entries").number("entries_there", there)
        } else {
            fields
        };
        let fields = self.fault(fields, Issue::JitdumpBadDebugInfo);
        fields.list("entries", ValueList::lazy(entries, |entry| line_entry(&entry)))
    }

    /// Decodes an UNWINDING_INFO record.
    fn unwinding(&self) -> Fields<'a> {
        let (mut fields, rest) = self.read_fixed(fields::UNWINDING_INFO);
        let Some(reader) = rest else {
            return self.fault(fields, Issue::JitdumpBadUnwinding);
        };
        let size = fields.get_number("unwind_data_size").unwrap_or_default();
        let there = reader.rest().len();
        let padding = usize::try_from(size)
            .ok()
            .and_then(|size| there.checked_sub(size));
        fields = match padding {
            Some(padding) => self.with_padding(fields, padding),
            None => fields
                .word(CUT, "unwinding_data")
                .number("data_there", there as u64),
        };
        match Unwinding::parse(self.bytes, self.endian) {
            Err(_) => self.fault(fields, Issue::JitdumpBadUnwinding),
            Ok(None) if size == 0 => fields.word("layout", "empty"),
            Ok(None) => fields.word("layout", "eh_frame_hdr alone"),
            Ok(Some(unwinding)) => {
                let entries = EhFrameEntries::count(unwinding.eh_frame, self.endian);
                let fields = match unwinding.placement {
                    Placement::AfterCode(0) => fields.word("layout", "eh_frame first"),
                    Placement::AfterCode(_) => fields.word("layout", "eh_frame_hdr first"),
                    Placement::At(address) => fields
                        .word("layout", "eh_frame_hdr first")
                        .hex("eh_frame_addr", address.0),
                };
                let fields = fields.number("eh_frame_size", unwinding.eh_frame.len() as u64);
                fields.number("cies", entries.cies).number("fdes", entries.fdes)
            }
        }
    }

    /// Decodes one of samply's extension records. Their structure is checked first, as their IDs have
    /// changed.
    fn extension(&self, id: u32, ahead: &Records<'a>) -> Fields<'a> {
        let fields = Fields::new().number("id", id);
        if let Some(layout) = debug_info2::layout(self.bytes, self.endian) {
            return self.debug_info2(layout, fields, ahead);
        }
        let read = match id {
            record::JIT_TIER => self.tier_fields(),
            record::EMBEDDED_SOURCE_FILE => self.source_fields(),
            _ => None,
        };
        match read {
            Some(read) => read,
            None if self.is_cut => fields.word(CUT, "content"),
            None => fields.fault(Issue::JitdumpBadExtension),
        }
    }

    /// Returns the fields of samply's record with the name of a tier.
    fn tier_fields(&self) -> Option<Fields<'a>> {
        let name = tier::parse(self.bytes)?;
        let fields = Fields::new().number("id", record::JIT_TIER);
        let colour = Reader::new(self.bytes, self.endian).u32();
        Some(if self.bytes.starts_with(name) {
            fields.name("tier", name)
        } else {
            fields.number_if("colour", colour).name("tier", name)
        })
    }

    /// Returns the fields of a record with the text of a source file.
    fn source_fields(&self) -> Option<Fields<'a>> {
        let source = EmbeddedSource::parse(self.bytes, self.endian)?;
        let fields = Fields::new().number("id", record::EMBEDDED_SOURCE_FILE);
        Some(
            fields
                .number("text_size", source.text.len() as u64)
                .name("path", source.path),
        )
    }

    /// Decodes a DEBUG_INFO2 record, whose function is the next one in `ahead`.
    fn debug_info2(&self, layout: DebugInfo2Layout, fields: Fields<'a>, ahead: &Records<'a>) -> Fields<'a> {
        let (fields, address) = match layout {
            DebugInfo2Layout::Lists => (fields.word("layout", "lists"), None),
            DebugInfo2Layout::Positions(address) => {
                let fields = fields.word("layout", "positions").hex("code_addr", address.0);
                (fields, Some(address))
            }
        };
        // The function's size is needed only for the end of the last line's code.
        let load = next_load(ahead, self.endian, address);
        let size = load.map_or(u32::MAX, |load| load.size);
        match debug_info2::parse(self.bytes, size, self.endian) {
            Some(lines) => {
                let lists = debug_info2::lists(self.bytes, self.endian);
                with_lines(fields, lines.info, lists.as_ref())
            }
            None => self.fault(fields, Issue::JitdumpBadDebugInfo),
        }
    }

    /// Returns the fields of a record with positions in other files.
    fn track_fields(&self) -> Fields<'a> {
        let fields = Fields::new().number("id", record::SOURCE_TRACK);
        match SourceTrack::parse(self.bytes, self.endian) {
            Some(track) => {
                let fields = fields.hex("code_addr", track.start.0).name("track", track.name);
                with_lines(fields, track.read().info, Some(&track.lists))
            }
            None if self.is_cut => fields.word(CUT, "content"),
            None => fields.fault(Issue::JitdumpBadExtension),
        }
    }
}

/// Returns the name of a record type in the specification or in samply's extensions. DEBUG_INFO2 is detected by content, since it
/// has several types.
pub(crate) fn kind_name(id: u32, content: &[u8], endian: ByteOrder) -> &'static str {
    match RecordType::of(id) {
        Some(RecordType::Load) => "LOAD",
        Some(RecordType::Move) => "MOVE",
        Some(RecordType::DebugInfo) => "DEBUG_INFO",
        Some(RecordType::Close) => "CLOSE",
        Some(RecordType::UnwindingInfo) => "UNWINDING_INFO",
        Some(RecordType::Extension) => match id {
            _ if debug_info2::layout(content, endian).is_some() => "DEBUG_INFO2",
            record::JIT_TIER if !debug_info2::may_be_positions(content) => "JIT_TIER",
            record::EMBEDDED_SOURCE_FILE => "EMBEDDED_SOURCE_FILE",
            _ => "DEBUG_INFO2",
        },
        Some(RecordType::SourceTrack) => "SOURCE_TRACK",
        None => "unknown",
    }
}

/// Adds the functions, inlined calls and lines of a function. Records with lists also have counts, and flags of functions.
fn with_lines<'a>(
    mut fields: Fields<'a>,
    info: DebugInfo<'a>,
    lists: Option<&EncodedLists<'a>>,
) -> Fields<'a> {
    /// Names of the counts, as samply's author published them.
    const COUNTS: [&str; 6] = [
        "file_count",
        "function_names_count",
        "function_count",
        "inline_call_record_count",
        "range_count",
        "line_record_count",
    ];
    for (name, count) in COUNTS
        .into_iter()
        .zip(lists.map(EncodedLists::counts).into_iter().flatten())
    {
        fields = fields.number(name, count);
    }
    let files = info.files.into_iter().map(|file| match file.path {
        Cow::Borrowed(path) => path,
        Cow::Owned(_) => b"",
    });
    let files: Rc<[&[u8]]> = files.collect();
    let file_of = move |fields: Fields<'a>, file: Option<u32>| {
        let path = file.and_then(|file| files.get(file as usize).copied());
        fields.name_if("file", shortened(path.unwrap_or_default()))
    };
    let names: Rc<[&[u8]]> = info.functions.iter().map(|function| function.name).collect();
    let row_file = file_of.clone();
    let row = move |row: &LineRow| {
        let fields = Fields::new().number("code_offset", row.offset);
        let fields = fields.number("line", row.line).number("column", row.column);
        Value::Fields(row_file(fields, row.file))
    };
    let function = move |(function, flags): &(SourceFunction<'a>, Option<u32>)| {
        let fields = Fields::new().number("line", function.line);
        let fields = fields
            .number("column", function.column)
            .name("name", shortened(function.name))
            .hex_if("flags", flags.map(u64::from));
        Value::Fields(file_of(fields, function.file))
    };
    let flags = lists.into_iter().flat_map(EncodedLists::flags).map(Some);
    let functions = info.functions.into_iter();
    let functions = functions.zip(flags.chain(std::iter::repeat(None))).collect();
    fields
        .list("functions", ValueList::from_vec(functions, function))
        .list(
            "inlined_calls",
            ValueList::from_vec(info.calls, inlined_call(names)),
        )
        .list("lines", ValueList::from_vec(info.rows, row))
}

/// Returns a closure that converts an inlined call; `names` are the names of its functions.
fn inlined_call<'a>(names: Rc<[&'a [u8]]>) -> impl Fn(&InlinedCall) -> Value<'a> + 'a {
    move |call| {
        let name = names.get(call.function as usize).copied();
        let ranges = ValueList::from_vec(call.ranges.clone(), |range| {
            Value::Text(format!("{:#x}..{:#x}", range.start, range.end))
        });
        let fields = Fields::new().number("depth", call.depth);
        let fields = fields.number("line", call.line).number("column", call.column);
        Value::Fields(
            fields
                .number("function", call.function)
                .name_if("name", shortened(name.unwrap_or_default()))
                .list("ranges", ranges),
        )
    }
}

fn line_entry<'a>(entry: &debug_info::LineEntry<'a>) -> Value<'a> {
    let fields = Fields::new()
        .hex("addr", entry.address)
        .number("line", entry.line);
    let fields = fields.number("discrim", entry.column_or_discriminator);
    let fields = if entry.is_repaired {
        fields.flag(REPAIRED)
    } else {
        fields
    };
    Value::Fields(if entry.is_same_name {
        fields.name("name", shortened(entry.name)).flag(SAME_NAME)
    } else {
        fields.name("name", entry.name)
    })
}

/// Returns the next loaded function, at `address` if it is set. `None` if it is too far ahead or comes after
/// damage.
fn next_load<'a>(ahead: &Records<'a>, endian: ByteOrder, address: Option<Address>) -> Option<Load<'a>> {
    let records = ahead.clone().take(MAX_LOOKAHEAD).map_while(|step| step.record());
    let mut loads = records
        .filter(|record| record.kind == record::LOAD)
        .filter_map(|record| Load::parse(record.content, endian));
    loads.find(|load| address.is_none_or(|address| load.start == address))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_found_in_the_next_four_records() {
        let endian = ByteOrder::Little;
        let mut file = Vec::new();
        for number in 1..=5_u64 {
            endian.write_u32(&mut file, record::LOAD);
            endian.write_u32(&mut file, 60);
            // Time, process and thread, the address twice, size, index.
            let address = 0x1000 * number;
            for field in [number, 0, address, address, 2, number] {
                endian.write_u64(&mut file, field);
            }
            file.extend_from_slice(b"f\0\x90\x90");
        }
        let records = Records::new(&file, 0, endian);
        let is_found = |address: u64| next_load(&records, endian, Some(Address(address))).is_some();
        assert!(is_found(0x4000) && !is_found(0x5000));
    }
}
