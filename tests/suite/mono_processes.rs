//! Mono logs of several processes, and how their processes and threads are matched with those of a profile.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use jitdump::{Address, ByteOrder};
use jitinject::internals::traces::mono::format::event::{
    LogEventKind, ManagedObject, Metadata, Method, MonitorEvent, Pointer, Stage, ThreadId, TypeReference,
};
use serde_json::{Value, json};

use crate::support::mono_log::{Bases, Writer};
use crate::support::mono_sums::{alone, of, sum};
use crate::support::perf::{Event, assert_reports_are_silent};
use crate::support::profile::ProfileWriter;
use crate::support::reports::{inject_with_summary, only};
use crate::support::{
    capture, codes, diagnostics, has_code, inject, jitinject, model, perf, said, scratch, shown, tools,
};

const MILLISECOND: u64 = 1_000_000;
/// Start time of the logs, in nanoseconds.
const START: u64 = 10_000 * MILLISECOND;
/// Process ID in the header of the synthetic logs.
const PID: u32 = 4711;
const CODE: u64 = 0x4000_0000;

/// Returns a log with threads of these names. Each gets its name 10 ms after the previous one, then throws in a method
/// of its own, and waits 1 ms for a lock.
fn log(names: &[&str]) -> Vec<u8> {
    let mut log = Writer::new(17);
    log.buffer(Bases {
        time: START,
        thread: 0x7000,
        ..Bases::default()
    });
    let class = TypeReference::Class(Pointer(0x9000));
    for number in 0..names.len() as u64 {
        let time = START + 10 * number * MILLISECOND;
        let code = CODE + 0x100 * number;
        let method = Method(0x5000 + number);
        let text = format!("Some.Class:Of{number} ()");
        log.kind(
            time,
            &LogEventKind::Jit {
                method,
                code: Address(code),
                size: 0x80,
                name: text.as_bytes(),
            },
        );
    }
    for (number, name) in (0..).zip(names) {
        let time = START + 10 * number * MILLISECOND;
        let thread = ThreadId(0x7000 + number);
        let method = Method(0x5000 + number);
        log.buffer(Bases {
            time,
            thread: thread.0,
            ..Bases::default()
        });
        let named = Metadata::Thread {
            thread,
            name: name.as_bytes(),
        };
        log.kind(
            time,
            &LogEventKind::Metadata {
                stage: Stage::Name,
                subject: named,
            },
        );
        let object = ManagedObject(0x8000);
        log.throw(time + MILLISECOND, object, &[method]);
        log.allocation(time + MILLISECOND, class, object, 24, &[method]);
        log.monitor(
            time + 2 * MILLISECOND,
            MonitorEvent::Contention,
            object,
            &[method],
        );
        log.monitor(time + 3 * MILLISECOND, MonitorEvent::Done, object, &[]);
    }
    log.finish()
}

/// Returns a profile of the log's process with these threads (ID, name, start time), and a sample in the log's first
/// method.
fn profile(threads: &[(u32, &str, u64)]) -> ProfileWriter {
    let mut profile = ProfileWriter::new(ByteOrder::Little);
    profile.comm(PID, "mono", true, START - 100 * MILLISECOND);
    profile.mmap2(PID, CODE, 0x1_0000, 0, "//anon", START - 90 * MILLISECOND);
    for &(tid, name, time) in threads {
        profile.thread(PID, tid, name, time);
    }
    profile.sample(PID, START + 50 * MILLISECOND, &[CODE + 4], None);
    profile
}

/// Writes a file; returns its path.
fn write(folder: &Path, name: &str, bytes: &[u8]) -> PathBuf {
    let path = folder.join(name);
    std::fs::write(&path, bytes).unwrap();
    path
}

/// Returns names and IDs of the threads that threw, in time order.
fn throwers(events: &[Event]) -> Vec<(String, u32)> {
    let thrown = of(events, "exception").into_iter();
    thrown.map(|event| (event.comm.clone(), event.tid)).collect()
}

/// Runs jitinject with `--verbose`; returns its standard error, which has all notes, and the summary.
fn summarized(input: &Path, output: &Path, more: &[&str]) -> (String, Value) {
    inject_with_summary(input, output, &[&["-v"], more].concat())
}

/// Checks that a log was left out, with a warning of a code; returns the message.
fn left_out<'s>(summary: &'s Value, code: &str, log: &Path) -> &'s str {
    let warning = only(summary, code);
    assert_eq!(warning["severity"], "warning", "{summary}");
    assert_eq!(warning["file"], tools::text(log), "{summary}");
    assert_eq!(summary["dumps"], json!([]), "{summary}");
    warning["message"].as_str().unwrap()
}

#[test]
fn threads_are_found_by_their_names_and_when_they_got_them() {
    let folder = scratch();
    let log = write(folder.path(), "a.mlpd", &log(&["Main", "same", "same", "unseen"]));
    let at = |number: u64| START + 10 * number * MILLISECOND + 5000;
    let profile = profile(&[(4712, "same", at(1)), (4713, "same", at(2))]);
    let input = write(folder.path(), "perf.data", &profile.finish());
    let output = folder.path().join("out.data");
    let (said, summary) = summarized(
        &input,
        &output,
        &[
            "--mono-log",
            tools::text(&log),
            "--events",
            "exception,contention",
        ],
    );
    assert!(!has_code(&said, "JI081"), "{said}");
    assert!(diagnostics(&summary, "JI081").is_empty(), "{summary}");
    let shown = shown::events(&output);
    let threw = throwers(&shown);
    let expected = [("mono", 4711), ("same", 4712), ("same", 4713)];
    assert_eq!(threw.len(), 4);
    assert!(
        threw
            .iter()
            .zip(expected)
            .all(|((comm, tid), expected)| (comm.as_str(), *tid) == expected),
        "{threw:?}"
    );
    assert!(threw[3].0 == "unseen" && threw[3].1 > 1 << 21, "{threw:?}");
    assert_eq!(sum(&of(&shown, "contention-ns")), (4 * MILLISECOND, 4));
}

#[test]
fn threads_that_can_be_any_of_several_are_kept_apart_and_reported() {
    let folder = scratch();
    let log = write(folder.path(), "a.mlpd", &log(&["Main", "same"]));
    let at = START + 10 * MILLISECOND;
    let profile = profile(&[(4712, "same", at + 5000), (4713, "same", at + 7000)]);
    let input = write(folder.path(), "perf.data", &profile.finish());
    let output = folder.path().join("out.data");
    let (said, summary) = summarized(
        &input,
        &output,
        &["--mono-log", tools::text(&log), "--events", "exception"],
    );
    assert!(has_code(&said, "JI081"), "{said}");
    let note = only(&summary, "JI081");
    assert_eq!(note["severity"], "note", "{note}");
    assert_eq!(note["file"], tools::text(&log), "{note}");
    assert_eq!(note["count"], 1, "{note}");
    let threw = throwers(&shown::events(&output));
    assert_eq!(threw[0], ("mono".into(), 4711));
    assert!(threw[1].0 == "same" && threw[1].1 > 1 << 21, "{threw:?}");
}

/// Returns a log of the calls of one thread: `Outer` allocates and calls `Inner`, which throws. Then `Outer` is
/// compiled again, at another address, before it returns.
fn log_of_calls() -> Vec<u8> {
    let mut log = Writer::new(17);
    let bases = Bases {
        time: START,
        thread: 0x7000,
        ..Bases::default()
    };
    log.buffer(bases);
    let (outer, inner) = (Method(0x5000), Method(0x5001));
    let compiled = |log: &mut Writer, time, method, code, name: &[u8]| {
        let code = Address(code);
        let size = 0x80;
        log.kind(
            time,
            &LogEventKind::Jit {
                method,
                code,
                size,
                name,
            },
        );
    };
    compiled(&mut log, START, outer, CODE, b"Calls:Outer ()");
    compiled(&mut log, START, inner, CODE + 0x100, b"Calls:Inner ()");
    let (class, object) = (TypeReference::Class(Pointer(0x9000)), ManagedObject(0x8000));
    log.kind(START + MILLISECOND, &LogEventKind::Enter(outer));
    log.allocation(START + 2 * MILLISECOND, class, object, 24, &[]);
    log.kind(START + 3 * MILLISECOND, &LogEventKind::Enter(inner));
    log.throw(START + 4 * MILLISECOND, object, &[]);
    log.kind(START + 8 * MILLISECOND, &LogEventKind::Leave(inner));
    compiled(
        &mut log,
        START + 9 * MILLISECOND,
        outer,
        CODE + 0x200,
        b"Calls:Outer ()",
    );
    log.kind(START + 10 * MILLISECOND, &LogEventKind::Leave(outer));
    log.finish()
}

#[test]
fn events_without_a_stack_have_that_of_the_calls_around_them() {
    let folder = scratch();
    let log = write(folder.path(), "a.mlpd", &log_of_calls());
    let shown = alone(&log, &["--events", "alloc,exception"]);
    let symbols: Vec<Vec<&str>> = shown.iter().map(Event::symbols).collect();
    let expected = [
        &["new [unknown type]", "Calls:Outer ()"],
        &["Calls:Inner ()", "Calls:Outer ()"],
    ];
    assert_eq!(symbols, expected);
}

#[test]
fn callers_are_where_they_were_on_the_clock_of_the_log() {
    const HOUR: u64 = 3_600_000 * MILLISECOND;
    let folder = scratch();
    let log = write(folder.path(), "a.mlpd", &log_of_calls());
    let mut profile = ProfileWriter::new(ByteOrder::Little);
    profile.comm(PID, "mono", true, HOUR + START - 100 * MILLISECOND);
    profile.mmap2(PID, CODE, 0x1_0000, 0, "//anon", HOUR + START - 90 * MILLISECOND);
    profile.sample(PID, HOUR + START + 5 * MILLISECOND, &[CODE + 0x104, 0x77], None);
    let input = write(folder.path(), "perf.data", &profile.finish());
    let output = folder.path().join("out.data");
    let offset = HOUR.to_string();
    let (said, summary) = summarized(
        &input,
        &output,
        &[
            "--mono-log",
            tools::text(&log),
            "--splice-stacks",
            "--clock-offset",
            &offset,
        ],
    );
    assert!(has_code(&said, "JI292"), "{said}");
    let replaced = only(&summary, "JI292")["message"].as_str().unwrap();
    assert!(
        replaced.starts_with(&format!("{}: 1 of 1 ", log.display())),
        "{replaced}"
    );
    let shown = shown::events(&output);
    assert_eq!(shown[0].symbols(), ["Calls:Inner ()", "Calls:Outer ()"]);
    let file = &shown[0].frames[1].file;
    let parts = model::parse(&std::fs::read(&output).unwrap());
    let is_file = |record: &&Vec<u8>| model::map_name(record, parts.endian).as_ref() == Some(file);
    let map = parts.records.iter().find(is_file).unwrap();
    let (start, _) = model::map_range(map, parts.endian);
    assert_eq!(start, CODE, "the code in which it ran");
}

#[test]
fn a_file_that_is_not_a_log_is_refused_without_a_profile() {
    let folder = scratch();
    let log = write(folder.path(), "a.mlpd", b"no log at all");
    let output = folder.path().join("out.data");
    let ran = jitinject()
        .args(["--mono-log", tools::text(&log), "-o", tools::text(&output)])
        .output()
        .unwrap();
    assert_eq!(ran.status.code(), Some(1));
    let said = said(&ran);
    assert_eq!(codes(&said), ["JI062"], "{said}");
    let start = format!("jitinject: error[JI062]: {}: ", log.display());
    assert!(said.starts_with(&start), "{said}");
    assert!(!output.exists());
}

#[test]
fn a_log_of_another_process_is_reported_and_its_process_can_be_given() {
    let folder = scratch();
    let log = write(folder.path(), "a.mlpd", &log(&["Main"]));
    let mut profile = ProfileWriter::new(ByteOrder::Little);
    profile.comm(55, "mono", true, START - 100 * MILLISECOND);
    profile.mmap2(55, CODE, 0x1_0000, 0, "//anon", START - 90 * MILLISECOND);
    profile.sample(55, START + 50 * MILLISECOND, &[CODE + 4], None);
    let input = write(folder.path(), "perf.data", &profile.finish());
    let output = folder.path().join("out.data");
    let with_log = ["--mono-log", tools::text(&log), "--events", "exception"];
    let (said, summary) = summarized(&input, &output, &with_log);
    assert!(has_code(&said, "JI085"), "{said}");
    let text = left_out(&summary, "JI085", &log);
    assert!(text.contains(" 4711 ") && text.contains("--pid"), "{text}");
    assert_eq!(shown::events(&output)[0].leaf(), "[unknown]");

    inject(&input, &output, &[&with_log[..], &["--pid", "55"]].concat());
    let shown = shown::events(&output);
    let of_recorded = shown
        .iter()
        .find(|event| !event.name.starts_with("mono/"))
        .unwrap();
    assert_eq!(of_recorded.leaf(), "Some.Class:Of0 ()");
    assert_eq!(throwers(&shown), [("mono".to_owned(), 55)]);

    inject(&log, &output, &["--pid", "77"]);
    let shown = shown::events(&output);
    assert!(shown.iter().all(|event| event.pid == 77));
}

#[test]
fn logs_of_two_processes_make_one_profile() {
    let logs = ["mono-alloc", "mono-default"].map(|name| capture::folder(name).join("trace.mlpd"));
    let each = logs.each_ref().map(|log| alone(log, &[]));
    let folder = scratch();
    let output = folder.path().join("out.data");
    inject(&logs[0], &output, &["--mono-log", tools::text(&logs[1])]);
    assert_reports_are_silent(&perf::named_programs(), &output);
    let shown = shown::events(&output);
    assert!(shown.is_sorted_by_key(|event| event.time));
    let pids: BTreeSet<u32> = shown.iter().map(|event| event.pid).collect();
    assert_eq!(pids, BTreeSet::from([25_601, 25_744]));
    for (each, pid) in each.iter().zip([25_744, 25_601]) {
        let ours: Vec<Event> = shown.iter().filter(|event| event.pid == pid).cloned().collect();
        let comparable = |events: &[Event]| -> Vec<_> {
            let parts = events.iter().map(|event| {
                let symbols: Vec<String> = event.symbols().into_iter().map(str::to_owned).collect();
                (
                    event.time,
                    event.comm.clone(),
                    event.period,
                    event.name.clone(),
                    symbols,
                )
            });
            parts.collect()
        };
        assert!(comparable(&ours) == comparable(each));
    }
}

/// In containers, many processes have the ID 1.
#[test]
fn classes_of_two_processes_of_one_id_keep_their_names() {
    let folder = scratch();
    let logs = ["First", "Second"].map(|name| {
        let mut log = Writer::new(13);
        log.buffer(Bases {
            time: START,
            thread: 0x7000,
            ..Bases::default()
        });
        let class = Pointer(0x9000);
        let subject = Metadata::Class {
            class,
            image: Pointer(0x9100),
            name: name.as_bytes(),
        };
        let stage = Stage::LoadEnd;
        log.kind(START, &LogEventKind::Metadata { stage, subject });
        let class = TypeReference::Class(class);
        log.allocation(START + MILLISECOND, class, ManagedObject(0x8000), 24, &[]);
        write(folder.path(), &format!("{name}.mlpd"), &log.finish())
    });
    let output = folder.path().join("out.data");
    let more = ["--mono-log", tools::text(&logs[1])];
    let (_, summary) = inject_with_summary(&logs[0], &output, &more);
    let names: BTreeSet<String> = shown::events(&output)
        .iter()
        .map(|event| event.leaf().to_owned())
        .collect();
    assert_eq!(names, ["new First", "new Second"].map(str::to_owned).into());
    // Logs have no CPUs. perf 7.3 rejects profiles of more than 2^20.
    assert_eq!(summary["profile"]["cpus"], 1, "{summary:#}");
}

#[test]
fn logs_of_two_processes_go_beside_a_recording_of_both() {
    let folder = scratch();
    let both = [PID, 4800].map(|pid| {
        let mut bytes = log(&["Main"]);
        // Offset of the process ID in the header.
        let place = bytes
            .windows(4)
            .position(|four| four == PID.to_le_bytes())
            .unwrap();
        bytes[place..place + 4].copy_from_slice(&pid.to_le_bytes());
        write(folder.path(), &format!("{pid}.mlpd"), &bytes)
    });
    let mut profile = profile(&[]);
    profile.comm(4800, "mono", true, START - 100 * MILLISECOND);
    profile.mmap2(4800, CODE, 0x1_0000, 0, "//anon", START - 90 * MILLISECOND);
    profile.sample(4800, START + 60 * MILLISECOND, &[CODE + 4], None);
    let input = write(folder.path(), "perf.data", &profile.finish());
    let output = folder.path().join("out.data");
    inject(
        &input,
        &output,
        &[
            "--mono-log",
            tools::text(&both[0]),
            "--mono-log",
            tools::text(&both[1]),
            "--events",
            "exception",
        ],
    );
    let shown = shown::events(&output);
    let threw = throwers(&shown);
    assert_eq!(threw, [("mono".to_owned(), PID), ("mono".to_owned(), 4800)]);
    assert!(shown.iter().all(|event| event.leaf() == "Some.Class:Of0 ()"));
}

#[test]
fn a_log_without_an_own_process_can_stand_alone() {
    let folder = scratch();
    let mut bytes = log(&["Main"]);
    let place = bytes
        .windows(4)
        .position(|four| four == PID.to_le_bytes())
        .unwrap();
    bytes[place..place + 4].fill(0);
    let log = write(folder.path(), "a.mlpd", &bytes);
    assert_eq!(throwers(&alone(&log, &[])), [("mono".to_owned(), 1)]);
    let input = write(folder.path(), "perf.data", &profile(&[]).finish());
    let output = folder.path().join("out.data");
    let (said, summary) = summarized(&input, &output, &["--mono-log", tools::text(&log)]);
    assert!(has_code(&said, "JI086"), "{said}");
    let text = left_out(&summary, "JI086", &log);
    assert!(text.contains("--pid"), "{text}");
}
