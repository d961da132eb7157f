//! Checks of jitdumps: faults that the reader reports, and errors that it and other readers tolerate.

mod functions;
mod header;
mod lines;
mod lists;
mod moves;
mod names;
mod overlaps;
mod records;
mod source_files;
mod unwinding;

use crate::check::ReadSource;
use crate::check::findings::{Findings, Place};
use crate::collections::hash::HashMap;
use crate::diagnostics::Issue;
use crate::diagnostics::rules::{Rule, debug_info, jitdump as rules, unwinding as unwinding_rules};
use crate::dump::jitdump::kind_name;
use crate::machine::Machine;
use crate::runtime::jitdump::header::SIZE;
use crate::runtime::jitdump::record;
use crate::runtime::jitdump::{self as format, Dump, Load, Records};

/// Name of the header in findings.
const HEADER: &str = "header";

/// Checks a file with this base name, and the source files that it names. Returns the number of its records, and the
/// findings.
pub(super) fn check(file: &[u8], name: &[u8], read_source: ReadSource<'_>) -> (u64, Findings) {
    let mut findings = Findings::default();
    // The machine, if the header has none, makes no difference here.
    let dump = match Dump::parse(file, Machine::host()) {
        Ok(dump) => dump,
        Err(error) => {
            let rule = match error.issue {
                Issue::JitdumpEmpty => &rules::EMPTY,
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
    describe(file, &dump, &mut findings);
    (records, findings)
}

/// Returns the rule for a fault; `None` for faults that this module checks in more detail.
fn rule_of(fault: Issue) -> Option<&'static Rule> {
    Some(match fault {
        Issue::JitdumpUnknownFlags => &rules::UNKNOWN_FLAGS,
        Issue::JitdumpSkippedBytes => &rules::SKIPPED_BYTES,
        Issue::JitdumpRepairedSize => &rules::WRONG_SIZE,
        Issue::JitdumpCutTail => &rules::CUT_TAIL,
        Issue::JitdumpDuplicate => &rules::DUPLICATE,
        Issue::JitdumpBadLoad => &rules::BAD_LOAD,
        Issue::JitdumpLongName => &rules::LONG_NAME,
        Issue::JitdumpBadMove => &rules::BAD_MOVE,
        Issue::JitdumpDebugInfoUnpaired => &debug_info::WITHOUT_LOAD,
        Issue::JitdumpUnwindingUnpaired => &unwinding_rules::WITHOUT_LOAD,
        Issue::JitdumpBadUnwinding => &unwinding_rules::UNREADABLE,
        Issue::JitdumpTierUnpaired => &debug_info::TIER_WITHOUT_LOAD,
        Issue::JitdumpBadDebugInfo => &debug_info::UNREADABLE,
        Issue::JitdumpRepairedFileName => &debug_info::DAMAGED_NAMES,
        Issue::JitdumpLineOutside => &debug_info::PAST_CODE,
        Issue::JitdumpLineInvalid => &debug_info::IMPOSSIBLE_ENTRIES,
        Issue::JitdumpCallInvalid | Issue::JitdumpRangeInvalid => &debug_info::BAD_CALLS,
        Issue::JitdumpCallInsideLine => &debug_info::CALL_INSIDE_LINE,
        Issue::JitdumpBothLayouts => &debug_info::BOTH_LAYOUTS,
        _ => return None,
    })
}

/// Sets the record type and the function of each place.
fn describe(file: &[u8], dump: &Dump<'_>, findings: &mut Findings) {
    /// Type of the record at an offset, and the index of its function.
    type RecordInfo = (&'static str, Option<u32>);
    let without_record = findings.places_mut().filter(|place| place.record.is_empty());
    let mut infos: HashMap<u64, RecordInfo> =
        without_record.map(|place| (place.offset, ("", None))).collect();
    for record in format::records(file, dump.header()).filter_map(record::Step::record) {
        if let Some((name, _)) = infos.get_mut(&record.offset) {
            *name = kind_name(record.kind, record.content, dump.header().endian);
        }
    }
    for function in 0.. {
        let Some(offsets) = dump.record_offsets(function) else {
            break;
        };
        for offset in offsets {
            if let Some((_, of_function)) = infos.get_mut(&offset) {
                of_function.get_or_insert(function);
            }
        }
    }
    for place in findings.places_mut().filter(|place| place.record.is_empty()) {
        let Some(&(record, function)) = infos.get(&place.offset) else {
            continue;
        };
        let is_header = place.offset < SIZE.into();
        place.record = if is_header { HEADER } else { record };
        let load = function.and_then(|function| {
            let content = Records::content(file, dump.function_records(function)?.load)?;
            Load::parse(content, dump.header().endian)
        });
        if let Some(load) = load {
            *place = std::mem::take(place).in_function(load.name);
        }
    }
}
