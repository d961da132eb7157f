//! What reports and exports say is missing.

use serde_json::Value;

use crate::report::{address, recorded, rows, run};
use crate::support::recording::PID;
use crate::support::{capture, said, scratch, tools};

/// No sample is selected that would show it.
#[test]
fn kernel_time_is_missing_whatever_samples_are_selected() {
    const EXCLUDE_KERNEL: u64 = 1 << 5;
    let folder = scratch();
    let [profile, output] = ["perf.data", "a.svg"].map(|name| folder.path().join(name));
    let (profile, output) = (tools::text(&profile), tools::text(&output));
    let mut writer = recorded(folder.path(), &["work"]);
    writer.sample(PID, 1000, &[address(0)], None);
    let report = |selection: &[&str]| {
        let ran = run(&[&["report", profile][..], selection].concat());
        assert!(ran.status.success(), "{}", said(&ran));
        String::from_utf8(ran.stdout).unwrap()
    };
    let export = |selection: &[&str]| {
        let ran = run(&[&["export", "-o", output, profile][..], selection].concat());
        assert!(ran.status.success(), "{}", said(&ran));
        said(&ran)
    };
    for (flags, is_missing) in [(EXCLUDE_KERNEL, true), (0, false)] {
        writer.flags = flags;
        std::fs::write(profile, writer.finish()).unwrap();
        assert!(report(&[]).contains("language 100.00 %"));
        for selection in [&[][..], &["--pid", "1"], &["--tid", "1"]] {
            for text in [report(selection), export(selection)] {
                assert_eq!(text.contains("kernel time not recorded"), is_missing, "{text}");
                assert_eq!(text.contains("no samples match"), !selection.is_empty(), "{text}");
                // What nothing was looked for in is not said to be there.
                assert_eq!(
                    text.contains("missing: nothing"),
                    !is_missing && selection.is_empty(),
                    "{text}"
                );
            }
        }
    }
}

/// A broken chain of frame pointers leads anywhere.
#[test]
fn callers_in_unknown_code_are_missing() {
    let folder = scratch();
    let profile = folder.path().join("perf.data");
    let mut writer = recorded(folder.path(), &["work", "caller"]);
    let (work, caller, unknown) = (address(0), address(1) + 9, 0x1234_0000);
    for chain in [&[work][..], &[work, caller], &[work, unknown, caller], &[unknown]] {
        writer.sample(PID, 1000, chain, None);
    }
    std::fs::write(&profile, writer.finish()).unwrap();
    let ran = run(&["report", "--json", tools::text(&profile)]);
    let report: Value = serde_json::from_slice(&ran.stdout).unwrap();
    for count in ["unknown", "unknown_callers"] {
        assert_eq!(report["missing"][count], 1, "{count}");
    }
}

#[test]
fn without_samples_there_is_no_table() {
    let profile = capture::profile("node20");
    for form in [&[][..], &["--markdown"]] {
        let selection = ["report", tools::text(&profile), "--time", "100000,100001"];
        let ran = run(&[&selection[..], form].concat());
        assert!(ran.status.success(), "{}", said(&ran));
        let text = String::from_utf8(ran.stdout).unwrap();
        assert!(text.ends_with("\nno samples match\n"), "{text}");
        assert!(!text.contains("charged") && !text.contains('|'), "{text}");
    }
}

#[test]
fn what_is_missing_is_counted_in_the_samples_of_the_event() {
    let folder = scratch();
    let (profile, output) = (
        capture::profile("node20-multievent"),
        folder.path().join("a.folded"),
    );
    let (profile, output) = (tools::text(&profile), tools::text(&output));
    let report = |more: &[&str]| -> Value {
        let ran = run(&[&["report", "--json", profile][..], more].concat());
        assert!(ran.status.success(), "{}", said(&ran));
        serde_json::from_slice(&ran.stdout).unwrap()
    };
    let first = report(&[]);
    let others = first["event"]["others"].as_array().unwrap().iter();
    let others: Vec<Value> = others
        .map(|name| report(&["--event", name.as_str().unwrap()]))
        .collect();
    assert_eq!(others.len(), 2);
    for report in others.iter().chain([&first]) {
        let (missing, event) = (&report["missing"], &report["event"]);
        assert_eq!(missing["samples"], event["samples"]["samples"], "{event}");
    }
    let of_thread = report(&["--tid", "1"]);
    assert_eq!(of_thread["missing"]["samples"], first["missing"]["samples"]);
    // A format for one event has the same.
    let text = String::from_utf8(run(&["report", profile]).stdout).unwrap();
    let line = text.lines().find(|line| line.starts_with("missing: ")).unwrap();
    let exported = said(&run(&["export", "-o", output, profile]));
    assert!(exported.contains(line), "{exported}");
}

/// A script can read them without a look at the rest.
#[test]
fn rows_are_an_empty_list_if_none_matches() {
    let profile = capture::profile("node20");
    let report = |more: &[&str]| -> Value {
        let ran = run(&[&["report", "--json", tools::text(&profile)][..], more].concat());
        assert!(ran.status.success(), "{}", said(&ran));
        serde_json::from_slice(&ran.stdout).unwrap()
    };
    for nothing in [["--filter", "xyzzy"], ["--pid", "1"]] {
        assert_eq!(report(&nothing)["rows"], Value::Array(Vec::new()), "{nothing:?}");
    }
    assert!(report(&["eat"]).get("rows").is_none());
}

#[test]
fn a_mistyped_profile_with_rows_is_said_to_be_missing() {
    let output = run(&["report", "--by", "line", "mistyped.data"]);
    assert_eq!(output.status.code(), Some(2));
    let expected = "--by and a function: there is no file mistyped.data\n";
    assert!(said(&output).contains(expected), "{}", said(&output));
}

/// Libraries without frame pointers leave words of the heap where the kernel expects return addresses.
#[test]
fn memory_recorded_as_data_is_no_jit_code() {
    const USER: u16 = 2;
    const MMAP_DATA: u16 = 1 << 13;
    const HEAP: u64 = 0x5000_0000;
    let folder = scratch();
    let path = folder.path().join("perf.data");
    let unnamed = |misc: u16| {
        let mut writer = recorded(folder.path(), &["work"]);
        let map = writer.records.len();
        writer.mmap2(PID, HEAP, 0x1000, 0, "//anon", 600);
        writer.records[map + 4..][..2].copy_from_slice(&misc.to_le_bytes());
        writer.sample(PID, 1000, &[address(0), HEAP + 8], None);
        std::fs::write(&path, writer.finish()).unwrap();
        let ran = run(&["report", "--json", tools::text(&path)]);
        let report: Value = serde_json::from_slice(&ran.stdout).unwrap();
        let rows = rows(&report).iter();
        rows.filter(|row| row["name"] == "[JIT code without a name]")
            .count()
    };
    assert_eq!(unnamed(USER), 1);
    assert_eq!(unnamed(USER | MMAP_DATA), 0);
}
