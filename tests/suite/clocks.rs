//! Alignment of the clocks of dumps with that of the profile, and the evidence that is reported for it.

use std::path::{Path, PathBuf};

use jitdump::ByteOrder;
use jitinject::{Diagnostic, Issue};
use serde_json::Value;

use crate::support::dump::{DumpWriter, X86_64};
use crate::support::generator::{Expected, Generated, Plan, generate};
use crate::support::profile::{ProfileWriter, architecture};
use crate::support::reports::{inject_with_summary, only, reports};
use crate::support::shown::{self, assert_named};
use crate::support::tools::text;
use crate::support::{
    attempt, capture, code_sites, codes, diagnostics, inject, jitinject, model, objects_of, said, scratch,
    tools,
};

const SECOND: u64 = 1_000_000_000;
/// Profile time minus dump time in nanoseconds, where the clocks differ.
const DISTANCE: u64 = 123 * SECOND + 456_789;

/// Writes a profile of one process, and its dump.
fn generated(folder: &Path) -> Generated {
    let plan = Plan {
        functions: 300,
        samples: 2000,
        places: 60,
        ..Plan::default()
    };
    generate(folder, &plan)
}

/// Changes the flags of a dump, the time in its header, and the times of its records.
fn change_dump(folder: &Path, flags: u64, header_time: u64, time: impl Fn(u64) -> u64) {
    let path = folder.join("jit-5000.dump");
    let mut dump = std::fs::read(&path).unwrap();
    dump[24..32].copy_from_slice(&header_time.to_le_bytes());
    dump[32..40].copy_from_slice(&flags.to_le_bytes());
    let mut at = 40;
    while at < dump.len() {
        let old = model::word(&dump, ByteOrder::Little, at + 8);
        dump[at + 8..at + 16].copy_from_slice(&time(old).to_le_bytes());
        at += (model::word(&dump, ByteOrder::Little, at) >> 32) as usize;
    }
    std::fs::write(path, dump).unwrap();
}

/// Changes the clock of a profile, inserts records before the others, and sets the feature sections.
fn change_profile(path: &Path, clock: Option<u32>, first: &[(u32, Vec<u8>)], features: Vec<(u32, Vec<u8>)>) {
    let parts = model::parse(&std::fs::read(path).unwrap());
    let mut profile = ProfileWriter::new(parts.endian);
    profile.clock = clock;
    profile.features = features;
    for (kind, body) in first {
        profile.record(*kind, 0, body);
    }
    profile.records.extend(parts.records.concat());
    std::fs::write(path, profile.finish()).unwrap();
}

/// Runs jitinject and checks that every frame has its name. Returns the standard error.
fn check(folder: &Path, generated: &Generated, more: &[&str]) -> String {
    let output = folder.join("out.data");
    let said = inject(&generated.profile, &output, &[&["-v"], more].concat());
    assert_named(&output, &generated.expected);
    said
}

/// Returns the body of a TIME_CONV record for a counter with two ticks per nanosecond that starts at `zero`.
/// `short` has a full count and the mask of the counter if it has less than 64 bits.
fn time_conversion(zero: u64, short: Option<(u64, u64)>) -> Vec<u8> {
    let mut body = Vec::new();
    for word in [10u64, 512, zero] {
        body.extend_from_slice(&word.to_le_bytes());
    }
    if let Some((cycles, mask)) = short {
        for word in [cycles, mask] {
            body.extend_from_slice(&word.to_le_bytes());
        }
        body.extend_from_slice(&[1, 1, 0, 0, 0, 0, 0, 0]);
    }
    body
}

#[test]
fn cycle_counts_become_times_as_the_profile_says() {
    const TIME_CONV: u32 = 79;
    const ARCH_TIMESTAMP: u64 = 1;
    const ZERO: u64 = 777 * SECOND;
    let cycles = |time: u64| (time - ZERO) * 2;
    let mask = (1u64 << 36) - 1;
    // A counter of 36 bits, which has wrapped around, and a full count from before the recording.
    let base = cycles(1000 * SECOND) - (1 << 20);
    for (short, mask) in [(None, u64::MAX), (Some((base, mask)), mask)] {
        let folder = scratch();
        let generated = generated(folder.path());
        change_dump(folder.path(), ARCH_TIMESTAMP, cycles(1000 * SECOND), |time| {
            cycles(time) & mask
        });
        let conversion = (TIME_CONV, time_conversion(ZERO, short));
        change_profile(
            &generated.profile,
            None,
            std::slice::from_ref(&conversion),
            Vec::new(),
        );
        let said = check(folder.path(), &generated, &[]);
        assert!(
            said.contains("clock: cycle counts, converted by the profile's TIME_CONV record"),
            "{said}"
        );
        // Cycle counts can be converted to perf's own clock, but not to others.
        change_profile(&generated.profile, Some(1), &[], Vec::new());
        let output = folder.path().join("out.data");
        let said = inject(&generated.profile, &output, &[]);
        let dump = folder.path().join("jit-5000.dump");
        let other_clock = Diagnostic::new(Issue::ClockNotPerfs).with("clock", 1);
        assert!(
            reports(&said, "JI244", &other_clock.in_file(&dump).to_string()),
            "{said}"
        );
    }
}

#[test]
fn a_distance_that_is_given_is_used() {
    let folder = scratch();
    let generated = generated(folder.path());
    for (clock, sign) in [(None, 1), (Some(1), 1), (Some(4), -1)] {
        let offset = sign * DISTANCE as i64;
        change_profile(&generated.profile, clock, &[], Vec::new());
        change_dump(folder.path(), 0, 0, |time| (time as i64 - offset) as u64);
        let said = check(
            folder.path(),
            &generated,
            &["--clock-offset", &offset.to_string()],
        );
        assert!(said.contains("clock: moved by "), "{said}");
        assert!(said.contains("123.000457 s (--clock-offset)"), "{said}");
        change_dump(folder.path(), 0, 0, |time| (time as i64 + offset) as u64);
    }
}

#[test]
fn other_clocks_are_aligned_by_a_header_written_with_the_marker() {
    const BOOTTIME: u32 = 7;
    for clock in [None, Some(BOOTTIME)] {
        let folder = scratch();
        let generated = generated(folder.path());
        change_profile(&generated.profile, clock, &[], Vec::new());
        // The marker is mapped a nanosecond after the start of the process.
        change_dump(folder.path(), 0, 1000 * SECOND + 1 - DISTANCE, |time| {
            time - DISTANCE
        });
        let said = check(folder.path(), &generated, &[]);
        // Both are right: the process starts only a nanosecond before that.
        assert!(
            said.contains("its header was written when the marker was mapped")
                || said.contains("its first record can't be earlier than its process"),
            "{said}"
        );
    }
}

/// Writes a profile of a process that mapped its dump before the recording and maps memory for its code as needed,
/// and the dump.
fn attached_late(folder: &Path) -> Generated {
    const REGION: u64 = 0x7000_0000;
    let path = folder.join("jit-5000.dump");
    let mut dump = DumpWriter::new(ByteOrder::Little, 62, 5000);
    let mut profile = ProfileWriter::new(ByteOrder::Little);
    profile.clock = None;
    profile.comm(5000, "server", true, 0);
    profile.mmap2(5000, 0x6000_0000, 0x1000, 0, path.to_str().unwrap(), 0);
    profile.mmap2(5000, REGION, 0x1000, REGION, "//anon", 0);
    // Loaded long before the recording.
    dump.load(10 * SECOND, REGION, 0, b"first", &[0x90; 64]);
    let mut expected = Vec::new();
    for number in 1..20u64 {
        let start = REGION + number * 0x1_0000;
        let mapped = 1000 * SECOND + number * SECOND / 10;
        profile.mmap2(5000, start, 0x1_0000, start, "//anon", mapped);
        for function in 0..5u64 {
            let time = mapped + 20_000 + function * 100_000;
            let address = start + function % 3 * 0x100;
            let name = format!("f{number}_{function}");
            dump.load(
                time - DISTANCE,
                address,
                number * 8 + function,
                name.as_bytes(),
                &[0x90; 64],
            );
            profile.sample(5000, time + 40_000, &[address + 4], None);
            expected.push(Expected {
                pid: 5000,
                time: time + 40_000,
                frames: vec![name],
            });
        }
    }
    std::fs::write(path, dump.bytes).unwrap();
    let profile_path = folder.join("perf.data");
    std::fs::write(&profile_path, profile.finish()).unwrap();
    Generated {
        profile: profile_path,
        expected,
    }
}

#[test]
fn without_a_marker_the_maps_of_code_tell_how_far_apart_clocks_are() {
    let folder = scratch();
    let generated = attached_late(folder.path());
    let said = check(folder.path(), &generated, &[]);
    assert!(
        said.contains("no function can have been loaded before its memory was mapped"),
        "{said}"
    );
}

#[test]
fn samples_before_every_load_are_a_warning() {
    let folder = scratch();
    let generated = generated(folder.path());
    let dump = folder.path().join("jit-5000.dump");
    let (output, summary) = (folder.path().join("out.data"), folder.path().join("summary.json"));
    // During the recording, but after all samples.
    change_dump(folder.path(), 0, 0, |_| 1009 * SECOND + 999_999_000);
    let parts = model::parse(&std::fs::read(&generated.profile).unwrap());
    let mut profile = ProfileWriter::new(parts.endian);
    profile.records = parts.records.concat();
    profile.comm(5000, "end", false, 1020 * SECOND);
    std::fs::write(&generated.profile, profile.finish()).unwrap();
    let ran = attempt(
        &generated.profile,
        &output,
        &["--fail-under", "1", "--summary", tools::text(&summary)],
    );
    let stderr = said(&ran);
    assert!(reports(&stderr, "JI242", tools::text(&dump)), "{stderr}");
    let json: Value = serde_json::from_slice(&std::fs::read(&summary).unwrap()).unwrap();
    let late = diagnostics(&json, "JI242");
    assert_eq!(late.len(), 1, "{json}");
    assert_eq!(late[0]["severity"], "warning");
    assert_eq!(late[0]["file"], tools::text(&dump));
    assert_eq!(late[0]["count"], 2000);
    assert_eq!(ran.status.code(), Some(3));
    // A dump from after the recording is of another run, or uses another clock.
    change_dump(folder.path(), 0, 0, |time| time + 500 * SECOND);
    let stderr = inject(&generated.profile, &output, &[]);
    let later = format!("{}: {}: ", tools::text(&dump), Issue::WrittenLater.id());
    assert!(reports(&stderr, "JI215", &later), "{stderr}");
}

/// Writes a copy of a recording whose event attributes claim perf's own clock. The recorded clock was CLOCK_MONOTONIC,
/// so the right offset for the times of runtimes is 0.
fn on_an_unknown_clock(name: &str, folder: &Path) -> PathBuf {
    const USE_CLOCKID: u64 = 1 << 25;
    let mut bytes = std::fs::read(capture::profile(name)).unwrap();
    let word = |bytes: &[u8], at: usize| model::word(bytes, ByteOrder::Little, at);
    let (attr_size, start, size) = (word(&bytes, 16), word(&bytes, 24), word(&bytes, 32));
    for at in (start..start + size).step_by(attr_size as usize) {
        let flags = at as usize + 40;
        let old = word(&bytes, flags);
        assert_ne!(old & USE_CLOCKID, 0, "{name}");
        bytes[flags..flags + 8].copy_from_slice(&(old & !USE_CLOCKID).to_le_bytes());
    }
    let path = folder.join(format!("{name}.data"));
    std::fs::write(&path, bytes).unwrap();
    path
}

/// These runtimes write their headers and first records in different orders.
#[test]
fn names_are_the_same_where_the_distance_of_the_clocks_is_estimated() {
    let names = [
        "bun",
        "erlang25",
        "lli14-mcjit",
        "multi",
        "node20-reuse",
        "php82",
        "wasmtime",
    ];
    for name in names {
        let folder = scratch();
        let dumps = capture::folder(name);
        let leaves = |input: &Path, clock| {
            let output = folder.path().join("out.data");
            let said = inject(input, &output, &["-v", "--jitdump", tools::text(&dumps)]);
            assert!(said.contains(clock), "{name}: {said}");
            shown::leaves(&output)
        };
        let known = leaves(
            &capture::profile(name),
            "clock: CLOCK_MONOTONIC, as the profile's",
        );
        let estimated = leaves(
            &on_an_unknown_clock(name, folder.path()),
            "clock: another than the profile's, moved by -",
        );
        assert_eq!(known.len(), estimated.len());
        for (known, estimated) in known.iter().zip(&estimated) {
            assert_eq!(known.frames, estimated.frames, "{name} at {}", known.time);
        }
    }
}

/// Writes a profile on perf's own clock of a process that started before the recording, and its dump. There are samples
/// at three addresses: the first function of one was replaced long before the recording, that of another during it, and
/// that of the third never.
fn without_evidence(folder: &Path) -> PathBuf {
    const REGION: u64 = 0x7000_0000;
    let path = folder.join("jit-5000.dump");
    let mut dump = DumpWriter::new(ByteOrder::Little, 62, 5000);
    let loads = [
        (100, 0, "old"),
        (200, 0, "long_there"),
        (300, 0x1000, "first"),
        (1005, 0x1000, "second"),
        (400, 0x2000, "alone"),
    ];
    for (index, (time, at, name)) in (0..).zip(loads) {
        dump.load(time * SECOND, REGION + at, index, name.as_bytes(), &[0x90; 64]);
    }
    std::fs::write(&path, dump.bytes).unwrap();
    let mut profile = ProfileWriter::new(ByteOrder::Little);
    profile.features.push(architecture("x86_64"));
    profile.clock = None;
    profile.comm(5000, "server", true, 0);
    profile.mmap2(5000, 0x6000_0000, 0x1000, 0, path.to_str().unwrap(), 0);
    profile.mmap2(5000, REGION, 0x1_0000, REGION, "//anon", 0);
    for second in 1001..1010 {
        for at in [0, 0x1000, 0x2000] {
            profile.sample(5000, second * SECOND + at, &[REGION + at + 4], None);
        }
    }
    let input = folder.join("perf.data");
    std::fs::write(&input, profile.finish()).unwrap();
    input
}

#[test]
fn names_that_rest_on_a_guess_are_a_warning_and_not_counted() {
    let folder = scratch();
    let input = without_evidence(folder.path());
    let (output, summary) = (folder.path().join("out.data"), folder.path().join("summary.json"));
    let run = |more: &[&str]| {
        let ran = attempt(
            &input,
            &output,
            &[&["--summary", tools::text(&summary)], more].concat(),
        );
        let json: Value = serde_json::from_slice(&std::fs::read(&summary).unwrap()).unwrap();
        (said(&ran), json, ran.status.code())
    };
    let dump = folder.path().join("jit-5000.dump");
    let (stderr, json, status) = run(&["--fail-under", "67"]);
    assert!(reports(&stderr, "JI240", tools::text(&dump)), "{stderr}");
    let doubtful = diagnostics(&json, "JI240");
    assert_eq!(doubtful.len(), 1, "{json}");
    assert_eq!(doubtful[0]["severity"], "warning");
    assert_eq!(doubtful[0]["file"], tools::text(&dump));
    assert_eq!(doubtful[0]["count"], 9);
    assert!(
        stderr.contains("27 in JIT code, 18 of them named (66.7 %)"),
        "{stderr}"
    );
    assert!(
        stderr.contains("9 not named: the address held several functions"),
        "{stderr}"
    );
    // Other commands have the same samples without a name, and the same reason.
    let export = ["export", "-o", "-", "--format", "folded"];
    for command in [&["report"][..], &export] {
        let ran = jitinject().args(command).arg(&input).output().unwrap();
        assert!(reports(&said(&ran), "JI240", "9 samples"), "{}", said(&ran));
    }
    let samples = &json["samples"];
    assert_eq!((&samples["jit"], &samples["named"]), (&27.into(), &18.into()));
    assert_eq!(samples["unnamed"]["doubtful"], 9);
    let functions = json["profile"]["functions"].as_array().unwrap().iter();
    let named = functions.filter(|one| one["kind"] == "jit" && one["name"] != "[JIT code without a name]");
    let sampled: u64 = named.map(|one| one["self"][0].as_u64().unwrap()).sum();
    assert_eq!(sampled, 18, "{json}");
    assert_eq!(status, Some(3));
    assert_eq!(run(&["--fail-under", "66"]).2, Some(0));
    // They still have names: those of the most likely functions.
    let names = shown::leaves(&output)
        .into_iter()
        .map(|sample| sample.frames.concat());
    assert_eq!(names.filter(|name| name == "first").count(), 4);
    let (stderr, json, status) = run(&["--fail-under", "100", "--clock-offset", "0"]);
    assert!(codes(&stderr).is_empty(), "{stderr}");
    assert_eq!(json["samples"]["named"], 27);
    assert_eq!(status, Some(0));
}

#[test]
fn a_guess_on_which_no_name_rests_is_a_note() {
    let folder = scratch();
    let input = without_evidence(folder.path());
    change_dump(folder.path(), 0, 0, |time| time.min(400 * SECOND));
    let output = folder.path().join("out.data");
    let ran = attempt(&input, &output, &["-v", "--fail-under", "100"]);
    let stderr = said(&ran);
    assert_eq!(codes(&stderr), ["JI241"], "{stderr}");
    let note = format!("note[JI241]: {}: ", folder.path().join("jit-5000.dump").display());
    assert!(stderr.contains(&note), "{stderr}");
    assert_eq!(ran.status.code(), Some(0));
}

/// The first process mapped its memory five seconds before it loaded code. Its dump alone would give an offset that is
/// wrong by that much. The second process maps its marker during the recording.
#[test]
fn what_one_file_shows_of_its_clock_holds_for_all() {
    let folder = scratch();
    let generated = attached_late(folder.path());
    let mut expected = generated.expected;
    let parts = model::parse(&std::fs::read(&generated.profile).unwrap());
    let mut profile = ProfileWriter::new(parts.endian);
    // CLOCK_BOOTTIME, which does not drift away.
    profile.clock = Some(7);
    const REGION: u64 = 0x7000_0000;
    profile.comm(5000, "server", true, 0);
    profile.mmap2(
        5000,
        0x6000_0000,
        0x1000,
        0,
        tools::text(&folder.path().join("jit-5000.dump")),
        0,
    );
    profile.mmap2(5000, REGION, 0x1000, REGION, "//anon", 0);
    profile.mmap2(
        5000,
        REGION + 0x1_0000,
        0x100_0000,
        REGION + 0x1_0000,
        "//anon",
        995 * SECOND,
    );
    let other = folder.path().join("jit-6000.dump");
    profile.comm(6000, "other", true, 1000 * SECOND);
    profile.mmap2(
        6000,
        0x6000_0000,
        0x1000,
        0,
        tools::text(&other),
        1000 * SECOND + 5,
    );
    profile.mmap2(6000, REGION, 0x1000, REGION, "//anon", 1000 * SECOND + 6);
    let mut dump = DumpWriter::new(ByteOrder::Little, 62, 6000);
    dump.load(
        1000 * SECOND + 20_000 - DISTANCE,
        REGION,
        0,
        b"other",
        &[0x90; 64],
    );
    std::fs::write(&other, dump.bytes).unwrap();
    for Expected { pid, time, frames } in &expected {
        // The addresses of attached_late().
        let (number, function) = frames[0][1..].split_once('_').unwrap();
        let (number, function): (u64, u64) = (number.parse().unwrap(), function.parse().unwrap());
        let address = REGION + number * 0x1_0000 + function % 3 * 0x100 + 4;
        profile.sample(*pid, *time, &[address], None);
    }
    profile.sample(6000, 1001 * SECOND + 1, &[REGION + 4], None);
    expected.push(Expected {
        pid: 6000,
        time: 1001 * SECOND + 1,
        frames: vec!["other".into()],
    });
    std::fs::write(&generated.profile, profile.finish()).unwrap();
    let generated = Generated {
        expected,
        ..generated
    };
    let said = check(folder.path(), &generated, &[]);
    assert!(
        said.contains("from the file of another runtime with the same clock"),
        "{said}"
    );
}

/// Code and events of a log once had separate alignments, estimated from different files and samples.
#[test]
fn code_and_events_of_one_log_have_one_alignment() {
    let folder = scratch();
    let recorded = on_an_unknown_clock("mono-joined", folder.path());
    let log = std::fs::read_dir(capture::folder("mono-joined")).unwrap();
    let log = log
        .map(|entry| entry.unwrap().path())
        .find(|path| path.extension().is_some_and(|kind| kind == "mlpd"));
    let log = log.unwrap();
    let summary = folder.path().join("summary.json");
    let first_event = |input: &Path| {
        let output = folder.path().join("out.data");
        let options = ["--events", "exception", "--summary", tools::text(&summary)];
        inject(
            input,
            &output,
            &[&["--mono-log", tools::text(&log)], &options[..]].concat(),
        );
        let events = shown::events(&output);
        let exception = events.iter().find(|event| event.name.contains("exception"));
        let time = exception.unwrap().time;
        let json: Value = serde_json::from_slice(&std::fs::read(&summary).unwrap()).unwrap();
        (time, json["dumps"][0]["clock"].as_str().unwrap().to_owned())
    };
    let (known, _) = first_event(&capture::profile("mono-joined"));
    let (estimated, clock) = first_event(&recorded);
    let moved = (estimated as f64 - known as f64) / 1e9;
    assert!(
        clock.contains(&format!("moved by {moved:+.6} s")),
        "{clock}; events by {moved:+.6} s"
    );
}

/// Cycle counts say nothing without a conversion, but of an address with one function there is no doubt.
#[test]
fn cycle_counts_without_a_conversion_name_functions_that_are_alone() {
    const START: u64 = 0x7000_0000;
    /// Long after the profile.
    const CYCLES: u64 = 5_000_000_000_000_000;
    let folder = scratch();
    let path = folder.path().join("jit-7.dump");
    let mut dump = DumpWriter::new(ByteOrder::Little, X86_64, 7);
    // JITDUMP_FLAGS_ARCH_TIMESTAMP
    dump.bytes[32] = 1;
    for (index, start, name) in [
        (0, START, "alone"),
        (1, START + 64, "first"),
        (2, START + 64, "second"),
        (3, START + 128, "moved"),
    ] {
        dump.load(CYCLES + index, start, index, name.as_bytes(), &[0x90; 48]);
    }
    dump.moved(CYCLES + 9, START + 128, START + 192, 48, 3);
    std::fs::write(&path, &dump.bytes).unwrap();
    let mut profile = ProfileWriter::new(ByteOrder::Little);
    profile.mmap2(7, 0x6000_0000, 4096, 0, text(&path), 500);
    for at in 0..4 {
        profile.sample(7, 1_000_000 + at, &[START + 64 * at + 1], None);
    }
    let input = folder.path().join("perf.data");
    std::fs::write(&input, profile.finish()).unwrap();
    let output = folder.path().join("out.data");
    let (_, summary) = inject_with_summary(&input, &output, &[]);
    let mut objects = objects_of(&output);
    objects.retain(|path| path.is_file());
    assert_eq!(
        code_sites::symbols(&objects),
        ["alone".to_owned()].into(),
        "{summary}"
    );
    assert_eq!(only(&summary, "JI243")["file"], text(&path));
}

/// Each sample may be in any of 2,048 functions.
#[test]
fn samples_that_are_left_out_of_the_estimate_of_an_offset_are_counted() {
    let folder = scratch();
    let path = folder.path().join("jit-7.dump");
    let mut dump = DumpWriter::new(ByteOrder::Little, X86_64, 7);
    for time in 0..2048 {
        dump.load(SECOND + time, 0x4000_0000, time, b"function", &[0x90; 64]);
    }
    std::fs::write(&path, dump.bytes).unwrap();
    let mut profile = ProfileWriter::new(ByteOrder::Little);
    profile.clock = None;
    profile.comm(7, "program", true, 1000 * SECOND);
    profile.mmap2(7, 0x6000_0000, 0x1000, 0, text(&path), 1000 * SECOND);
    for time in 1..=2051 {
        profile.sample(7, 1001 * SECOND + time, &[0x4000_0004], None);
    }
    let input = folder.path().join("perf.data");
    std::fs::write(&input, profile.finish()).unwrap();
    let (_, summary) = inject_with_summary(&input, &folder.path().join("out.data"), &[]);
    assert_eq!(only(&summary, "JI245")["count"], 3);
}
