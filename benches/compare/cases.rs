//! The cases of the comparison.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use crate::contest::{self, Contestant};
use crate::folders::Folders;
use crate::inputs::{Case, Input};
use crate::table::{Row, Section, factor};
use crate::{copied_stacks, floor, formats, growth, programs, rows, traces};

/// Which cases to run, and how.
pub struct Options {
    pub scale: Scale,
    /// Parts of the names of the cases to run; empty for all cases.
    pub names: Vec<String>,
    pub runs: usize,
    pub limit: Duration,
    pub folder: PathBuf,
    /// Parameters of an input to use instead of the usual cases.
    pub own: Option<Input>,
}

/// Size of the inputs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Scale {
    /// One table of all kinds of work.
    Rows,
    Quick,
    Full,
    Huge,
}

/// Number of runs of slow programs.
pub const SLOW_RUNS: usize = 3;

/// Options for an object per function.
pub const FUNCTION: &[&str] = &["--all", "--layout=function"];

/// Options for objects that functions share.
pub const IMAGE: &[&str] = &["--all", "--layout=image"];

/// Time limit of perf report; some versions do not finish with a hundred thousand objects.
const REPORT_LIMIT: Duration = Duration::from_secs(60);

/// Names of the lower bounds in the table.
const COPY: &str = "cp of the inputs and outputs";
const WRITER: &str = "writer of the same files";
const PERF: &str = "perf inject";
const PERF_CACHED: &str = "perf inject, build-id cache";

/// Runs the cases; returns the table.
pub fn run(options: &Options) -> String {
    let memory = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let mut out = format!(
        "{} (commit {}) against {}; {}; Linux {}, {}, {} processors, {}\n\n",
        programs::version(env!("CARGO_BIN_EXE_jitinject")),
        programs::line_of(Command::new("git").args(["describe", "--always", "--dirty"])),
        programs::version(&programs::perf()),
        programs::line_of(Command::new("date").arg("+%F")),
        kernel.trim(),
        processor(),
        std::thread::available_parallelism().unwrap(),
        memory
            .lines()
            .next()
            .unwrap_or_default()
            .split_whitespace()
            .collect::<Vec<_>>()
            .join(" "),
    );
    let folders = Folders::new(&options.folder);
    if options.scale == Scale::Rows {
        let folder = folders.case("rows");
        let bench = Bench {
            options,
            folder: &folder,
            folders: &folders,
        };
        out.push_str(&rows::rows(&bench));
        return out;
    }
    for (name, case) in CASES {
        let is_own = name == "own";
        let is_quick = QUICK.contains(&name) || options.scale != Scale::Quick;
        let is_wanted = match &options.names[..] {
            [] => is_quick,
            names => names.iter().any(|part| name.contains(part)),
        };
        if is_own != options.own.is_some() || !is_own && !is_wanted {
            continue;
        }
        eprintln!("scripts/bench: {name}");
        let started = Instant::now();
        let folder = folders.case(name);
        let bench = Bench {
            options,
            folder: &folder,
            folders: &folders,
        };
        for section in case(&bench) {
            let text = section.text();
            eprint!("{text}");
            out.push_str(&text);
        }
        eprintln!("scripts/bench: {:.0} s", started.elapsed().as_secs_f64());
        folders.discard(&folder);
    }
    out
}

/// Returns the name of the processor.
fn processor() -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let mut lines = text.lines();
    let line = lines.find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    line.map_or("unknown processor", |(_, name)| name).to_owned()
}

/// Runs a case.
type Compare = fn(&Bench<'_>) -> Vec<Section>;

/// All cases by their names, which are also the names of their directories.
const CASES: [(&str, Compare); 11] = [
    ("selection", selection),
    ("all-functions", all_functions),
    ("all-image", all_image),
    ("inlined", inlined),
    ("formats", formats::formats),
    ("recordings", recordings),
    ("traces", traces::traces),
    ("copied-stacks", copied_stacks::copied_stacks),
    ("growth-functions", growth::of_functions),
    ("growth-samples", growth::of_samples),
    ("own", own),
];

/// The cases of a quick run.
const QUICK: [&str; 5] = ["selection", "all-functions", "all-image", "recordings", "traces"];

/// Context of all cases.
pub struct Bench<'a> {
    pub options: &'a Options,
    folder: &'a Path,
    pub folders: &'a Folders,
}

impl<'a> Bench<'a> {
    /// Returns a number, or a tenth of it in a quick run.
    pub fn scaled(&self, number: u64) -> u64 {
        match self.options.scale {
            Scale::Quick => number / 10,
            _ => number,
        }
    }

    pub fn runs(&self) -> usize {
        self.options.runs
    }

    /// Returns the number of runs of programs that write hundreds of megabytes of small files.
    pub fn runs_of_many_files(&self) -> usize {
        self.runs().min(5)
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    pub fn case(&self, input: &Input) -> Case<'a> {
        self.case_in("inputs", input)
    }

    pub fn case_in(&self, name: &str, input: &Input) -> Case<'a> {
        let folder = self.path(name);
        fs::create_dir(&folder).unwrap();
        let case = Case::synthetic_symbols(&folder, input, self.folders);
        contest::warm(&case.files());
        case
    }

    /// Returns a recording with at least so many samples.
    pub fn amplified(&self, name: &str, samples: u64) -> Case<'a> {
        Case::amplified(&self.path(name), name, samples, self.folders)
    }

    pub fn run(&self, contestants: Vec<Contestant<'_>>) -> Vec<Row> {
        contest::run(contestants, self.options.limit, self.folders)
    }

    /// Returns the path of a program's output in the directory `NAME`.
    pub fn output(&self, name: &str) -> PathBuf {
        self.path(name).join("out.data")
    }

    /// Returns the directory of a program's objects.
    pub fn objects(&self, name: &str) -> PathBuf {
        self.path(name).join("out.data.elf")
    }

    /// Returns jitinject with its output in the directory `NAME`.
    pub fn jitinject<'c>(
        &self,
        case: &'c Case<'_>,
        name: &str,
        arguments: &'c [&str],
        runs: usize,
    ) -> Contestant<'c> {
        let output = self.output(name);
        let title = ["jitinject"].iter().chain(arguments).copied();
        let title: Vec<&str> = title.collect();
        Contestant::new(&title.join(" "), runs, &[&self.path(name)], move || {
            case.fresh_dumps();
            programs::jitinject(&case.profile, &output, arguments)
        })
    }

    /// Returns perf inject without its build ID cache, which it fills only if the profile has build IDs. (With an
    /// invalid cache directory, it fails for each object, which takes as long.)
    fn perf<'c>(&self, case: &'c Case<'_>, runs: usize) -> Contestant<'c> {
        let output = self.output("perf");
        Contestant::new(PERF, runs, &[&self.path("perf"), case.live()], move || {
            case.fresh_dumps();
            programs::perf_inject(&case.without_features(), &output, Path::new("/dev/null"))
        })
    }

    /// Returns perf inject as it runs on profiles that `perf record` wrote without further options.
    fn perf_cached<'c>(&self, case: &'c Case<'_>, runs: usize) -> Contestant<'c> {
        let folder = self.path("perf-cached");
        let (output, cache) = (folder.join("out.data"), folder.join("cache"));
        Contestant::new(PERF_CACHED, runs, &[&folder, case.live()], move || {
            case.fresh_dumps();
            programs::perf_inject(&case.profile, &output, &cache)
        })
    }

    /// Runs jitinject once, for benchmarks that need its output.
    pub fn prepare(&self, case: &Case<'_>, name: &str, arguments: &[&str]) {
        self.run(vec![self.jitinject(case, name, arguments, 1)]);
    }

    /// Returns `cp` of the inputs and of the output of [`Bench::prepare`].
    pub fn copy<'c>(&self, case: &'c Case<'_>, name: &str, runs: usize) -> Contestant<'c> {
        let target = self.path("copies");
        let outputs = self.path(name);
        Contestant::new(COPY, runs, &[&target.clone()], move || {
            let all: Vec<&Path> = case.files().into_iter().chain([outputs.as_path()]).collect();
            floor::copy(&all, &target)
        })
    }

    /// Returns the minimal writer of the objects that [`Bench::prepare`] wrote.
    fn writer(&self, name: &str, runs: usize) -> Contestant<'static> {
        let target = self.path("written");
        let (objects, sizes) = (self.objects(name), self.path("sizes"));
        Contestant::new(WRITER, runs, &[&target.clone()], move || {
            floor::write(&objects, &sizes, &target)
        })
    }

    /// Runs perf report on outputs, with each available perf.
    fn reports(&self, outputs: &[(&str, &str)]) -> Vec<Row> {
        let perfs = [Some(programs::perf()), programs::newer_perf()];
        let mut contestants = Vec::new();
        for perf in perfs.into_iter().flatten() {
            let version = programs::version(&perf);
            let version = version.trim_start_matches("perf version ").to_owned();
            for &(title, name) in outputs {
                let output = self.output(name);
                let cache = self.path("no-cache");
                let perf = perf.clone();
                let title = format!("perf {version} report of {title}'s");
                contestants.push(Contestant::new(&title, SLOW_RUNS, &[], move || {
                    programs::perf_report(&perf, &output, &cache)
                }));
            }
        }
        let limit = self.options.limit.min(REPORT_LIMIT);
        contest::run(contestants, limit, self.folders)
    }
}

/// Returns the row of a program.
pub fn row<'r>(rows: &'r [Row], program: &str) -> Option<&'r Row> {
    rows.iter()
        .find(|row| row.program == program && !row.runs.is_empty())
}

/// Compares two programs, the slower one first, in time and memory. Includes minimum times, because other load
/// only makes programs slower.
pub fn ratio(rows: &[Row], slow: &str, fast: &str, memory: bool) -> Option<String> {
    let (slow_row, fast_row) = (row(rows, slow)?, row(rows, fast)?);
    let at_least = if slow_row.is_done() { "" } else { "at least " };
    let mut out = format!(
        "{slow} takes {at_least}{} times as long as {fast} (least against least: {})",
        factor(slow_row.wall(), fast_row.wall()),
        factor(slow_row.least(), fast_row.least())
    );
    // CPU times have a resolution of 10 ms.
    if fast_row.cpu() > 0.05 {
        let factor = factor(slow_row.cpu(), fast_row.cpu());
        out += &format!(", {factor} times the processors' time");
    }
    if memory {
        out += &format!(
            ", and {} times the memory",
            factor(slow_row.peak(), fast_row.peak())
        );
    }
    Some(out)
}

pub fn section(title: String, rows: Vec<Row>, ratios: impl IntoIterator<Item = Option<String>>) -> Section {
    Section {
        title,
        rows,
        ratios: ratios.into_iter().flatten().collect(),
    }
}

/// Formats a number with separators.
pub fn number(number: u64) -> String {
    let digits = number.to_string();
    let groups = digits.as_bytes().rchunks(3).rev();
    let groups: Vec<&str> = groups.map(|group| std::str::from_utf8(group).unwrap()).collect();
    groups.join(",")
}

/// Returns an input whose samples hit few of many functions.
pub fn touched_little(bench: &Bench<'_>, samples: u64) -> Input {
    Input {
        functions: bench.scaled(100_000),
        samples: bench.scaled(samples),
        touched: Some(bench.scaled(1000)),
        ..Input::default()
    }
}

fn selection(bench: &Bench<'_>) -> Vec<Section> {
    let input = touched_little(bench, 1_000_000);
    let title = format!(
        "What samples touch: {} of {} functions, {} samples",
        number(input.touched.unwrap_or(0)),
        number(input.functions),
        number(input.samples)
    );
    let case = bench.case(&input);
    bench.prepare(&case, "kept", &[]);
    let mut rows = bench.run(vec![
        bench.jitinject(&case, "selection", &[], bench.runs()),
        bench.copy(&case, "kept", bench.runs()),
        bench.perf_cached(&case, 1),
        bench.perf(&case, SLOW_RUNS),
    ]);
    let ratios = [
        ratio(&rows, PERF, "jitinject", true),
        ratio(&rows, PERF_CACHED, "jitinject", true),
        ratio(&rows, "jitinject", COPY, false),
    ];
    rows.extend(bench.reports(&[("jitinject", "selection"), (PERF, "perf")]));
    vec![section(title, rows, ratios)]
}

fn all_functions(bench: &Bench<'_>) -> Vec<Section> {
    let input = Input {
        functions: bench.scaled(100_000),
        samples: bench.scaled(100_000),
        ..Input::default()
    };
    let title = format!("A file for each of {} functions", number(input.functions));
    vec![all(bench, &input, title, FUNCTION)]
}

fn all_image(bench: &Bench<'_>) -> Vec<Section> {
    let input = Input {
        functions: bench.scaled(100_000),
        samples: bench.scaled(100_000),
        debug_info: 1,
        ..Input::default()
    };
    let title = format!("All of {} functions with lines", number(input.functions));
    vec![all(bench, &input, title, IMAGE)]
}

fn all(bench: &Bench<'_>, input: &Input, title: String, arguments: &[&str]) -> Section {
    let case = bench.case(input);
    let runs = bench.runs_of_many_files();
    bench.prepare(&case, "kept", arguments);
    let mut rows = bench.run(vec![
        bench.jitinject(&case, "all", arguments, runs),
        bench.writer("kept", runs),
        bench.perf_cached(&case, 1),
        bench.perf(&case, SLOW_RUNS),
    ]);
    let reports = bench.reports(&[("jitinject", "all"), (PERF, "perf")]);
    let jitinject = rows[0].program.clone();
    let mut ratios = vec![
        ratio(&rows, PERF, &jitinject, true),
        ratio(&rows, PERF_CACHED, &jitinject, true),
        ratio(&rows, &jitinject, WRITER, false),
    ];
    for pair in reports.chunks(2) {
        ratios.push(ratio(pair, &pair[1].program, &pair[0].program, false));
    }
    rows.extend(reports);
    section(title, rows, ratios)
}

fn inlined(bench: &Bench<'_>) -> Vec<Section> {
    let input = Input {
        functions: bench.scaled(100_000),
        samples: bench.scaled(100_000),
        debug_info: 2,
        unwinding: true,
        ..Input::default()
    };
    let title = format!(
        "All of {} functions with inlined calls and tables for unwinding",
        number(input.functions)
    );
    let case = bench.case(&input);
    let runs = bench.runs_of_many_files();
    bench.prepare(&case, "kept", FUNCTION);
    let rows = bench.run(vec![
        bench.jitinject(&case, "function", FUNCTION, runs),
        bench.jitinject(&case, "image", IMAGE, runs),
        bench.writer("kept", runs),
        bench.perf(&case, 1),
    ]);
    let ratios = [ratio(&rows, &rows[0].program, WRITER, false)];
    vec![section(title, rows, ratios)]
}

fn recordings(bench: &Bench<'_>) -> Vec<Section> {
    const NAMES: [&str; 5] = ["node20", "node20-dwarf", "java17", "qemu", "wasmtime"];
    let names = match bench.options.scale {
        Scale::Quick => &NAMES[..1],
        _ => &NAMES[..],
    };
    let mut rows = Vec::new();
    let mut ratios = Vec::new();
    for name in names {
        let case = Case::recording(&bench.path(name), name, bench.folders).unwrap();
        contest::warm(&case.files());
        let found = bench.run(vec![
            bench.jitinject(&case, "selection", &[], 3 * bench.runs()),
            bench.perf_cached(&case, bench.runs()),
            bench.perf(&case, bench.runs()),
        ]);
        let found = found.into_iter().map(|row| Row {
            program: format!("{name}: {}", row.program),
            ..row
        });
        let found: Vec<Row> = found.collect();
        let [jitinject, _, perf] = &found[..] else {
            unreachable!()
        };
        ratios.push(ratio(&found, &perf.program, &jitinject.program, true));
        rows.extend(found);
    }
    vec![section(
        "Recordings of real programs, what samples touch".into(),
        rows,
        ratios,
    )]
}

/// Compares the programs on the input of the command line.
fn own(bench: &Bench<'_>) -> Vec<Section> {
    let input = bench.options.own.clone().unwrap_or_default();
    let case = bench.case(&input);
    let runs = bench.runs_of_many_files();
    bench.prepare(&case, "kept", FUNCTION);
    let rows = bench.run(vec![
        bench.jitinject(&case, "selection", &[], runs),
        bench.jitinject(&case, "function", FUNCTION, runs),
        bench.jitinject(&case, "image", IMAGE, runs),
        bench.writer("kept", runs),
        bench.copy(&case, "kept", runs),
        bench.perf(&case, SLOW_RUNS),
    ]);
    let ratios = [
        ratio(&rows, PERF, "jitinject", true),
        ratio(&rows, PERF, &rows[1].program, true),
        ratio(&rows, &rows[1].program, WRITER, false),
    ];
    vec![section(format!("{input:?}"), rows, ratios)]
}
