//! Damages profiles and dumps and runs jitinject on them. Checks that jitinject exits by itself, names everything
//! that is intact, and reports everything that is lost. `scripts/fuzz --mutants` runs it.

mod cases;
mod intact;
mod oracle;
mod pieces;
mod profile;
mod programs;
mod verdict;

use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Parser;
use jitinject_fuzz::generator::Random;

use crate::cases::Case;
use crate::pieces::{DAMAGES, Damage, Pieces};
use crate::verdict::{Ran, Verdict};

/// Runs jitinject on damaged files.
#[derive(Parser)]
struct Options {
    /// Number of mutants
    #[arg(default_value_t = 1000)]
    mutants: u64,
    /// Index of the first mutant
    #[arg(long, default_value_t = 0)]
    first: u64,
    /// Path of jitinject
    #[arg(long)]
    jitinject: PathBuf,
    /// Also run `perf inject --jit` on the mutants
    #[arg(long)]
    against_perf: bool,
    /// Directory for mutants with findings
    #[arg(long)]
    keep: PathBuf,
    /// Directory for temporary files, preferably in memory
    #[arg(long, default_value = "/dev/shm")]
    folder: PathBuf,
}

/// A damaged profile with its dumps.
struct Mutant {
    damages: Vec<Damage>,
    profile: Pieces,
    dumps: Vec<Pieces>,
}

impl Mutant {
    fn new(case: &Case, number: u64) -> Self {
        let mut random = Random::new(number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let mut mutant = Self {
            damages: Vec::new(),
            profile: case.profile.clone(),
            dumps: case.dumps.clone(),
        };
        for _ in 0..1 + random.below(3) {
            let damage = DAMAGES[random.below(DAMAGES.len() as u64) as usize];
            let file = match random.below(4) {
                0 => &mut mutant.profile,
                _ => {
                    let at = random.below(mutant.dumps.len() as u64) as usize;
                    &mut mutant.dumps[at]
                }
            };
            file.damage(damage, &mut random);
            mutant.damages.push(damage);
        }
        mutant
    }
}

/// Totals of all runs of a program.
#[derive(Default)]
struct Totals {
    ends: BTreeMap<String, u64>,
    expected: u64,
    named: u64,
    /// Runs with a damaged profile, and other runs.
    reported: [u64; 2],
    silent: u64,
    /// Runs that lost something without a message, or with status 0.
    silent_runs: u64,
}

impl Totals {
    fn add(&mut self, verdict: &Verdict) {
        *self.ends.entry(verdict.end_text()).or_default() += 1;
        self.expected += verdict.expected;
        self.named += verdict.named;
        let lost = verdict.expected - verdict.named;
        if verdict.is_reported {
            self.reported[usize::from(!verdict.is_profile_damaged)] += lost;
        } else {
            self.silent += lost;
            self.silent_runs += u64::from(lost > 0);
        }
    }

    fn print(&self, program: &str) {
        println!("{program}");
        for (end, count) in &self.ends {
            println!("  {count:>8}  {end}");
        }
        println!(
            "  of {} frames in functions that are whole: {} named, {} lost with the profile and reported, {} lost with a dump \
             and reported, {} lost without a word (in {} runs)",
            self.expected, self.named, self.reported[0], self.reported[1], self.silent, self.silent_runs
        );
    }
}

fn main() -> ExitCode {
    let options = Options::parse();
    let work = tempfile::Builder::new()
        .prefix("mutants-")
        .tempdir_in(&options.folder)
        .unwrap();
    let cases = cases::all(work.path());
    let mut sound = Vec::new();
    for case in &cases {
        let mut warnings = HashSet::new();
        for layout in LAYOUTS {
            let ran = jitinject(case, &case.profile, &case.dumps, layout, &options, work.path());
            let verdict = verdict::of(case, &case.profile, &case.dumps, &ran, &HashSet::new());
            println!(
                "{}, {layout}: {} frames, {} named",
                case.name, verdict.expected, verdict.named
            );
            assert!(
                verdict.expected > 0 && verdict.named == verdict.expected,
                "{:?}",
                verdict.lost
            );
            warnings.extend(ran.warnings);
        }
        sound.push(warnings);
    }
    let perf_reads: Vec<bool> = if options.against_perf {
        cases
            .iter()
            .map(|case| can_perf_read(case, work.path()))
            .collect()
    } else {
        vec![false; cases.len()]
    };
    let (mut ours, mut perfs) = (Totals::default(), Totals::default());
    let mut by_damage: BTreeMap<Damage, (u64, u64, u64)> = BTreeMap::new();
    let mut findings = 0;
    for number in options.first..options.first + options.mutants {
        let at = (number % cases.len() as u64) as usize;
        let case = &cases[at];
        let mutant = Mutant::new(case, number);
        let layout = LAYOUTS[(number / cases.len() as u64 % 2) as usize];
        let ran = jitinject(
            case,
            &mutant.profile,
            &mutant.dumps,
            layout,
            &options,
            work.path(),
        );
        let verdict = verdict::of(case, &mutant.profile, &mutant.dumps, &ran, &sound[at]);
        ours.add(&verdict);
        for &damage in &mutant.damages {
            let counts = by_damage.entry(damage).or_default();
            counts.0 += 1;
            counts.1 += verdict.expected;
            counts.2 += verdict.named;
        }
        for finding in verdict.findings() {
            findings += 1;
            println!(
                "mutant {number} of {}, {:?}: {finding}",
                case.name, mutant.damages
            );
            keep(&options.keep.join(number.to_string()), case, &mutant, &ran);
        }
        if perf_reads[at] {
            let ran = perf_inject(case, &mutant.profile, &mutant.dumps, work.path());
            perfs.add(&verdict::of(
                case,
                &mutant.profile,
                &mutant.dumps,
                &ran,
                &HashSet::new(),
            ));
        }
        if number % 1000 == 999 {
            eprintln!("{} of {}", number + 1 - options.first, options.mutants);
        }
    }
    ours.print("jitinject");
    for (damage, (mutants, expected, named)) in by_damage {
        println!("  {damage:>8?}: {mutants} times, {named} of {expected} frames named");
    }
    if options.against_perf {
        perfs.print("perf inject --jit, of cases that it can read when they are sound");
    }
    println!("{findings} findings");
    ExitCode::from(u8::from(findings > 0))
}

/// Object layouts, used in turn.
const LAYOUTS: [&str; 2] = ["function", "image"];

fn jitinject(
    case: &Case,
    profile: &Pieces,
    dumps: &[Pieces],
    layout: &str,
    options: &Options,
    work: &Path,
) -> Ran {
    let (input, output, summary) = paths(work);
    case.write_dumps(dumps);
    let bytes = profile.bytes();
    fs::write(&input, &bytes).unwrap();
    let program = options.jitinject.to_str().unwrap();
    let text = |path: &PathBuf| path.to_str().unwrap().to_owned();
    let (input, output, summary) = (text(&input), text(&output), text(&summary));
    let files = [program, "-i", &input, "-o", &output, "--summary", &summary];
    let arguments = [&files[..], &["--layout", layout]].concat();
    let size = bytes.len() + dumps.iter().map(|dump| dump.bytes().len()).sum::<usize>();
    let (end, said) = programs::run(&arguments, work, size as u64);
    Ran::read(end, said, &output, Some(Path::new(&summary)))
}

/// Returns whether `perf inject --jit` names everything in the valid files.
fn can_perf_read(case: &Case, work: &Path) -> bool {
    let ran = perf_inject(case, &case.profile, &case.dumps, work);
    let verdict = verdict::of(case, &case.profile, &case.dumps, &ran, &HashSet::new());
    println!("{}: {} named by perf", case.name, verdict.named);
    verdict.named == verdict.expected
}

fn perf_inject(case: &Case, profile: &Pieces, dumps: &[Pieces], work: &Path) -> Ran {
    let (input, output, _) = paths(work);
    case.write_dumps(dumps);
    fs::write(&input, profile.bytes()).unwrap();
    let cache = work.join("debug");
    let text = |path: &PathBuf| path.to_str().unwrap().to_owned();
    let (input, output, cache) = (text(&input), text(&output), text(&cache));
    let arguments = [
        "perf",
        "--buildid-dir",
        &cache,
        "inject",
        "--jit",
        "-f",
        "-i",
        &input,
        "-o",
        &output,
    ];
    let (end, said) = programs::run(&arguments, work, 0);
    Ran::read(end, said, &output, None)
}

/// Returns the paths of input, output and summary; removes the last two files.
fn paths(work: &Path) -> (PathBuf, PathBuf, PathBuf) {
    let (output, summary) = (work.join("out.data"), work.join("summary.json"));
    let _ = (fs::remove_file(&output), fs::remove_file(&summary));
    let _ = fs::remove_dir_all(work.join("out.data.elf"));
    (work.join("perf.data"), output, summary)
}

/// Stores a mutant with findings.
fn keep(folder: &Path, case: &Case, mutant: &Mutant, ran: &Ran) {
    fs::create_dir_all(folder).unwrap();
    fs::write(folder.join("perf.data"), mutant.profile.bytes()).unwrap();
    fs::write(
        folder.join("said"),
        format!("{}\n{:?}\n{}", case.name, ran.end, ran.said),
    )
    .unwrap();
    for (path, dump) in case.dump_paths.iter().zip(&mutant.dumps) {
        fs::write(folder.join(path.file_name().unwrap()), dump.bytes()).unwrap();
    }
}
