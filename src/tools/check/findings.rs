//! Collection of findings: how often each rule is broken, and the first places.

use std::collections::BTreeMap;

use jitdump::Tally;
use serde::Serialize;

use crate::collections::tally::MAX_OFFSETS;
use crate::results::diagnostics::CatalogueEntry;

/// Maximum number of characters of a name in findings.
pub const MAX_NAME_LENGTH: usize = 200;

/// A place where a rule is broken.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Place {
    /// Offset in the file, or in the decompressed file if it is compressed, in bytes.
    pub offset: u64,
    /// Type of the record at the offset, as the format's specification names it; may be empty.
    pub record: &'static str,
    /// Start of the name of the affected function or type, if it has one. Bytes that are not UTF-8 become replacement
    /// characters.
    pub function: Option<String>,
    /// Details beyond the rule's title; may be empty.
    pub message: String,
}

impl Place {
    /// Creates a place in a record of this type.
    pub(super) fn in_record(record: &'static str) -> Self {
        Self {
            record,
            ..Self::default()
        }
    }

    /// Sets the name of the function or type.
    pub(super) fn in_function(mut self, function: &[u8]) -> Self {
        self.function = Some(truncated_name(function));
        self
    }

    /// Sets the message.
    pub(super) fn with_message(mut self, message: String) -> Self {
        self.message = message;
        self
    }
}

/// All violations of one rule in a file.
#[derive(Clone, Debug)]
pub struct Finding {
    /// The rule.
    pub rule: &'static CatalogueEntry,
    /// Number of violations.
    pub count: u64,
    /// The first places, [`MAX_OFFSETS`] at most, in file order.
    pub places: Vec<Place>,
}

impl Finding {
    /// Adds a place if it is among the first in the file.
    fn add_place(&mut self, offset: u64, describe: impl FnOnce() -> Place) {
        let at = self.places.partition_point(|place| place.offset <= offset);
        if at < MAX_OFFSETS {
            self.places.insert(at, Place { offset, ..describe() });
            self.places.truncate(MAX_OFFSETS);
        }
    }
}

/// Findings of a file while it is checked.
#[derive(Debug, Default)]
pub(super) struct Findings {
    by_id: BTreeMap<&'static str, Finding>,
}

impl Findings {
    /// Adds a violation of a rule at `offset`. `describe` is called only if the place is kept.
    pub fn add(&mut self, rule: &'static CatalogueEntry, offset: u64, describe: impl FnOnce() -> Place) {
        self.add_many(rule, 1, offset, describe);
    }

    /// Adds `count` violations at one place.
    pub fn add_many(
        &mut self,
        rule: &'static CatalogueEntry,
        count: u64,
        offset: u64,
        describe: impl FnOnce() -> Place,
    ) {
        if count == 0 {
            return;
        }
        let finding = self.entry(rule);
        finding.count = finding.count.saturating_add(count);
        finding.add_place(offset, describe);
    }

    /// Adds the faults of a reader. `rule_of` maps a fault to its rule and the type of record; faults without a rule
    /// are ignored.
    pub fn add_faults<K: Ord + Copy>(
        &mut self,
        faults: &Tally<K>,
        rule_of: impl Fn(K) -> Option<(&'static CatalogueEntry, &'static str)>,
    ) {
        for (fault, seen) in faults.iter() {
            let Some((rule, record)) = rule_of(fault) else {
                continue;
            };
            let finding = self.entry(rule);
            finding.count = finding.count.saturating_add(seen.count);
            for &offset in faults.offsets(fault) {
                finding.add_place(offset, || Place::in_record(record));
            }
        }
    }

    fn entry(&mut self, rule: &'static CatalogueEntry) -> &mut Finding {
        self.by_id.entry(rule.id).or_insert_with(|| Finding {
            rule,
            count: 0,
            places: Vec::new(),
        })
    }

    /// Whether a rule is broken.
    pub fn has(&self, rule: &CatalogueEntry) -> bool {
        self.by_id.contains_key(rule.id)
    }

    /// Returns all places, to add details.
    pub fn places_mut(&mut self) -> impl Iterator<Item = &mut Place> {
        self.by_id.values_mut().flat_map(|finding| &mut finding.places)
    }

    /// Returns all findings, the most severe first.
    pub fn finish(self) -> Vec<Finding> {
        let mut findings: Vec<Finding> = self.by_id.into_values().collect();
        findings.sort_by_key(|finding| std::cmp::Reverse(finding.rule.severity));
        findings
    }
}

/// Returns the first [`MAX_NAME_LENGTH`] characters of a name.
pub(super) fn truncated_name(name: &[u8]) -> String {
    // A character has at most four bytes.
    let start = name.get(..MAX_NAME_LENGTH.saturating_mul(4)).unwrap_or(name);
    String::from_utf8_lossy(start)
        .chars()
        .take(MAX_NAME_LENGTH)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::diagnostics::rules::jitdump as rules;

    #[test]
    fn the_first_places_are_kept_and_all_are_counted() {
        let mut findings = Findings::default();
        for offset in [90, 10, 20, 70, 30, 80, 40] {
            findings.add(&rules::UNALIGNED, offset, || {
                Place::in_record("LOAD").in_function(b"f")
            });
        }
        findings.add(&rules::BAD_LOAD, 5, || {
            Place::default().with_message("why".into())
        });
        findings.add_many(&rules::NO_CODE, 0, 5, Place::default);
        let findings = findings.finish();
        let rules = findings.iter().map(|finding| (finding.rule.id, finding.count));
        assert_eq!(rules.collect::<Vec<_>>(), [("JD040", 1), ("JD025", 7)]);
        let places = findings[1].places.iter().map(|place| place.offset);
        assert_eq!(places.collect::<Vec<_>>(), [10, 20, 30, 40, 70]);
    }

    #[test]
    fn of_a_name_only_the_beginning_is_kept() {
        assert_eq!(truncated_name(&[0xff; 5000]).chars().count(), 200);
        assert_eq!(truncated_name("größe".as_bytes()), "größe");
    }
}
