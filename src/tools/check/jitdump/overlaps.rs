//! Checks for overlapping code, in time order.

use jitdump::internals::format;
use jitdump::internals::format::record::Step;
use jitdump::internals::format::{Move, Records, record};
use jitdump::{Address, AddressRange, Change, CodeEvent, Dump, RuntimeTime};

use crate::collections::hash::{HashMap, HashSet};
use crate::collections::range_map::RangeMap;
use crate::results::diagnostics::CatalogueEntry;
use crate::results::diagnostics::rules::{jitdump as rules, unwinding};
use crate::tools::check::findings::{Findings, Place, truncated_name};
use crate::tools::check::jitdump::unwinding::mapped_size;

/// A function that overlaps an earlier one, with its code or with its unwinding tables.
#[derive(Clone, Copy)]
struct Overlap {
    /// Type of the record that loaded or moved it.
    record: &'static str,
    /// Offset of that record.
    offset: u64,
    function: u32,
    range: AddressRange,
    other: u32,
}

/// Checks the addresses that code is loaded at or moved to.
pub(super) fn check(file: &[u8], dump: &Dump<'_>, findings: &mut Findings) {
    let move_offsets = move_offsets(file, dump);
    let mut processes: HashMap<u32, RangeMap<u32>> = HashMap::default();
    let mut overwritten = HashSet::default();
    let mut tail_overlaps = Vec::new();
    for event in dump.events() {
        let live = processes.entry(event.pid).or_default();
        let Some(range) = range_of(dump, &event, live) else {
            continue;
        };
        let function = event.function;
        let overlap_with = |other| {
            let (record, offset) = match event.change {
                Change::Move { from, to } => ("MOVE", *move_offsets.get(&(event.time, event.pid, from, to))?),
                Change::Load => ("LOAD", dump.function_records(function)?.load.offset),
            };
            Some(Overlap {
                record,
                offset,
                function,
                range,
                other,
            })
        };
        let mut first = None;
        live.insert_with(range, function, |_, other| {
            if other != function {
                overwritten.insert(other);
                first = first.or(Some(other));
            }
        });
        if let Some(overlap) = first.and_then(overlap_with) {
            overlap.report(&rules::OVERLAP, dump, findings);
        }
        // perf maps no tables with code that was moved.
        let mapped_tail = match event.change {
            Change::Load => mapped_tail(file, dump, function, range),
            Change::Move { .. } => None,
        };
        let hidden = mapped_tail.and_then(|mapped_tail| live.overlapping(mapped_tail).next());
        tail_overlaps.extend(hidden.and_then(|(_, other)| overlap_with(other)));
    }
    // Where memory is reused, the code after a function may also have been freed without a record.
    for overlap in tail_overlaps
        .iter()
        .filter(|overlap| !overwritten.contains(&overlap.other))
    {
        overlap.report(&unwinding::MAPPED_OVER, dump, findings);
    }
}

impl Overlap {
    /// Adds the overlap to the findings.
    fn report(&self, rule: &'static CatalogueEntry, dump: &Dump<'_>, findings: &mut Findings) {
        let name = |function| dump.function(function).map_or(&b""[..], |function| function.name);
        findings.add(rule, self.offset, || {
            let other = truncated_name(name(self.other));
            Place::in_record(self.record)
                .in_function(name(self.function))
                .with_message(format!("{}, over {other}", self.range))
        });
    }
}

/// Returns the offset of each MOVE record by time, process, and old and new address. Of several, it is the first.
fn move_offsets(file: &[u8], dump: &Dump<'_>) -> HashMap<(RuntimeTime, u32, Address, Address), u64> {
    let mut offsets = HashMap::default();
    let header = dump.header();
    let records = format::records(file, header).filter_map(Step::record);
    for record in records.filter(|record| record.kind == record::MOVE) {
        if let Some(moved) = Move::parse(&record, header.endian) {
            let key = (moved.time, moved.pid, moved.from, moved.to);
            offsets.entry(key).or_insert(moved.offset);
        }
    }
    offsets
}

/// Returns the new addresses of a function, and removes a moved one from its old addresses.
fn range_of(dump: &Dump<'_>, event: &CodeEvent, live: &mut RangeMap<u32>) -> Option<AddressRange> {
    let range = dump.range(event.function)?;
    let (from, to) = match event.change {
        Change::Load => return Some(range),
        Change::Move { from, to } => (from, to),
    };
    if let Some(old) = AddressRange::new(from, range.size())
        && live.get(from) == Some(event.function)
    {
        live.remove(old);
    }
    AddressRange::new(to, range.size())
}

/// Returns the addresses after the function's code that perf adds to its mapping.
fn mapped_tail(file: &[u8], dump: &Dump<'_>, function: u32, range: AddressRange) -> Option<AddressRange> {
    let place = dump.function_records(function)?.unwinding?;
    let mapped = mapped_size(Records::content(file, place)?, dump.header().endian);
    let start = range.size().checked_next_multiple_of(8)?;
    AddressRange::new(Address(range.start.0.checked_add(start)?), mapped)
}
