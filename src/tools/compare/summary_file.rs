//! Reads summaries that `jitinject --summary` wrote.

use serde::Deserialize;

use crate::results::diagnostics::{Diagnostic, Issue};
use crate::results::summary::profile::{FunctionProfile, ProfileSummary};
use crate::results::summary::{FORMAT, SampleSummary};

/// Summary of one run, with its profile.
#[derive(Clone, PartialEq, Debug)]
pub struct ParsedSummary {
    /// Name of the profile.
    pub input: String,
    /// Counts of samples.
    pub samples: SampleSummary,
    /// The profile.
    pub profile: ProfileSummary,
}

/// Fields of a summary in JSON.
#[derive(Deserialize)]
struct SummaryFields {
    format: u32,
    input: String,
    samples: SampleSummary,
    #[serde(default)]
    profile: Option<ProfileSummary>,
}

impl ParsedSummary {
    /// Reads a summary in JSON.
    pub fn parse(json: &[u8]) -> Result<Self, Diagnostic> {
        /// Field of all formats.
        #[derive(Deserialize)]
        struct Format {
            format: u32,
        }
        let not_a_summary = |cause| Diagnostic::new(Issue::NotASummary).with("cause", cause);
        let fields: Result<SummaryFields, _> = serde_json::from_slice(json);
        // Other formats may have other fields.
        let format = match &fields {
            Ok(fields) => fields.format,
            Err(_) => {
                serde_json::from_slice::<Format>(json)
                    .map_err(not_a_summary)?
                    .format
            }
        };
        if !(1..=FORMAT).contains(&format) {
            let newer = Diagnostic::new(Issue::SummaryFormat).with("format", format);
            return Err(newer.with("newest", FORMAT));
        }
        if format < FORMAT {
            return Err(Diagnostic::new(Issue::SummaryWithoutProfile));
        }
        let fields = fields.map_err(not_a_summary)?;
        let Some(profile) = fields.profile else {
            return Err(Diagnostic::new(Issue::SummaryWithoutProfile));
        };
        check(&profile)?;
        Ok(Self {
            input: fields.input,
            samples: fields.samples,
            profile,
        })
    }
}

/// Checks all indices and numbers of samples. As callers precede their callees in the tree, it has no cycles.
fn check(profile: &ProfileSummary) -> Result<(), Diagnostic> {
    let inconsistent = |what: &str, index: usize| {
        let cause = format!("{what} {index} refers to an entry that does not exist");
        Err(Diagnostic::new(Issue::SummaryInconsistent).with("cause", cause))
    };
    let functions = profile.functions.len();
    for (index, function) in profile.functions.iter().enumerate() {
        if function
            .callers
            .iter()
            .any(|&(caller, _)| caller as usize >= functions)
        {
            return inconsistent("function", index);
        }
    }
    for (index, node) in profile.stacks.iter().enumerate() {
        if node.function as usize >= functions || node.caller.is_some_and(|caller| caller as usize >= index) {
            return inconsistent("stack", index);
        }
    }
    check_samples(profile)
}

/// Checks that functions and stacks have no more samples of the first event, which is compared, than the profile has.
fn check_samples(profile: &ProfileSummary) -> Result<(), Diagnostic> {
    let most = profile.events.first().map_or(0, |event| event.samples);
    let too_many = |what: String| {
        let cause = format!("{what} more samples than the {most} of the profile");
        Err(Diagnostic::new(Issue::SummaryInconsistent).with("cause", cause))
    };
    let counts = || profile.functions.iter().map(FunctionProfile::counts);
    if let Some(index) = counts().position(|(_, total)| total > most) {
        return too_many(format!("function {index} has"));
    }
    let sum = |all: &mut dyn Iterator<Item = u64>| all.fold(0, u64::saturating_add);
    if sum(&mut counts().map(|(own, _)| own)) > most {
        return too_many("the functions have".to_owned());
    }
    if sum(&mut profile.stacks.iter().map(|node| node.own)) > most {
        return too_many("the call stacks have".to_owned());
    }
    check_periods(profile)
}

/// Checks the same of the periods of samples, where their totals are known.
fn check_periods(profile: &ProfileSummary) -> Result<(), Diagnostic> {
    let most = profile.events.first().map_or(0, |event| event.period);
    let known = || {
        let functions = profile.functions.iter();
        functions.filter(|function| function.total_period.is_known())
    };
    let own = known().fold(0, |sum: u64, function| {
        sum.saturating_add(function.self_period.first())
    });
    let total = known().map(|function| function.total_period.first()).max();
    if own.max(total.unwrap_or_default()) > most {
        let cause = format!("the functions have a larger period than the {most} of the profile");
        Err(Diagnostic::new(Issue::SummaryInconsistent).with("cause", cause))
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::summary::profile::CodeOrigin;
    use crate::results::summary::profile::Unit;

    fn issue(json: &str) -> Issue {
        ParsedSummary::parse(json.as_bytes()).unwrap_err().issue
    }

    fn with_profile(profile: &str) -> String {
        let samples = r#"{"total": 1, "jit": 1, "named_percent": 100.0}"#;
        format!(r#"{{"format": 3, "input": "perf.data", "samples": {samples}, "profile": {profile}}}"#)
    }

    #[test]
    fn files_other_than_summaries_are_refused() {
        assert_eq!(issue("{}"), Issue::NotASummary);
        assert_eq!(issue("\u{7f}ELF"), Issue::NotASummary);
        assert_eq!(issue(r#"{"format": 99}"#), Issue::SummaryFormat);
        assert_eq!(issue(r#"{"format": 3}"#), Issue::NotASummary);
        assert_eq!(issue(r#"{"format": 2}"#), Issue::SummaryWithoutProfile);
        assert_eq!(issue(&with_profile("null")), Issue::SummaryWithoutProfile);
        assert!(ParsedSummary::parse(with_profile("{}").as_bytes()).is_ok());
    }

    #[test]
    fn indices_are_checked() {
        let functions = r#""events": [{"samples": 3}],
            "functions": [{"name": "f"}, {"name": "g", "callers": [[0, 1]]}]"#;
        let accepted = format!(r#"{{{functions}, "stacks": [[-1, 0, 1], [0, 1, 1], [0, 1, 1]]}}"#);
        assert!(ParsedSummary::parse(with_profile(&accepted).as_bytes()).is_ok());
        for stacks in ["[0, 0, 1]", "[1, 0, 1]", "[-2, 0, 1]", "[-1, 2, 1]"] {
            let profile = format!(r#"{{{functions}, "stacks": [{stacks}]}}"#);
            assert_eq!(
                issue(&with_profile(&profile)),
                Issue::SummaryInconsistent,
                "{stacks}"
            );
        }
        let caller = r#"{"functions": [{"name": "f", "callers": [[1, 1]]}]}"#;
        assert_eq!(issue(&with_profile(caller)), Issue::SummaryInconsistent);
    }

    #[test]
    fn samples_are_no_more_than_the_profile_has() {
        let read = |own: [u64; 2], total: u64, stacks: [u64; 2]| {
            let [first, second] = own;
            let profile = format!(
                r#"{{"events": [{{"samples": 100}}], "functions": [
                    {{"name": "f", "self": [{first}], "total": [{total}]}}, {{"name": "g", "self": [{second}]}}],
                    "stacks": [[-1, 0, {}], [0, 1, {}]]}}"#,
                stacks[0], stacks[1]
            );
            ParsedSummary::parse(with_profile(&profile).as_bytes()).map_err(|error| error.issue)
        };
        assert!(read([60, 40], 100, [60, 40]).is_ok());
        for (own, total, stacks) in [
            ([60, 40], 101, [60, 40]),
            ([60, 41], 100, [60, 40]),
            ([60, 40], 100, [60, 41]),
            ([0, 203], 0, [0, 0]),
            ([u64::MAX, 2], 0, [0, 0]),
        ] {
            let refused = read(own, total, stacks).unwrap_err();
            assert_eq!(refused, Issue::SummaryInconsistent, "{own:?} {total} {stacks:?}");
        }
    }

    #[test]
    fn periods_are_no_more_than_the_profile_has() {
        let read = |own: [u64; 2], total: u64| {
            let [first, second] = own;
            let profile = format!(
                r#"{{"events": [{{"samples": 2, "period": 100}}], "functions": [
                    {{"name": "f", "self_period": [{first}], "total_period": [{total}]}},
                    {{"name": "g", "self_period": [{second}], "total_period": [0]}}]}}"#
            );
            ParsedSummary::parse(with_profile(&profile).as_bytes()).map_err(|error| error.issue)
        };
        assert!(read([60, 40], 100).is_ok());
        for (own, total) in [([60, 41], 100), ([60, 40], 101), ([u64::MAX, 2], 0)] {
            let refused = read(own, total).unwrap_err();
            assert_eq!(refused, Issue::SummaryInconsistent, "{own:?} {total}");
        }
    }

    #[test]
    fn numbers_of_each_event_are_optional() {
        let profile = r#"{"functions": [{"name": "f", "kind": "new kind", "self": [], "total": [3, 4]}],
            "events": [{"unit": "ns", "samples": 3}, {"unit": "bytes"}]}"#;
        let summary = ParsedSummary::parse(with_profile(profile).as_bytes()).unwrap();
        assert_eq!(summary.profile.functions[0].counts(), (0, 3));
        assert_eq!(summary.profile.functions[0].kind, CodeOrigin::Unknown);
        let units: Vec<Unit> = summary.profile.events.iter().map(|event| event.unit).collect();
        assert_eq!(units, [Unit::Nanoseconds, Unit::Occurrences]);
    }
}
