//! `jitinject` by itself: puts names into a profile.

mod arguments;

use std::process::ExitCode;

use jitinject::inject::inject;
use jitinject::summary::Summary;

pub use self::arguments::{InjectArguments, percent};
use crate::commands::begin;
use crate::progress::Bar;
use crate::terminal::say;

/// Fewer samples have a name than were asked for.
const TOO_FEW_NAMED: u8 = 3;

/// Reads, writes, says what happened.
pub fn run(arguments: &InjectArguments) -> anyhow::Result<ExitCode> {
    let mut bar = Bar::new(arguments.quiet, begin(arguments.quiet)?);
    let summary = inject(&arguments.options(), &mut bar);
    drop(bar);
    let summary = summary?;
    if !arguments.quiet {
        say(&summary.text(arguments.verbose));
    }
    Ok(verdict(arguments, &summary))
}

fn verdict(arguments: &InjectArguments, summary: &Summary) -> ExitCode {
    let Some(wanted) = arguments.fail_under else {
        return ExitCode::SUCCESS;
    };
    if summary.samples.named_percent >= wanted {
        return ExitCode::SUCCESS;
    }
    let named = summary.samples.named_percent;
    say(&format!(
        "error: {named:.2} % of the samples in JIT code have a name, less than the {wanted} % that --fail-under asks for"
    ));
    ExitCode::from(TOO_FEW_NAMED)
}
