//! Collecting what is found: each rule with how often it was broken, and the first places.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::check::rules::Rule;
use crate::tally::{MAX_PLACES, Tally};

/// How many characters of a name are kept: enough to know it by.
pub const MAX_SHOWN_NAME: usize = 200;

/// A place where a rule is broken.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Place {
    /// Bytes from the start of the file; of the unpacked one, if it is packed.
    pub offset: u64,
    /// The type of the record there, as the format's description calls it; empty where there is none.
    pub record: &'static str,
    /// The name of the function that it is about, or of the type of objects: its beginning, as it is in the file.
    /// Replacement characters stand for what is not UTF-8.
    pub function: Option<String>,
    /// What is wrong there, beyond what the rule says; may be empty.
    pub message: String,
}

impl Place {
    /// A place of which the record is known.
    pub(super) fn at(record: &'static str) -> Self {
        Self {
            record,
            ..Self::default()
        }
    }

    /// About a function or type of this name.
    pub(super) fn of(mut self, function: &[u8]) -> Self {
        self.function = Some(shown_name(function));
        self
    }

    /// What there is to be said.
    pub(super) fn saying(mut self, message: String) -> Self {
        self.message = message;
        self
    }
}

/// What is wrong with a file in one way.
#[derive(Clone, Debug)]
pub struct Finding {
    /// In which.
    pub rule: &'static Rule,
    /// How often.
    pub count: u64,
    /// The first places, [`MAX_PLACES`] at most, in the order of the file.
    pub places: Vec<Place>,
}

impl Finding {
    /// Keeps a place, if there are not enough before it.
    fn keep(&mut self, offset: u64, describe: impl FnOnce() -> Place) {
        let at = self.places.partition_point(|place| place.offset <= offset);
        if at < MAX_PLACES {
            self.places.insert(at, Place { offset, ..describe() });
            self.places.truncate(MAX_PLACES);
        }
    }
}

/// The findings of a file, while they are collected.
#[derive(Debug, Default)]
pub(super) struct Findings {
    by_id: BTreeMap<&'static str, Finding>,
}

impl Findings {
    /// Notes that a rule is broken at `offset`. `describe` is asked only for the places that are the first so far.
    pub fn add(&mut self, rule: &'static Rule, offset: u64, describe: impl FnOnce() -> Place) {
        self.add_many(rule, 1, offset, describe);
    }

    /// The same of `count` times at one place.
    pub fn add_many(
        &mut self,
        rule: &'static Rule,
        count: u64,
        offset: u64,
        describe: impl FnOnce() -> Place,
    ) {
        if count == 0 {
            return;
        }
        let finding = self.entry(rule);
        finding.count = finding.count.saturating_add(count);
        finding.keep(offset, describe);
    }

    /// Notes what a reader has told, by the rule that each fault breaks, and the type of what it is met in.
    pub fn add_faults<K: Ord + Copy>(
        &mut self,
        faults: &Tally<K>,
        rule_of: impl Fn(K) -> Option<(&'static Rule, &'static str)>,
    ) {
        for (fault, seen) in faults.iter() {
            let Some((rule, record)) = rule_of(fault) else {
                continue;
            };
            let finding = self.entry(rule);
            finding.count = finding.count.saturating_add(seen.count);
            for &offset in faults.places(fault) {
                finding.keep(offset, || Place::at(record));
            }
        }
    }

    fn entry(&mut self, rule: &'static Rule) -> &mut Finding {
        self.by_id.entry(rule.id).or_insert_with(|| Finding {
            rule,
            count: 0,
            places: Vec::new(),
        })
    }

    /// All places that will be shown, to be told more of.
    pub fn places_mut(&mut self) -> impl Iterator<Item = &mut Place> {
        self.by_id.values_mut().flat_map(|finding| &mut finding.places)
    }

    /// All of them, the worst first.
    pub fn finish(self) -> Vec<Finding> {
        let mut findings: Vec<Finding> = self.by_id.into_values().collect();
        findings.sort_by_key(|finding| std::cmp::Reverse(finding.rule.severity));
        findings
    }
}

/// A name as it is kept.
pub(super) fn shown_name(name: &[u8]) -> String {
    // A character has four bytes at most.
    let start = name.get(..MAX_SHOWN_NAME.saturating_mul(4)).unwrap_or(name);
    String::from_utf8_lossy(start)
        .chars()
        .take(MAX_SHOWN_NAME)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::rules::jitdump as rules;

    #[test]
    fn the_first_places_are_kept_and_all_are_counted() {
        let mut findings = Findings::default();
        for offset in [90, 10, 20, 70, 30, 80, 40] {
            findings.add(&rules::UNALIGNED, offset, || Place::at("LOAD").of(b"f"));
        }
        findings.add(&rules::BAD_LOAD, 5, || Place::default().saying("why".into()));
        findings.add_many(&rules::NO_CODE, 0, 5, Place::default);
        let findings = findings.finish();
        let rules = findings.iter().map(|finding| (finding.rule.id, finding.count));
        assert_eq!(rules.collect::<Vec<_>>(), [("JD040", 1), ("JD025", 7)]);
        let places = findings[1].places.iter().map(|place| place.offset);
        assert_eq!(places.collect::<Vec<_>>(), [10, 20, 30, 40, 70]);
    }

    #[test]
    fn of_a_name_only_the_beginning_is_kept() {
        assert_eq!(shown_name(&[0xff; 5000]).chars().count(), MAX_SHOWN_NAME);
        assert_eq!(shown_name("größe".as_bytes()), "größe");
    }
}
