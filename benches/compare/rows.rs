//! One table of all kinds of work, each compared with perf inject and with `cp` of the bytes that are read and written.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::cases::{Bench, FUNCTION, IMAGE, row, touched_little};
use crate::contest::{self, Contestant};
use crate::floor;
use crate::formats::through_pipes;
use crate::inputs::{Case, Input};
use crate::programs;
use crate::table::{factor, seconds};

/// Runs of each program.
const RUNS: usize = 5;

/// Names of the programs in the columns.
const JITINJECT: &str = "jitinject";
const COPY: &str = "cp";
const PERF: &str = "perf inject, no cache";
const PERF_CACHED: &str = "perf inject, cache";

/// A row of the table.
struct Work<'c> {
    name: &'static str,
    /// Arguments of jitinject.
    arguments: &'c [&'c str],
    format: Format,
    /// Runs of perf inject, which takes up to a minute for 100,000 functions.
    perf_runs: usize,
}

/// How the profile is read and written.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Format {
    Plain,
    Compressed,
    Pipe,
}

impl<'c> Work<'c> {
    /// Returns a program's command, with pipes if the profile is one.
    fn command(&self, input: &Path, output: &Path, of: impl FnOnce(&Path, &Path) -> Command) -> Command {
        match self.format {
            Format::Pipe => through_pipes(of(Path::new("-"), Path::new("-")), input, output),
            Format::Plain | Format::Compressed => of(input, output),
        }
    }

    fn new(name: &'static str, arguments: &'c [&'c str]) -> Self {
        Self {
            name,
            arguments,
            format: Format::Plain,
            perf_runs: RUNS,
        }
    }

    fn once_by_perf(self) -> Self {
        Self { perf_runs: 1, ..self }
    }

    fn of(self, format: Format) -> Self {
        Self { format, ..self }
    }
}

/// Compares all kinds of work; returns the table.
pub fn rows(bench: &Bench<'_>) -> String {
    let mut out = String::from(
        "| work | input, MiB | jitinject, s | memory, MiB | `cp`, s | perf inject without cache, s | with its cache, s |\n\
         | --- | ---: | ---: | ---: | ---: | ---: | ---: |\n",
    );
    let mut add = |case: &Case<'_>, work: Work<'_>| {
        let line = compare(bench, case, &work);
        eprint!("{line}");
        out.push_str(&line);
    };
    let many = touched_little(bench, 1_000_000);
    let case = bench.case_in("functions", &many);
    add(
        &case,
        Work::new("functions: 1,000 of 100,000 sampled", &[]).once_by_perf(),
    );
    bench.folders.discard(&bench.path("functions"));

    let all = Input {
        functions: bench.scaled(100_000),
        samples: bench.scaled(100_000),
        debug_info: 1,
        ..Input::default()
    };
    let case = bench.case_in("all", &all);
    add(
        &case,
        Work::new("`--all`: 100,000 functions with lines", &["--all"]).once_by_perf(),
    );
    add(
        &case,
        Work::new("`--all --layout=function`", FUNCTION).once_by_perf(),
    );
    add(&case, Work::new("`--all --layout=image`", IMAGE).once_by_perf());
    bench.folders.discard(&bench.path("all"));

    let samples = bench.scaled(1_000_000);
    let case = bench.amplified("node20", samples);
    add(&case, Work::new("samples: node20's, 1,000,000", &[]));
    add(&case, Work::new("samples, `--layout=image`", &["--layout=image"]));
    add(
        &case,
        Work::new("samples, compressed records", &["--compress"]).of(Format::Compressed),
    );
    add(
        &case,
        Work::new("samples, from pipe to pipe", &[]).of(Format::Pipe),
    );
    bench.folders.discard(&bench.path("node20"));

    let maps = format!("--perf-map={}/testdata/php82", env!("CARGO_MANIFEST_DIR"));
    let case = bench.amplified("php82", samples);
    add(&case, Work::new("leaves: php82's samples, 1,000,000", &[&maps]));
    bench.folders.discard(&bench.path("php82"));

    let case = bench.amplified("node20-dwarf", bench.scaled(20_000));
    add(&case, Work::new("copied stacks: node20-dwarf's, 20,000", &[]));
    add(&case, Work::new("copied stacks, `--no-unwind`", &["--no-unwind"]));
    bench.folders.discard(&bench.path("node20-dwarf"));

    let case = bench.amplified("node20", 0);
    add(&case, Work::new("tiny: node20 as it is", &[]));
    out
}

/// Runs all programs on an input; returns the row.
fn compare(bench: &Bench<'_>, case: &Case<'_>, work: &Work<'_>) -> String {
    eprintln!("scripts/bench: {}", work.name);
    let input = converted(bench, case, work.format);
    // perf writes no features into a pipe that it would need for its cache.
    let without_build_ids = match work.format {
        Format::Plain => case.without_features(),
        Format::Compressed | Format::Pipe => input.clone(),
    };
    contest::warm(&[&input, &without_build_ids]);
    let (outputs, kept) = (bench.path("out"), bench.path("kept"));
    let (copies, perf_outputs) = (bench.path("copies"), bench.path("perf"));
    let jitinject = || {
        case.fresh_dumps();
        work.command(&input, &bench.output("out"), |input, output| {
            let mut command = programs::jitinject(input, output, work.arguments);
            command.arg("--elf-dir").arg(bench.objects("out"));
            command
        })
    };
    let perf = |name, profile: &Path, cache: PathBuf| {
        let (profile, output) = (profile.to_owned(), bench.output("perf"));
        Contestant::new(name, work.perf_runs, &[&perf_outputs, case.live()], move || {
            case.fresh_dumps();
            work.command(&profile, &output, |input, output| {
                programs::perf_inject(input, output, &cache)
            })
        })
    };
    bench.folders.make(&outputs);
    let status = jitinject().status().unwrap();
    assert!(status.success(), "{}", work.name);
    bench.folders.discard(&kept);
    fs::rename(&outputs, &kept).unwrap();
    let rows = bench.run(vec![
        Contestant::new(JITINJECT, RUNS, &[&outputs], jitinject),
        Contestant::new(COPY, RUNS, &[&copies], || {
            let [_, dumps] = case.files();
            floor::copy(&[&input, dumps, &kept], &copies)
        }),
        perf(PERF, &without_build_ids, "/dev/null".into()),
        perf(PERF_CACHED, &input, perf_outputs.join("cache")),
    ]);
    let size = fs::metadata(&input).unwrap().len() as f64 / f64::from(1 << 20);
    let jitinject = row(&rows, JITINJECT).unwrap();
    let (wall, peak) = (jitinject.wall(), jitinject.peak());
    let others = [COPY, PERF, PERF_CACHED].map(|name| match row(&rows, name) {
        Some(row) if row.is_done() => format!("{} ({})", seconds(row.wall()), factor(row.wall(), wall)),
        _ => "failed".into(),
    });
    let [copy, perf, cached] = others;
    format!(
        "| {} | {size:.1} | {} | {peak:.0} | {copy} | {perf} | {cached} |\n",
        work.name,
        seconds(wall)
    )
}

/// Returns the path of the profile in a format.
fn converted(bench: &Bench<'_>, case: &Case<'_>, format: Format) -> PathBuf {
    let name = match format {
        Format::Plain => return case.profile.clone(),
        Format::Compressed => "compressed",
        Format::Pipe => "pipe",
    };
    let path = bench.path(name);
    // Without its dumps nothing is injected, so that the profile is unchanged.
    case.remove_live();
    let mut command = match format {
        Format::Pipe => programs::jitinject(&case.profile, Path::new("-"), &[]),
        _ => programs::jitinject(&case.profile, &path, &["--compress"]),
    };
    if format == Format::Pipe {
        command.stdout(File::create(&path).unwrap());
    }
    assert!(command.status().unwrap().success());
    path
}
