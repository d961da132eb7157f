//! Reads summaries that `jitinject --summary` wrote.

use std::collections::BTreeMap;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, SeqAccess, Visitor};

use crate::diagnostics::{Diagnostic, Issue};

/// Newest format of summaries that can be read.
pub const NEWEST_FORMAT: u32 = 3;

/// Summary of one run, with its profile.
#[derive(Clone, PartialEq, Debug)]
pub struct ParsedSummary {
    /// Name of the profile.
    pub input: String,
    /// Version of jitinject that wrote it, if known.
    pub version: Option<String>,
    /// Counts of samples.
    pub samples: SampleCounts,
    /// The profile.
    pub profile: RecordedProfile,
}

/// Fields of a summary in JSON.
#[derive(Deserialize)]
struct SummaryFields {
    format: u32,
    input: String,
    #[serde(default)]
    version: Option<String>,
    samples: SampleCounts,
    #[serde(default)]
    profile: Option<RecordedProfile>,
}

/// Counts of samples.
#[derive(Clone, PartialEq, Debug, Deserialize)]
pub struct SampleCounts {
    /// All samples.
    pub total: u64,
    /// Samples in JIT code.
    pub jit: u64,
    /// Share of samples with a name, in percent of those in JIT code.
    pub named_percent: f64,
    /// JIT code anywhere in the stacks.
    #[serde(default)]
    pub in_stacks: Option<StackCounts>,
}

/// Counts of JIT code anywhere in the stacks.
#[derive(Clone, PartialEq, Debug, Deserialize)]
pub struct StackCounts {
    /// Samples with JIT code in their stack.
    #[serde(default)]
    pub samples: u64,
    /// Share of frames in JIT code that have a name, in percent.
    pub named_percent: f64,
}

/// What was recorded.
#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
pub struct RecordedProfile {
    /// Recorded command.
    #[serde(default)]
    pub command: Vec<String>,
    /// Name of the machine.
    #[serde(default)]
    pub host: Option<String>,
    /// Machine type.
    #[serde(default)]
    pub arch: Option<String>,
    /// CPU time of the run, in nanoseconds.
    #[serde(default)]
    pub cpu_time_ns: Option<u64>,
    /// Labels of `--label`.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// Recorded events.
    #[serde(default)]
    pub events: Vec<RecordedEvent>,
    /// Threads with samples.
    #[serde(default)]
    pub threads: Vec<RecordedThread>,
    /// Functions with samples.
    #[serde(default)]
    pub functions: Vec<RecordedFunction>,
    /// Call tree of the first event, in preorder.
    #[serde(default)]
    pub stacks: Vec<StackNode>,
}

/// A recorded event.
#[derive(Clone, PartialEq, Debug, Deserialize)]
pub struct RecordedEvent {
    /// Name of the event.
    #[serde(default)]
    pub name: String,
    /// Unit of its period.
    #[serde(default)]
    pub unit: Unit,
    /// Number of its samples.
    #[serde(default)]
    pub samples: u64,
    /// Sum of the samples' periods.
    #[serde(default)]
    pub period: u64,
}

/// Unit of an event's period.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(from = "String")]
pub enum Unit {
    /// Nanoseconds of CPU time.
    Nanoseconds,
    /// Cycles of a processor.
    Cycles,
    /// Occurrences of the event.
    #[default]
    Count,
}

impl From<String> for Unit {
    fn from(name: String) -> Self {
        match &*name {
            "ns" => Self::Nanoseconds,
            "cycles" => Self::Cycles,
            _ => Self::Count,
        }
    }
}

/// A thread with samples.
#[derive(Clone, PartialEq, Debug, Deserialize)]
pub struct RecordedThread {
    /// Its process.
    #[serde(default)]
    pub pid: i64,
}

/// Functions of one name and tier.
#[derive(Clone, PartialEq, Debug, Deserialize)]
pub struct RecordedFunction {
    /// Name; for code without a symbol, that of its module.
    pub name: String,
    /// Kind of its code.
    #[serde(default)]
    pub kind: Kind,
    /// Runtime that compiled it.
    #[serde(default)]
    pub runtime: Option<String>,
    /// Source file.
    #[serde(default)]
    pub file: Option<String>,
    /// Line of its declaration.
    #[serde(default)]
    pub line: Option<u32>,
    /// Compiler tier.
    #[serde(default)]
    pub tier: Option<String>,
    /// Executable or library that it belongs to.
    #[serde(default)]
    pub module: Option<String>,
    /// Size of its code in bytes.
    #[serde(default)]
    pub size: Option<u64>,
    /// Samples in it, by event.
    #[serde(default, rename = "self")]
    pub own: EventCounts,
    /// Samples with it in their stack, by event.
    #[serde(default)]
    pub total: EventCounts,
    /// Most frequent callers: their indices and their numbers of samples.
    #[serde(default)]
    pub callers: Vec<(usize, u64)>,
}

impl RecordedFunction {
    /// Returns the samples of the first event in the function, and those with it in their stack.
    pub fn counts(&self) -> (u64, u64) {
        let (own, total) = (self.own.first, self.total.first);
        (own, total.max(own))
    }
}

/// Number of the first event, from a list of all or, of many events, an object with those other than 0 by index.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct EventCounts {
    first: u64,
}

impl<'de> Deserialize<'de> for EventCounts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(EventCountsVisitor)
    }
}

struct EventCountsVisitor;

impl<'de> Visitor<'de> for EventCountsVisitor {
    type Value = EventCounts;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a list of numbers or an object")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut counts: A) -> Result<EventCounts, A::Error> {
        let first = counts.next_element()?.unwrap_or_default();
        while counts.next_element::<u64>()?.is_some() {}
        Ok(EventCounts { first })
    }

    fn visit_map<A: MapAccess<'de>>(self, mut counts: A) -> Result<EventCounts, A::Error> {
        let mut first = 0;
        while let Some((event, count)) = counts.next_entry::<u32, u64>()? {
            if event == 0 {
                first = count;
            }
        }
        Ok(EventCounts { first })
    }
}

/// Kind of code.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Deserialize, serde::Serialize,
)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Code of a JIT compiler.
    Jit,
    /// Code of an executable or library, with a symbol.
    Native,
    /// Code of the kernel.
    Kernel,
    /// Code of an executable or library, without a symbol.
    Module,
    /// Other code.
    #[default]
    #[serde(other)]
    Unknown,
}

/// A node of the call tree.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(from = "(i64, usize, u64)")]
pub struct StackNode {
    /// Index of the caller's node; `None` for a root.
    pub parent: Option<usize>,
    /// Index of the function.
    pub function: usize,
    /// Samples in it.
    pub own: u64,
}

impl From<(i64, usize, u64)> for StackNode {
    fn from((parent, function, own): (i64, usize, u64)) -> Self {
        // -1 marks a root. Other negative numbers become an index that the checks reject.
        let index = |parent| usize::try_from(parent).unwrap_or(usize::MAX);
        Self {
            parent: (parent != -1).then(|| index(parent)),
            function,
            own,
        }
    }
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
        if !(1..=NEWEST_FORMAT).contains(&format) {
            let newer = Diagnostic::new(Issue::SummaryFormat).with("format", format);
            return Err(newer.with("newest", NEWEST_FORMAT));
        }
        if format < NEWEST_FORMAT {
            return Err(Diagnostic::new(Issue::SummaryWithoutProfile));
        }
        let fields = fields.map_err(not_a_summary)?;
        let Some(profile) = fields.profile else {
            return Err(Diagnostic::new(Issue::SummaryWithoutProfile));
        };
        check(&profile)?;
        Ok(Self {
            input: fields.input,
            version: fields.version,
            samples: fields.samples,
            profile,
        })
    }
}

/// Checks all indices and numbers of samples. As callers precede their callees in the tree, it has no cycles.
fn check(profile: &RecordedProfile) -> Result<(), Diagnostic> {
    let inconsistent = |what: &str, index: usize| {
        let cause = format!("{what} {index} refers to an entry that does not exist");
        Err(Diagnostic::new(Issue::SummaryInconsistent).with("cause", cause))
    };
    let functions = profile.functions.len();
    for (index, function) in profile.functions.iter().enumerate() {
        if function.callers.iter().any(|&(caller, _)| caller >= functions) {
            return inconsistent("function", index);
        }
    }
    for (index, node) in profile.stacks.iter().enumerate() {
        if node.function >= functions || node.parent.is_some_and(|parent| parent >= index) {
            return inconsistent("stack", index);
        }
    }
    check_samples(profile)
}

/// Checks that functions and stacks have no more samples of the first event, which is compared, than the profile has.
fn check_samples(profile: &RecordedProfile) -> Result<(), Diagnostic> {
    let most = profile.events.first().map_or(0, |event| event.samples);
    let too_many = |what: String| {
        let cause = format!("{what} more samples than the {most} of the profile");
        Err(Diagnostic::new(Issue::SummaryInconsistent).with("cause", cause))
    };
    let counts = || profile.functions.iter().map(RecordedFunction::counts);
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
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn numbers_of_events_may_be_lists_or_objects() {
        let counts = |own: &str| {
            let function = format!(r#"{{"name": "f", "self": {own}, "total": {own}}}"#);
            let profile = format!(r#"{{"events": [{{"samples": 7}}], "functions": [{function}]}}"#);
            let summary = ParsedSummary::parse(with_profile(&profile).as_bytes()).unwrap();
            summary.profile.functions[0].counts()
        };
        let all = ["[]", "[7, 1]", "{}", r#"{"1": 2}"#, r#"{"0": 7, "70": 2}"#];
        assert_eq!(all.map(counts), [(0, 0), (7, 7), (0, 0), (0, 0), (7, 7)]);
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
    fn numbers_of_each_event_are_optional() {
        let profile = r#"{"functions": [{"name": "f", "kind": "new kind", "self": [], "total": [3, 4]}],
            "events": [{"unit": "ns", "samples": 3}, {"unit": "bytes"}]}"#;
        let summary = ParsedSummary::parse(with_profile(profile).as_bytes()).unwrap();
        assert_eq!(summary.profile.functions[0].counts(), (0, 3));
        assert_eq!(summary.profile.functions[0].kind, Kind::Unknown);
        let units: Vec<Unit> = summary.profile.events.iter().map(|event| event.unit).collect();
        assert_eq!(units, [Unit::Nanoseconds, Unit::Count]);
    }
}
