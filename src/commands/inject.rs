//! `jitinject` without a command: converts a profile.

mod arguments;

use std::process::ExitCode;

use jitinject::diagnostics::{Diagnostic, Issue};
use jitinject::inject::inject;
use jitinject::summary::Summary;

pub use self::arguments::{InjectArguments, label, percent};
use crate::cli::progress::Bar;
use crate::cli::startup::start_long_work;
use crate::cli::terminal::{print_message, report, report_all};

/// Exit status if fewer samples have a name than --fail-under requires.
const TOO_FEW_NAMED: u8 = 3;

/// Converts a profile and prints the summary.
pub fn run(arguments: &InjectArguments) -> Result<ExitCode, Diagnostic> {
    let mut bar = Bar::new(arguments.quiet, start_long_work(arguments.verbose)?);
    let summary = inject(&arguments.options(), &mut bar);
    drop(bar);
    let summary = summary?;
    if !arguments.quiet {
        report_all(&summary.diagnostics, arguments.verbose);
        print_message(&summary.text(arguments.verbose));
    }
    Ok(exit_code(arguments.fail_under, &summary))
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
