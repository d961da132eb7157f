//! `jitinject export`: samples in formats of other viewers.

use std::io::{IsTerminal, stdout};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use jitinject::internals::files::stdio::is_standard;
use jitinject::internals::tools::export::{ExportOptions, Format, export};
use jitinject::{Diagnostic, Issue, LoadOptions};
use regex_lite::Regex;

use crate::cli::commands::headings::{INPUT, MESSAGES, OUTPUT, SYMBOLS};
use crate::cli::commands::runtime_files::{LogFiles, RuntimeFileArguments};
use crate::cli::commands::selection::{SELECTION, SelectionArguments};
use crate::cli::commands::source_files::{SourceArguments, TrackArgument};
use crate::cli::progress::Bar;
use crate::cli::standard_input::{is_stream, profile_of};
use crate::cli::terminal::{print_message, print_plain, report_all};

/// Text after the options and the formats.
const AFTER_HELP: &str = "\
Formats with times need memory for each sample; the others only for functions and stacks.

Examples:
  jitinject export run -o run.json.gz
  jitinject export perf.data -o profile.pb.gz
  jitinject export --format folded -o - perf.data | flamegraph.pl > flame.svg
  jitinject export --filter parseExpression --time 1.5,3 -o parse.svg run

Exit status: 0 success; 1 error; 2 invalid usage.";

fn after_help() -> String {
    let formats = Format::ALL.map(Format::help).concat();
    format!("Formats, by the end of the file's name:\n{formats}\n{AFTER_HELP}")
}

/// Arguments of `export`.
#[derive(Args, Debug)]
#[command(after_help = after_help())]
pub struct ExportArguments {
    /// Profile to read; - is standard input [default: perf.data]
    #[arg(short, long, value_name = "FILE", help_heading = INPUT)]
    input: Option<PathBuf>,

    /// Profile to read, or directory of jitinject record
    #[arg(value_name = "DIR|PROFILE", conflicts_with = "input")]
    profile: Option<PathBuf>,

    /// File to write; - is standard output
    ///
    /// The end of its name decides the format. Only you can read the file, as with profiles of perf.
    #[arg(short, long, value_name = "FILE", help_heading = OUTPUT)]
    output: PathBuf,

    /// Format [default: by the name of the output]
    #[arg(long, value_name = "FORMAT", help_heading = OUTPUT,
        value_parser = PossibleValuesParser::new(Format::ALL.map(Format::name))
            .try_map(|name| Format::of_name(&name).ok_or("no such format")))]
    format: Option<Format>,

    #[command(flatten)]
    selection: SelectionArguments,

    /// Only samples with a function in their stack whose name, file or module matches REGEX
    #[arg(long, value_name = "REGEX", value_parser = Regex::new, help_heading = SELECTION)]
    filter: Option<Regex>,

    /// Add a marker for each compiled function, not only for those with samples (firefox)
    ///
    /// A marker has the time when the code was loaded, the name, compiler tier and size. There are at most 100,000; functions
    /// with samples come first, then the earliest ones.
    #[arg(long, help_heading = OUTPUT)]
    markers: bool,

    #[command(flatten)]
    files: RuntimeFileArguments,

    /// Add the source text of this machine's files, where the format has room for it (firefox)
    ///
    /// Text in the runtimes' files and in source maps, and copies that jitinject has kept beside the profile, are in the file
    /// anyway. Whoever gets it can read the text.
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

impl ExportArguments {
    /// Returns why the arguments contradict each other, if they do.
    pub fn conflict(&self) -> Option<String> {
        let conflict = match self.format() {
            None if is_standard(&self.output) => Some("standard output needs --format"),
            None => Some("the name of --output ends like that of no format; name one with --format"),
            Some(format) if self.markers && !format.has_markers() => {
                Some("only the format firefox has --markers")
            }
            Some(_) => self.source_files.conflict(),
        };
        conflict.map(str::to_owned).or_else(|| {
            let profile = self.input.as_deref().or(self.profile.as_deref());
            let options = [("--log-pid", self.logs.pid.is_some())];
            self.logs.conflict(&options, profile)
        })
    }

    fn format(&self) -> Option<Format> {
        self.format.or_else(|| Format::of_path(&self.output))
    }

    /// Reads the profile, and writes the export to the file or standard output. Arguments with a
    /// [`conflict`](Self::conflict) are refused before.
    pub fn run(&self) -> Result<ExitCode, Diagnostic> {
        let Some(format) = self.format() else {
            // [`Self::conflict`] has refused it.
            return Ok(ExitCode::FAILURE);
        };
        let is_stdout = is_standard(&self.output);
        if is_stdout && !format.is_text() && stdout().is_terminal() {
            return Err(Diagnostic::new(Issue::StdoutIsTerminal));
        }
        let options = self.options(format)?;
        let is_piped = is_stream(&options.stream.load.input);
        let mut bar = Bar::begin(self.quiet, self.verbose, is_piped)?;
        let result = export(&options, &mut bar);
        // Messages and the output follow where the bar was.
        drop(bar);
        let export = result?;
        if is_stdout {
            print_plain(|output| export.write(output))?
        } else {
            export.save(&self.output)?
        }
        if !self.quiet {
            report_all(export.diagnostics(), self.verbose);
            let path = (!is_stdout).then_some(&*self.output);
            print_message(&export.message(path));
        }
        Ok(ExitCode::SUCCESS)
    }

    fn options(&self, format: Format) -> Result<ExportOptions, Diagnostic> {
        let input = profile_of(self.input.as_ref().or(self.profile.as_ref()), self.quiet)?;
        let load = LoadOptions {
            input,
            ..self.files.options(&self.logs)
        };
        Ok(ExportOptions {
            stream: self.selection.stream(load, &self.source_files, &self.track)?,
            format,
            filter: self.filter.clone(),
            has_sources: self.sources,
            marks_all_functions: self.markers,
        })
    }
}
