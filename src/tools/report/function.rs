//! One function: its tiers, lines, callers and callees.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use jitdump::Tally;
use serde::Serialize;

use crate::frames::ranking::RankedRow;
use crate::frames::ranking::counts::{SamplesByStack, StackSamples};
use crate::frames::stream::call_tree::Weight;
use crate::frames::stream::tables::{Call, NamedFunctionIndex, SourceFileIndex};
use crate::frames::stream::{Kind, StreamOptions, Tables};
use crate::results::diagnostics::Issue;
use crate::tools::excerpts::{SourceText, WantedLines};
use crate::tools::report::ReportOptions;
use crate::tools::report::instructions::FunctionCode;
use crate::tools::report::text::described;
use crate::tools::source_texts::Texts;

/// Default number of tiers, callers and callees that are listed, and of other functions of a similar name.
pub const MOST_LISTED: usize = 10;

/// Lines without samples that are shown before and after one with samples.
const CONTEXT: u32 = 2;

/// Lines that are shown: those with most samples, and then those around them.
const MAX_LINES: usize = 400;

/// What is shown of a single function.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct FunctionReport {
    /// Its samples.
    pub row: RankedRow,
    /// Samples in its own code by compiler tier.
    pub tiers: Vec<Share>,
    /// Number of tiers that are left out.
    pub tiers_omitted: u64,
    /// Source lines with samples, and those around them if their text is known.
    pub lines: Vec<SourceLine>,
    /// Number of lines that are left out, because there are too many.
    pub lines_omitted: u64,
    /// Samples in its code without a line, if other code of it has lines.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub no_line: Option<LineShare>,
    /// Functions that call it, with the samples below each: for a function of the language, those of the language, if there are any.
    pub callers: Vec<Share>,
    /// Number of callers that are left out.
    pub callers_omitted: u64,
    /// Functions that it calls, with the samples below each, chosen likewise.
    pub callees: Vec<Share>,
    /// Number of callees that are left out.
    pub callees_omitted: u64,
    /// Machine code, if asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<FunctionCode>,
    /// Other functions that the name may mean.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub others: Vec<String>,
    /// Number of other functions that are left out.
    pub others_omitted: u64,
}

/// Samples of something.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Share {
    /// Its name.
    pub name: String,
    /// Samples.
    pub samples: Weight,
}

/// Samples of a source line, or of code that has none.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct LineShare {
    /// Samples in the code itself.
    #[serde(rename = "self")]
    pub own: Weight,
    /// Samples in it and in what it calls.
    pub total: Weight,
}

/// A source line.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct SourceLine {
    /// File.
    pub file: String,
    /// Number, from 1.
    pub line: u32,
    /// Samples in the line itself.
    #[serde(rename = "self")]
    pub own: Weight,
    /// Samples in it and in what it calls.
    pub total: Weight,
    /// Text, if known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
}

/// Samples of the lines of a function.
type Lines = BTreeMap<(SourceFileIndex, u32), LineShare>;

/// Reports the function that `name` means: the hottest of those with that name or, if there is none, of those that contain it, or
/// have this symbol. `rows` are those of all functions. Lists of kept sources that cannot be read are counted in `faults`.
pub fn report(
    tables: &Tables,
    counts: &SamplesByStack,
    event: u32,
    rows: &[RankedRow],
    name: &str,
    options: &ReportOptions,
    faults: &mut Tally<Issue>,
) -> Option<FunctionReport> {
    let most = options.rows.unwrap_or(MOST_LISTED);
    let found = meant(tables, rows, name);
    let (&row, others) = found.split_first()?;
    let others_omitted = others.len().saturating_sub(most) as u64;
    let others = others.iter().take(most).map(|row| described(row)).collect();
    let shares = Shares::of(tables, counts, event, row);
    let (lines, lines_omitted) = source_lines(tables, &shares.lines, &options.stream, faults);
    let has_no_line = shares.no_line.total.samples > 0 && !lines.is_empty();
    let (tiers, tiers_omitted) = largest(shares.tiers, most);
    let (callers, callers_omitted) = largest(shares.callers, most);
    let (callees, callees_omitted) = largest(shares.callees, most);
    Some(FunctionReport {
        row: row.clone(),
        tiers,
        tiers_omitted,
        lines,
        lines_omitted,
        no_line: has_no_line.then_some(shares.no_line),
        callers,
        callers_omitted,
        callees,
        callees_omitted,
        code: None,
        others,
        others_omitted,
    })
}

/// Returns the rows that `name` means, in their order: those with that name, else those that contain it, else those with this
/// symbol.
fn meant<'r>(tables: &Tables, rows: &'r [RankedRow], name: &str) -> Vec<&'r RankedRow> {
    let with_name: Vec<&RankedRow> = rows.iter().filter(|row| row.name == name).collect();
    if !with_name.is_empty() {
        return with_name;
    }
    let part = with_single_spaces(name);
    let has_part = |row: &&RankedRow| with_single_spaces(&described(row)).contains(&part);
    let with_part: Vec<&RankedRow> = rows.iter().filter(has_part).collect();
    if !with_part.is_empty() {
        return with_part;
    }
    let functions = of_symbol(tables, name);
    let has_symbol = |row: &&RankedRow| row.functions.iter().any(|function| functions.contains(function));
    rows.iter().filter(has_symbol).collect()
}

/// Returns a text as it is copied from a terminal or a browser.
fn with_single_spaces(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Returns the functions with a symbol, as perf shows it.
fn of_symbol(tables: &Tables, name: &str) -> BTreeSet<NamedFunctionIndex> {
    let frames = tables.frames.iter();
    let found = frames.filter(|frame| {
        let symbol = frame.symbol.map(|symbol| &tables.symbols[symbol]);
        symbol.is_some_and(|symbol| symbol.name == name)
    });
    found
        .filter_map(|frame| frame.lines.last())
        .map(|line| line.function)
        .collect()
}

/// Samples by what the function has and calls.
#[derive(Default)]
struct Shares {
    tiers: BTreeMap<String, Weight>,
    lines: Lines,
    /// Of code without a line.
    no_line: LineShare,
    callers: BTreeMap<String, Weight>,
    callees: BTreeMap<String, Weight>,
}

impl Shares {
    /// Counts the samples of the functions in `row` by line, tier, caller and callee. Each sample counts once for each of these.
    fn of(tables: &Tables, counts: &SamplesByStack, event: u32, row: &RankedRow) -> Self {
        let is_it = |function: NamedFunctionIndex| row.functions.contains(&function);
        // Between two functions of the language there may be an interpreter, or built-in code.
        let skips_native = row.kind == Some(Kind::Language);
        let is_language = |&function: &NamedFunctionIndex| tables.functions[function].kind == Kind::Language;
        // Returns what it calls or is called by, of the functions on that side of it in a stack, the nearest first.
        let nearest = |side: &mut dyn Iterator<Item = NamedFunctionIndex>| {
            let mut side = side.peekable();
            let next = side.peek().copied();
            let language = skips_native.then(|| side.find(is_language)).flatten();
            let other = language.or(next).filter(|&other| !is_it(other))?;
            Some(named(tables, other))
        };
        let mut shares = Self::default();
        for StackSamples { stack, weight, .. } in counts.of_event(event) {
            let calls: Vec<Call> = tables.calls(stack).collect();
            if let Some(leaf) = calls.first().filter(|leaf| is_it(leaf.line.function)) {
                shares.add_own(tables, leaf, weight);
            }
            // Sets: of a recursive function, a stack may have each several times.
            let (mut lines, mut callers, mut callees) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
            let mut has_no_line = false;
            for (at, call) in calls.iter().enumerate() {
                if !is_it(call.line.function) {
                    continue;
                }
                let line = line_of(call);
                has_no_line |= line.is_none();
                lines.extend(line);
                let (inner, outer) = calls.split_at(at);
                let (inner, outer) = (inner.iter().rev(), outer.iter().skip(1));
                callees.extend(nearest(&mut inner.map(|call| call.line.function)));
                callers.extend(nearest(&mut outer.map(|call| call.line.function)));
            }
            for line in lines {
                shares.lines.entry(line).or_default().total.add(weight);
            }
            if has_no_line {
                shares.no_line.total.add(weight);
            }
            for (set, shares) in [(callers, &mut shares.callers), (callees, &mut shares.callees)] {
                for name in set {
                    shares.entry(name).or_default().add(weight);
                }
            }
        }
        shares
    }

    /// Counts samples of the function's own code.
    fn add_own(&mut self, tables: &Tables, leaf: &Call, weight: Weight) {
        let share = match line_of(leaf) {
            Some(line) => self.lines.entry(line).or_default(),
            None => &mut self.no_line,
        };
        share.own.add(weight);
        if let Some(tier) = tables.frames[leaf.frame].tier {
            let tier = tables.tiers[tier].clone();
            self.tiers.entry(tier).or_default().add(weight);
        }
    }
}

/// Returns the file and line of a call, if both are known.
fn line_of(call: &Call) -> Option<(SourceFileIndex, u32)> {
    let line = call.line.line;
    Some((call.line.file.filter(|_| line > 0)?, line))
}

/// Returns a function as text.
fn named(tables: &Tables, function: NamedFunctionIndex) -> String {
    let function = &tables.functions[function];
    match function.kind {
        Kind::Kernel => format!("{} [kernel]", function.name),
        _ => described(&RankedRow::of_function(tables, function)),
    }
}

/// Returns the largest shares, and how many are left out.
fn largest(shares: BTreeMap<String, Weight>, most: usize) -> (Vec<Share>, u64) {
    let shares = shares.into_iter();
    let mut shares: Vec<Share> = shares.map(|(name, samples)| Share { name, samples }).collect();
    shares.sort_by_key(|share| Reverse(share.samples.period));
    let omitted = shares.len().saturating_sub(most);
    shares.truncate(most);
    (shares, omitted as u64)
}

/// Returns the lines with samples, and those around them whose text is known; and how many of them are left out.
fn source_lines(
    tables: &Tables,
    lines: &Lines,
    options: &StreamOptions,
    faults: &mut Tally<Issue>,
) -> (Vec<SourceLine>, u64) {
    let mut texts = texts_of(tables, lines, options, faults);
    let is_near = |&(file, line): &(SourceFileIndex, u32)| {
        let around = (file, line.saturating_sub(CONTEXT))..=(file, line.saturating_add(CONTEXT));
        lines.range(around).next().is_some()
    };
    let with_text = texts.keys().copied().filter(is_near);
    let shown: BTreeSet<(SourceFileIndex, u32)> = lines.keys().copied().chain(with_text).collect();
    let (shown, omitted) = most_sampled(shown.into_iter().collect(), lines);
    let shown = shown.into_iter().map(|(file, line)| {
        let LineShare { own, total } = lines.get(&(file, line)).copied().unwrap_or_default();
        SourceLine {
            file: tables.files[file].path.clone(),
            line,
            own,
            total,
            text: texts.remove(&(file, line)),
        }
    });
    (shown.collect(), omitted)
}

/// Returns the texts of lines, and of some around them, as far as their files can be read.
fn texts_of(
    tables: &Tables,
    lines: &Lines,
    options: &StreamOptions,
    faults: &mut Tally<Issue>,
) -> BTreeMap<(SourceFileIndex, u32), String> {
    let files: BTreeSet<SourceFileIndex> = lines.keys().map(|&(file, _)| file).collect();
    let files: Vec<SourceFileIndex> = files.into_iter().collect();
    let sources: Vec<SourceText> = files
        .iter()
        .map(|&file| {
            let file = &tables.files[file];
            SourceText {
                name: file.name.clone(),
                text: file.text.clone(),
            }
        })
        .collect();
    let numbers = |file: SourceFileIndex| {
        lines
            .range((file, 0)..=(file, u32::MAX))
            .map(|(&(_, line), _)| line)
    };
    let wanted: Vec<WantedLines> = (0..)
        .zip(&files)
        .map(|(at, &file)| WantedLines {
            file: at,
            lines: numbers(file).collect(),
        })
        .collect();
    let mut texts = Texts::new(&options.load, &options.sources);
    let excerpts = texts.excerpts(&sources, &wanted);
    // Lines without text show by themselves which files were not read.
    let unread_lists = texts.faults.count(Issue::SourceListUnread);
    faults.add_many(Issue::SourceListUnread, unread_lists, 0);
    let mut of_lines: BTreeMap<(SourceFileIndex, u32), String> = BTreeMap::new();
    for excerpt in excerpts {
        if let Some(&file) = files.get(excerpt.file as usize) {
            of_lines.extend((excerpt.first..).map(|line| (file, line)).zip(excerpt.text));
        }
    }
    of_lines
}

/// Leaves the lines with most samples of a sorted list that is too long. Returns them, and how many it has left out.
fn most_sampled(mut all: Vec<(SourceFileIndex, u32)>, lines: &Lines) -> (Vec<(SourceFileIndex, u32)>, u64) {
    let omitted = all.len().saturating_sub(MAX_LINES);
    if omitted > 0 {
        all.sort_by_key(|at| {
            let samples = lines.get(at);
            Reverse(samples.map(|share| (share.own.period, share.total.period)))
        });
        all.truncate(MAX_LINES);
        all.sort_unstable();
    }
    (all, omitted as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frames::source_files::SourceName;
    use crate::frames::stream::tables::File;

    #[test]
    fn of_too_many_lines_those_with_most_samples_are_shown() {
        let at = |line| (SourceFileIndex(0), line);
        let samples = |period| {
            let mut weight = Weight::default();
            weight.add(Weight { samples: 1, period });
            LineShare {
                own: weight,
                total: weight,
            }
        };
        // The last ones have most samples, and every second line has none.
        let lines: Lines = (0..300)
            .map(|line| (at(2 * line), samples(1 + u64::from(line))))
            .collect();
        let all = |count| (0..count).map(at).collect::<Vec<_>>();
        assert_eq!(most_sampled(all(400), &lines), (all(400), 0));
        let (shown, omitted) = most_sampled(all(599), &lines);
        assert_eq!((shown.len(), omitted), (400, 199));
        assert!(lines.keys().all(|line| shown.contains(line)) && shown.is_sorted());
        let many: Lines = (0..500)
            .map(|line| (at(line), samples(1 + u64::from(line))))
            .collect();
        let (shown, _) = most_sampled(all(500), &many);
        assert_eq!(shown, (100..500).map(at).collect::<Vec<_>>());
    }

    #[test]
    fn the_ten_largest_shares_and_ten_other_functions_are_listed_and_the_rest_counted() {
        let shares = |count: u64| {
            let shares = (1..=count).map(|period| (period.to_string(), Weight { samples: 1, period }));
            let (largest, omitted) = largest(shares.collect(), MOST_LISTED);
            let periods = largest.iter().map(|share| share.samples.period);
            (periods.collect::<Vec<u64>>(), omitted)
        };
        assert_eq!(shares(10), ((1..=10).rev().collect(), 0));
        assert_eq!(shares(13), ((4..=13).rev().collect(), 3));
        let others = |count| {
            let row = |line| RankedRow {
                name: "work".to_owned(),
                line: Some(line),
                ..RankedRow::default()
            };
            let rows: Vec<RankedRow> = (0..=count).map(row).collect();
            let (tables, counts) = (Tables::default(), SamplesByStack::default());
            let (options, mut faults) = (ReportOptions::default(), Tally::default());
            let report = report(&tables, &counts, 0, &rows, "work", &options, &mut faults);
            let report = report.unwrap();
            (report.others.len(), report.others_omitted)
        };
        assert_eq!([10, 13].map(others), [(10, 0), (10, 3)]);
    }

    #[test]
    fn lines_are_shown_with_two_before_and_after() {
        let mut tables = Tables::default();
        let text: Vec<u8> = (1..=30)
            .flat_map(|line| format!("line {line}\n").into_bytes())
            .collect();
        let file = tables.files.push(File {
            path: "work.js".to_owned(),
            name: SourceName {
                owner: 0,
                path: b"work.js".to_vec(),
                script: None,
            },
            text: Some(text),
        });
        let lines = Lines::from([((file, 10), LineShare::default())]);
        let (shown, omitted) =
            source_lines(&tables, &lines, &StreamOptions::default(), &mut Tally::default());
        let shown: Vec<&str> = shown.iter().filter_map(|line| line.text.as_deref()).collect();
        assert_eq!(shown, ["line 8", "line 9", "line 10", "line 11", "line 12"]);
        assert_eq!(omitted, 0);
    }
}
