//! A recording made now, by real perf, of a small JIT compiler of our own (`programs/jit.c`) that needs no
//! runtime.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::{inject_into, objects_of, perf, scratch, tools};

/// A stretch of time in which a process has the same stack.
struct Stretch {
    pid: u32,
    start: u64,
    end: u64,
    /// Innermost first.
    functions: Vec<String>,
}

/// Records the JIT compiler; returns the profile and what really was on the stack.
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
    (profile, stretches.collect())
}

/// Checks that each sample in made code shows all functions that were on the stack, and behind them those of
/// the program.
fn assert_whole(program: &str, output: &Path, stretches: &[Stretch]) {
    assert_eq!(stretches.len(), 6);
    let mut seen = vec![0; stretches.len()];
    let cache = scratch();
    for sample in perf::stacks_with_cache(program, cache.path(), output, &[]) {
        let stretch = stretches.iter().position(|stretch| {
            stretch.pid == sample.pid && (stretch.start..stretch.end).contains(&sample.time)
        });
        // Kernel frames may lie above.
        let user = sample.frames.iter().position(|frame| frame.starts_with("inner_"));
        let (Some(stretch), Some(user)) = (stretch, user) else {
            continue;
        };
        let mut expected = stretches[stretch].functions.clone();
        expected.extend(["run_stretch".to_owned(), "main".to_owned()]);
        let shown = sample.frames[user..].iter().take(expected.len());
        assert_eq!(
            shown.collect::<Vec<_>>(),
            expected.iter().collect::<Vec<_>>(),
            "{sample:?}"
        );
        seen[stretch] += 1;
    }
    // The processor may be somebody else's for a while, but not all the time.
    assert!(
        seen.iter().all(|&samples| samples > 20),
        "samples in each stretch: {seen:?}"
    );
}

fn check(code: &str, call_graph: &[&str]) {
    let folder = scratch();
    let (profile, stretches) = record(folder.path(), code, call_graph);
    let output = inject_into(folder.path(), &profile, &["--fail-under", "100"]);
    for program in perf::programs() {
        assert_whole(&program, &output, &stretches);
    }
    let names = objects_of(&output)
        .iter()
        .map(|object| function_name(object))
        .collect::<Vec<_>>();
    // A piece of stack may hold the address of any function.
    let is_exact = call_graph.contains(&"fp");
    assert!(!is_exact || !names.contains(&"unused".to_owned()), "{names:?}");
    assert!(names.contains(&"inner_4".to_owned()), "{names:?}");
}

/// The name of the function in an object.
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
