//! XRay traces as events of a profile: typed events, arguments, durations of calls; traces with what the format allows and no
//! runtime writes; and names in `jitinject dump`.

use jitdump::ByteOrder;
use jitinject::Issue;
use jitinject::internals::tools::dump::FunctionNames;
use jitinject::internals::traces::xray::format::{RecordKind, Trace, TraceMode};
use serde_json::Value;

use crate::support::perf::{Event, without_addresses};
use crate::support::xray_trace::{Buffer, Record, Writer};
use crate::support::{capture, inject_into, jitinject, said, scratch, shown, tools};

const ORDERS: [ByteOrder; 2] = [ByteOrder::Little, ByteOrder::Big];

/// Returns a trace of one thread.
fn trace(version: u16, endian: ByteOrder, records: &[(u64, RecordKind<'static>)]) -> Vec<u8> {
    let mut writer = Writer::new(TraceMode::Fdr, version, endian, 512);
    let records = records.iter();
    writer.buffer(&Buffer {
        process: 7,
        thread: 7,
        wall: (1, 0),
        records: records
            .map(|&(tick, kind)| Record { tick, cpu: 0, kind })
            .collect(),
    });
    writer.finish()
}

/// Returns the events of a trace in a profile, and the bytes of the profile.
fn events(trace: &[u8], more: &[&str]) -> (Vec<Event>, Vec<u8>) {
    let folder = scratch();
    let path = folder.path().join("xray-log.app.AbCdEf");
    std::fs::write(&path, trace).unwrap();
    let output = inject_into(folder.path(), &path, more);
    let bytes = std::fs::read(&output).unwrap();
    (without_addresses(shown::events(&output)), bytes)
}

fn of<'e>(events: &'e [Event], name: &str) -> Vec<&'e Event> {
    events.iter().filter(|event| event.name == name).collect()
}

fn enter(function: u32) -> RecordKind<'static> {
    RecordKind::Enter { function }
}

fn exit(function: u32) -> RecordKind<'static> {
    RecordKind::Exit { function }
}

#[test]
fn typed_events_have_their_type_as_a_frame() {
    for endian in ORDERS {
        let custom = RecordKind::Custom {
            payload: b"\x07\0text-of-both",
        };
        let typed = RecordKind::Typed {
            kind: 7,
            payload: b"text-of-both",
        };
        let file = trace(
            5,
            endian,
            &[(10, enter(1)), (20, custom), (30, typed), (40, exit(1))],
        );
        let (shown, _) = events(&file, &["--events", "custom"]);
        let stacks: Vec<Vec<&str>> = of(&shown, "xray/custom/")
            .iter()
            .map(|event| event.symbols())
            .collect();
        assert_eq!(stacks, [vec!["[xray #1]"], vec!["[type 7]", "[xray #1]"]]);
    }
}

#[test]
fn arguments_are_raw_data_at_their_call() {
    const ARGUMENT: u64 = 0x1122_3344_5566_7788;
    let kinds = [
        (TraceMode::Fdr, 5, ByteOrder::Little),
        (TraceMode::Fdr, 5, ByteOrder::Big),
        (TraceMode::Basic, 3, ByteOrder::Little),
    ];
    for (mode, version, endian) in kinds {
        let mut writer = Writer::new(mode, version, endian, 512);
        let records = [
            (10, RecordKind::EnterWithArguments { function: 1 }),
            (10, RecordKind::Argument(ARGUMENT)),
            (40, exit(1)),
        ];
        writer.buffer(&Buffer {
            process: 7,
            thread: 7,
            wall: (1, 0),
            records: records.map(|(tick, kind)| Record { tick, cpu: 0, kind }).to_vec(),
        });
        let file = writer.finish();
        let (shown, bytes) = events(&file, &["--events", "arguments"]);
        let [event] = of(&shown, "xray/arguments/")[..] else {
            panic!("{shown:?}");
        };
        assert_eq!(event.symbols(), ["[xray #1]"]);
        let mut logged = Vec::new();
        endian.write_u64(&mut logged, ARGUMENT);
        assert!(bytes.windows(8).any(|bytes| bytes == logged));
        // They are no part of the default.
        assert!(of(&events(&file, &[]).0, "xray/arguments/").is_empty());
    }
}

#[test]
fn calls_have_their_durations() {
    let file = trace(
        5,
        ByteOrder::Little,
        &[
            (100, enter(1)),
            (110, enter(2)),
            (115, enter(2)),
            (125, exit(2)),
            (130, exit(2)),
            (140, enter(3)),
            // The exit of 3 is missing.
            (190, exit(1)),
            (200, enter(1)),
        ],
    );
    let (shown, _) = events(&file, &["--events", "durations,calls"]);
    let durations: Vec<(String, u64)> = of(&shown, "xray/call-ns/")
        .iter()
        .map(|event| (event.symbols().join(" < "), event.period))
        .collect();
    let expected = [
        ("[xray #2] < [xray #2] < [xray #1]", 10),
        ("[xray #2] < [xray #1]", 20),
        ("[xray #3] < [xray #1]", 50),
        ("[xray #1]", 90),
    ];
    assert_eq!(
        durations,
        expected.map(|(stack, period)| (stack.to_owned(), period))
    );
    assert_eq!(of(&shown, "xray/calls/").len(), 5);
}

/// Changes the end-of-buffer record of a version 1 trace.
fn without_end(mut file: Vec<u8>, endian: ByteOrder, filler: &[u8]) -> Vec<u8> {
    let introducer = match endian {
        ByteOrder::Little => 3,
        ByteOrder::Big => 0x81,
    };
    // The records of the buffer are three of 16 bytes, and two calls of 8.
    let end = 32 + 3 * 16 + 2 * 8;
    assert_eq!(file[end], introducer);
    let bytes = filler.iter().cycle();
    for (byte, filler) in file[end..].iter_mut().zip(bytes) {
        *byte = *filler;
    }
    file
}

#[test]
fn filler_after_a_version_1_buffer_without_its_end_is_no_call() {
    for endian in ORDERS {
        let file = trace(1, endian, &[(10, enter(5)), (20, exit(5))]);
        let read = |file: &[u8]| {
            let trace = Trace::parse(file).unwrap();
            let index = trace.index();
            let mut records = trace.records(&index.buffers()[0]);
            let count = records.by_ref().count();
            (count, records.faults().count(Issue::XrayNoEnd))
        };
        assert_eq!(read(&file), (2, 0));
        assert_eq!(read(&without_end(file, endian, &[0])), (2, 1));
    }
}

#[test]
fn a_second_trace_in_the_file_is_read() {
    for version in [1, 5] {
        for endian in ORDERS {
            let mut file = trace(version, endian, &[(10, enter(5)), (20, exit(5))]);
            file.extend(trace(version, endian, &[(30, enter(6)), (40, exit(6))]));
            let index = Trace::parse(&file).unwrap().index();
            assert_eq!(index.buffers().len(), 2, "{version}");
            assert_eq!(index.faults.count(Issue::XrayAnotherTrace), 1);
            assert_eq!(index.faults.iter().count(), 1, "{:?}", index.faults);
        }
    }
}

fn dumped(more: &[&str]) -> (Vec<Value>, String) {
    let ran = jitinject()
        .args(["dump", "--json", "--xray-binary"])
        .arg(capture::folder("xray-fdr-pie14").join("work"))
        .arg(capture::folder("xray-fdr-pie14").join("trace.xray"))
        .args(more)
        .output()
        .unwrap();
    assert!(ran.status.success(), "{}", said(&ran));
    let text = String::from_utf8(ran.stdout.clone()).unwrap();
    let lines = text
        .lines()
        .skip(1)
        .map(|line| serde_json::from_str(line).unwrap());
    (lines.collect(), said(&ran))
}

#[test]
fn dump_prints_names_of_the_binary_and_selects_by_them() {
    let (all, _) = dumped(&[]);
    let is_call = |entry: &&Value| entry["function"].is_number();
    let calls: Vec<&Value> = all.iter().filter(is_call).collect();
    assert!(calls.len() > 100);
    assert!(
        calls.iter().all(|call| call["name"].is_string()),
        "{:?}",
        calls[0]
    );
    let name = calls[0]["name"].as_str().unwrap();
    let (named, said) = dumped(&["--name", name]);
    let has_name = |call: &&&Value| call["name"].as_str().unwrap().contains(name);
    assert_eq!(named.len(), calls.iter().filter(has_name).count());
    assert!(said.is_empty(), "{said}");
    let not_elf = FunctionNames::read(b"no binary").unwrap_err();
    assert_eq!(not_elf.issue, Issue::XrayNotElf);
    let folder = scratch();
    let missing = folder.path().join("missing");
    let ran = jitinject()
        .args(["dump", "--xray-binary", tools::text(&missing)])
        .arg(capture::folder("xray-fdr-pie14").join("trace.xray"))
        .output()
        .unwrap();
    assert!(!ran.status.success());
}
