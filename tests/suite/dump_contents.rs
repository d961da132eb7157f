//! `jitinject dump` prints what was written to a record, and what other readers find in it.

use std::collections::BTreeMap;

use jitdump::{Address, ByteOrder};
use jitinject::Issue;
use jitinject::internals::traces::mono::format::event::{LogEventKind, Method};
use serde_json::Value;

use crate::dump::{counts, files, made, number, pieces};
use crate::support::capture::gunzipped;
use crate::support::dump::{DumpWriter, X86_64};
use crate::support::{capture, mono_log, mono_report};

/// Counts records by type with the sizes in their headers, and collects the names of functions. Returns `None` if the
/// sizes do not lead to the end of the file, or for types above 4.
fn independent_counts(file: &[u8], names: &mut Vec<String>) -> Option<BTreeMap<u32, u64>> {
    let is_little = &file[..4] == b"DTiJ";
    let number = |at: usize| {
        let bytes = file.get(at..at + 4)?.try_into().unwrap();
        Some(if is_little {
            u32::from_le_bytes(bytes)
        } else {
            u32::from_be_bytes(bytes)
        })
    };
    let mut counts = BTreeMap::new();
    let mut at = number(8)? as usize;
    while at < file.len() {
        let (id, size) = (number(at)?, number(at + 4)? as usize);
        if size < 16 || at + size > file.len() || id > 4 {
            return None;
        }
        *counts.entry(id).or_default() += 1;
        if id == 0 {
            let name = file[at + 56..].split(|&byte| byte == 0).next().unwrap();
            names.push(String::from_utf8_lossy(name).into_owned());
        }
        at += size;
    }
    Some(counts)
}

#[test]
fn a_jitdump_has_the_records_and_names_that_a_plain_walk_finds() {
    const KINDS: [&str; 5] = ["LOAD", "MOVE", "DEBUG_INFO", "CLOSE", "UNWINDING_INFO"];
    let mut compared = 0;
    for path in files(&[".dump"]) {
        let file = std::fs::read(&path).unwrap();
        let mut names = Vec::new();
        let Some(expected) = independent_counts(&file, &mut names) else {
            continue;
        };
        let pieces = pieces(&file);
        let counts = counts(&pieces);
        for (id, kind) in (0..).zip(KINDS) {
            let expected = expected.get(&id).copied().unwrap_or_default();
            let found = counts.get(kind).copied().unwrap_or_default();
            assert_eq!(found, expected, "{kind} of {}", path.display());
        }
        let loads = pieces.iter().filter(|piece| piece["type"] == "LOAD");
        let found: Vec<_> = loads.map(|piece| piece["name"].as_str().unwrap()).collect();
        assert_eq!(found, names, "{}", path.display());
        compared += 1;
    }
    assert!(compared > 30, "{compared}");
}

#[test]
fn a_record_of_each_type_says_what_was_written() {
    let dump = made();
    let pieces = pieces(&dump.bytes);
    let expected = serde_json::json!([
        {"offset": 0, "size": 40, "type": "header", "byte_order": "little", "magic": "0x4a695444", "version": 1,
         "total_size": 40, "elf_mach": 62, "pad1": "0x0", "pid": 77, "timestamp": 0, "flags": "0x0",
         "machine": "EM_X86_64"},
        {"offset": 40, "size": 71, "type": "DEBUG_INFO", "time": 5, "code_addr": "0x1000", "nr_entry": 2, "entries": [
            {"addr": "0x1000", "line": 3, "discrim": 0, "name": "a.js"},
            {"addr": "0x1002", "line": 4, "discrim": 0, "name": "a.js", "same_name": true}]},
        {"offset": 111, "size": 112, "type": "UNWINDING_INFO", "time": 6, "unwind_data_size": 72,
         "eh_frame_hdr_size": 20, "mapped_size": 0, "layout": "eh_frame first", "eh_frame_size": 52, "cies": 1,
         "fdes": 1},
        {"offset": 223, "size": 24, "type": "JIT_TIER", "time": 7, "id": 827_346_260, "colour": 2, "tier": "Ion"},
        {"offset": 247, "size": 72, "type": "LOAD", "time": 8, "pid": 77, "tid": 77, "vma": "0x1000",
         "code_addr": "0x1000", "code_size": 4, "code_index": 1, "name": "first \u{1b}[31m"},
        {"offset": 319, "size": 73, "type": "LOAD", "time": 9, "pid": 77, "tid": 77, "vma": "0x2000",
         "code_addr": "0x2000", "code_size": 9, "code_index": 2, "name": "second\u{fffd}",
         "name_bytes": "7365636f6e64ff"},
        {"offset": 392, "size": 64, "type": "MOVE", "time": 10, "pid": 77, "tid": 77, "vma": "0x3000",
         "old_code_addr": "0x1000", "new_code_addr": "0x3000", "code_size": 4, "code_index": 1},
        {"offset": 456, "size": 31, "type": "EMBEDDED_SOURCE_FILE", "time": 11, "id": 827_346_261, "text_size": 7,
         "path": "/a/b.js"},
        {"offset": 487, "size": 20, "type": "unknown", "time": 12, "id": 99},
        {"offset": 507, "size": 16, "type": "CLOSE", "time": 13},
    ]);
    let expected = expected.as_array().unwrap();
    for (found, expected) in pieces.iter().zip(expected) {
        assert_eq!(found, expected);
    }
    assert_eq!(pieces.len(), expected.len());
}

/// The two layouts of DEBUG_INFO2, each with a line and an inlined call.
#[test]
fn lines_and_inlined_calls_are_printed_for_both_layouts() {
    let endian = ByteOrder::Little;
    let numbers = |numbers: &[u32]| {
        let mut out = Vec::new();
        numbers
            .iter()
            .for_each(|&number| endian.write_u32(&mut out, number));
        out
    };
    let lists = [
        // Sizes and counts of the following parts.
        &numbers(&[1, 8, 2, 8, 2, 1, 1, 1])[..],
        b"file.rs\0out\0in\0\0",
        &numbers(&[0, 0, 1, 0, 0, 1, 0, 10, 2, 5]),
        &numbers(&[0, 1, 1, 3, 4]),
        &numbers(&[2, 5]),
        &numbers(&[2, 0, 11, 6]),
    ];
    let mut positions = Vec::new();
    for number in [0x1000_u64, 2, 2, 3] {
        endian.write_u64(&mut positions, number);
    }
    positions.extend(numbers(&[0, 0, 2, 1]));
    positions.extend(numbers(&[u32::MAX, 0, 2, 1, 1, 3, 5]));
    positions.extend(numbers(&[0, 1, 2, 10, 3, 11, 7]));
    positions.extend(b"out\0in\0file.rs\0");
    let mut dump = DumpWriter::new(endian, X86_64, 77);
    dump.record(827_346_259, 1, &lists.concat());
    dump.record(827_346_260, 1, &positions);
    dump.load(2, 0x1000, 1, b"out", b"0123456789");
    let pieces = pieces(&dump.bytes);
    for (piece, layout) in pieces[1..].iter().zip(["lists", "positions"]) {
        assert_eq!(
            (&piece["type"], &piece["layout"]),
            (&"DEBUG_INFO2".into(), &layout.into())
        );
        assert_eq!(piece["functions"][0]["name"], "out", "{piece}");
        let call = &piece["inlined_calls"][0];
        assert_eq!(
            (&call["name"], &call["line"]),
            (&"in".into(), &3.into()),
            "{piece}"
        );
        let line = piece["lines"].as_array().unwrap().last().unwrap();
        assert_eq!(
            (&line["line"], &line["column"], &line["file"]),
            (&11.into(), &7.into(), &"file.rs".into())
        );
    }
    assert_eq!(pieces[2]["inlined_calls"][0]["ranges"][0], "0x2..0xa");
    let counts = [
        "file_count",
        "function_names_count",
        "function_count",
        "inline_call_record_count",
        "range_count",
        "line_record_count",
    ];
    assert_eq!(counts.map(|count| number(&pieces[1], count)), [1, 2, 2, 1, 1, 1]);
    let flags = |at: usize| &pieces[1]["functions"][at]["flags"];
    assert_eq!((flags(0), flags(1)), (&"0x0".into(), &"0x5".into()));
    assert!(pieces[2]["functions"][0].get("flags").is_none());
}

#[test]
fn damaged_names_of_files_are_repaired() {
    let path = capture::folder("node20").join("jit-11682.dump");
    let pieces = pieces(&std::fs::read(path).unwrap());
    let entries = pieces
        .iter()
        .filter_map(|piece| piece["entries"].as_array())
        .flatten();
    let repaired: Vec<_> = entries.filter(|entry| entry.get("repaired").is_some()).collect();
    // jitinject --all reports the same number, in 23 of 68 records.
    assert_eq!(repaired.len(), 449);
    let records = pieces
        .iter()
        .filter(|piece| piece["entries"].to_string().contains("repaired"));
    assert_eq!(records.count(), 23);
    assert!(
        repaired
            .iter()
            .all(|entry| entry["name"] == "/tmp/cap-node20/work.js")
    );
}

#[test]
fn a_cut_record_is_shown_as_far_as_it_goes() {
    let whole = made().bytes;
    let start = 247; // of the first LOAD
    let fields = [
        (4, "total_size"),
        (8, "timestamp"),
        (16, "pid"),
        (20, "tid"),
        (24, "vma"),
        (32, "code_addr"),
        (40, "code_size"),
        (48, "code_index"),
        (56, "name"),
        (68, "code"),
        (72, "padding"),
    ];
    for cut in 8..72 {
        let pieces = pieces(&whole[..start + cut]);
        let last = pieces.last().unwrap();
        // Without a whole time, it is not recognized as a record.
        if cut < 16 {
            continue;
        }
        let (_, missing) = fields[fields.iter().rposition(|&(at, _)| at <= cut).unwrap()];
        assert_eq!(last["type"], "LOAD", "{cut}: {last}");
        assert_eq!(last["cut"], missing, "{cut}: {last}");
        assert_eq!(last["missing"], 72 - cut as u64, "{cut}: {last}");
        assert_eq!(last.get("code_index").is_some(), cut >= 56, "{cut}: {last}");
        let name = last.get("name").map(|name| name.as_str().unwrap());
        let there = (cut >= 56).then(|| &"first \u{1b}[31m"[..(cut - 56).min(11)]);
        assert_eq!(name, there, "{cut}: {last}");
    }
}

#[test]
fn odd_records_say_what_is_wrong() {
    let mut dump = DumpWriter::new(ByteOrder::Little, X86_64, 77);
    dump.load(1, 0x1000, 1, b"good", b"code");
    dump.load(2, 0x1000, 1, b"bad", b"code");
    let bad = dump.bytes.len() - 4 - 4 - 8 - 8;
    // The size of its code.
    dump.bytes[bad..bad + 8].copy_from_slice(&1000_u64.to_le_bytes());
    dump.load(3, 0x1000, 1, b"good", b"code");
    dump.bytes.extend(b"no record at all");
    dump.load(4, 0x1000, 1, b"good", b"code");
    dump.load(5, 0x1000, 1, b"good", b"code");
    let size = dump.bytes.len();
    dump.load(6, 0x1000, 1, b"swollen", b"code");
    dump.bytes[size + 4] += 100;
    dump.load(7, 0x1000, 1, b"good", b"code");
    dump.load(8, 0x1000, 1, b"good", b"code");
    dump.load(9, 0x1000, 1, b"good", b"code");
    dump.bytes.extend([0; 100]);
    let pieces = pieces(&dump.bytes);
    let kinds: Vec<_> = pieces
        .iter()
        .map(|piece| piece["type"].as_str().unwrap())
        .collect();
    let (load, expected) = (
        "LOAD",
        [
            "damage", "LOAD", "LOAD", "LOAD", "LOAD", "LOAD", "LOAD", "padding",
        ],
    );
    assert_eq!(kinds, [&["header", load, load, load][..], &expected].concat());
    assert_eq!(pieces[2]["cut"], "code");
    assert_eq!(pieces[2]["name"], "bad");
    assert_eq!(pieces[2]["fault"], Issue::JitdumpBadLoad.to_string());
    assert_eq!(number(&pieces[4], "size"), 16);
    assert_eq!(pieces[4]["fault"], Issue::JitdumpSkippedBytes.to_string());
    assert_eq!(pieces[7]["repaired"], true);
    assert_eq!(pieces[7]["name"], "swollen");
    assert_eq!(number(&pieces[7], "total_size"), number(&pieces[7], "size") + 100);
    let damaged: Vec<_> = pieces
        .iter()
        .filter(|piece| piece.get("fault").is_some())
        .collect();
    assert_eq!(damaged.len(), 2);
}

/// Returns the records of a trace as llvm-xray converts them, sorted: type, function, tick and thread.
fn converted(name: &str) -> Vec<(String, u64, u64, i64)> {
    let folder = capture::folder(name);
    let files = ["convert-nomap.yaml.gz", "convert.yaml.gz"].map(|file| folder.join(file));
    let yaml = gunzipped(files.iter().find(|it| it.exists()).unwrap());
    let yaml = String::from_utf8(yaml).unwrap();
    let mut records = Vec::new();
    for line in yaml.lines().filter(|line| line.starts_with("  - {")) {
        let field = |name: &str| {
            let (_, value) = line.rsplit_once(name).unwrap();
            value.split([',', ' ']).next().unwrap()
        };
        let kind = match field(" kind: ") {
            "function-enter" => "enter",
            "function-enter-arg" => "enter_arg",
            "function-exit" => "exit",
            "function-tail-exit" => "tail_exit",
            "custom-event" => "custom_event",
            "typed-event" => "typed_event",
            other => panic!("{other}"),
        };
        let number = |name: &str| field(name).parse().unwrap();
        let thread = field(" thread: ").parse().unwrap();
        let function = if kind.ends_with("event") {
            0
        } else {
            number("func-id: ")
        };
        records.push((kind.to_owned(), function, number(" tsc: "), thread));
    }
    records.sort();
    records
}

#[test]
fn a_trace_of_xray_has_the_records_that_llvm_xray_converts() {
    let mut compared = 0;
    for name in [
        "xray-basic19",
        "xray-fdr-pie14",
        "xray-fdr-threshold14",
        "xray-fdr-tsc14",
        "xray-fdr-typed19",
        "xray-fdr-v1-synth",
        "xray-fdr-v3-synth",
        "xray-fdr-v4-synth",
    ] {
        let pieces = pieces(&std::fs::read(capture::folder(name).join("trace.xray")).unwrap());
        let expected = converted(name);
        let kinds: Vec<&String> = expected.iter().map(|(kind, ..)| kind).collect();
        let records = pieces.iter().filter(|piece| {
            let kind = piece["type"].as_str().unwrap();
            // llvm-xray leaves out truncated records.
            piece.get("cut").is_none() && kinds.iter().any(|known| *known == kind)
        });
        let mut found: Vec<_> = records
            .map(|piece| {
                let kind = piece["type"].as_str().unwrap().to_owned();
                let function = piece["function"].as_u64().unwrap_or_default();
                (
                    kind,
                    function,
                    number(piece, "time"),
                    piece["thread"].as_i64().unwrap(),
                )
            })
            .collect();
        found.sort();
        assert!(found == expected, "{name}: {} {}", found.len(), expected.len());
        compared += found.len();
    }
    assert!(compared > 8_000, "{compared}");
}

#[test]
fn a_log_of_mono_has_the_events_that_its_own_reader_counts() {
    let folder = capture::folder("mono-joined");
    let pieces = pieces(&std::fs::read(folder.join("trace.mlpd")).unwrap());
    let of = |kind: &str, key: &str, value: &str| {
        let found = pieces
            .iter()
            .filter(|piece| piece["type"] == kind && (key.is_empty() || piece[key] == value));
        found.count()
    };
    let theirs = String::from_utf8(gunzipped(&folder.join("debug.txt.gz"))).unwrap();
    let lines = |start: &str| {
        theirs
            .lines()
            .filter(|line| line.trim_start().starts_with(start))
            .count()
    };
    for (kind, key, value, line) in [
        ("allocation", "", "", "alloced object"),
        ("class", "stage", "load_end", "loaded class"),
        // mprof-report calls the first domain a thread as well.
        ("thread", "stage", "load_end", "loaded thread 0x"),
        ("thread", "stage", "unload_end", "unloaded thread"),
        ("image", "stage", "load_end", "loaded image"),
        ("assembly", "stage", "load_end", "loaded assembly"),
        ("code_buffer", "", "", "jit helper"),
        ("jit", "", "", "jitted method"),
        ("sync_point", "", "", "sync point"),
        ("collection", "", "", "gc event"),
        ("heap_resize", "", "", "gc heap"),
        ("root_register", "", "", "root register"),
        ("root_unregister", "", "", "root unregister"),
        ("native_symbol", "", "", "unmanaged symbol"),
        ("buffer", "", "", "buf: thread:"),
    ] {
        let (found, expected) = (of(kind, key, value), lines(line));
        assert_eq!(found, expected, "{kind} {line}");
        assert!(found > 0, "{kind}");
    }
    let report = mono_report::Report::kept(&folder.join("report.txt"));
    let moves = pieces
        .iter()
        .filter_map(|piece| piece["objects"].as_array())
        .flatten();
    assert_eq!(moves.count() as u64, report.number("Object moves:"));
    let allocated = pieces.iter().filter(|piece| piece["type"] == "allocation");
    let sums = allocated.fold((0, 0), |(bytes, count), piece| {
        (bytes + number(piece, "object_size"), count + 1)
    });
    assert_eq!(sums, report.allocated());
}

#[test]
fn a_log_of_mono_is_printed_with_names() {
    let log = |name: &str| pieces(&std::fs::read(capture::folder(name).join("trace.mlpd")).unwrap());
    let calls = log("mono-calls");
    let is_call = |piece: &&Value| piece["type"] == "enter" || piece["type"] == "leave";
    let calls: Vec<&Value> = calls.iter().filter(is_call).collect();
    assert!(calls.len() > 10_000);
    assert!(
        calls
            .iter()
            .all(|call| call["name"].as_str().unwrap().contains(':'))
    );
    let joined = log("mono-joined");
    let of = |kind: &str| {
        joined
            .iter()
            .filter(move |piece| piece["type"] == kind)
            .collect::<Vec<_>>()
    };
    let named = |allocation: &&&Value| allocation["type_name"] == "Work.Node";
    assert!(of("allocation").iter().filter(named).count() > 100);
    for thrown in of("throw") {
        let frames = thrown["frames"].as_array().unwrap();
        let names = thrown["frame_names"].as_array().unwrap();
        assert_eq!(names.len(), frames.len());
        assert!(
            names.iter().all(|name| name.as_str().unwrap().contains(':')),
            "{thrown}"
        );
    }
}

/// A file of any size could repeat a name that is half as long.
#[test]
fn repeated_names_have_a_limit() {
    let name = ["x".repeat(1023), "ä".repeat(2000)].concat();
    let mut log = mono_log::Writer::new(17);
    log.buffer(mono_log::Bases::default());
    let jit = LogEventKind::Jit {
        method: Method(8),
        code: Address(0x4000),
        size: 64,
        name: name.as_bytes(),
    };
    for kind in [jit, LogEventKind::Enter(Method(8))] {
        log.kind(1000, &kind);
    }
    let pieces = pieces(&log.finish());
    let name_of = |kind: &str| {
        let piece = pieces.iter().find(|piece| piece["type"] == kind).unwrap();
        piece["name"].as_str().unwrap().to_owned()
    };
    assert_eq!((name_of("jit"), name_of("enter")), (name, "x".repeat(1023)));
}

/// An entry that repeats the name of the one before takes 18 bytes.
#[test]
fn repeated_names_of_lines_have_a_limit() {
    const CODE: u64 = 0x4000_0000;
    let name = "x".repeat(3000);
    let mut content = [CODE.to_le_bytes(), 2_u64.to_le_bytes()].concat();
    for path in [name.as_bytes(), b"\xff"] {
        content.extend_from_slice(&CODE.to_le_bytes());
        content.extend_from_slice(&[1, 0, 0, 0, 0, 0, 0, 0]);
        content.extend_from_slice(path);
        content.push(0);
    }
    let mut dump = DumpWriter::new(ByteOrder::Little, X86_64, 17);
    dump.record(2, 900, &content);
    dump.load(1000, CODE, 1, b"f", &[0x90; 16]);
    let pieces = pieces(&dump.bytes);
    let lines = pieces.iter().find(|piece| piece["entries"].is_array()).unwrap();
    let names = [0, 1].map(|line| lines["entries"][line]["name"].as_str().unwrap().to_owned());
    assert_eq!(names, [name, "x".repeat(1024)]);
}
