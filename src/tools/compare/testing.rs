//! Summaries for tests.

// The tests of the command use the rest.
#[allow(dead_code)]
#[path = "../../../tests/support/summaries.rs"]
mod summaries;

pub use self::summaries::Profile;
use crate::tools::compare::matching::{AFTER, BEFORE, Table};
use crate::tools::compare::summary_file::ParsedSummary;

impl Profile {
    /// Returns the summary as it is read.
    pub fn parse(&self) -> ParsedSummary {
        ParsedSummary::parse(&self.json()).unwrap()
    }
}

/// Returns the names of a table's functions, with the samples in them on both sides.
pub fn names(table: &Table<'_>) -> Vec<(String, u64, u64)> {
    let own = |row, side| table.side_counts(row, side).own;
    let rows = table.live_rows();
    rows.map(|(row, function)| (function.name.clone(), own(row, BEFORE), own(row, AFTER)))
        .collect()
}
