//! `jitinject compare`: changes between two sides of runs.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use jitinject::internals::files::staged::write_atomically;
use jitinject::internals::files::stdio::is_standard;
use jitinject::internals::files::stream;
use jitinject::internals::files::temp_file::copy_if;
use jitinject::internals::record::{MANIFEST, SUMMARY};
use jitinject::internals::threads;
use jitinject::internals::tools::compare::statistics::Assumptions;
use jitinject::internals::tools::compare::{
    CompareOptions, Compared, GateRule, MeasureChoice, ParsedSummary, compare,
};
use jitinject::{Diagnostic, Issue};

use crate::cli::commands::headings::{CI, MESSAGES, OUTPUT};
use crate::cli::commands::inject::percent;
use crate::cli::terminal::{print, print_json, report_all};

/// Exit status if a rule of --fail-on is broken.
const RULE_BROKEN: u8 = 4;

/// Text after the options.
const AFTER_HELP: &str = "\
Compare several runs of each side: only they show how much runs vary. Five are enough for most programs. With one run \
on each side, the variation is assumed, and only large changes are significant.

If the summaries have CPU times, values are CPU time per run, in percent of that before. A function counts as changed \
only if its share of the samples changed in the same direction, or if it has most of the time and that of the run \
changed. A run that is slower as a whole therefore breaks only 'cpu > N%'. Without CPU times, values are shares.

Examples:
  jitinject record -q -o old -- node app.js
  jitinject record -q -o new -- node app.js
  jitinject compare old new

  # several runs, as a gate
  jitinject record -q --runs 5 -o main -- node app.js
  jitinject record -q --runs 5 -o branch -- node app.js
  jitinject compare --fail-on 'self > 2%' --fail-on 'cpu > 3%' main branch

Exit status: 0 success; 1 error; 2 invalid usage; 4 a rule of --fail-on is broken.";

/// Arguments of `compare`.
#[derive(Args, Debug)]
#[command(
    after_help = AFTER_HELP,
    override_usage = "jitinject compare [OPTIONS] BEFORE AFTER\n       jitinject compare [OPTIONS] BEFORE... -- AFTER..."
)]
pub struct CompareArguments {
    /// Runs before the change: directories of jitinject record, summaries, or directories of them
    ///
    /// In a directory that is no recording, all .json files are read, or, if there are none, the recordings in it.
    #[arg(value_name = "BEFORE", required = true)]
    before: Vec<PathBuf>,

    /// Runs after the change
    ///
    /// With one path on each side, -- is not needed.
    #[arg(value_name = "AFTER", last = true)]
    after: Vec<PathBuf>,

    /// Ignore changes of functions below PERCENT
    ///
    /// In percentage points. They are neither tested nor shown.
    #[arg(long, value_name = "PERCENT", value_parser = percent, default_value = "0.5", allow_negative_numbers = true)]
    min_change: f64,

    /// Compare events or samples per run if CPU times are unknown
    ///
    /// For runs that do the same work, recorded with the same event and frequency. Samples are compared if each is one
    /// event.
    #[arg(long, conflicts_with = "shares")]
    per_run: bool,

    /// Compare shares of the samples only
    ///
    /// For runs that do different amounts of work, such as of a server under load, or on different machines. Changes of
    /// CPU times are not judged, and the rule 'cpu > N%' cannot be checked.
    #[arg(long)]
    shares: bool,

    /// Probability that nothing is significant by chance
    ///
    /// It applies to all functions together: the more of them are tested, the stricter each test is.
    #[arg(long, value_name = "PERCENT", value_parser = confidence, default_value = "97", allow_negative_numbers = true)]
    confidence: f64,

    /// Variation from run to run to assume for single runs
    ///
    /// Only used with one run on each side. The standard deviation of the time in a function, in percent of that time.
    /// [default: 25 for programs with JIT code, 5 for others, 15 for the CPU time of a run]
    #[arg(long, value_name = "PERCENT", value_parser = percent, allow_negative_numbers = true)]
    assume_variation: Option<f64>,

    /// Exit with status 4 if RULE is broken; may be repeated
    ///
    /// 'self > N%': a function's own time rose by more than N percentage points.
    /// 'total > N%': its time with callees did.
    /// 'cpu > N%': the CPU time of a run rose by more than N percent.
    /// 'named < N%': less than N percent of the samples in JIT code, or of the JIT frames in stacks, have a name.
    /// The first three are broken by significant changes only. Time that moved between functions, for example because
    /// a call was inlined, does not count.
    #[arg(long, value_name = "RULE", value_parser = str::parse::<GateRule>, verbatim_doc_comment, help_heading = CI)]
    fail_on: Vec<GateRule>,

    /// Print all changes as JSON
    #[arg(long, conflicts_with = "markdown", help_heading = OUTPUT)]
    json: bool,

    /// Print Markdown for the comment of a pull request
    #[arg(long, help_heading = OUTPUT)]
    markdown: bool,

    /// Write a differential flame graph as SVG to FILE
    #[arg(long, value_name = "FILE", help_heading = OUTPUT)]
    flame_graph: Option<PathBuf>,

    /// Print broken rules and errors only
    #[arg(short, long, conflicts_with_all = ["json", "markdown"], help_heading = MESSAGES)]
    quiet: bool,
}

/// Parses a confidence.
fn confidence(text: &str) -> Result<f64, String> {
    match percent(text) {
        Ok(number) if (50.0..100.0).contains(&number) => Ok(number),
        _ => Err("not a number from 50 to less than 100".into()),
    }
}

impl CompareArguments {
    /// Returns why the arguments make no sense, if they don't. `is_separated` is whether `--` is among them.
    pub fn conflict(&self, is_separated: bool) -> Option<&'static str> {
        if self.flame_graph.as_deref().is_some_and(is_standard) {
            return Some("standard output has the changes; name a file for --flame-graph");
        }
        if !self.after.is_empty() {
            return None;
        }
        // A pattern of the shell that fits no file may leave nothing.
        if is_separated {
            return Some("no summaries after --");
        }
        match self.before.len() {
            2 => None,
            1 => Some("name also the summary after the change"),
            _ => Some("put -- between the summaries before and after the change"),
        }
    }

    /// Reads the summaries and prints the changes.
    pub fn run(&self) -> Result<ExitCode, Diagnostic> {
        let (before, after) = match &self.before[..] {
            [before, after] if self.after.is_empty() => {
                (std::slice::from_ref(before), std::slice::from_ref(after))
            }
            before => (before, &self.after[..]),
        };
        let options = CompareOptions {
            measure: match (self.per_run, self.shares) {
                (true, _) => MeasureChoice::PerRun,
                (_, true) => MeasureChoice::Shares,
                _ => MeasureChoice::Auto,
            },
            confidence: self.confidence,
            min_change: self.min_change,
            assumptions: match self.assume_variation {
                Some(percent) => Assumptions::all(percent / 100.0),
                None => Assumptions::default(),
            },
            rules: self.fail_on.clone(),
        };
        let (before, after) = (read_all(before)?, read_all(after)?);
        let compared = compare(&before, &after, &options, self.flame_graph.is_some())?;
        if !self.quiet {
            report_all(&compared.diagnostics, false);
        }
        if let Some(path) = &self.flame_graph {
            write_flame_graph(path, &compared)?;
        }
        let comparison = &compared.comparison;
        match (self.json, self.markdown) {
            (true, _) => print_json(comparison)?,
            (_, true) => print(|output| output.write_all(comparison.markdown(self.min_change).as_bytes()))?,
            _ if self.quiet => print(|output| output.write_all(comparison.broken_text().as_bytes()))?,
            _ => print(|output| output.write_all(comparison.text(self.min_change).as_bytes()))?,
        }
        let is_broken = comparison.rules.iter().any(|rule| rule.is_broken);
        Ok(ExitCode::from(if is_broken { RULE_BROKEN } else { 0 }))
    }
}

fn write_flame_graph(path: &Path, compared: &Compared) -> Result<(), Diagnostic> {
    let comparison = &compared.comparison;
    let svg = compared.flame_graph.svg(
        &comparison.before.label(),
        &comparison.after.label(),
        comparison.measure.text(),
    );
    write_atomically(path, svg.as_bytes()).map_err(|cause| Diagnostic::cannot_write(path, &cause))
}

/// Reads the summaries of one side.
fn read_all(paths: &[PathBuf]) -> Result<Vec<ParsedSummary>, Diagnostic> {
    let mut files = Vec::new();
    for path in paths {
        if path.is_dir() {
            files.extend(files_in(path)?)
        } else {
            files.push(path.clone())
        }
    }
    threads::map(&files, |file| read(file)).into_iter().collect()
}

/// Returns the summaries in a folder: that of a recording, all JSON files, or those of the recordings in it. If it has
/// both, the files are copies of the summaries of all runs, and a recording is the last run, as in docs/ci.md.
fn files_in(folder: &Path) -> Result<Vec<PathBuf>, Diagnostic> {
    if let Some(summary) = recorded_summary(folder) {
        return Ok(vec![summary]);
    }
    let entries = std::fs::read_dir(folder).and_then(Iterator::collect::<std::io::Result<Vec<_>>>);
    let entries = entries.map_err(|cause| Diagnostic::cannot_read(folder, &cause))?;
    let paths: Vec<PathBuf> = entries.into_iter().map(|entry| entry.path()).collect();
    let is_summary = |path: &&PathBuf| path.extension().is_some_and(|it| it == "json") && path.is_file();
    let mut files: Vec<PathBuf> = paths.iter().filter(is_summary).cloned().collect();
    if files.is_empty() {
        files = paths.iter().filter_map(|path| recorded_summary(path)).collect();
    }
    files.sort();
    if files.is_empty() {
        Err(Diagnostic::new(Issue::NoSummaries).in_file(folder))
    } else {
        Ok(files)
    }
}

/// Returns the summary in the folder of a recording.
fn recorded_summary(folder: &Path) -> Option<PathBuf> {
    let summary = folder.join(SUMMARY);
    let is_recording = summary.is_file() && folder.join(MANIFEST).is_file();
    is_recording.then_some(summary)
}

fn read(path: &Path) -> Result<ParsedSummary, Diagnostic> {
    let mut json = Vec::new();
    let may_be_object = |start: &[u8]| start.trim_ascii_start().starts_with(b"{");
    stream::open_input(path)
        .and_then(|file| Ok(copy_if(file, &mut json, may_be_object)?))
        .map_err(|cause| Diagnostic::cannot_read(path, &cause))?;
    ParsedSummary::parse(&json).map_err(|error| error.in_file(path))
}
