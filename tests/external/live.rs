//! Records a small JIT compiler of our own (`programs/jit.c`), which needs no runtime, with perf.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::support::{OBJECT_LAYOUTS, inject, inject_into, objects_of, perf, scratch, tools};

/// A period in which a process has the same stack.
struct Stretch {
    pid: u32,
    start: u64,
    end: u64,
    /// Functions, innermost first.
    functions: Vec<String>,
}

/// Records the JIT compiler; returns the profile and the actual stacks.
fn record(folder: &Path, code: &str, call_graph: &[&str]) -> (PathBuf, Vec<Stretch>) {
    let program = tools::compile(folder, "jit.c", &[]);
    let profile = folder.join("perf.data");
    let status = Command::new("perf")
        .args(["record", "-q", "-k", "mono", "-e", "cpu-clock", "-F", "1999"])
        .args(call_graph)
        .args(["-o", tools::text(&profile), tools::text(&program), code, "truth"])
        .current_dir(folder)
        .status()
        .unwrap_or_else(|error| panic!("perf: {error}; scripts/test installs it"));
    assert!(status.success());
    (profile, read_truth(folder))
}

/// Reads the stacks that the JIT compiler logged.
fn read_truth(folder: &Path) -> Vec<Stretch> {
    let truth = std::fs::read_to_string(folder.join("truth")).unwrap();
    let stretches = truth.lines().map(|line| {
        let mut words = line.split(' ');
        let mut number = || words.next().unwrap().parse().unwrap();
        Stretch {
            pid: number() as u32,
            start: number(),
            end: number(),
            functions: words.map(str::to_owned).collect(),
        }
    });
    stretches.collect()
}

/// Checks that each sample in JIT code shows all functions on the stack, followed by those of the program.
fn assert_whole(program: &str, output: &Path, stretches: &[Stretch], call_graph: &[&str]) {
    assert_eq!(stretches.len(), 6);
    let mut seen = vec![0; stretches.len()];
    let mut wrong = Vec::new();
    let cache = scratch();
    for sample in perf::stacks_with_cache(program, cache.path(), output, &[]) {
        let stretch = stretches.iter().position(|stretch| {
            stretch.pid == sample.pid && (stretch.start..stretch.end).contains(&sample.time)
        });
        // Kernel frames may come first.
        let user = sample.frames.iter().position(|frame| frame.starts_with("inner_"));
        let (Some(stretch), Some(user)) = (stretch, user) else {
            continue;
        };
        let mut expected = stretches[stretch].functions.clone();
        expected.extend(["run_stretch".to_owned(), "main".to_owned()]);
        let shown = sample.frames[user..].iter().take(expected.len());
        if !shown.eq(&expected) {
            wrong.push(sample);
        }
        seen[stretch] += 1;
    }
    // In prologues and epilogues, frame pointers miss the caller.
    let total: usize = seen.iter().sum();
    let tolerated = if call_graph.contains(&"fp") {
        total / 100
    } else {
        0
    };
    assert!(
        wrong.len() <= tolerated,
        "{} of {total}: {:?}",
        wrong.len(),
        wrong[0]
    );
    // The CPU may be busy with other tasks for a while, but not all the time.
    assert!(
        seen.iter().all(|&samples| samples > 20),
        "samples in each stretch: {seen:?}"
    );
}

/// Checks the call chains that replace copied stacks: whole ones, for every version of perf, and frame by frame those that
/// perf unwinds from the copies.
fn assert_unwound(folder: &Path, profile: &Path, stretches: &[Stretch]) {
    let copied = inject_into(
        folder,
        profile,
        &["--no-unwind", "--elf-dir", tools::text(&folder.join("copied"))],
    );
    let original = folder.join("copied.data");
    std::fs::rename(copied, &original).unwrap();
    let output = inject_into(folder, profile, &["--unwind", "--fail-under", "100"]);
    for program in perf::programs() {
        assert_whole(&program, &output, stretches, &["--unwind"]);
    }
    let cache = scratch();
    let in_code = |profile: &Path| -> Vec<perf::Sample> {
        let all = perf::stacks_with_cache("perf", cache.path(), profile, &[]);
        let has_code = |sample: &perf::Sample| sample.frames.iter().any(|frame| frame.starts_with("inner_"));
        all.into_iter().filter(has_code).collect()
    };
    let (expected, found) = (in_code(&original), in_code(&output));
    assert!(expected.len() > 100);
    // libunwind ends each stack with an address without a symbol, above the entry point.
    let whole = |sample: &perf::Sample| -> Vec<String> {
        let frames = sample.frames.iter();
        frames
            .take_while(|frame| *frame != perf::UNKNOWN)
            .cloned()
            .collect()
    };
    for (expected, found) in expected.iter().zip(&found) {
        assert_eq!((found.pid, found.time), (expected.pid, expected.time));
        assert_eq!(whole(found), whole(expected));
    }
    assert_eq!(found.len(), expected.len());
    let size = |path: &Path| std::fs::metadata(path).unwrap().len();
    assert!(
        size(&output) * 8 < size(profile),
        "{} of {}",
        size(&output),
        size(profile)
    );
}

fn check(code: &str, call_graph: &[&str]) {
    let folder = scratch();
    let (profile, stretches) = record(folder.path(), code, call_graph);
    for layout in OBJECT_LAYOUTS {
        let output = inject_into(
            folder.path(),
            &profile,
            &[layout, &["--no-unwind", "--fail-under", "100"]].concat(),
        );
        for program in perf::programs() {
            assert_whole(&program, &output, &stretches, call_graph);
        }
    }
    if !call_graph.contains(&"fp") {
        assert_unwound(folder.path(), &profile, &stretches);
    }
    let output = inject_into(folder.path(), &profile, &[]);
    let names = objects_of(&output)
        .iter()
        .map(|object| function_name(object))
        .collect::<Vec<_>>();
    // A copy of the stack may hold the address of any function.
    let is_exact = call_graph.contains(&"fp");
    assert!(!is_exact || !names.contains(&"unused".to_owned()), "{names:?}");
    assert!(names.contains(&"inner_4".to_owned()), "{names:?}");
}

/// A process that existed before the recording, and has removed its dump, which it still has open.
#[test]
fn a_server_that_perf_attaches_to() {
    for clock in [&["-k", "mono"][..], &[]] {
        let folder = scratch();
        let program = tools::compile(folder.path(), "jit.c", &[]);
        let mut server = Command::new(program)
            .args(["frames", "truth", "server"])
            .current_dir(folder.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(server.stdout.take().unwrap()).lines();
        assert_eq!(lines.next().unwrap().unwrap(), "waiting");
        let profile = folder.path().join("perf.data");
        let [control, answer] = ["control", "answer"].map(|name| folder.path().join(name));
        tools::run("mkfifo", &[tools::text(&control), tools::text(&answer)]);
        let fifos = format!("fifo:{},{}", control.display(), answer.display());
        let mut record = Command::new("perf")
            .args([
                "record",
                "-q",
                "-e",
                "cpu-clock",
                "-F",
                "1999",
                "--call-graph",
                "fp",
            ])
            .args(clock)
            .args(["-D", "-1", "--control", &fifos])
            .args(["-p", &server.id().to_string(), "-o", tools::text(&profile)])
            .spawn()
            .unwrap();
        // perf answers when it has attached.
        let mut answers = File::options().read(true).write(true).open(&answer).unwrap();
        std::fs::write(&control, "enable\n").unwrap();
        answers.read_exact(&mut [0; 3]).unwrap();
        let mut stdin = server.stdin.take().unwrap();
        stdin.write_all(b"\n").unwrap();
        assert_eq!(lines.next().unwrap().unwrap(), "waiting");
        tools::run("kill", &["-INT", &record.id().to_string()]);
        record.wait().unwrap();
        let output = folder.path().join("out.data");
        let said = inject(&profile, &output, &["-v", "--fail-under", "100"]);
        stdin.write_all(b"\n").unwrap();
        assert!(server.wait().unwrap().success());
        assert!(said.contains(&format!("/proc/{}/fd/", server.id())), "{said}");
        // The evidence depends on what was sampled.
        let is_aligned = said.contains("clock: another than the profile's");
        assert_eq!(is_aligned, clock.is_empty(), "{said}");
        assert_stacks(&output, &read_truth(folder.path()));
    }
}

/// Checks that all stacks in JIT code are actual ones, and that each of these is sampled, whatever the clock of
/// the samples.
fn assert_stacks(output: &Path, stretches: &[Stretch]) {
    let mut seen = HashMap::new();
    for sample in perf::stacks(output, &[]) {
        let user = sample.frames.iter().position(|frame| frame.starts_with("inner_"));
        let functions = user.and_then(|user| sample.frames.get(user..user + 3));
        if let Some(functions) = functions {
            *seen.entry((sample.pid, functions.to_vec())).or_insert(0) += 1;
        }
    }
    let mut total = 0;
    for stretch in stretches {
        let samples = seen.remove(&(stretch.pid, stretch.functions.clone()));
        let is_repeated = stretches
            .iter()
            .filter(|other| other.functions == stretch.functions)
            .count()
            > 1;
        assert!(
            samples.is_some_and(|samples| samples > 20) || is_repeated,
            "{:?}",
            stretch.functions
        );
        total += samples.unwrap_or(0);
    }
    let wrong: usize = seen.values().sum();
    assert!(wrong * 100 <= total, "{wrong} of {total}: {seen:?}");
}

/// Returns the name of the function in an object.
fn function_name(object: &Path) -> String {
    let symbols = tools::run("readelf", &["-sW", tools::text(object)]);
    let function = symbols.lines().find(|line| line.contains(" FUNC "));
    function.unwrap().rsplit(' ').next().unwrap().to_owned()
}

#[test]
fn code_with_frame_pointers_recorded_by_them() {
    check("frames", &["--call-graph", "fp"]);
}

#[test]
fn code_with_frame_pointers_unwound_by_tables() {
    check("frames", &["--call-graph", "dwarf,4096"]);
}

#[test]
fn code_without_frame_pointers_unwound_by_tables() {
    check("bare", &["--call-graph", "dwarf,4096"]);
}
