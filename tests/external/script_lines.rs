//! Lines of JavaScript that the installed Node.js compiles: V8's inlined calls, and source maps.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::support::tools::text;
use crate::support::{capture, code_sites, inject_into, perf, scratch, symbolizers};

/// Minimum number of samples in optimized code; each program computes for about two seconds.
const MIN_SAMPLES: usize = 50;

/// Copies the program of a recording to a folder of its own, and records it again. Returns the folder and the output, with
/// one object for each function.
fn record(capture: &str, files: &[&str], arguments: &[&str]) -> (tempfile::TempDir, PathBuf) {
    let folder = scratch();
    for file in files {
        std::fs::copy(capture::folder(capture).join(file), folder.path().join(file)).unwrap();
    }
    let profile = folder.path().join("perf.data");
    let status = Command::new("perf")
        .args(["record", "-q", "-k", "mono", "-e", "cpu-clock", "-F", "499"])
        .args(["-o", text(&profile), "node", "--perf-prof"])
        .args(arguments)
        .current_dir(folder.path())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .status()
        .unwrap_or_else(|error| panic!("perf: {error}; scripts/test installs it"));
    assert!(status.success());
    let output = inject_into(folder.path(), &profile, &[]);
    (folder, output)
}

/// Returns the offset in its object of each sample in functions with this prefix.
fn sampled(output: &Path, prefix: &str) -> BTreeMap<PathBuf, Vec<u64>> {
    // Objects of one function have its code here.
    const TEXT: u64 = 0x40;
    let arguments = ["script", "-f", "--no-inline", "--no-demangle", "-G"];
    let fields = ["-i", text(output), "-F", "ip,sym,symoff,dso"];
    let shown = perf::perf(&[&arguments[..], &fields].concat());
    let mut offsets: BTreeMap<PathBuf, Vec<u64>> = BTreeMap::new();
    for line in shown.lines() {
        let parts = line.strip_suffix(')').and_then(|line| line.rsplit_once(" ("));
        let Some((symbol, object)) = parts.filter(|(_, object)| perf::is_object(object)) else {
            continue;
        };
        let (_, symbol) = symbol.trim().split_once(' ').unwrap();
        if let Some((symbol, offset)) = symbol.rsplit_once("+0x")
            && symbol.starts_with(prefix)
        {
            let offset = TEXT + u64::from_str_radix(offset, 16).unwrap();
            offsets.entry(object.into()).or_default().push(offset);
        }
    }
    offsets
}

/// `hot` of a.js calls `small` of lib.js, in line 8; the loop in line 5 of `small` takes nearly all of the time. V8 inlines
/// it into `hot`, which is declared in line 5, too.
#[test]
fn samples_in_inlined_functions_have_their_lines() {
    let (_folder, output) = record("node20-inlined", &["a.js", "lib.js"], &["a.js"]);
    let mut lines: BTreeMap<String, usize> = BTreeMap::new();
    for (object, offsets) in sampled(&output, "JS:*hot ") {
        for chain in symbolizers::gnu(&object, &offsets) {
            *lines.entry(code_sites::shown(&chain)).or_default() += 1;
        }
    }
    let total: usize = lines.values().sum();
    let count = |shown: &str| lines.get(shown).copied().unwrap_or_default();
    assert!(total >= MIN_SAMPLES, "{lines:?}");
    assert!(count("small lib.js:5 < hot a.js:8") * 10 > total * 8, "{lines:?}");
    // A sample may be in the first instructions of `hot`.
    assert!(count("hot a.js:5") * 50 <= total, "{lines:?}");
    let is_right = |shown: &&String| {
        ["small lib.js:", "tiny a.js:3 < hot a.js:8", "hot a.js:"]
            .iter()
            .any(|start| shown.starts_with(start))
    };
    let right: usize = lines.keys().filter(is_right).map(|shown| lines[shown]).sum();
    assert!(right * 100 >= total * 98, "{lines:?}");
}

/// A minified bundle: one line of JavaScript, made of three TypeScript files, each of whose functions takes its time in one
/// line.
#[test]
fn perf_shows_the_lines_of_typescript() {
    let (folder, output) = record("node20-typescript", &["app.js", "app.js.map"], &["app.js", "1.5"]);
    let objects: Vec<PathBuf> = sampled(&output, "JS:*").into_keys().collect();
    let objects: Vec<&str> = objects.iter().map(|object| text(object)).collect();
    // perf takes long to look for lines in Node.js itself.
    let objects = objects.join(",");
    let arguments = ["report", "-f", "-i", text(&output), "--stdio", "--dsos", &objects];
    let fields = ["-F", "sample,sym,srcline", "-t", "|"];
    let shown = perf::perf(&[&arguments[..], &fields].concat());
    let mut lines: BTreeMap<String, usize> = BTreeMap::new();
    let mut symbols = Vec::new();
    for line in shown
        .lines()
        .filter(|line| !line.starts_with('#') && !line.is_empty())
    {
        let fields: Vec<&str> = line.split('|').map(str::trim).collect();
        let [samples, symbol, place] = fields[..] else {
            panic!("{line}")
        };
        let (_, symbol) = symbol.split_once(' ').unwrap();
        if symbol.starts_with("JS:*") {
            *lines.entry(place.to_owned()).or_default() += samples.parse::<usize>().unwrap();
            symbols.push(symbol.to_owned());
        }
    }
    let total: usize = lines.values().sum();
    assert!(total >= MIN_SAMPLES, "{shown}");
    // Sources of a map are relative to it.
    let sources = folder.path().parent().unwrap().join("src");
    let round = format!("JS:*round {}/main.ts:7:10", sources.display());
    assert!(symbols.contains(&round), "{symbols:?}");
    let working = ["work.ts:5", "work.ts:12", "shapes.ts:10"];
    let in_line = |place: &str| lines.get(place).copied().unwrap_or_default();
    assert!(
        working.iter().all(|place| in_line(place) * 20 > total),
        "{lines:?}"
    );
    let in_lines: usize = working.iter().map(|place| in_line(place)).sum();
    assert!(in_lines * 10 > total * 8, "{lines:?}");
    let is_original = |place: &&String| place.split(':').next().unwrap().ends_with(".ts");
    let original: usize = lines.keys().filter(is_original).map(|place| lines[place]).sum();
    assert!(original * 100 >= total * 98, "{lines:?}");
}
