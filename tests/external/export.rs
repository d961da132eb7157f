//! Exports of captures, read by other programs, against what `perf script` prints of the same profile.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::support::{capture, inject_into, jitinject, perf, said, scratch, tools};

/// Samples by stack, the outermost function first. Functions that perf finds in no object of jitinject are [`perf::UNKNOWN`].
type Stacks = BTreeMap<Vec<String>, u64>;

/// Captures of runtimes with names of several forms.
const CAPTURES: [&str; 3] = ["node20", "node22", "php82"];

/// Start of the name of a function without one, before its place.
const ANONYMOUS: &str = "(anonymous) ";

/// Exports a profile, without inlined calls: perf 6.1 and 6.12 print none of those in objects.
fn export(profile: &Path, output: &Path) {
    let ran = jitinject()
        .args(["export", "--no-native-lines"])
        .arg(profile)
        .arg("-o")
        .arg(output)
        .output()
        .unwrap();
    assert!(ran.status.success(), "{}", said(&ran));
}

/// Returns the stacks that a perf program prints, with functions named by `name`.
fn stacks_of_perf(program: &str, profile: &Path, name: impl Fn(&str) -> String) -> Stacks {
    let mut stacks = Stacks::new();
    for sample in perf::stacks_in_objects(program, profile, &[]) {
        let frames = sample.frames.iter().rev();
        let names = frames.map(|frame| match &**frame {
            perf::UNKNOWN => frame.clone(),
            frame => name(frame),
        });
        *stacks.entry(names.collect()).or_default() += 1;
    }
    stacks
}

/// Replaces all names that perf does not print.
fn known_to_perf(stacks: Stacks, expected: &Stacks) -> Stacks {
    let mut found = Stacks::new();
    for (frames, count) in stacks {
        let known = |name: &String| expected.keys().flatten().any(|other| other == name);
        let names = frames.into_iter().map(|name| {
            if known(&name) {
                name
            } else {
                perf::UNKNOWN.to_owned()
            }
        });
        *found.entry(names.collect()).or_default() += count;
    }
    found
}

/// Writes the output of jitinject with names that have no place and tier, as exports have them.
fn injected(folder: &Path, name: &str) -> PathBuf {
    inject_into(folder, &capture::profile(name), &["--names", "plain"])
}

/// Collapsed stacks have functions without a name with their line, and not the column.
fn collapsed(symbol: &str) -> String {
    let symbol = symbol.replace(';', ":");
    let place = symbol
        .strip_prefix(ANONYMOUS)
        .and_then(|place| place.rsplit_once(':'));
    match place {
        Some((place, _)) => format!("{ANONYMOUS}{place}"),
        None => symbol,
    }
}

/// pprof prints names and places apart.
fn plain(symbol: &str) -> String {
    if symbol.starts_with(ANONYMOUS) {
        ANONYMOUS.trim_end().to_owned()
    } else {
        symbol.to_owned()
    }
}

#[test]
fn collapsed_stacks_are_those_of_perf_script() {
    for name in CAPTURES {
        let folder = scratch();
        let profile = injected(folder.path(), name);
        let output = folder.path().join("out.folded");
        export(&profile, &output);
        let mut found = Stacks::new();
        for line in std::fs::read_to_string(&output).unwrap().lines() {
            let (stack, count) = line.rsplit_once(' ').unwrap();
            let frames = stack.split(';').skip(1);
            let frames = frames.map(|frame| {
                let suffixes = ["_[j]", "_[k]"];
                let bare = suffixes.iter().find_map(|suffix| frame.strip_suffix(suffix));
                bare.unwrap_or(frame).to_owned()
            });
            *found.entry(frames.collect()).or_default() += count.parse::<u64>().unwrap();
        }
        for program in perf::programs() {
            let expected = stacks_of_perf(&program, &profile, collapsed);
            assert_eq!(
                known_to_perf(found.clone(), &expected),
                expected,
                "{name}, {program}"
            );
        }
    }
}

/// pprof of Go prints a block for each sample: its first value with the innermost function, then one function a line.
#[test]
fn pprof_reads_the_stacks_of_perf_script() {
    for name in CAPTURES {
        let folder = scratch();
        let profile = injected(folder.path(), name);
        let output = folder.path().join("out.pb.gz");
        export(&profile, &output);
        let raw = tools::run(
            "go",
            &["tool", "pprof", "-symbolize=none", "-raw", tools::text(&output)],
        );
        assert!(raw.contains("missing: "), "{raw}");
        let found = raw_stacks(&raw);
        let program = &perf::programs()[0];
        let expected = stacks_of_perf(program, &profile, plain);
        assert_eq!(known_to_perf(found, &expected), expected, "{name}");
    }
}

/// Returns the stacks in the output of `pprof -raw`.
fn raw_stacks(raw: &str) -> Stacks {
    let (samples, rest) = raw.split_once("\nLocations\n").unwrap();
    let (locations, _) = rest.split_once("\nMappings\n").unwrap();
    let mut functions: BTreeMap<u64, Vec<String>> = BTreeMap::new();
    let mut last = 0;
    for line in locations.lines() {
        let first = line
            .trim_start()
            .split_once(": 0x")
            .and_then(|(id, rest)| Some((id.parse::<u64>().ok()?, rest)));
        let text = match first {
            Some((id, rest)) => {
                last = id;
                functions.insert(id, Vec::new());
                // Address, mapping, and function if there is one.
                let mut words = rest.splitn(3, ' ');
                let (_, mapping) = (words.next(), words.next());
                let text = words.next().unwrap_or_default();
                if mapping.is_none_or(|mapping| !mapping.starts_with("M=")) {
                    continue;
                }
                text
            }
            None => line,
        };
        // NAME FILE:LINE:COLUMN s=START
        let name = text.trim().rsplitn(3, ' ').nth(2).unwrap_or_default();
        if !name.is_empty() {
            functions.get_mut(&last).unwrap().push(name.to_owned());
        }
    }
    let mut stacks = Stacks::new();
    for line in samples.lines() {
        let Some((values, ids)) = line.split_once(": ") else {
            continue;
        };
        let count = values
            .split_whitespace()
            .next()
            .and_then(|count| count.parse::<u64>().ok());
        let ids: Option<Vec<u64>> = ids.split_whitespace().map(|id| id.parse().ok()).collect();
        let (Some(count), Some(ids)) = (count, ids) else {
            continue;
        };
        let mut frames = Vec::new();
        for id in ids.iter().rev() {
            let of_location = &functions[id];
            frames.extend(of_location.iter().rev().cloned());
            if of_location.is_empty() {
                frames.push(perf::UNKNOWN.to_owned());
            }
        }
        *stacks.entry(frames).or_default() += count;
    }
    stacks
}
