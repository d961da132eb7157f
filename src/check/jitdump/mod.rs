//! Checking jitdumps: what their reader tells, and what it and others put up with.

mod functions;
mod header;
mod lines;
mod live;
mod moves;
mod names;
mod records;
mod unwinding;

use crate::bytes::ByteOrder;
use crate::check::findings::{Findings, Place};
use crate::check::rules::{Rule, debug_info, jitdump as rules, unwinding as unwinding_rules};
use crate::hash::HashMap;
use crate::machine::Machine;
use crate::runtime::jitdump::header::SIZE;
use crate::runtime::jitdump::record::{self, Record};
use crate::runtime::jitdump::{self as format, Dump, Error, Fault, Load, Records, debug_info2};

/// What the header is called where a place is told.
const HEADER: &str = "header";

/// Checks a file of this base name; returns how many records it has, and what is wrong.
pub(super) fn check(file: &[u8], name: &[u8]) -> (u64, Findings) {
    let mut findings = Findings::default();
    // What the file does not tell of its machine makes no difference here.
    let dump = match Dump::parse(file, Machine::host()) {
        Ok(dump) => dump,
        Err(error) => {
            let rule = match error {
                Error::Empty => &rules::EMPTY,
                Error::TooShort(_) | Error::NotAJitdump(_) => &rules::SHORT_HEADER,
            };
            findings.add(rule, 0, || Place::at(HEADER).saying(error.to_string()));
            return (0, findings);
        }
    };
    header::check(file, &dump, name, &mut findings);
    findings.add_faults(dump.faults(), |fault| Some((rule_of(fault)?, "")));
    let records = records::check(file, &dump, &mut findings);
    live::check(file, &dump, &mut findings);
    describe(file, &dump, &mut findings);
    (records, findings)
}

/// The rule that a fault breaks; `None` of those that are looked at more closely here.
fn rule_of(fault: Fault) -> Option<&'static Rule> {
    Some(match fault {
        Fault::Version(_) | Fault::HeaderSize | Fault::UnknownRecord => return None,
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
        Fault::BadExtension => &debug_info::BAD_EXTENSION,
        Fault::BadDebugInfo => &debug_info::UNREADABLE,
        Fault::RepairedName => &debug_info::DAMAGED_NAMES,
        Fault::EntryOutside => &debug_info::BEHIND_CODE,
        Fault::EntryAstray => &debug_info::ASTRAY,
        Fault::CallAstray => &debug_info::CALLS_ASTRAY,
    })
}

/// Tells of each place what record stands there, and of which function it is.
fn describe(file: &[u8], dump: &Dump<'_>, findings: &mut Findings) {
    /// What is known of an offset.
    type Known = (&'static str, Option<u32>);
    let nameless = findings.places_mut().filter(|place| place.record.is_empty());
    let mut known: HashMap<u64, Known> = nameless.map(|place| (place.offset, ("", None))).collect();
    for record in format::records(file, dump.header()).filter_map(record::Step::record) {
        if let Some(known) = known.get_mut(&record.offset) {
            known.0 = kind_name(&record, dump.header().order);
        }
    }
    for number in 0.. {
        let Some(function) = dump.records(number) else {
            break;
        };
        let more = [
            function.debug_info,
            function.debug_info2,
            function.unwinding,
            function.tier,
        ];
        for place in more.into_iter().flatten().chain([function.load]) {
            if let Some(known) = known.get_mut(&place.offset) {
                known.1 = known.1.or(Some(number));
            }
        }
    }
    for place in findings.places_mut().filter(|place| place.record.is_empty()) {
        let Some(&(record, number)) = known.get(&place.offset) else {
            continue;
        };
        let is_header = place.offset < SIZE.into();
        place.record = if is_header { HEADER } else { record };
        let load = number.and_then(|number| {
            let content = Records::content(file, dump.records(number)?.load)?;
            Load::parse(content, dump.header().order)
        });
        if let Some(load) = load {
            *place = std::mem::take(place).of(load.name);
        }
    }
}

/// What the specification calls a record, or its author an extension: of those, what stands in it tells first.
fn kind_name(record: &Record<'_>, order: ByteOrder) -> &'static str {
    match record.kind {
        record::LOAD => "LOAD",
        record::MOVE => "MOVE",
        record::DEBUG_INFO => "DEBUG_INFO",
        record::CLOSE => "CLOSE",
        record::UNWINDING_INFO => "UNWINDING_INFO",
        record::EXTENSION_FIRST..=record::EMBEDDED_SOURCE_FILE
            if debug_info2::layout(record.content, order).is_some() =>
        {
            "DEBUG_INFO2"
        }
        record::EXTENSION_FIRST => "DEBUG_INFO2",
        record::JIT_TIER => "JIT_TIER",
        record::EMBEDDED_SOURCE_FILE => "EMBEDDED_SOURCE_FILE",
        _ => "unknown",
    }
}
