//! `jitinject report`: the hottest functions of a profile, and one function with its lines, callers, callees and instructions.
//!
//! ```text
//! samples of [`crate::frames::stream`] ─► [`crate::frames::ranking`] ─► Report ─┬─► [text], [markdown]
//!                └──────────────────────► [function] ─────────────────────────┘
//!                     [disassembly] ─► [instructions] ─┘
//! ```

mod disassembly;
mod function;
mod instructions;
mod markdown;
mod text;

use std::cell::RefCell;
use std::collections::BTreeSet;

use jitdump::Tally;
use regex_lite::Regex;
use serde::Serialize;

use crate::bytes::printable_path;
use crate::frames::ranking::counts::SamplesByStack;
use crate::frames::ranking::{KindRow, Ranking, first_event};
use crate::frames::stream::call_tree::Weight;
use crate::frames::stream::tables::NamedFunctionIndex;
use crate::frames::stream::{Losses, Sample, StreamOptions, Tables, read_then};
use crate::load::Progress;
use crate::results::diagnostics::{Diagnostic, Issue};
use crate::results::summary::profile::Unit;
use crate::tools::report::instructions::code_of;

pub use crate::frames::ranking::{By, RankedRow};
pub use function::FunctionReport;

/// Version of the format of the JSON.
pub const FORMAT: u32 = 1;

/// Default number of rows.
const MOST_ROWS: usize = 20;

/// What to report.
#[derive(Clone, Debug, Default)]
pub struct ReportOptions {
    /// The samples.
    pub stream: StreamOptions,
    /// What rows are.
    pub by: By,
    /// Most rows, or entries in each list of a function; 20 and 10 by default.
    pub rows: Option<usize>,
    /// What names or files of rows, or of the function, must match.
    pub filter: Option<Regex>,
    /// Function to report, in place of rows.
    pub function: Option<String>,
    /// Number of its copies, the hottest first, whose instructions to report; `None` for no list of copies.
    pub instructions: Option<usize>,
}

/// A report.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Report {
    /// Version of the format.
    pub format: u32,
    /// Path of the profile.
    pub input: String,
    /// The event that is counted.
    pub event: EventReport,
    /// Number of processes with samples.
    pub processes: u64,
    /// Number of threads with samples.
    pub threads: u64,
    /// Nanoseconds from the first to the last record, within the selected time; `None` if records have no times.
    pub duration_ns: Option<u64>,
    /// What is missing in the samples of the event, whichever are selected. Lost samples and unwound stacks are those of all
    /// events.
    pub missing: Losses,
    /// Samples of each kind of code.
    pub kinds: Vec<KindRow>,
    /// What rows are.
    pub by: By,
    /// The rows with most samples; `None` if a function was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rows: Option<Vec<RankedRow>>,
    /// Number of rows that were left out.
    pub rows_omitted: u64,
    /// One function, if asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub function: Option<FunctionReport>,
    /// What is not as it should be.
    #[serde(skip)]
    pub diagnostics: Vec<Diagnostic>,
}

/// The event of a report.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct EventReport {
    /// Name.
    pub name: String,
    /// What it counts.
    pub unit: Unit,
    /// All its samples that were read.
    pub samples: Weight,
    /// Names of the other events with samples.
    pub others: Vec<String>,
}

/// Reads a profile, and reports it.
pub fn report(options: &ReportOptions, progress: &mut dyn Progress) -> Result<Report, Diagnostic> {
    let counts = RefCell::new(SamplesByStack::default());
    let mut count = |sample: &Sample| counts.borrow_mut().add(sample);
    let mut stream = options.stream.clone();
    // Reading them takes longer than anything else in small profiles.
    stream.no_native_lines |= !options.by.has_lines() && options.function.is_none();
    read_then(&stream, &mut count, progress, |namer| {
        let counts = counts.borrow();
        let mut report = Report::of(&namer.tables, &counts, options)?;
        if let (Some(function), Some(copies)) = (&mut report.function, options.instructions) {
            let event = first_event(&namer.tables);
            function.code = Some(code_of(namer, &counts, event, &function.row.functions, copies));
        }
        Ok(report)
    })
}

/// Removes the rows that match by none of name, path, module and files of lines.
fn retain_matching(rows: &mut Vec<RankedRow>, tables: &Tables, filter: &Regex) {
    let matches = |text: Option<&str>| text.is_some_and(|text| filter.is_match(text));
    let in_files = functions_in_files(tables, filter);
    let has_lines = |row: &RankedRow| row.functions.iter().any(|function| in_files.contains(function));
    rows.retain(|row| {
        let texts = [row.path(tables), row.module.as_deref()];
        filter.is_match(&row.name(tables)) || texts.into_iter().any(matches) || has_lines(row)
    });
}

/// Returns the functions with lines in files that match: most runtimes log no declarations.
fn functions_in_files(tables: &Tables, filter: &Regex) -> BTreeSet<NamedFunctionIndex> {
    let files = tables.files.map(|file| filter.is_match(&file.path));
    let lines = tables.frames.iter().flat_map(|frame| frame.lines.iter());
    let found = lines.filter(|line| line.file.is_some_and(|file| files[file]));
    found.map(|line| line.function).collect()
}

impl EventReport {
    /// Reports an event with `samples`.
    fn of(tables: &Tables, event: u32, samples: Weight) -> Self {
        let counted = tables.events.get(event as usize);
        let others = tables.events.iter().enumerate();
        let others = others.filter(|(index, other)| *index != event as usize && other.samples > 0);
        Self {
            name: counted.map_or_else(String::new, |event| event.name.clone()),
            unit: counted.map_or(Unit::Occurrences, |event| event.unit),
            samples,
            others: others.map(|(_, other)| other.name.clone()).collect(),
        }
    }
}

impl Report {
    /// Reports samples.
    pub fn of(tables: &Tables, counts: &SamplesByStack, options: &ReportOptions) -> Result<Self, Diagnostic> {
        let wanted = options.stream.filter.event.as_ref();
        let wanted = wanted.and_then(|name| tables.events.iter().position(|event| event.name == *name));
        let event = wanted.map_or_else(|| first_event(tables), |index| index as u32);
        let by = match options.function {
            Some(_) => By::Function,
            None => options.by,
        };
        let Ranking { all, kinds, mut rows } = Ranking::of(tables, counts, event, by);
        if let Some(filter) = &options.filter {
            retain_matching(&mut rows, tables, filter);
        }
        let mut faults = Tally::default();
        let function = options.function.as_ref().map(|name| {
            let found = function::report(tables, counts, event, &rows, name, options, &mut faults);
            found.ok_or_else(|| Diagnostic::new(Issue::FunctionUnknown).with("function", name))
        });
        let function = function.transpose()?;
        let kept = match &function {
            Some(_) => 0,
            None => options.rows.unwrap_or(MOST_ROWS),
        };
        let omitted = rows.len().saturating_sub(kept);
        rows.truncate(kept);
        let rows: Vec<RankedRow> = rows.into_iter().map(|row| row.named(tables)).collect();
        let threads: BTreeSet<_> = counts
            .iter()
            .filter(|samples| samples.event == event)
            .map(|samples| samples.thread)
            .collect();
        let pids: BTreeSet<_> = threads.iter().map(|&thread| tables.threads[thread].pid).collect();
        let mut diagnostics = tables.diagnostics.clone();
        diagnostics.extend(Diagnostic::of_tally(&faults, None, false));
        Ok(Self {
            format: FORMAT,
            input: printable_path(&options.stream.load.input),
            event: EventReport::of(tables, event, all),
            processes: pids.len() as u64,
            threads: threads.len() as u64,
            duration_ns: options.stream.filter.duration(tables.times),
            missing: tables.losses_of(event),
            kinds,
            by: options.by,
            rows: function.is_none().then_some(rows),
            rows_omitted: if function.is_some() { 0 } else { omitted as u64 },
            function,
            diagnostics,
        })
    }

    /// Returns a share of all samples, in percent.
    fn percent(&self, part: Weight) -> f64 {
        part.period as f64 * 100.0 / self.event.samples.period.max(1) as f64
    }

    /// Returns the file and line of a row, or its module.
    fn place(row: &RankedRow) -> String {
        match (&row.file, row.line) {
            (Some(file), Some(line)) => format!("{file}:{line}"),
            (Some(file), None) => file.clone(),
            (None, _) => row.module.clone().unwrap_or_default(),
        }
    }
}
