//! Damaged logs of Mono's profiler, through the whole program: each kind of damage has a code, and the rest is used.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use jitinject::internals::traces::mono::format::{Log, LogEventKind};
use serde_json::{Value, json};

use crate::mono::real;
use crate::support::capture::gunzipped;
use crate::support::mono_sums::{alone, of, sum};
use crate::support::reports::inject_with_summary;
use crate::support::{attempt, capture, codes, diagnostics, has_code, inject, said, scratch, shown, tools};

/// Unpacks a damaged log into a folder; returns its path.
fn damaged(folder: &Path, name: &str) -> PathBuf {
    let path = folder.join("trace.mlpd");
    let packed = capture::folder("mono-bad").join(format!("bad-{name}.mlpd.gz"));
    std::fs::write(&path, gunzipped(&packed)).unwrap();
    path
}

/// Selects the process of the recording, which the damaged logs do not belong to.
const RECORDED: [&str; 2] = ["--pid", "25926"];

/// Returns the only diagnostic of a code in a summary, which must be a warning about a file.
fn only_warning<'s>(summary: &'s Value, code: &str, file: &Path) -> &'s Value {
    let found = diagnostics(summary, code);
    assert_eq!(found.len(), 1, "{code}: {summary}");
    assert_eq!(found[0]["severity"], "warning", "{summary}");
    assert_eq!(found[0]["file"], tools::text(file), "{summary}");
    found[0]
}

/// Returns the message of a diagnostic in a summary.
fn message(diagnostic: &Value) -> &str {
    diagnostic["message"].as_str().unwrap()
}

#[test]
fn unreadable_logs_are_refused_alone_and_left_out_beside_a_profile() {
    for (name, code, value) in [
        ("ver18", "JI063", "18"),
        ("ptr16", "JI064", "16"),
        ("flags1", "JI065", "0x1"),
        ("trunc-hdr", "JI061", "20"),
        ("magic", "JI062", "00 5a 50 4d"),
    ] {
        let folder = scratch();
        let log = damaged(folder.path(), name);
        let output = folder.path().join("out.data");
        let ran = attempt(&log, &output, &[]);
        let said = said(&ran);
        assert_eq!(ran.status.code(), Some(1), "{name}: {said}");
        // Without its magic number, a log is taken for a profile.
        let is_log = name != "magic";
        let error = if is_log { code } else { "JI140" };
        assert_eq!(codes(&said), [error], "{said}");
        let start = format!("jitinject: error[{error}]: {}: ", log.display());
        let text = said.strip_prefix(&start).unwrap_or_else(|| panic!("{said}"));
        assert!(!is_log || text.contains(value), "{said}");
        assert!(!output.exists());

        let recorded = capture::profile("mono-joined");
        let more = [&["--mono-log", tools::text(&log)], &RECORDED[..]].concat();
        let (said, summary) = inject_with_summary(&recorded, &folder.path().join("out.data"), &more);
        assert!(has_code(&said, code), "{said}");
        let warning = only_warning(&summary, code, &log);
        assert!(message(warning).contains(value), "{warning}");
        assert_eq!(summary["dumps"], json!([]), "{name}: {summary}");
        assert_eq!(shown::events(&output), shown::events(&recorded));
    }
}

#[test]
fn damage_in_a_log_is_reported_alone_and_beside_a_profile() {
    for (name, code, count, offset, functions) in [
        ("bufid", "JI072", 208, 0x64, 1032),
        ("evtype15", "JI066", 1, 0x94, 1032),
        ("leb-overlong", "JI070", 1, 0x94, 1032),
        ("len-huge", "JI073", 1, 0x64, 1032),
        ("trunc-buf", "JI074", 1, 0x64, 0),
        ("trunc-bufhdr", "JI074", 1, 0x64, 0),
    ] {
        let folder = scratch();
        let log = damaged(folder.path(), name);
        let recorded = capture::profile("mono-joined");
        let beside = [&["--mono-log", tools::text(&log)], &RECORDED[..]].concat();
        // The log has no events that become samples, and does not belong to the recording.
        for (input, more, others) in [
            (&log, &[][..], &["JI082"][..]),
            (&recorded, &beside[..], &["JI172", "JI176", "JI175"]),
        ] {
            let (said, summary) = inject_with_summary(input, &folder.path().join("out.data"), more);
            let warning = only_warning(&summary, code, &log);
            assert_eq!(warning["count"], count, "{name}: {warning}");
            assert_eq!(warning["offset"], offset, "{name}: {warning}");
            assert_eq!(codes(&said), [&[code], others].concat(), "{name}: {said}");
            assert!(
                said.contains(&format!("{functions} functions loaded")),
                "{name}: {said}"
            );
        }
    }
}

#[test]
fn a_log_that_is_cut_before_its_first_event_has_none() {
    let folder = scratch();
    let log = damaged(folder.path(), "noheaderbuf");
    let said = inject(&log, &folder.path().join("out.data"), &[]);
    assert_eq!(
        codes(&said),
        ["JI082"],
        "a killed program leaves such a log, which is not damaged: {said}"
    );
}

#[test]
fn a_cut_packed_log_gives_names_up_to_the_cut() {
    let folder = scratch();
    let log = capture::folder("mono-bad").join("bad-trunc-gz.mlpd");
    let (said, summary) = inject_with_summary(&log, &folder.path().join("out.data"), &["--all"]);
    assert_eq!(codes(&said), ["JI076", "JI074", "JI082"], "{said}");
    for (code, offset) in [("JI076", 0xc714), ("JI074", 0xb7ed)] {
        assert_eq!(only_warning(&summary, code, &log)["offset"], offset, "{code}");
    }
    assert!(said.contains("439 functions loaded"), "{said}");
}

#[test]
fn missing_events_are_reported_with_the_option_for_mono() {
    let folder = scratch();
    let log = capture::folder("mono-jit").join("trace.mlpd");
    let missing = [
        ("alloc", "alloc"),
        ("exception", "exception"),
        ("contention", "monitor"),
        ("gc", "gc"),
        ("heap", "heapshot"),
        ("sample", "sample"),
        ("calls", "calls"),
    ];
    let all = missing.map(|(event, _)| event).join(",");
    let (said, summary) = inject_with_summary(&log, &folder.path().join("out.data"), &["--events", &all]);
    assert_eq!(codes(&said), ["JI083"; 7], "{said}");
    let found = diagnostics(&summary, "JI083");
    assert_eq!(found.len(), missing.len(), "{summary}");
    for (diagnostic, (event, option)) in found.into_iter().zip(missing) {
        assert_eq!(diagnostic["severity"], "warning", "{diagnostic}");
        let text = message(diagnostic);
        assert!(
            text.contains(&format!(" {event} ")) && text.ends_with(&format!("--profile=log:{option}")),
            "{text}"
        );
    }

    let more = [
        "--mono-log",
        tools::text(&log),
        "--splice-stacks",
        "--pid",
        "25926",
    ];
    let (said, summary) = inject_with_summary(
        &capture::profile("mono-joined"),
        &folder.path().join("out.data"),
        &more,
    );
    assert!(has_code(&said, "JI084"), "{said}");
    let text = message(only_warning(&summary, "JI084", &log));
    assert!(text.ends_with("--profile=log:jit,calls"), "{text}");
}

/// Returns the size and number of the objects allocated in each buffer of a log, by the buffer's offset.
fn allocated(log: &[u8]) -> BTreeMap<u64, (u64, u64)> {
    let log = Log::parse(log).unwrap();
    let mut sums = BTreeMap::new();
    for buffer in log.buffers() {
        for event in buffer.events() {
            if let LogEventKind::Allocation { size, .. } = event.kind {
                let sum: &mut (u64, u64) = sums.entry(buffer.offset).or_default();
                *sum = (sum.0 + size, sum.1 + 1);
            }
        }
    }
    sums
}

/// Returns the sums of all buffers but one.
fn without(sums: &BTreeMap<u64, (u64, u64)>, buffer: u64) -> (u64, u64) {
    let left = sums.iter().filter(|&(&offset, _)| offset != buffer);
    left.fold((0, 0), |sum, (_, more)| (sum.0 + more.0, sum.1 + more.1))
}

#[test]
fn what_is_before_and_behind_damage_is_used() {
    let intact = real("mono-alloc");
    let sums = allocated(&intact);
    assert!(sums.len() > 3, "{sums:?}");
    let folder = scratch();
    let path = folder.path().join("trace.mlpd");
    for &buffer in sums.keys() {
        // The magic number of the buffer, the type of its first event, and a number in that event. Damage in an event
        // is reported at the event's offset.
        for (code, reported, changed, bytes) in [
            ("JI072", 0, 0, &[0; 4][..]),
            ("JI066", 48, 48, &[0xff]),
            ("JI070", 48, 49, &[0xff; 12]),
        ] {
            let mut file = intact.clone();
            let at = usize::try_from(buffer).unwrap() + changed;
            file[at..at + bytes.len()].copy_from_slice(bytes);
            std::fs::write(&path, file).unwrap();
            let (said, summary) =
                inject_with_summary(&path, &folder.path().join("out.data"), &["--events", "alloc"]);
            assert!(has_code(&said, code), "{said}");
            let warning = only_warning(&summary, code, &path);
            assert_eq!(warning["offset"], buffer + reported, "{warning}");
            let shown = shown::events(&folder.path().join("out.data"));
            assert_eq!(sum(&of(&shown, "alloc-bytes")), without(&sums, buffer), "{code}");
        }
    }
    let (&last, _) = sums.last_key_value().unwrap();
    std::fs::write(&path, &intact[..usize::try_from(last).unwrap() + 20]).unwrap();
    let shown = alone(&path, &["--events", "alloc"]);
    assert_eq!(sum(&of(&shown, "alloc-bytes")), without(&sums, last));
}
