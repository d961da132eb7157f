//! `jitinject timeline`: the code cache over time, as a page for a browser.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::Args;
use jitinject::files::search::shown;
use jitinject::files::staged::write_whole;
use jitinject::inject::{Options, is_standard};
use jitinject::summary::put_warnings;
use jitinject::timeline::{DEFAULT_OUTPUT, Timeline, html, timeline};

use crate::commands::begin;
use crate::commands::runtime_files::RuntimeFiles;
use crate::progress::Bar;
use crate::terminal::{print, say};

/// Examples at the end of the help.
const EXAMPLES: &str = "\
Examples:
  perf record -k mono -g -o perf.data node --perf-prof app.js
  jitinject timeline && xdg-open timeline.html

  # the jitdump was copied from elsewhere, and so will the page be
  jitinject timeline -q -i perf.data --jitdump dumps/ -o - | gzip > timeline.html.gz

Exit status: 0 done; 1 failed; 2 wrong usage.";

/// What can be typed behind `timeline`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct TimelineArguments {
    /// The profile to read; `-` is standard input
    #[arg(short, long, value_name = "FILE", default_value = "perf.data")]
    input: PathBuf,

    /// The profile to read, as with --input
    #[arg(value_name = "PROFILE", conflicts_with = "input")]
    profile: Option<PathBuf>,

    /// The page to write; `-` is standard output
    ///
    /// It has the names of a program's functions in it, so that only its owner can read it, as with perf's profiles.
    #[arg(short, long, value_name = "FILE", default_value = DEFAULT_OUTPUT)]
    output: PathBuf,

    #[command(flatten)]
    files: RuntimeFiles,

    /// Say nothing but errors
    #[arg(short, long)]
    quiet: bool,
}

impl TimelineArguments {
    /// Reads, writes the page, says what is in it.
    pub fn run(&self) -> anyhow::Result<ExitCode> {
        let mut bar = Bar::new(self.quiet, begin(self.quiet)?);
        let found = timeline(&self.options(), &mut bar);
        drop(bar);
        let found = found?;
        let page = html(&found.values)?;
        if is_standard(&self.output) {
            print(|output| output.write_all(page.as_bytes()))?;
        } else {
            write_whole(&self.output, page.as_bytes())
                .with_context(|| format!("cannot write {}", shown(&self.output)))?;
        }
        if !self.quiet {
            say(&self.told(&found));
        }
        Ok(ExitCode::SUCCESS)
    }

    fn options(&self) -> Options {
        Options {
            input: self.profile.as_ref().unwrap_or(&self.input).clone(),
            output: self.output.clone(),
            ..self.files.options()
        }
    }

    /// What to say about a page.
    fn told(&self, found: &Timeline) -> String {
        let Timeline { values, warnings } = found;
        let mut text = String::new();
        put_warnings(
            &mut text,
            warnings,
            &values.notes,
            "jitinject --summary FILE writes all of them",
        );
        let samples: u64 = values.processes.iter().map(|process| process.samples).sum();
        let in_code: u64 = values.processes.iter().map(|process| process.jit).sum();
        let _ = match values.processes.len() {
            0 => writeln!(text, "no JIT code in the profile, so the page shows none"),
            processes => writeln!(
                text,
                "functions: {}, boxes: {}, processes: {processes}; samples: {samples}, in JIT code: {in_code}",
                values.functions.name.len(),
                values.boxes.function.len(),
            ),
        };
        if !is_standard(&self.output) && !values.processes.is_empty() {
            let _ = writeln!(text, "next: open {} in a browser", shown(&self.output));
        }
        text
    }
}
