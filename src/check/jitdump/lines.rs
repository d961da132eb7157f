//! The lines of a function, as they stand in its records.

use crate::check::findings::{Findings, Place};
use crate::check::jitdump::{names, rule_of};
use crate::check::rules::{Rule, debug_info as rules};
use crate::runtime::jitdump::debug_info::{self, Entry, FunctionRef};
use crate::runtime::jitdump::record::Place as RecordPlace;
use crate::runtime::jitdump::{Dump, Fault, Records};

/// Checks the lines of a function.
pub(super) fn check(file: &[u8], dump: &Dump<'_>, number: u32, findings: &mut Findings) {
    let (Some(function), Some(view)) = (dump.records(number), dump.function(number)) else {
        return;
    };
    if let Some(place) = function.debug_info2 {
        let faults = dump.sources(&view).faults;
        // Where that record says nothing, the other one's are among them.
        let is_own = |fault: Fault| faults.places(fault).contains(&place.offset);
        findings.add_faults(&faults, |fault| {
            Some((rule_of(fault).filter(|_| is_own(fault))?, ""))
        });
    }
    let Some(place) = function.debug_info else {
        return;
    };
    let subject = FunctionRef {
        name: view.name,
        range: view.range,
    };
    let order = dump.header().order;
    let content = Records::content(file, place).unwrap_or_default();
    match debug_info::entries(content, subject, order) {
        None => findings.add(&rules::UNREADABLE, place.offset, Place::default),
        Some(entries) => Lines {
            entries,
            subject,
            bias: dump.conventions().bias,
            place,
            findings,
        }
        .check(order.u64_at(content, 0)),
    }
}

/// The entries of one record.
struct Lines<'l, 'a> {
    entries: Vec<Entry<'a>>,
    subject: FunctionRef<'a>,
    /// What the writer adds to all addresses.
    bias: u64,
    place: RecordPlace,
    findings: &'l mut Findings,
}

impl Lines<'_, '_> {
    /// Checks the record, which says that it is of the function at `address`.
    fn check(mut self, address: Option<u64>) {
        let start = self.subject.range.start;
        if address != Some(start.0) {
            let address = address.unwrap_or(0);
            self.note(&rules::OTHER_ADDRESS, 1, || {
                format!("{address:#x}, and LOAD has {start}")
            });
        }
        let count = |fits: &dyn Fn(&Entry<'_>) -> bool| {
            self.entries.iter().filter(|entry| fits(entry)).count() as u64
        };
        let size = i128::from(self.subject.range.size());
        let offset = |entry: &Entry<'_>| self.subject.offset(entry, self.bias);
        let is_sound = |entry: &Entry<'_>| !entry.is_odd();
        let is_line = |entry: &Entry<'_>| is_sound(entry) && !entry.is_end();
        let lines = count(&is_line);
        let repaired = count(&|entry| entry.is_repaired);
        let odd = count(&|entry| entry.is_odd());
        let below = count(&|entry| is_line(entry) && offset(entry) < 0);
        let behind = count(&|entry| is_line(entry) && offset(entry) > size);
        let relative =
            count(&|entry| is_line(entry) && !entry.is_same_name && names::is_relative(entry.name));
        let same = count(&|entry| entry.is_same_name);
        let nameless = count(&|entry| is_line(entry) && entry.name.is_empty());
        let sound = || self.entries.iter().filter(|entry| is_sound(entry));
        let pairs = sound().zip(sound().skip(1));
        let unsorted = pairs.filter(|(one, next)| next.address < one.address).count() as u64;
        let has_end = self.entries.last().is_some_and(|last| offset(last) >= size);

        let (bias, is_empty) = (self.bias, lines == 0 && odd == 0);
        let biased = u64::from(bias != 0 && !self.entries.is_empty());
        self.note(&rules::BIASED, biased, || format!("by {bias:#x}"));
        for (rule, count) in [
            (&rules::DAMAGED_NAMES, repaired),
            (&rules::ASTRAY, odd),
            (&rules::BELOW_CODE, below),
            (&rules::BEHIND_CODE, behind),
            (&rules::UNSORTED, unsorted),
            (&rules::RELATIVE, relative),
            (&rules::SAME_NAME, same),
            (&rules::NO_FILE, nameless),
        ] {
            self.note(rule, count, || format!("{count} of its entries"));
        }
        self.note(&rules::NO_LINES, u64::from(is_empty), String::new);
        self.note(&rules::NO_END, u64::from(!is_empty && !has_end), String::new);
    }

    fn note(&mut self, rule: &'static Rule, count: u64, message: impl FnOnce() -> String) {
        self.findings.add_many(rule, count, self.place.offset, || {
            Place::at("DEBUG_INFO").of(self.subject.name).saying(message())
        });
    }
}
