//! Samples whose function depends on the error of a clock. Their code has no name, and this is the reason.

use crate::code::samples::{Located, SampleRecord, SampleVisitor};
use crate::code::selection::{SampledCode, Selector};
use crate::code::timeline::FileIndex;
use crate::collections::indexed_table::IndexedTable;

/// Counts the samples in some of the records.
pub struct DoubtfulSamples<'a> {
    selector: &'a Selector<'a>,
    /// By the file of their functions; empty if all times are certain.
    of_files: IndexedTable<FileIndex, u64>,
}

impl<'a> DoubtfulSamples<'a> {
    /// Starts with none.
    pub fn new(selector: &'a Selector<'a>) -> Self {
        Self {
            selector,
            of_files: selector.doubts.of_files.map(|_| 0),
        }
    }

    /// Returns the samples in all records, by the file of their functions.
    pub fn sum(parts: Vec<Self>) -> IndexedTable<FileIndex, u64> {
        let mut parts = parts.into_iter().map(|part| part.of_files);
        let mut sum = parts.next().unwrap_or_default();
        for part in parts {
            for (&other, own) in part.iter().zip(&mut sum) {
                *own = own.saturating_add(other);
            }
        }
        sum
    }
}

impl SampleVisitor for DoubtfulSamples<'_> {
    fn sample(&mut self, located: &Located<SampleRecord<'_>>) {
        if self.of_files.is_empty() {
            return;
        }
        let (Some(space), Some(ip)) = (located.space, located.content.user_ip()) else {
            return;
        };
        let time = located.lookup_time();
        let lookup = self.selector.timeline.at(space, ip, time);
        if let Some(SampledCode::Doubtful(file)) = self.selector.classify_ip(space, ip, time, lookup) {
            let count = &mut self.of_files[file];
            *count = count.saturating_add(1);
        }
    }
}
