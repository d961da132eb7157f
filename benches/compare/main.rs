//! Compares jitinject with `perf inject --jit`, and both with the minimum time for the same files. `scripts/bench`
//! runs it, `docs/performance.md` has the results.

// Benchmarks report failures by panicking.
#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

mod amplified;
mod cases;
mod contest;
mod copied_stacks;
mod floor;
mod folders;
mod formats;
mod growth;
mod inputs;
mod measure;
mod programs;
mod rows;
mod table;
mod traces;

#[allow(dead_code)]
#[path = "../../tests/support/dump.rs"]
mod dump;
#[allow(dead_code)]
#[path = "../../tests/support/generator.rs"]
mod generator;
#[allow(dead_code)]
#[path = "../../tests/support/lines.rs"]
mod lines;
#[allow(dead_code)]
#[path = "../../tests/support/profile.rs"]
mod profile;

#[allow(dead_code)]
#[path = "../../tests/support/xray_trace.rs"]
mod xray_trace;

use std::path::PathBuf;

use clap::Parser;

use crate::inputs::Input;

/// Compares jitinject with perf inject, and both with the minimum time for the same files.
#[derive(Parser, Debug)]
#[command(name = "scripts/bench", max_term_width = 110)]
struct Arguments {
    /// Run all cases, each with its own table, instead of one table of all kinds of work
    #[arg(long)]
    cases: bool,

    /// Run a small selection of the cases, which takes about two minutes
    #[arg(long, conflicts_with = "huge")]
    quick: bool,

    /// Run all cases, also 50 million samples (10 GB; needs twice that much disk space), and a million files
    #[arg(long)]
    huge: bool,

    /// Perf to compare with, instead of the one in PATH
    #[arg(long, value_name = "PATH")]
    perf: Option<String>,

    /// Run only cases with this text in their name; may be repeated
    #[arg(long, value_name = "TEXT")]
    case: Vec<String>,

    /// Number of runs of fast programs; slow ones run less often
    #[arg(long, value_name = "NUMBER", default_value_t = 7)]
    runs: usize,

    /// Time limit of a program in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 300)]
    limit: u64,

    /// Directory for inputs and outputs, on the file system to be measured
    #[arg(long, value_name = "DIR", default_value = "target/bench")]
    folder: PathBuf,

    /// Generate an input in this directory, and exit
    #[arg(long, value_name = "DIR")]
    make: Option<PathBuf>,

    /// Compare on an input generated with the options below, instead of the usual cases
    #[arg(long)]
    own: bool,

    #[command(flatten)]
    input: Input,

    /// Write files of the sizes in this file, for the lower bound
    #[arg(long, hide = true, num_args = 2)]
    write_files: Option<Vec<PathBuf>>,

    /// Passed by cargo to all benchmarks
    #[arg(long, hide = true)]
    bench: bool,
}

fn main() {
    let arguments = Arguments::parse();
    if let Some([sizes, folder]) = arguments.write_files.as_deref() {
        return floor::write_files(sizes, folder);
    }
    if let Some(folder) = &arguments.make {
        arguments.input.make(folder);
        return;
    }
    if let Some(perf) = arguments.perf {
        programs::PERF.set(perf).unwrap();
    }
    let has_cases = arguments.cases || arguments.own || !arguments.case.is_empty();
    let options = cases::Options {
        scale: match (arguments.quick, arguments.huge) {
            (true, _) => cases::Scale::Quick,
            (_, true) => cases::Scale::Huge,
            _ if has_cases => cases::Scale::Full,
            _ => cases::Scale::Rows,
        },
        names: arguments.case,
        runs: arguments.runs,
        limit: std::time::Duration::from_secs(arguments.limit),
        folder: arguments.folder,
        own: arguments.own.then_some(arguments.input),
    };
    print!("{}", cases::run(&options));
}
