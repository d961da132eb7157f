//! `jitinject report`: names and lines of functions as readers expect them.

use std::collections::BTreeSet;

use jitdump::ByteOrder;
use serde_json::Value;

use crate::report::{address, recorded, rows, run, samples};
use crate::support::dump::{DumpWriter, X86_64};
use crate::support::profile::ProfileWriter;
use crate::support::recording::PID;
use crate::support::{capture, said, scratch, tools};

/// As in perf: LLVM writes the symbols of C++ and Rust functions into jitdumps.
#[test]
fn encoded_names_of_jit_code_are_those_of_the_source() {
    let folder = scratch();
    let names = ["_ZN3app3hotIlEET_S1_", "_RNvCs1234_7mycrate3foo", "_Zero"];
    let mut writer = recorded(folder.path(), &names);
    for function in 0..3 {
        writer.sample(PID, 1000 + function, &[address(function)], None);
    }
    let profile = folder.path().join("perf.data");
    std::fs::write(&profile, writer.finish()).unwrap();
    let report = |more: &[&str]| -> Value {
        let arguments = ["report", "--json", "-i", tools::text(&profile)];
        let output = run(&[&arguments[..], more].concat());
        assert!(output.status.success(), "{}", said(&output));
        serde_json::from_slice(&output.stdout).unwrap()
    };
    for by in ["function", "symbol"] {
        let report = report(&["--by", by]);
        let names = rows(&report).iter().map(|row| row["name"].as_str().unwrap());
        let names: BTreeSet<&str> = names.collect();
        assert_eq!(
            names,
            BTreeSet::from(["_Zero", "app::hot<long>", "mycrate::foo"]),
            "{by}"
        );
    }
    let of_function = report(&["mycrate::foo"]);
    assert_eq!(samples(&of_function["function"]["row"], "self"), 1);
}

/// Compilers mark code of no line in particular with line 0.
#[test]
fn samples_of_a_function_without_a_line_are_a_row() {
    let folder = scratch();
    let path = folder.path().join(format!("jit-{PID}.dump"));
    let mut dump = DumpWriter::new(ByteOrder::Little, X86_64, PID);
    let start = address(0);
    dump.lines(900, start, b"/src/a.c", &[(start, 7), (start + 8, 0)]);
    dump.load(900, start, 0, b"lines", &[0x90; 16]);
    dump.load(900, address(1), 1, b"none", &[0x90; 16]);
    let mut writer = recorded(folder.path(), &[]);
    std::fs::write(&path, dump.bytes).unwrap();
    writer.sample(PID, 1000, &[start], None);
    writer.sample(PID, 1001, &[start + 8], None);
    writer.sample(PID, 1002, &[address(1), start + 9], None);
    let profile = folder.path().join("perf.data");
    std::fs::write(&profile, writer.finish()).unwrap();
    let report = |name: &str, format: &[&str]| {
        let arguments = ["report", "-i", tools::text(&profile), name];
        let output = run(&[&arguments[..], format].concat());
        assert!(output.status.success(), "{}", said(&output));
        String::from_utf8(output.stdout).unwrap()
    };
    let json: Value = serde_json::from_str(&report("lines", &["--json"])).unwrap();
    let no_line = &json["function"]["no_line"];
    assert_eq!((samples(no_line, "self"), samples(no_line, "total")), (1, 2));
    let line = &json["function"]["lines"][0];
    assert_eq!((samples(line, "self"), samples(line, "total")), (1, 1));
    for format in [&[][..], &["--markdown"]] {
        let text = report("lines", format);
        assert!(text.contains("\n   33.33    66.67  no line\n"), "{text}");
    }
    // It has no lines at all.
    let json: Value = serde_json::from_str(&report("none", &["--json"])).unwrap();
    assert!(json["function"].get("no_line").is_none(), "{json}");
}

/// As in perf: a thread starts with the name of the one that starts it.
#[test]
fn threads_without_a_name_have_the_one_that_their_starter_had() {
    let folder = scratch();
    let mut writer = recorded(folder.path(), &["work"]);
    // Process, parent, thread, and its starter follow the record's header.
    let start = |writer: &mut ProfileWriter, tid: u32, starter: u32, time: u64| {
        let record = writer.records.len();
        writer.fork(PID, PID, time);
        writer.records[record + 16..][..4].copy_from_slice(&tid.to_le_bytes());
        writer.records[record + 20..][..4].copy_from_slice(&starter.to_le_bytes());
    };
    let [pool, of_pool, early, further] = [1, 2, 3, 4].map(|at| PID + at);
    writer.comm(PID, "python3", false, 600);
    start(&mut writer, early, PID, 610);
    writer.comm(PID, "main-1", false, 620);
    writer.thread(PID, pool, "pool", 630);
    start(&mut writer, of_pool, pool, 640);
    // The buffer of one CPU follows that of another.
    start(&mut writer, further, of_pool, 660);
    writer.comm(PID, "main-2", false, 650);
    for (tid, time) in [of_pool, early, further].into_iter().zip(1000..) {
        let record = writer.records.len();
        writer.sample(PID, time, &[address(0)], None);
        writer.records[record + 20..][..4].copy_from_slice(&tid.to_le_bytes());
    }
    let profile = folder.path().join("perf.data");
    std::fs::write(&profile, writer.finish()).unwrap();
    let output = run(&["report", "--json", "--by", "thread", tools::text(&profile)]);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let names = rows(&report).iter().map(|row| row["name"].as_str().unwrap());
    let names: BTreeSet<&str> = names.collect();
    let expected = [
        format!("pool {of_pool}"),
        format!("python3 {early}"),
        format!("pool {further}"),
    ];
    assert_eq!(names, expected.iter().map(String::as_str).collect());
}

/// The names of events are at the end of a profile.
#[test]
fn events_of_a_cut_off_profile_have_perfs_names() {
    let folder = scratch();
    let mut bytes = std::fs::read(capture::profile("node20")).unwrap();
    bytes.truncate(bytes.len() * 7 / 10);
    let profile = folder.path().join("perf.data");
    std::fs::write(&profile, bytes).unwrap();
    let input = ["-i", tools::text(&profile)];
    let output = run(&[&["report", "--json", "-e", "cpu-clock:ppp"][..], &input].concat());
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["event"]["name"], "cpu-clock:ppp");
    assert_eq!(report["event"]["samples"]["samples"], 458);
}
