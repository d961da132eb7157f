//! `jitinject timeline`: the code cache over time, as a web page.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use jitdump::internals::bytes::printable_path;
use jitinject::internals::files::staged::write_atomically;
use jitinject::internals::files::stdio::is_standard;
use jitinject::internals::tools::timeline::{DEFAULT_OUTPUT, PageValues, TimelineOptions, html, timeline};
use jitinject::{Diagnostic, LoadOptions};

use crate::cli::commands::headings::{INPUT, MESSAGES, OUTPUT, SYMBOLS};
use crate::cli::commands::runtime_files::{LogFiles, RuntimeFileArguments};
use crate::cli::commands::selection::SELECTION;
use crate::cli::commands::source_files::{SourceArguments, TrackArgument};
use crate::cli::progress::Bar;
use crate::cli::standard_input::{is_stream, profile_of};
use crate::cli::terminal::{print, print_message, report_all};

/// Examples at the end of the help.
const EXAMPLES: &str = "\
Examples:
  perf record -k mono -g -o perf.data node --perf-prof app.js
  jitinject timeline && xdg-open timeline.html

  # of a recording made with jitinject record -o run
  jitinject timeline run

  # with jitdumps from another machine
  jitinject timeline -q -i perf.data --jitdump dumps/ -o - | gzip > timeline.html.gz

Exit status: 0 success; 1 error; 2 invalid usage.";

/// Arguments of `timeline`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct TimelineArguments {
    /// Profile to read; - is standard input [default: perf.data]
    #[arg(short, long, value_name = "FILE", help_heading = INPUT)]
    input: Option<PathBuf>,

    /// Profile to read, as with --input
    #[arg(value_name = "PROFILE", conflicts_with = "input")]
    profile: Option<PathBuf>,

    /// Page to write; - is standard output
    ///
    /// Only you can read the file, as with profiles of perf: it has the names of the program's functions, and with --sources
    /// parts of its source text.
    #[arg(short, long, value_name = "FILE", default_value = DEFAULT_OUTPUT, help_heading = OUTPUT)]
    output: PathBuf,

    /// Event to count [default: the first one with samples]
    #[arg(short, long, value_name = "EVENT", help_heading = SELECTION)]
    event: Option<String>,

    #[command(flatten)]
    files: RuntimeFileArguments,

    /// Add the source text around lines with samples to the page
    ///
    /// The text comes from the copies of --keep-sources beside the profile, or from this machine. Whoever gets the page can read
    /// it.
    #[arg(long, help_heading = SYMBOLS, conflicts_with = "confine")]
    sources: bool,

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

impl TimelineArguments {
    /// Returns why the arguments contradict each other, if they do.
    pub fn conflict(&self) -> Option<String> {
        self.source_files.conflict().map(str::to_owned).or_else(|| {
            let profile = self.input.as_deref().or(self.profile.as_deref());
            let options = [("--pid", self.logs.pid.is_some())];
            self.logs.conflict(&options, profile)
        })
    }

    /// Writes the page.
    pub fn run(&self) -> Result<ExitCode, Diagnostic> {
        let options = self.options()?;
        let mut bar = Bar::begin(self.quiet, self.verbose, is_stream(&options.load.input))?;
        let found = timeline(&options, &mut bar);
        drop(bar);
        let found = found?;
        let page =
            html(&found.values).map_err(|cause| Diagnostic::cannot_write(&self.output, &cause.into()))?;
        if is_standard(&self.output) {
            print(|output| output.write_all(page.as_bytes()))?;
        } else {
            write_atomically(&self.output, page.as_bytes())
                .map_err(|cause| Diagnostic::cannot_write(&self.output, &cause))?;
        }
        if !self.quiet {
            report_all(&found.diagnostics, self.verbose);
            found.clocks.iter().for_each(|clock| print_message(clock));
            print_message(&self.summary_text(&found.values));
        }
        Ok(ExitCode::SUCCESS)
    }

    fn options(&self) -> Result<TimelineOptions, Diagnostic> {
        let input = profile_of(self.input.as_ref().or(self.profile.as_ref()), self.quiet)?;
        let mut sources = self.source_files.options()?;
        self.track.apply(&mut sources);
        Ok(TimelineOptions {
            load: LoadOptions {
                input,
                ..self.files.options(&self.logs)
            },
            event: self.event.clone(),
            output: self.output.clone(),
            has_sources: self.sources,
            sources,
            track: self.track.name(),
        })
    }

    /// Returns the final message: the contents of the page, and how to open it.
    fn summary_text(&self, values: &PageValues) -> String {
        let processes = &values.processes;
        if processes.is_empty() {
            return "no JIT code in the profile; the page is empty\n".to_owned();
        }
        let samples: u64 = processes.iter().map(|process| process.samples).sum();
        let in_code: u64 = processes.iter().map(|process| process.jit).sum();
        let mut text = format!(
            "functions: {}, boxes: {}, processes: {}; samples: {samples}, in JIT code: {in_code}; event: {}\n",
            values.functions.name.len(),
            values.boxes.function.len(),
            processes.len(),
            values.event,
        );
        if !is_standard(&self.output) {
            let _ = writeln!(text, "next: open {} in a browser", printable_path(&self.output));
        }
        text
    }
}
