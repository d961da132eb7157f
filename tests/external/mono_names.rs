//! A Mono profiler log names the code of the profile that was recorded together with it.

use std::path::Path;

use jitinject::internals::traces::mono::format::{Log, LogEventKind};
use serde_json::Value;

use crate::objects::remarks;
use crate::support::perf::{Event, events, perf, programs};
use crate::support::{OBJECT_LAYOUTS, capture, inject, objects_of, scratch, tools};

/// The file in which perf looks for names of anonymous code; it does not exist.
const ANONYMOUS: &str = "/tmp/perf-25926.map";

/// The library with the code that was compiled ahead of time.
const AHEAD: &str = "/mscorlib.dll.so";

const SAMPLES_IN_CODE: usize = 512;

/// Returns the address ranges and names of code in the log.
fn names(log: &[u8]) -> Vec<(std::ops::Range<u64>, String)> {
    let log = Log::parse(log).unwrap();
    let named = log.events().filter_map(|event| match event.kind {
        LogEventKind::Jit { code, size, name, .. } => {
            let name = String::from_utf8(name.to_vec()).unwrap();
            Some((code.0..code.0 + size, name))
        }
        _ => None,
    });
    named.collect()
}

/// Checks that all samples in code have its name, and that everything else is unchanged.
fn assert_named(before: &[Event], after: &[Event], names: &[(std::ops::Range<u64>, String)]) {
    assert_eq!(before.len(), after.len());
    let mut in_code = 0;
    for (before, after) in before.iter().zip(after) {
        let same = |event: &Event| (event.comm.clone(), event.tid, event.time, event.name.clone());
        assert_eq!(same(before), same(after));
        assert_eq!(before.frames.len(), after.frames.len());
        for (place, (before, after)) in before.frames.iter().zip(&after.frames).enumerate() {
            if before.file.ends_with(AHEAD) {
                assert_eq!((&before.symbol, &before.file), (&after.symbol, &after.file));
            }
            if before.file != ANONYMOUS {
                assert_eq!(before.symbol, after.symbol, "{before:?}");
                continue;
            }
            let mut holding = names.iter().filter(|(range, _)| range.contains(&before.address));
            let is_ours = after.file.contains(".elf/jit");
            if place == 0 {
                in_code += 1;
                assert!(is_ours, "{after:?}");
            }
            match holding.next() {
                Some((_, name)) => assert_eq!(&after.symbol, name, "{before:?}"),
                // Trampolines, and addresses that the kernel mistook for callers.
                None => assert!(place > 0, "{before:?} {after:?}"),
            }
        }
    }
    assert_eq!(in_code, SAMPLES_IN_CODE);
}

/// Injects the log with `more`; returns the output and two sample counts of the summary: in code, and named.
fn named(folder: &Path, log: &Path, more: &[&str]) -> (std::path::PathBuf, (u64, u64)) {
    let output = folder.join("out.data");
    let summary = folder.join("summary.json");
    let log = ["--mono-log", tools::text(log), "--summary", tools::text(&summary)];
    inject(
        &capture::profile("mono-joined"),
        &output,
        &[&log[..], more].concat(),
    );
    let json: Value = serde_json::from_slice(&std::fs::read(summary).unwrap()).unwrap();
    let samples = &json["samples"];
    let counts = (
        samples["jit"].as_u64().unwrap(),
        samples["named"].as_u64().unwrap(),
    );
    (output, counts)
}

#[test]
fn every_sample_in_code_has_the_name_that_the_log_has() {
    // perf versions differ in the names of other code.
    let before = programs().into_iter().map(|program| {
        let before = events(&program, &capture::profile("mono-joined"));
        let ahead = before.iter().filter(|event| event.leaf_file().ends_with(AHEAD));
        assert!(ahead.count() > 0, "mscorlib.dll.so is not in the profile");
        (program, before)
    });
    let before: Vec<_> = before.collect();
    let log = capture::folder("mono-joined").join("trace.mlpd");
    let names = names(&std::fs::read(&log).unwrap());
    for layout in OBJECT_LAYOUTS {
        let folder = scratch();
        let (output, counts) = named(folder.path(), &log, layout);
        assert_eq!(
            counts,
            (SAMPLES_IN_CODE as u64, SAMPLES_IN_CODE as u64),
            "{layout:?}"
        );
        for (program, before) in &before {
            assert_named(before, &events(program, &output), &names);
        }
        let report = perf(&[
            "report",
            "-f",
            "-i",
            tools::text(&output),
            "--stdio",
            "--no-children",
        ]);
        assert!(report.contains("Work.Cpu:Spin (int)"), "{report}");
    }
}

#[test]
fn linters_have_nothing_to_say_of_code_from_logs() {
    let log = capture::folder("mono-joined").join("trace.mlpd");
    for layout in OBJECT_LAYOUTS {
        let folder = scratch();
        let (output, _) = named(folder.path(), &log, layout);
        let mut objects = objects_of(&output);
        let least = if layout.contains(&"--all") { 2 } else { 1 };
        assert!(objects.len() >= least, "{layout:?}: {objects:?}");
        objects.truncate(100);
        let remarks = remarks(&objects);
        assert!(remarks.is_empty(), "{}", remarks.join("\n"));
    }
}

#[test]
fn a_packed_log_names_what_a_plain_one_does() {
    let folder = scratch();
    let packed = folder.path().join("trace.mlpd.gz");
    let file = std::fs::File::create(&packed).unwrap();
    let mut encoder = flate2::write::GzEncoder::new(file, flate2::Compression::default());
    let plain = capture::folder("mono-joined").join("trace.mlpd");
    std::io::Write::write_all(&mut encoder, &std::fs::read(&plain).unwrap()).unwrap();
    encoder.finish().unwrap();
    let shown = [plain, packed].map(|log| {
        let (output, counts) = named(folder.path(), &log, &[]);
        (events("perf", &output), counts)
    });
    assert!(shown[0] == shown[1]);
}

#[test]
fn logs_are_found_in_folders_among_other_files() {
    let folder = scratch();
    let folder_of_log = capture::folder("mono-joined");
    let (_, counts) = named(folder.path(), &folder_of_log, &[]);
    assert_eq!(counts.1, SAMPLES_IN_CODE as u64);
}
