//! Which files `jitinject check` takes, from where, and what its exit status says of them.

use std::collections::BTreeMap;
use std::path::Path;

use jitinject::bytes::ByteOrder;
use jitinject::check::check;
use jitinject::runtime::FileKind;
use jitinject::tally::Tally;
use serde_json::Value;

use crate::check::{TESTDATA, json, printed, run};
use crate::check_made::clean_dump;
use crate::support::{jitinject, said, scratch};

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
    for (arguments, status, says) in [
        (&[&clean[..]][..], 0, ""),
        (&[&warning], 0, ""),
        (&[&empty], 1, ""),
        (&[&clean, &empty], 1, ""),
        (
            &[&other],
            1,
            "is no jitdump, no log of Mono's profiler and no trace of XRay",
        ),
        (&[&nothing], 1, "cannot be read: No such file"),
        (&["/dev/zero"], 1, "is not a regular file"),
        (&[], 2, "FILE"),
        (&["--explain", "JD001", "--list"], 2, "cannot be used with"),
    ] {
        let output = run(arguments);
        assert_eq!(
            output.status.code(),
            Some(status),
            "{arguments:?}: {}",
            said(&output)
        );
        assert!(said(&output).contains(says), "{}", said(&output));
    }
    assert_eq!(
        printed(&run(&[&clean])),
        "1 file: 0 errors, 0 warnings, 0 notes\n"
    );
    let (document, _) = json(&[&clean, &other]);
    assert_eq!(document["totals"]["files"], 1);
    assert_eq!(document["totals"]["unreadable"], 1);
    assert_eq!(document["files"][1]["kind"], Value::Null);
    assert!(
        document["files"][1]["error"]
            .as_str()
            .unwrap()
            .starts_with("is no jitdump")
    );

    // Of a folder, what is none of these does not matter, but an empty dump does.
    let (document, output) = json(&[folder.path().to_str().unwrap()]);
    assert_eq!(document["totals"]["files"], 2);
    assert_eq!(output.status.code(), Some(1));
    let bare = scratch();
    let output = run(&[bare.path().to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1));
    assert!(said(&output).contains("has no jitdump, log or trace in it"));
}

#[test]
fn a_fifo_in_a_folder_is_not_waited_for() {
    let folder = scratch();
    let fifo = folder.path().join("jit-1.dump");
    let made = std::process::Command::new("mkfifo").arg(&fifo).status().unwrap();
    assert!(made.success());
    let output = run(&[folder.path().to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        said(&output).contains("is not a regular file"),
        "{}",
        said(&output)
    );
}

/// What is found in a folder whose files have these names and contents, and the exit status.
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
fn a_file_in_a_folder_that_only_has_the_name_of_one_is_told_of() {
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
        let error = files[name]["error"].as_str().unwrap();
        assert!(error.starts_with("is no jitdump"), "{error}");
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
    // By itself, such a file is named the same way.
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
    // Notes, more than a pipe has room for, and then an error.
    let mut noted = clean_dump(ByteOrder::Little).finish();
    noted.truncate(noted.len() - 16);
    let noted = path("jit-77.dump", &noted);
    let empty = path("jit-78.dump", b"");
    let other = path("jit-79.dump", b"nothing of that kind");
    for (last, says) in [(&empty, ""), (&other, "jit-79.dump is no jitdump")] {
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
        assert!(said(&output).contains(says), "{}", said(&output));
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

/// The smallest dump is a header, whatever size it says it has.
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
        let kind = FileKind::of(&sound).unwrap();
        files.extend((1..sound.len().min(800)).map(|size| (kind, sound[..size].to_vec())));
    }
    for (kind, file) in files {
        for finding in check(kind, &file, b"jit-77.dump", &Tally::default()).findings {
            for place in finding.places {
                // Of a log that is cut, the place is where the missing bytes would be.
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
