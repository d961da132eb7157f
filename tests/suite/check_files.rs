//! `jitinject check`: which files it checks, and the exit status.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::Path;

use jitdump::{ByteOrder, Tally};
use jitinject::internals::files::InputFile;
use jitinject::internals::results::FileKind;
use jitinject::internals::tools::check::check;
use serde_json::Value;

use crate::check::{TESTDATA, json, printed, run};
use crate::check_made::clean_dump;
use crate::support::reports::reports;
use crate::support::{codes, jitinject, said, scratch};

/// Checks that the only diagnostic in standard error is that a file cannot be read, for a cause of this kind.
fn assert_unreadable(said: &str, path: &Path, kind: ErrorKind) {
    assert_eq!(codes(said), ["JI400"], "{said}");
    assert!(reports(said, "JI400", path.to_str().unwrap()), "{said}");
    let cause = InputFile::open(path).unwrap_err();
    assert_eq!(cause.kind(), kind);
    assert!(said.contains(&cause.to_string()), "{said}");
}

#[test]
fn the_exit_status_tells_whether_there_are_errors() {
    let folder = scratch();
    let path = |name: &str, bytes: &[u8]| {
        let path = folder.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let clean = path("jit-77.dump", &clean_dump(ByteOrder::Little).finish());
    let empty = path("jit-78.dump", b"");
    let other = path("notes.txt", b"nothing of that kind");
    let nothing = folder.path().join("nothing").to_str().unwrap().to_owned();
    let warning = format!("{TESTDATA}/node20-headeronly/jit-14184.dump");
    let none: &[&str] = &[];
    for (arguments, status, reported) in [
        (&[&clean[..]][..], 0, none),
        (&[&warning], 0, none),
        (&[&empty], 1, none),
        (&[&clean, &empty], 1, none),
        (&[&other], 1, &["JI422"]),
        (&[&nothing], 1, &["JI400"]),
        (&["/dev/zero"], 1, &["JI400"]),
    ] {
        let output = run(arguments);
        assert_eq!(
            output.status.code(),
            Some(status),
            "{arguments:?}: {}",
            said(&output)
        );
        assert_eq!(codes(&said(&output)), reported, "{}", said(&output));
    }
    for (path, kind) in [
        (&nothing[..], ErrorKind::NotFound),
        ("/dev/zero", ErrorKind::Other),
    ] {
        assert_unreadable(&said(&run(&[path])), Path::new(path), kind);
    }
    for (arguments, message) in [
        (none, "FILE"),
        (&["--explain", "JD001", "--list"], "cannot be used with"),
    ] {
        let output = run(arguments);
        assert_eq!(output.status.code(), Some(2), "{}", said(&output));
        assert!(said(&output).contains(message), "{}", said(&output));
    }
    assert_eq!(
        printed(&run(&[&clean])),
        "1 file: 0 errors, 0 warnings, 0 notes\n"
    );
    let (document, _) = json(&[&clean, &other]);
    assert_eq!(document["totals"]["files"], 1);
    assert_eq!(document["totals"]["unreadable"], 1);
    let file = &document["files"][1];
    assert_eq!(file["kind"], Value::Null);
    assert_eq!(file["error"]["code"], "JI422");
    assert_eq!(file["error"]["severity"], "error");
    assert_eq!(file["error"]["file"], other.as_str());

    // In a folder, files of other kinds are ignored, but an empty dump is not.
    let (document, output) = json(&[folder.path().to_str().unwrap()]);
    assert_eq!(document["totals"]["files"], 2);
    assert_eq!(output.status.code(), Some(1));
    let bare = scratch();
    let output = run(&[bare.path().to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(codes(&said(&output)), ["JI227"]);
    assert!(reports(&said(&output), "JI227", bare.path().to_str().unwrap()));
}

#[test]
fn a_fifo_in_a_folder_is_not_waited_for() {
    let folder = scratch();
    let fifo = folder.path().join("jit-1.dump");
    let made = std::process::Command::new("mkfifo").arg(&fifo).status().unwrap();
    assert!(made.success());
    let output = run(&[folder.path().to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1));
    assert_unreadable(&said(&output), &fifo, ErrorKind::Other);
}

/// Checks a folder of files with these names and contents; returns the entries of its files by name, and the exit
/// status.
fn in_folder(files: &[(&str, &[u8])]) -> (BTreeMap<String, Value>, Option<i32>) {
    let folder = scratch();
    for (name, content) in files {
        std::fs::write(folder.path().join(name), content).unwrap();
    }
    let (document, output) = json(&[folder.path().to_str().unwrap()]);
    let files = document["files"].as_array().unwrap().iter();
    let by_name = files.map(|file| {
        let path = Path::new(file["path"].as_str().unwrap());
        (
            path.file_name().unwrap().to_str().unwrap().to_owned(),
            file.clone(),
        )
    });
    (by_name.collect(), output.status.code())
}

#[test]
fn damaged_files_in_a_folder_are_reported_if_they_have_the_name_of_a_kind() {
    let clean = clean_dump(ByteOrder::Little).finish();
    let mut damaged = clean.clone();
    damaged[..16].fill(0);
    let other_version = [6, 0, 1, 0, 3, 0, 0, 0].repeat(8);
    for (name, content) in [
        ("jit-77.dump", &damaged[..]),
        ("jit-78.dump", &other_version),
        ("app.mlpd", &damaged),
        ("app.mlpd", b"\x1f\x8b and no more of gzip"),
        ("xray-log.app.1", &damaged),
    ] {
        let (files, status) = in_folder(&[("jit-1.dump", &clean), (name, content), ("notes.txt", &damaged)]);
        assert_eq!(status, Some(1), "{name}");
        assert_eq!(files.len(), 2, "{name}: {files:?}");
        let error = &files[name]["error"];
        assert_eq!(error["code"], "JI422", "{name}: {error}");
    }
    for (name, content, rule) in [
        ("xray-log.app.1", &other_version[..], "XR003"),
        ("jit-77.dump", b"", "JD001"),
        ("jit-77.dump", b"DT", "JD002"),
        ("app.mlpd", b"\x01L", "ML002"),
        ("xray-log.app.1", b"\x05\0", "XR002"),
    ] {
        let (files, status) = in_folder(&[(name, content), ("notes.txt", content)]);
        assert_eq!(status, Some(1), "{name}");
        assert_eq!(files.len(), 1, "{files:?}");
        assert_eq!(files[name]["findings"][0]["rule"], rule, "{files:?}");
    }
    // A file that is an argument is also recognized by its name.
    let folder = scratch();
    let path = folder.path().join("jit-9.dump");
    std::fs::write(&path, b"DT").unwrap();
    assert!(printed(&run(&[path.to_str().unwrap()])).contains("error[JD002]"));
}

#[test]
fn all_files_are_checked_also_where_nobody_reads_on() {
    let folder = scratch();
    let path = |name: &str, content: &[u8]| {
        let path = folder.path().join(name);
        std::fs::write(&path, content).unwrap();
        path
    };
    // More notes than fit into a pipe, then an error.
    let mut noted = clean_dump(ByteOrder::Little).finish();
    noted.truncate(noted.len() - 16);
    let noted = path("jit-77.dump", &noted);
    let empty = path("jit-78.dump", b"");
    let other = path("jit-79.dump", b"nothing of that kind");
    let none: &[&str] = &[];
    for (last, reported) in [(&empty, none), (&other, &["JI422"])] {
        let mut command = jitinject();
        command.arg("check").args(vec![&noted; 3000]).arg(last);
        let mut child = command
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{}", said(&output));
        assert_eq!(codes(&said(&output)), reported, "{}", said(&output));
        let names_file = reports(&said(&output), "JI422", "jit-79.dump");
        assert_eq!(names_file, !reported.is_empty(), "{}", said(&output));
    }
}

#[test]
fn standard_input_is_checked_as_a_file_is() {
    let dump = format!("{TESTDATA}/node20-headeronly/jit-14184.dump");
    let log = format!("{TESTDATA}/mono-bad/bad-evtype15.mlpd.gz");
    for path in [&dump, &log] {
        let input = std::fs::File::open(path).unwrap();
        let output = jitinject()
            .args(["check", "--json", "-"])
            .stdin(input)
            .output()
            .unwrap();
        let document: Value = serde_json::from_slice(&output.stdout).unwrap();
        let (expected, _) = json(&[path]);
        assert_eq!(document["files"][0]["findings"], expected["files"][0]["findings"]);
        assert_eq!(document["files"][0]["path"], "-");
    }
}

/// The smallest dump is a header, with any size in its field.
#[test]
fn every_place_is_in_the_file() {
    let whole = clean_dump(ByteOrder::Little).finish();
    let mut files: Vec<_> = (1..=whole.len())
        .map(|size| (FileKind::Jitdump, whole[..size].to_vec()))
        .collect();
    for size in [0_u32, 39, 40, 41, 48, 1000, u32::MAX] {
        let mut header = whole[..40].to_vec();
        header[8..12].copy_from_slice(&size.to_le_bytes());
        files.push((FileKind::Jitdump, header));
    }
    let logs = [
        "mono-calls/trace.mlpd",
        "xray-basic19/trace.xray",
        "xray-fdr-v4-synth/trace.xray",
    ];
    for name in logs {
        let sound = std::fs::read(format!("{TESTDATA}/{name}")).unwrap();
        let kind = FileKind::from_content(&sound).unwrap();
        files.extend((1..sound.len().min(800)).map(|size| (kind, sound[..size].to_vec())));
    }
    for (kind, file) in files {
        for finding in check(kind, &file, b"jit-77.dump", &Tally::default(), &|_| None).findings {
            for place in finding.places {
                // In a truncated log, the place is that of the missing bytes.
                let end = file.len() as u64 + u64::from(kind != FileKind::Jitdump);
                let is_inside = place.offset < end;
                assert!(
                    is_inside,
                    "{} bytes: {} at {:#x}",
                    file.len(),
                    finding.rule.id,
                    place.offset
                );
            }
        }
    }
}
