//! Parse, run, say what happened, exit.

mod cli;
mod interrupt;
mod progress;

use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

use anyhow::Context;
use jitinject::bytes::printable;
use jitinject::files::out_of_memory::TidyAllocator;
use jitinject::files::staged::write_whole;
use jitinject::files::standard;
use jitinject::inject::{self, inject, is_standard};
use jitinject::summary::Summary;

use crate::cli::Arguments;
use crate::progress::Bar;

#[global_allocator]
static ALLOCATOR: TidyAllocator = TidyAllocator;

/// Fewer samples have a name than were asked for.
const TOO_FEW_NAMED: u8 = 3;

fn main() -> ExitCode {
    let arguments = Arguments::read();
    match run(&arguments) {
        Ok(status) => status,
        Err(error) => {
            say(&format!("error: {error:#}"));
            if let Some(advice) = advice(&error) {
                say(&format!("note: {advice}"));
            }
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let interrupt = interrupt::listen().context("cannot listen to signals")?;
    let mut bar = Bar::new(arguments.quiet, interrupt);
    let summary = inject(&arguments.options(), &mut bar);
    drop(bar);
    let summary = summary?;
    if !arguments.quiet {
        say(&summary.text(arguments.verbose));
    }
    if let Some(path) = &arguments.summary {
        write_json(&summary, path).with_context(|| format!("cannot write the summary {}", path.display()))?;
    }
    Ok(verdict(arguments, &summary))
}

/// What to do about an error, where it does not say that itself.
fn advice(error: &anyhow::Error) -> Option<&'static str> {
    let by_run = error.downcast_ref().and_then(inject::Error::advice);
    let mut chain = error.chain();
    by_run.or_else(|| chain.find_map(|cause| inject::advice::of(cause.downcast_ref()?)))
}

/// Prints lines under the program's name, without anything from a file that could steer the terminal.
fn say(text: &str) {
    let mut stderr = io::stderr().lock();
    for line in text.lines() {
        // A closed standard error can't be told about.
        let _ = writeln!(stderr, "jitinject: {}", printable(line.as_bytes()));
    }
}

/// Writes the summary to a file, or to standard output if it is called `-`.
fn write_json(summary: &Summary, path: &Path) -> anyhow::Result<()> {
    let mut json = serde_json::to_vec_pretty(summary)?;
    json.push(b'\n');
    if is_standard(path) {
        anyhow::ensure!(!standard::output_was_closed(), "standard output is closed");
        io::stdout().write_all(&json)?;
    } else {
        write_whole(path, &json)?;
    }
    Ok(())
}

fn verdict(arguments: &Arguments, summary: &Summary) -> ExitCode {
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
