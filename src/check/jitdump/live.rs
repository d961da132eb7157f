//! Which code lies where, in the order of time.

use rustc_hash::{FxHashMap, FxHashSet};

use crate::check::findings::{Findings, Place, shown_name};
use crate::check::jitdump::unwinding::mapped_size;
use crate::check::rules::{Rule, jitdump as rules, unwinding};
use crate::range_map::RangeMap;
use crate::runtime::jitdump::{Dump, Records};
use crate::runtime::{Change, CodeEvent};
use crate::units::{Address, AddressRange};

/// A function that was put over another one, or whose tables reach over it.
#[derive(Clone, Copy)]
struct Over {
    function: u32,
    range: AddressRange,
    other: u32,
}

/// Checks where code is loaded and moved to.
pub(super) fn check(file: &[u8], dump: &Dump<'_>, findings: &mut Findings) {
    let mut processes: FxHashMap<u32, RangeMap<u32>> = FxHashMap::default();
    let mut overwritten = FxHashSet::default();
    let mut tails = Vec::new();
    for event in dump.events() {
        let live = processes.entry(event.pid).or_default();
        let Some(range) = range_of(dump, event, live) else {
            continue;
        };
        let function = event.function;
        let mut first = None;
        live.insert(range, function, |_, other| {
            overwritten.insert(other);
            first = first.or(Some(other));
        });
        if let Some(other) = first {
            let over = Over {
                function,
                range,
                other,
            };
            over.tell(&rules::OVERLAP, dump, findings);
        }
        let tail = tail(file, dump, function, range);
        if let Some((_, other)) = tail.and_then(|tail| live.overlapping(tail).next()) {
            tails.push(Over {
                function,
                range,
                other,
            });
        }
    }
    // Where memory is used again, what lies behind a function may be gone, too: nobody tells.
    for over in tails.iter().filter(|over| !overwritten.contains(&over.other)) {
        over.tell(&unwinding::MAPPED_OVER, dump, findings);
    }
}

impl Over {
    fn tell(&self, rule: &'static Rule, dump: &Dump<'_>, findings: &mut Findings) {
        let Some(records) = dump.records(self.function) else {
            return;
        };
        let name = |function| dump.function(function).map_or(&b""[..], |function| function.name);
        findings.add(rule, records.load.offset, || {
            let other = shown_name(name(self.other));
            Place::at("LOAD")
                .of(name(self.function))
                .saying(format!("{}, over {other}", self.range))
        });
    }
}

/// Where a function comes to lie; what is moved is no more where it was.
fn range_of(dump: &Dump<'_>, event: &CodeEvent, live: &mut RangeMap<u32>) -> Option<AddressRange> {
    let range = dump.range(event.function)?;
    let (from, to) = match event.change {
        Change::Load => return Some(range),
        Change::Move { from, to } => (from, to),
        Change::Unload => return None,
    };
    if let Some(old) = AddressRange::new(from, range.size())
        && live.get(from) == Some(event.function)
    {
        live.remove(old, |_, _| {});
    }
    AddressRange::new(to, range.size())
}

/// What perf maps behind the code of a function, of which it makes the map longer.
fn tail(file: &[u8], dump: &Dump<'_>, function: u32, range: AddressRange) -> Option<AddressRange> {
    let place = dump.records(function)?.unwinding?;
    let mapped = mapped_size(Records::content(file, place)?, dump.header().order);
    let start = range.size().checked_next_multiple_of(8)?;
    AddressRange::new(Address(range.start.0.checked_add(start)?), mapped)
}
