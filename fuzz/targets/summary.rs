//! Arbitrary summaries: each is refused, or compares with itself as unchanged and prints safely.

use jitinject::internals::tools::compare::{CompareOptions, ParsedSummary, Verdict, compare};

pub fn run(input: &[u8]) {
    let Ok(summary) = ParsedSummary::parse(input) else {
        return;
    };
    let options = CompareOptions::default();
    let side = std::slice::from_ref(&summary);
    let Ok(compared) = compare(side, side, &options, true) else {
        return;
    };
    let comparison = &compared.comparison;
    assert_eq!(comparison.verdict, Verdict::Unchanged);
    for function in &comparison.functions {
        assert_eq!((function.own.change, function.total.change), (0.0, 0.0));
    }
    let graph = compared.flame_graph.svg("before", "after", "values");
    for text in [comparison.text(0.0), comparison.markdown(0.0), graph] {
        assert!(
            !text
                .chars()
                .any(|character| character.is_control() && character != '\n')
        );
    }
}
