//! Compares profiles in other formats: compressed, or read from and written to pipes.

use std::fs::File;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::cases::{Bench, number, ratio, section, touched_little};
use crate::contest::{self, Contestant};
use crate::programs;
use crate::table::Section;

/// Compares other formats of the same profile.
pub fn formats(bench: &Bench<'_>) -> Vec<Section> {
    let input = touched_little(bench, 1_000_000);
    let case = bench.case(&input);
    let compressed = bench.path("compressed");
    let pipe = bench.path("pipe");
    // Without its dumps nothing is injected, so that the profile is unchanged.
    case.remove_live();
    let plain = case.without_features();
    let copied = programs::jitinject(&plain, &compressed, &["--compress"]).status();
    assert!(copied.unwrap().success());
    let mut command = programs::jitinject(&plain, Path::new("-"), &[]);
    command.stdout(File::create(&pipe).unwrap());
    assert!(command.status().unwrap().success());
    contest::warm(&[&compressed, &pipe]);
    let (output, objects) = (bench.output("out"), bench.objects("out"));
    let folder = bench.path("out");
    let folders = [folder.as_path()];
    let cache = Path::new("/dev/null");
    let from = |input: &'static str| {
        let (case, path, output) = (&case, bench.path(input), &output);
        move || {
            case.fresh_dumps();
            programs::jitinject(&path, output, &[])
        }
    };
    let perf_folders = [folder.as_path(), case.live()];
    let rows = bench.run(vec![
        Contestant::new("jitinject, plain records", bench.runs(), &folders, || {
            case.fresh_dumps();
            programs::jitinject(&case.profile, &output, &[])
        }),
        Contestant::new(
            "jitinject, compressed records",
            bench.runs(),
            &folders,
            from("compressed"),
        ),
        Contestant::new("jitinject, from pipe to pipe", bench.runs(), &folders, || {
            case.fresh_dumps();
            let objects = objects.to_str().unwrap();
            let command = programs::jitinject(Path::new("-"), Path::new("-"), &["--elf-dir", objects]);
            through_pipes(command, &pipe, &output)
        }),
        Contestant::new("perf inject, compressed records", 1, &perf_folders, || {
            case.fresh_dumps();
            programs::perf_inject(&compressed, &output, cache)
        }),
        Contestant::new("perf inject, from pipe to pipe", 1, &perf_folders, || {
            case.fresh_dumps();
            let command = programs::perf_inject(Path::new("-"), Path::new("-"), cache);
            through_pipes(command, &pipe, &output)
        }),
    ]);
    let title = format!("Other formats, {} samples", number(input.samples));
    // perf inject 6.1 skips compressed records, including everything in them.
    let ratios = [ratio(
        &rows,
        "perf inject, from pipe to pipe",
        "jitinject, from pipe to pipe",
        true,
    )];
    vec![section(title, rows, ratios)]
}

/// Connects a command's standard input and output to files, through pipes.
pub fn through_pipes(mut command: Command, input: &Path, output: &Path) -> Command {
    let cat = |input: Stdio, output: Stdio| {
        let spawned = Command::new("cat").stdin(input).stdout(output).spawn();
        spawned.unwrap()
    };
    let mut before = cat(File::open(input).unwrap().into(), Stdio::piped());
    let mut after = cat(Stdio::piped(), File::create(output).unwrap().into());
    command.stdin(before.stdout.take().unwrap());
    command.stdout(after.stdin.take().unwrap());
    // They end with the pipes.
    std::thread::spawn(move || (before.wait(), after.wait()));
    command
}
