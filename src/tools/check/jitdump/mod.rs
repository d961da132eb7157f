//! Checks of jitdumps: faults that the reader reports, and errors that it and other readers tolerate.

mod code_indexes;
mod header;
mod lines;
mod lists;
mod names;
mod overlaps;
mod records;
mod source_files;
mod unwinding;

use jitdump::internals::format;
use jitdump::internals::format::header::SIZE;
use jitdump::internals::format::{Load, Records, record};
use jitdump::{Dump, ErrorKind, Fault, Machine};

use crate::collections::hash::HashMap;
use crate::results::diagnostics::CatalogueEntry;
use crate::results::diagnostics::rules::{debug_info, jitdump as rules, unwinding as unwinding_rules};
use crate::tools::check::ReadSource;
use crate::tools::check::findings::{Findings, Place};
use crate::tools::dump::jitdump::kind_name;

/// Name of the header in findings.
const HEADER: &str = "header";

/// Checks a file with this base name, and the source files that it names. Returns the number of its records, and the
/// findings.
pub(super) fn check(file: &[u8], name: &[u8], read_source: ReadSource<'_>) -> (u64, Findings) {
    let mut findings = Findings::default();
    // The machine, if the header has none, counts only for the size of addresses in unwinding tables.
    let dump = match Dump::parse(file, Machine::host()) {
        Ok(dump) => dump,
        Err(error) => {
            let rule = match error.kind() {
                ErrorKind::Empty => &rules::EMPTY,
                _ => &rules::SHORT_HEADER,
            };
            findings.add(rule, 0, || {
                Place::in_record(HEADER).with_message(error.to_string())
            });
            return (0, findings);
        }
    };
    header::check(file, &dump, name, &mut findings);
    findings.add_faults(dump.faults(), |fault| Some((rule_of(fault)?, "")));
    let records = records::check(file, &dump, &mut findings);
    overlaps::check(file, &dump, &mut findings);
    source_files::check(&dump, read_source, &mut findings);
    set_places(file, &dump, &mut findings);
    (records, findings)
}

/// Returns the rule for a fault; `None` for faults that are checked in more detail, or are of no jitdump alone: the
/// test has them.
fn rule_of(fault: Fault) -> Option<&'static CatalogueEntry> {
    Some(match fault {
        Fault::UnknownFlags => &rules::UNKNOWN_FLAGS,
        Fault::SkippedBytes => &rules::SKIPPED_BYTES,
        Fault::RepairedSize => &rules::WRONG_SIZE,
        Fault::CutTail => &rules::CUT_TAIL,
        Fault::Duplicate => &rules::DUPLICATE,
        Fault::BadLoad => &rules::BAD_LOAD,
        Fault::LongName => &rules::LONG_NAME,
        Fault::BadMove => &rules::BAD_MOVE,
        Fault::DebugInfoUnpaired => &debug_info::WITHOUT_LOAD,
        Fault::UnwindingUnpaired => &unwinding_rules::WITHOUT_LOAD,
        Fault::BadUnwinding => &unwinding_rules::UNREADABLE,
        Fault::TierUnpaired => &debug_info::TIER_WITHOUT_LOAD,
        Fault::BadDebugInfo => &debug_info::UNREADABLE,
        Fault::RepairedFileName => &debug_info::DAMAGED_NAMES,
        Fault::LineOutside => &debug_info::PAST_CODE,
        Fault::LineInvalid => &debug_info::IMPOSSIBLE_ENTRIES,
        Fault::CallInvalid | Fault::RangeInvalid => &debug_info::BAD_CALLS,
        Fault::CallInsideLine => &debug_info::CALL_INSIDE_LINE,
        Fault::BothLayouts => &debug_info::BOTH_LAYOUTS,
        // Crates have to expect more faults than there are.
        _ => return None,
    })
}

/// What is known about the record at an offset.
#[derive(Default)]
struct RecordInfo {
    /// Its type; `None` if no record starts there.
    kind: Option<&'static str>,
    /// Number of its function.
    function: Option<u32>,
}

/// Sets the record type and the function of each place.
fn set_places(file: &[u8], dump: &Dump<'_>, findings: &mut Findings) {
    let without_record = findings.places_mut().filter(|place| place.record.is_empty());
    let mut infos: HashMap<u64, RecordInfo> = without_record
        .map(|place| (place.offset, RecordInfo::default()))
        .collect();
    for record in format::records(file, dump.header()).filter_map(record::Step::record) {
        if let Some(info) = infos.get_mut(&record.offset) {
            info.kind = Some(kind_name(record.kind, record.content, dump.header().endian));
        }
    }
    for function in 0..dump.function_count() as u32 {
        for offset in dump.record_offsets(function).into_iter().flatten() {
            if let Some(info) = infos.get_mut(&offset) {
                info.function.get_or_insert(function);
            }
        }
    }
    for place in findings.places_mut().filter(|place| place.record.is_empty()) {
        let Some(info) = infos.get(&place.offset) else {
            continue;
        };
        let is_header = place.offset < SIZE.into();
        place.record = if is_header {
            HEADER
        } else {
            info.kind.unwrap_or_default()
        };
        if let Some(load) = info.function.and_then(|function| load_of(file, dump, function)) {
            *place = std::mem::take(place).in_function(load.name);
        }
    }
}

/// Parses the LOAD record of a function.
fn load_of<'a>(file: &'a [u8], dump: &Dump<'_>, function: u32) -> Option<Load<'a>> {
    let content = Records::content(file, dump.function_records(function)?.load)?;
    Load::parse(content, dump.header().endian)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_have_a_rule_or_are_checked_elsewhere() {
        const ELSEWHERE: [Fault; 6] = [
            // In `header`.
            Fault::UnknownVersion,
            Fault::InvalidHeaderSize,
            // In `records`.
            Fault::UnknownRecord,
            Fault::BadExtension,
            // Of a jitdump beside a profile, and of perf maps.
            Fault::OtherMachine,
            Fault::InvalidLine,
        ];
        for &fault in Fault::ALL {
            assert_eq!(rule_of(fault).is_none(), ELSEWHERE.contains(&fault), "{fault}");
        }
    }
}
