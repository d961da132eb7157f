//! Checks of a function's line records.

use jitdump::internals::format::debug_info::LineEntry;
use jitdump::internals::format::record::RecordLocation;
use jitdump::internals::format::{Records, debug_info};
use jitdump::{Dump, Fault, Function};

use crate::results::diagnostics::CatalogueEntry;
use crate::results::diagnostics::rules::{debug_info as rules, jitdump as jitdump_rules};
use crate::tools::check::findings::{Findings, Place};
use crate::tools::check::jitdump::{lists, names, rule_of};

/// Checks the lines of a function.
pub(super) fn check(file: &[u8], dump: &Dump<'_>, number: u32, findings: &mut Findings) {
    let (Some(records), Some(function)) = (dump.function_records(number), dump.function(number)) else {
        return;
    };
    if let Some(place) = records.debug_info2 {
        let sources = function.sources();
        let faults = sources.faults;
        // If DEBUG_INFO2 has no lines, the faults include those of DEBUG_INFO.
        let is_own = |fault: Fault| faults.offsets(fault).contains(&place.offset);
        findings.add_faults(&faults, |fault| {
            Some((rule_of(fault).filter(|_| is_own(fault))?, ""))
        });
        lists::check(file, dump, &function, place, sources.info.as_ref(), findings);
    }
    let mut tracks: Vec<&[u8]> = function.track_names().collect();
    tracks.sort_unstable();
    let repeated = tracks
        .windows(2)
        .filter(|pair| matches!(pair, [one, other] if one == other));
    findings.add_many(
        &rules::REPEATED_TRACK,
        repeated.count() as u64,
        records.load.offset,
        || Place::in_record("LOAD").in_function(function.name),
    );
    let faults = function.track_faults();
    findings.add_faults(&faults, |fault| Some((rule_of(fault)?, "SOURCE_TRACK")));
    let Some(place) = records.debug_info else {
        return;
    };
    let endian = dump.header().endian;
    let content = Records::content(file, place).unwrap_or_default();
    match debug_info::entries(content, function.name, function.range, endian) {
        None => findings.add(&rules::UNREADABLE, place.offset, Place::default),
        Some(entries) => LineChecker {
            entries,
            function: &function,
            bias: dump.quirks().bias,
            place,
            findings,
        }
        .check(endian.u64_at(content, 0)),
    }
}

/// Entries of one DEBUG_INFO record.
struct LineChecker<'l, 'a> {
    entries: Vec<LineEntry<'a>>,
    function: &'l Function<'a>,
    /// Offset that the writer adds to all addresses, in bytes.
    bias: u64,
    place: RecordLocation,
    findings: &'l mut Findings,
}

impl LineChecker<'_, '_> {
    /// Checks the record, whose `code_addr` is `address`.
    fn check(mut self, address: Option<u64>) {
        let start = self.function.range.start;
        if address != Some(start.0) {
            let address = address.unwrap_or(0);
            self.report(&rules::OTHER_ADDRESS, 1, || {
                format!("{address:#x}, and LOAD has {start}")
            });
        }
        let count = |fits: &dyn Fn(&LineEntry<'_>) -> bool| {
            self.entries.iter().filter(|entry| fits(entry)).count() as u64
        };
        let size = i128::from(self.function.range.size());
        let offset = |entry: &LineEntry<'_>| entry.offset(start, self.bias);
        let is_sound = |entry: &LineEntry<'_>| !entry.is_invalid();
        let is_line = |entry: &LineEntry<'_>| is_sound(entry) && !entry.is_end();
        let lines = count(&is_line);
        let repaired = count(&|entry| entry.is_repaired);
        let invalid = count(&|entry| entry.is_invalid());
        let below = count(&|entry| is_line(entry) && offset(entry) < 0);
        let past_end = count(&|entry| is_line(entry) && offset(entry) > size);
        let relative =
            count(&|entry| is_line(entry) && !entry.is_same_name && names::is_relative(entry.name));
        let same = count(&|entry| entry.is_same_name);
        let not_text = count(&|entry| !entry.is_same_name && std::str::from_utf8(entry.name).is_err());
        let nameless = count(&|entry| is_line(entry) && entry.name.is_empty());
        let sound = || self.entries.iter().filter(|entry| is_sound(entry));
        let pairs = sound().zip(sound().skip(1));
        let unsorted = pairs.filter(|(one, next)| next.address < one.address).count() as u64;
        let has_end = self.entries.last().is_some_and(|last| offset(last) >= size);

        let (bias, is_empty) = (self.bias, lines == 0 && invalid == 0);
        let biased = u64::from(bias != 0 && !self.entries.is_empty());
        self.report(&rules::BIASED, biased, || format!("by {bias:#x}"));
        let in_bytecode = if jitdump::names::is_v8_baseline(self.function.name) {
            lines
        } else {
            0
        };
        for (rule, count) in [
            (&jitdump_rules::BYTECODE_OFFSETS, in_bytecode),
            (&rules::DAMAGED_NAMES, repaired),
            (&rules::IMPOSSIBLE_ENTRIES, invalid),
            (&rules::BEFORE_CODE, below),
            (&rules::PAST_CODE, past_end),
            (&rules::UNSORTED, unsorted),
            (&rules::RELATIVE, relative),
            (&rules::SAME_NAME, same),
            (&rules::NO_FILE, nameless),
            (&rules::NAMES_NOT_UTF8, not_text),
        ] {
            self.report(rule, count, || format!("{count} of its entries"));
        }
        self.report(&rules::NO_LINES, u64::from(is_empty), String::new);
        self.report(&rules::NO_END, u64::from(!is_empty && !has_end), String::new);
    }

    fn report(&mut self, rule: &'static CatalogueEntry, count: u64, message: impl FnOnce() -> String) {
        self.findings.add_many(rule, count, self.place.offset, || {
            Place::in_record("DEBUG_INFO")
                .in_function(self.function.name)
                .with_message(message())
        });
    }
}
