//! `jitinject dump`: every byte of a file is printed once, and filters select records.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use jitdump::{Address, ByteOrder};
use jitinject::internals::results::FileKind;
use jitinject::internals::tools::dump::{DumpEntry, EntryFilter, Options, dump};
use serde_json::Value;

use crate::support::capture::gunzipped;
use crate::support::dump::{DumpWriter, X86_64, tables};
use crate::support::{capture, codes, jitinject, said, scratch, tools};

/// Number of pieces of each type.
pub type Counts = BTreeMap<String, u64>;

/// Returns all pieces of a file as JSON. Checks that they are all of its bytes.
pub fn pieces(file: &[u8]) -> Vec<Value> {
    let mut all = Vec::new();
    let mut end = 0;
    walk(file, &Options::default(), |entry| {
        assert_eq!(entry.offset, end, "{entry:?}");
        assert!(entry.size > 0, "{entry:?}");
        end += entry.size;
        all.push(serde_json::to_value(entry).unwrap());
    });
    assert_eq!(end, file.len() as u64);
    all
}

/// Calls a function for each piece of a file. Checks that no text has control characters.
pub fn walk(file: &[u8], options: &Options, mut with: impl FnMut(&DumpEntry<'_>)) {
    let kind = FileKind::from_content_or_name(file, b"").unwrap();
    let done = dump(file, kind, options, &mut |entry| {
        with(entry);
        let text = entry.to_string();
        assert!(!text.contains(|c: char| c.is_control() && c != '\n'), "{text:?}");
        Ok::<(), ()>(())
    });
    done.unwrap();
}

/// Returns the types and offsets of the pieces that a filter selects.
fn filtered(file: &[u8], filter: EntryFilter) -> Vec<(String, u64)> {
    let options = Options {
        filter,
        ..Options::default()
    };
    let mut found = Vec::new();
    walk(file, &options, |entry| {
        found.push((entry.kind.to_owned(), entry.offset));
    });
    found
}

/// Returns the first line that the program prints as JSON, and the others.
fn printed(path: &Path, more: &[&str]) -> (Value, Vec<Value>) {
    let ran = jitinject()
        .args(["dump", "--json"])
        .args(more)
        .arg(path)
        .output()
        .unwrap();
    assert!(ran.status.success(), "{}: {}", path.display(), said(&ran));
    let text = String::from_utf8(ran.stdout).unwrap();
    let mut lines = text.lines().map(|line| serde_json::from_str(line).unwrap());
    (lines.next().unwrap(), lines.collect())
}

/// Returns a number of a piece.
pub fn number(piece: &Value, key: &str) -> u64 {
    piece[key]
        .as_u64()
        .unwrap_or_else(|| panic!("no {key} in {piece}"))
}

/// Returns the number of pieces of each type.
pub fn counts(pieces: &[Value]) -> Counts {
    let mut counts = Counts::new();
    for piece in pieces {
        *counts
            .entry(piece["type"].as_str().unwrap().to_owned())
            .or_default() += 1;
    }
    counts
}

/// Returns all files in `testdata/` with one of these endings, sorted.
pub fn files(endings: &[&str]) -> Vec<PathBuf> {
    let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata")];
    let mut found = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if endings.iter().any(|ending| tools::text(&path).ends_with(ending)) {
                found.push(path);
            }
        }
    }
    found.sort();
    assert!(found.len() > 5, "{found:?}");
    found
}

#[test]
fn the_pieces_of_every_recording_add_up_to_its_size() {
    let all = files(&[".dump", ".mlpd", ".mlpd.gz", ".xray"]);
    let mut refused = Vec::new();
    for path in &all {
        let name = path.file_name().unwrap().to_str().unwrap();
        if name == "bad-magic.mlpd.gz" {
            refused.push(name);
            continue;
        }
        let (first, pieces) = printed(path, &[]);
        let size = std::fs::metadata(path).unwrap().len();
        match first.get("packed_size") {
            Some(packed) => assert_eq!(packed.as_u64(), Some(size), "{name}"),
            None => assert_eq!(number(&first, "file_size"), size, "{name}"),
        }
        let mut end = 0;
        for piece in &pieces {
            assert_eq!(number(piece, "offset"), end, "{}: {piece}", path.display());
            end += number(piece, "size");
        }
        assert_eq!(end, number(&first, "file_size"), "{}", path.display());
        assert_eq!(first["format"], 1);
    }
    assert!(all.len() > 80 && refused.len() == 1, "{} {refused:?}", all.len());
}

/// Returns a dump with one record of each type, for two functions.
pub fn made() -> DumpWriter {
    let mut dump = DumpWriter::new(ByteOrder::Little, X86_64, 77);
    dump.lines(5, 0x1000, b"a.js", &[(0x1000, 3), (0x1002, 4)]);
    let (frame, header) = tables(4, 16);
    dump.unwinding(6, &frame, &header);
    dump.record(827_346_260, 7, b"\x02\0\0\0Ion\0");
    dump.load(8, 0x1000, 1, b"first \x1b[31m", b"code");
    dump.load(9, 0x2000, 2, b"second\xff", b"more code");
    dump.moved(10, 0x1000, 0x3000, 4, 1);
    dump.record(827_346_261, 11, b"/a/b.js\0let a;\n");
    dump.record(99, 12, b"what");
    dump.record(3, 13, b"");
    dump
}

/// Returns the first piece of a type.
fn by_type<'p>(pieces: &'p [Value], kind: &str) -> &'p Value {
    let mut found = pieces.iter().filter(|piece| piece["type"] == kind);
    found.next().unwrap_or_else(|| panic!("no {kind} in {pieces:?}"))
}

/// Files are truncated anywhere, and bits are flipped.
#[test]
fn damage_costs_no_byte_and_no_panic() {
    let kept = ["node20-s390x", "llvm19-jitlink", "jit-23220", "erlang25"];
    let dumps = files(&[".dump"]).into_iter();
    let dumps = dumps.filter(|path| kept.iter().any(|part| tools::text(path).contains(part)));
    let mut files: Vec<_> = dumps.map(|path| std::fs::read(path).unwrap()).collect();
    assert_eq!(files.len(), kept.len());
    files.push(made().bytes);
    for name in ["mono-joined", "mono-calls"] {
        files.push(std::fs::read(capture::folder(name).join("trace.mlpd")).unwrap());
    }
    for name in [
        "xray-fdr-pie14",
        "xray-fdr-typed19",
        "xray-fdr-v1-synth",
        "xray-basic19",
    ] {
        files.push(std::fs::read(capture::folder(name).join("trace.xray")).unwrap());
    }
    let mut state = 1_u64;
    let mut random = |below: usize| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % below
    };
    for file in &files {
        let file = &file[..file.len().min(40_000)];
        for cut in (5..file.len().min(1000)).step_by(7) {
            pieces(&file[..cut]);
        }
        for _ in 0..60 {
            let mut damaged = file[..file.len() - random(file.len() / 2)].to_vec();
            for _ in 0..1 + random(20) {
                // The first bytes decide on the kind of file.
                let at = 8 + random(damaged.len() - 8);
                damaged[at] ^= 1 << random(8);
            }
            pieces(&damaged);
        }
    }
}

#[test]
fn a_filter_chooses_functions_with_all_that_belongs_to_them() {
    let dump = made().bytes;
    let of = |filter| {
        filtered(&dump, filter)
            .into_iter()
            .map(|(kind, _)| kind)
            .collect::<Vec<_>>()
    };
    let first = ["DEBUG_INFO", "UNWINDING_INFO", "JIT_TIER", "LOAD", "MOVE"];
    let by_name = |name: &[u8]| EntryFilter {
        name: Some(name.to_vec()),
        ..EntryFilter::default()
    };
    let by_address = |address| EntryFilter {
        address: Some(Address(address)),
        ..EntryFilter::default()
    };
    assert_eq!(of(by_name(b"first")), first);
    assert_eq!(of(by_name(b"second\xff")), ["LOAD"]);
    assert_eq!(of(by_name(b"third")), [""; 0]);
    assert_eq!(of(by_address(0x1003)), first);
    assert_eq!(of(by_address(0x3000)), first);
    assert_eq!(of(by_address(0x2008)), ["LOAD"]);
    assert_eq!(of(by_address(0x1004)), [""; 0]);
    let timed = |text: &str| EntryFilter {
        times: Some(text.parse().unwrap()),
        ..EntryFilter::default()
    };
    assert_eq!(of(timed("8..11")), ["LOAD", "LOAD", "MOVE"]);
    assert_eq!(of(timed("12..")), ["unknown", "CLOSE"]);
    let both = EntryFilter {
        times: timed("8..").times,
        ..by_name(b"first")
    };
    assert_eq!(of(both), ["LOAD", "MOVE"]);
}

#[test]
fn filters_mean_the_same_in_other_files() {
    let log = std::fs::read(capture::folder("mono-calls").join("trace.mlpd")).unwrap();
    let all = pieces(&log);
    let method = &by_type(&all, "jit")["method"];
    let jit = all.iter().find(|piece| piece["type"] == "jit").unwrap();
    let name = jit["name"].as_str().unwrap();
    let is_named = |piece: &&Value| piece["type"] == "jit" && piece["name"].as_str().unwrap().contains(name);
    let named: Vec<&Value> = all.iter().filter(is_named).collect();
    let in_stack = |piece: &&Value| {
        let frames = piece["frames"].as_array();
        frames.is_some_and(|frames| named.iter().any(|jit| frames.contains(&jit["method"])))
    };
    let about = |piece: &&Value| {
        let is_of = |key: &str| named.iter().any(|jit| piece.get(key) == Some(&jit["method"]));
        is_of("method")
            || in_stack(piece)
            || piece["type"] == "code_buffer" && piece["name"].as_str().is_some_and(|it| it.contains(name))
    };
    let expected: Vec<u64> = all
        .iter()
        .filter(about)
        .map(|piece| number(piece, "offset"))
        .collect();
    let filter = EntryFilter {
        name: Some(name.as_bytes().to_vec()),
        ..EntryFilter::default()
    };
    let found: Vec<u64> = filtered(&log, filter)
        .into_iter()
        .map(|(_, offset)| offset)
        .collect();
    assert_eq!(found, expected, "{name} {method}");
    assert!(!found.is_empty());
    let trace = std::fs::read(capture::folder("xray-fdr-pie14").join("trace.xray")).unwrap();
    let filter = |text: &str| EntryFilter {
        times: Some(text.parse().unwrap()),
        ..EntryFilter::default()
    };
    let ticks = |range: &str| {
        filtered(&trace, filter(range))
            .into_iter()
            .filter(|(kind, _)| kind == "enter")
            .count()
    };
    let (early, late) = (ticks("..1795247622662354755"), ticks("1795247622662354755.."));
    assert_eq!((early + late) as u64, counts(&pieces(&trace))["enter"]);
    assert!(early > 0 && late > 0, "{early} {late}");
}

#[test]
fn a_packed_log_is_printed_as_it_is_unpacked() {
    let packed = capture::folder("mono-alloc-zip").join("trace.mlpd");
    let (first, from_packed) = printed(&packed, &[]);
    let plain = gunzipped(&packed);
    assert_eq!(number(&first, "file_size"), plain.len() as u64);
    assert_eq!(from_packed, pieces(&plain));
}

#[test]
fn standard_input_serves_as_a_file() {
    let path = capture::folder("node20").join("jit-11682.dump");
    let mut child = jitinject()
        .args(["dump", "--json", "-"])
        .stdin(std::fs::File::open(&path).unwrap())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines().skip(1);
    let piped: Vec<Value> = lines
        .map(|line| serde_json::from_str(&line.unwrap()).unwrap())
        .collect();
    assert!(child.wait().unwrap().success());
    assert_eq!(piped, printed(&path, &[]).1);
}

#[test]
fn whoever_reads_may_have_enough_before_the_end() {
    for form in ["--json", "--code"] {
        let path = capture::folder("node20").join("jit-11682.dump");
        let mut command = jitinject();
        command.args(["dump", form]).arg(path);
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        assert!(line.contains("jitdump"), "{line}");
        let ended = child.wait_with_output().unwrap();
        assert!(
            ended.status.success() && ended.stderr.is_empty(),
            "{}",
            said(&ended)
        );
    }
}

#[test]
fn text_has_a_line_for_each_record_and_nothing_that_steers_a_terminal() {
    let folder = scratch();
    let path = folder.path().join("jit-77.dump");
    std::fs::write(&path, made().bytes).unwrap();
    let ran = jitinject().args(["dump", "--code"]).arg(&path).output().unwrap();
    let text = String::from_utf8(ran.stdout).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0], "jitdump, 523 bytes");
    assert_eq!(
        lines[2..6],
        [
            "0x00000028 DEBUG_INFO size=71 time=5 code_addr=0x1000 nr_entry=2",
            "    entries:",
            "        addr=0x1000 line=3 discrim=0 name=\"a.js\"",
            "        addr=0x1002 line=4 discrim=0 name=\"a.js\" same_name",
        ]
    );
    assert!(
        lines[8].ends_with("code=636f6465 name=\"first \\u{1b}[31m\""),
        "{}",
        lines[8]
    );
    assert_eq!(lines.len(), 2 + 9 + 3);
    // Only damaged pieces have a colour.
    std::fs::OpenOptions::new()
        .append(true)
        .open(&path)
        .unwrap()
        .write_all(&[1; 40])
        .unwrap();
    let ran = jitinject()
        .args(["--color", "always", "dump"])
        .arg(&path)
        .output()
        .unwrap();
    let text = String::from_utf8(ran.stdout).unwrap();
    let coloured: Vec<&str> = text.lines().filter(|line| line.contains('\u{1b}')).collect();
    assert!(
        coloured.len() == 1 && coloured[0].contains("damage"),
        "{coloured:?}"
    );
}

#[test]
fn other_files_are_refused_and_a_useless_filter_is_reported() {
    let folder = scratch();
    let path = folder.path().join("file");
    for (content, code) in [
        (&b""[..], "JI424"),
        (b"PERFILE2", "JI422"),
        (b"\x1f\x8b\x08\0 torn", "JI423"),
        (b"#!/bin/sh\n", "JI422"),
    ] {
        std::fs::write(&path, content).unwrap();
        let ran = jitinject().arg("dump").arg(&path).output().unwrap();
        assert_eq!(ran.status.code(), Some(1));
        assert_eq!(codes(&said(&ran)), [code], "{}", said(&ran));
        assert!(said(&ran).contains(tools::text(&path)), "{}", said(&ran));
    }
    let wrong: [&[&str]; 3] = [&["--time", "5"], &["--address", "0xfg"], &[]];
    for options in wrong {
        let ran = jitinject().arg("dump").args(options).output().unwrap();
        assert_eq!(ran.status.code(), Some(2), "{}", said(&ran));
    }
    let trace = capture::folder("xray-fdr-pie14").join("trace.xray");
    let ran = jitinject()
        .args(["dump", "--json", "--name", "work"])
        .arg(trace)
        .output()
        .unwrap();
    assert!(ran.status.success(), "{}", said(&ran));
    assert_eq!(codes(&said(&ran)), ["JI425"], "{}", said(&ran));
    assert_eq!(ran.stdout.iter().filter(|&&byte| byte == b'\n').count(), 1);
}
