//! `jitinject` without a command, and `jitinject inject`: convert a profile.

mod arguments;

use std::process::ExitCode;

pub use self::arguments::{InjectArguments, label, percent};
use jitdump::internals::bytes::printable_path;
use jitinject::inject;
use jitinject::internals::files::objects::build_id_cache;
use jitinject::internals::results::FileKind;
use jitinject::{Diagnostic, InjectOptions, Issue, Severity, Summary};

use crate::cli::commands::check::files::check_named;
use crate::cli::commands::check::output::report_findings;
use crate::cli::progress::Bar;
use crate::cli::standard_input::{default_profile, is_stream};
use crate::cli::terminal::{print_line, print_message, report, report_all};

/// Exit status if fewer samples have a name than --fail-under requires.
const TOO_FEW_NAMED: u8 = 3;

impl InjectArguments {
    /// Converts a profile and prints the summary.
    pub fn run(&self) -> Result<ExitCode, Diagnostic> {
        let summary = self.inject(self.options(|| default_profile(self.quiet))?)?;
        if !self.quiet {
            report_all(&summary.diagnostics, self.verbose);
            print_message(&summary.text(self.verbose));
        }
        self.finish(&summary)
    }

    /// Converts a profile as perf inject does: from standard input unless the arguments name a profile, with the objects also in
    /// perf's build-id cache, copied stacks left to readers, and without output on standard error unless something is wrong or `--verbose` asks for it.
    pub fn run_as_perf(&self) -> Result<ExitCode, Diagnostic> {
        let mut options = self.options(|| Ok("-".into()))?;
        if self.has_default_unwinding() {
            options.unwind = None;
        }
        if self.has_default_cache() {
            options.build_id_cache = build_id_cache::default_folder();
            options.is_cache_optional = true;
        }
        let summary = self.inject(options)?;
        if self.verbose {
            print_markers(&summary);
        }
        if !self.quiet {
            report_all(&summary.diagnostics, self.verbose);
        }
        if self.verbose {
            print_message(&summary.text(true));
        }
        self.finish(&summary)
    }

    /// Checks the output if `--verify` asks for it, and returns the exit status.
    fn finish(&self, summary: &Summary) -> Result<ExitCode, Diagnostic> {
        if let Some(output) = self.verified() {
            // With a copy of the kernel's code, it is a directory.
            let records = output.join("data");
            let checked = check_named(if output.is_dir() { &records } else { output })?;
            let least = match (self.quiet, self.verbose) {
                (true, _) => Severity::Error,
                (false, false) => Severity::Warning,
                (false, true) => Severity::Note,
            };
            report_findings(&printable_path(output), &checked, least);
            if checked.count(Severity::Error) > 0 {
                return Ok(ExitCode::FAILURE);
            }
        }
        Ok(exit_code(self.fail_under, summary))
    }

    fn inject(&self, options: InjectOptions) -> Result<Summary, Diagnostic> {
        let mut bar = Bar::begin(self.quiet, self.verbose, is_stream(&options.load.input))?;
        inject(&options, &mut bar)
    }
}

/// Prints each jitdump in the words of perf inject, which scripts search for.
fn print_markers(summary: &Summary) {
    let dumps = summary.dumps.iter().filter(|dump| dump.kind == FileKind::Jitdump);
    for dump in dumps {
        print_line(&format!("jit marker found: {}", dump.path));
    }
}

/// Returns the exit status for `--fail-under`, and reports a share that is too small.
pub fn exit_code(fail_under: Option<f64>, summary: &Summary) -> ExitCode {
    let Some(wanted) = fail_under else {
        return ExitCode::SUCCESS;
    };
    let samples = &summary.samples;
    let shares = [
        ("samples", samples.named_percent),
        ("frames", samples.in_stacks.named_percent),
    ];
    let Some((what, named)) = shares.into_iter().find(|&(_, named)| named < wanted) else {
        return ExitCode::SUCCESS;
    };
    let too_few = Diagnostic::new(Issue::TooFewNamed).with("what", what);
    let too_few = too_few.with("named", format_args!("{named:.2}"));
    report(&too_few.with("wanted", wanted));
    ExitCode::from(TOO_FEW_NAMED)
}
