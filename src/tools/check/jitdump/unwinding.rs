//! Checks of UNWINDING_INFO records, and of the tables in them.

use gimli::constants as dw;
use jitdump::internals::format::Records;
use jitdump::internals::format::record::Record;
use jitdump::internals::format::unwinding::{Placement, Unwinding, UnwindingSizes};
use jitdump::{Address, AddressRange, ByteOrder, Dump};

use crate::bytes::Reader;
use crate::elf::eh_frame::{EhFrame, FdeIndex};
use crate::results::diagnostics::rules::unwinding as rules;
use crate::tools::check::findings::{Findings, Place};

/// Number of bytes by which a writer may round up the size of mapped tables: less than a page.
const MAX_ROUNDING: u64 = 4096;

/// Size of the numbers before the tables, in bytes.
const SIZES: u64 = 24;

/// The version of every `.eh_frame_hdr`.
const HEADER_VERSION: u8 = 1;

/// Encodings of the number of rows in an `.eh_frame_hdr`, and of the rows: the only ones that unwinders search.
const COUNT_ENCODING: u8 = dw::DW_EH_PE_udata4.0;
const ROW_ENCODING: u8 = dw::DW_EH_PE_datarel.0 | dw::DW_EH_PE_sdata4.0;

/// Bytes after the instructions of a function that may lack an entry: fewer than this. V8 aligns the end of its code.
const MAX_PADDING: u64 = 16;

/// Checks a record. The reader reports records that are invalid.
pub(super) fn check(record: &Record<'_>, endian: ByteOrder, findings: &mut Findings) {
    let sizes = sizes(record.content, endian);
    let has_header = sizes.is_none_or(|sizes| sizes.header > 0);
    let rule = match Unwinding::parse(record.content, endian) {
        Err(_) => return,
        Ok(None) => &rules::HEADER_ONLY,
        Ok(Some(_)) if !has_header => &rules::NO_HEADER,
        Ok(Some(unwinding)) => match unwinding.placement {
            Placement::AfterCode(0) => &rules::FRAME_FIRST,
            Placement::AfterCode(_) | Placement::At(_) => &rules::HEADER_FIRST,
        },
    };
    findings.add(rule, record.offset, Place::default);
    if let Some(UnwindingSizes { data, mapped, .. }) = sizes
        && mapped > 0
        && !(0..MAX_ROUNDING).contains(&mapped.wrapping_sub(data))
    {
        findings.add(&rules::MAPPED_SIZE, record.offset, || {
            Place::default().with_message(format!("{mapped} bytes mapped, {data} bytes of data"))
        });
    }
    // In the other order, the header has been read.
    let is_frame_first = rule.id == rules::FRAME_FIRST.id;
    let version = header_after_frame(record.content, endian).and_then(|header| header.first().copied());
    if is_frame_first && version != Some(HEADER_VERSION) {
        findings.add(&rules::BAD_HEADER, record.offset, || {
            Place::default()
                .with_message(version.map_or_else(String::new, |version| format!("version {version}")))
        });
    }
}

/// Checks the unwinding tables of functions, in the order of the file: several may share those of the last record.
#[derive(Default)]
pub(super) struct TableChecker<'a> {
    last: Option<LastTables<'a>>,
}

/// The tables in the last record.
struct LastTables<'a> {
    /// Offset of the record.
    offset: u64,
    entries: FdeIndex<'a>,
}

impl<'a> TableChecker<'a> {
    /// Checks that the tables of a function have entries for its code.
    pub(super) fn check(&mut self, file: &'a [u8], dump: &Dump<'a>, number: u32, findings: &mut Findings) {
        let record = dump
            .function_records(number)
            .and_then(|records| records.unwinding);
        let (Some(record), Some(unwinding), Some(code)) =
            (record, dump.unwinding(number), dump.range(number))
        else {
            return;
        };
        let machine = dump.machine();
        let frame = EhFrame {
            section: unwinding.eh_frame,
            address: unwinding.address(code),
            endian: machine.endian,
            address_size: machine.address_size(),
        };
        let last = self.last.as_ref();
        let is_known = last.is_some_and(|last| last.offset == record.offset);
        match unwinding.placement {
            // Tables after the code are for one function. That others have them is reported.
            Placement::AfterCode(_) if is_known => return,
            Placement::At(_) if is_known => {}
            _ => {
                self.last = Some(LastTables {
                    offset: record.offset,
                    entries: FdeIndex::read(frame),
                });
            }
        }
        let Some(LastTables { entries, .. }) = &self.last else {
            return;
        };
        let place = |message: String| {
            let name = dump.function(number).map_or(&b""[..], |function| function.name);
            Place::in_record("UNWINDING_INFO")
                .in_function(name)
                .with_message(message)
        };
        // The one at the highest address comes first.
        let mut ranges = entries.overlapping(code).map(|entry| entry.range);
        let Some(last) = ranges.next() else {
            return findings.add(&rules::NO_ENTRY, record.offset, || {
                let reason = if entries.is_empty() {
                    "no valid entry"
                } else {
                    "entries for other addresses"
                };
                place(reason.to_owned())
            });
        };
        let first = ranges.last().unwrap_or(last);
        let before = first.start.0.saturating_sub(code.start.0);
        let after = code.end.0.saturating_sub(last.end.0);
        if before > 0 || after >= MAX_PADDING {
            findings.add(&rules::PARTIAL_ENTRIES, record.offset, || {
                let size = code.size();
                place(format!(
                    "not for the first {before} and the last {after} of {size} bytes"
                ))
            });
        }
        let header = Records::content(file, record)
            .filter(|_| unwinding.placement == Placement::AfterCode(0))
            .and_then(|content| header_after_frame(content, frame.endian));
        if header.and_then(|header| leads_to_entry(header, frame, code)) == Some(false) {
            findings.add(&rules::BAD_HEADER, record.offset, || {
                place("the first row of its table".to_owned())
            });
        }
    }
}

/// Returns whether the first row of the table in the header behind a section leads to an entry for the code; `None` if it
/// has no table that unwinders search.
fn leads_to_entry(header: &[u8], frame: EhFrame<'_>, code: AddressRange) -> Option<bool> {
    let mut reader = Reader::new(header, frame.endian);
    let &[HEADER_VERSION, pointer, COUNT_ENCODING, ROW_ENCODING] = reader.bytes(4)? else {
        return None;
    };
    match gimli::DwEhPe(pointer).format() {
        dw::DW_EH_PE_udata4 | dw::DW_EH_PE_sdata4 => reader.skip(4)?,
        _ => return None,
    }
    if reader.u32()? == 0 {
        return None;
    }
    let base = frame.address.0.wrapping_add(frame.section.len() as u64);
    let address = |distance: u32| Address(base.wrapping_add_signed((distance as i32).into()));
    let (Some(start), Some(entry)) = (reader.u32(), reader.u32()) else {
        return Some(false);
    };
    let entry = frame.entry_at(address(entry));
    Some(entry.is_some_and(|entry| entry.range.start == address(start) && entry.range.overlaps(code)))
}

/// Returns the number of bytes by which perf extends the mapping of the function.
pub(super) fn mapped_size(content: &[u8], endian: ByteOrder) -> u64 {
    sizes(content, endian).map_or(0, |sizes| sizes.mapped)
}

/// Returns the `.eh_frame_hdr` behind the `.eh_frame`.
fn header_after_frame(content: &[u8], endian: ByteOrder) -> Option<&[u8]> {
    let sizes = sizes(content, endian)?;
    let start = SIZES.checked_add(sizes.data.checked_sub(sizes.header)?)?;
    let (_, header) = content.split_at_checked(usize::try_from(start).ok()?)?;
    header.get(..usize::try_from(sizes.header).ok()?)
}

fn sizes(content: &[u8], endian: ByteOrder) -> Option<UnwindingSizes> {
    UnwindingSizes::read(&mut Reader::new(content, endian))
}
