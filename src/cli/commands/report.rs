//! `jitinject report`: the hottest functions, as text.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use jitdump::internals::bytes::printable_path;
use jitinject::internals::files::stdio::is_standard;
use jitinject::internals::tools::report::{By, ReportOptions, report};
use jitinject::{Diagnostic, LoadOptions};
use regex_lite::Regex;

use crate::cli::commands::headings::{INPUT, MESSAGES, OUTPUT};
use crate::cli::commands::runtime_files::{LogFiles, RuntimeFileArguments};
use crate::cli::commands::selection::{SELECTION, SelectionArguments};
use crate::cli::commands::source_files::{SourceArguments, TrackArgument};
use crate::cli::progress::Bar;
use crate::cli::standard_input::{is_stream, profile_of};
use crate::cli::terminal::{print, print_json, report_all};

/// Text after the options.
const AFTER_HELP: &str = "\
All processes, compiler tiers and recompilations of a function are one row, and inlined calls have their own rows. \
\"self\" is the time in a function's own code, \"total\" includes its callees. \"charged\" is the time in its own code and in \
native code, the garbage collector, the compiler and the kernel below it, up to the next function of the language.

Examples:
  jitinject report run
  jitinject report run parseExpression
  jitinject report run parseExpression --instructions
  jitinject report -n 5 --by line perf.data
  jitinject report --markdown --filter 'src/.*\\.ts' run

Exit status: 0 success; 1 error; 2 invalid usage.";

/// Arguments of `report`.
#[derive(Args, Debug)]
#[command(
    after_help = AFTER_HELP,
    override_usage = "jitinject report [OPTIONS] [DIR|PROFILE] [FUNCTION]"
)]
pub struct ReportArguments {
    /// Profile to read; - is standard input [default: perf.data]
    #[arg(short, long, value_name = "FILE", help_heading = INPUT)]
    input: Option<PathBuf>,

    /// Profile to read, or directory of jitinject record; then a function to show with its lines, callers and callees
    ///
    /// A single argument that is not a file is a function in perf.data. Part of its name is enough.
    #[arg(value_name = "DIR|PROFILE", num_args = 0..=2)]
    arguments: Vec<PathBuf>,

    /// Number of rows, or of callers and callees of a function; 0 for all [default: 20, and 10 of a function]
    #[arg(short = 'n', long, value_name = "N", allow_negative_numbers = true, help_heading = SELECTION)]
    rows: Option<usize>,

    /// Rows to print [default: function]; symbol prints the rows of perf report
    #[arg(long, value_name = "WHAT", help_heading = SELECTION,
        value_parser = PossibleValuesParser::new(By::ALL.map(By::name)).try_map(|name| By::of_name(&name).ok_or("no such rows")))]
    by: Option<By>,

    #[command(flatten)]
    selection: SelectionArguments,

    /// Only rows, or functions, whose name, file or module matches REGEX
    #[arg(long, value_name = "REGEX", value_parser = Regex::new, help_heading = SELECTION)]
    filter: Option<Regex>,

    /// Disassemble the function's N hottest copies; 0 for all [default: 1]
    ///
    /// Percentages are those of the samples at each instruction in the samples of its copy, as in perf annotate. x86-64, 32-bit x86
    /// and AArch64 are supported.
    #[arg(long, value_name = "N", num_args = 0..=1, require_equals = true, default_missing_value = "1", help_heading = OUTPUT)]
    instructions: Option<usize>,

    /// Print JSON
    #[arg(long, conflicts_with = "markdown", help_heading = OUTPUT)]
    json: bool,

    /// Print Markdown for a ticket
    #[arg(long, help_heading = OUTPUT)]
    markdown: bool,

    #[command(flatten)]
    files: RuntimeFileArguments,

    #[command(flatten)]
    source_files: SourceArguments,

    #[command(flatten)]
    track: TrackArgument,

    #[command(flatten)]
    logs: LogFiles,

    /// Print errors only
    #[arg(short, long, conflicts_with = "verbose", help_heading = MESSAGES)]
    quiet: bool,

    /// Print notes, too
    #[arg(short, long, help_heading = MESSAGES)]
    verbose: bool,
}

impl ReportArguments {
    /// Returns why the arguments contradict each other, if they do.
    pub fn conflict(&self) -> Option<String> {
        let (profile, function) = self.profile_and_function();
        let of_words = self
            .conflict_of_words()
            .map(|conflict| match (&profile, &function) {
                // It may be a mistyped profile.
                (None, Some(word)) => format!("{conflict}: there is no file {word}"),
                _ => conflict.to_owned(),
            });
        let conflict = of_words.or_else(|| self.source_files.conflict().map(str::to_owned));
        conflict.or_else(|| {
            let options = [("--log-pid", self.logs.pid.is_some())];
            self.logs.conflict(&options, profile.as_deref())
        })
    }

    /// Returns why the profile, the function and the rows contradict each other.
    fn conflict_of_words(&self) -> Option<&'static str> {
        match self.instructions {
            _ if self.input.is_some() && self.arguments.len() > 1 => Some("--input and two more arguments"),
            Some(_) if self.profile_and_function().1.is_none() => Some("--instructions without a function"),
            _ if self.by.is_some() && self.profile_and_function().1.is_some() => Some("--by and a function"),
            _ => None,
        }
    }

    /// Reads the profile, and prints the report. Arguments with a [`conflict`](Self::conflict) are refused before.
    pub fn run(&self) -> Result<ExitCode, Diagnostic> {
        let options = self.options()?;
        let is_piped = is_stream(&options.stream.load.input);
        let mut bar = Bar::begin(self.quiet, self.verbose, is_piped)?;
        let result = report(&options, &mut bar);
        // Messages and the output follow where the bar was.
        drop(bar);
        let report = result?;
        if !self.quiet {
            report_all(&report.diagnostics, self.verbose);
        }
        match (self.json, self.markdown) {
            (true, _) => print_json(&report)?,
            (_, true) => print(|output| output.write_all(report.markdown().as_bytes()))?,
            _ => print(|output| output.write_all(report.text().as_bytes()))?,
        }
        Ok(ExitCode::SUCCESS)
    }

    /// Returns the profile, if one is named, and the function.
    fn profile_and_function(&self) -> (Option<PathBuf>, Option<String>) {
        // Names in reports are printable, too.
        let text = |path: &PathBuf| printable_path(path);
        match (&self.input, &self.arguments[..]) {
            (Some(input), words) => (Some(input.clone()), words.first().map(text)),
            (None, [profile, function, ..]) => (Some(profile.clone()), Some(text(function))),
            (None, [word]) if is_stream(word) || word.exists() => (Some(word.clone()), None),
            (None, [word]) => (None, Some(text(word))),
            (None, []) => (None, None),
        }
    }

    /// Returns what to report, by the arguments and what is there.
    fn options(&self) -> Result<ReportOptions, Diagnostic> {
        let (profile, function) = self.profile_and_function();
        let input = profile_of(profile.as_ref(), self.quiet)?;
        if let (None, Some(word)) = (&profile, &function)
            && !is_standard(&input)
            && !input.exists()
        {
            // It may be a mistyped profile.
            let cause =
                format!("there is no such file here, and {word} is neither a profile nor a directory");
            return Err(Diagnostic::cannot_read(&input, &io::Error::other(cause)));
        }
        let load = LoadOptions {
            input,
            ..self.files.options(&self.logs)
        };
        let mut stream = self.selection.stream(load, &self.source_files, &self.track)?;
        stream.all_functions = self.instructions.is_some();
        Ok(ReportOptions {
            stream,
            by: self.by.unwrap_or_default(),
            rows: self.rows.map(all_if_zero),
            filter: self.filter.clone(),
            function,
            instructions: self.instructions.map(all_if_zero),
        })
    }
}

fn all_if_zero(count: usize) -> usize {
    match count {
        0 => usize::MAX,
        count => count,
    }
}
