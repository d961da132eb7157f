//! Summaries for tests.

// The tests of the command use the rest.
#[allow(dead_code)]
#[path = "../../../tests/support/summaries.rs"]
mod summaries;

pub use self::summaries::Profile;
use crate::results::summary::profile::CodeOrigin;
use crate::tools::compare::matching::{AFTER, BEFORE, RunTable};
use crate::tools::compare::summary_file::ParsedSummary;
use crate::tools::compare::{CompareOptions, Comparison, Estimate, FunctionChange, MatchedFunction, compare};

impl Profile {
    /// Returns the summary as it is read.
    pub fn parse(&self) -> ParsedSummary {
        ParsedSummary::parse(&self.json()).unwrap()
    }
}

/// Returns the names of a table's functions, with the samples in them on both sides.
pub fn names(table: &RunTable<'_>) -> Vec<(String, u64, u64)> {
    let own = |row, side| table.side_counts(row, side).0;
    let rows = table.live_rows();
    rows.map(|(row, function)| (function.name.clone(), own(row, BEFORE), own(row, AFTER)))
        .collect()
}

/// Returns functions `f0`, `f1` and so on, whose own time and total rose from 1 percent to 2.
pub fn changes(count: usize, is_significant: bool) -> Vec<FunctionChange> {
    let estimate = Estimate {
        before: 1.0,
        after: 2.0,
        change: 1.0,
        margin: None,
        is_significant,
    };
    let change = |number: usize| FunctionChange {
        function: MatchedFunction {
            name: format!("f{number}"),
            previous: None,
            kind: CodeOrigin::Jit,
            runtime: None,
            file: None,
            line: None,
            module: None,
            is_current: true,
        },
        own: estimate,
        total: estimate,
        tiers: Vec::new(),
        explanation: None,
    };
    (0..count).map(change).collect()
}

/// Returns a comparison with these functions.
pub fn comparison(functions: Vec<FunctionChange>) -> Comparison {
    let run = [Profile::new(1000).parse()];
    let compared = compare(&run, &run, &CompareOptions::default(), false).unwrap();
    Comparison {
        functions,
        ..compared.comparison
    }
}
