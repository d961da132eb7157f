//! Readers see the same samples and names in all formats of input and output.

use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use crate::support::formats::{counts, write};
use crate::support::generator::{Plan, generate};
use crate::support::model::{self, Parts};
use crate::support::processes::{send, send_and_wait, with_usual_signals};
use crate::support::profile::ProfileWriter;
use crate::support::reports::reports;
use crate::support::{attempt, capture, has_code, inject, jitinject, said, scratch, shown, tools};
use jitdump::ByteOrder;
use jitinject::{Diagnostic, Issue};
use rustix::io::Errno;
use rustix::process::Signal;

const PIPE_AND_FILE: [&str; 2] = ["-", "out.data"];

#[test]
fn every_reader_sees_the_same_in_every_format() {
    for name in capture::OTHER_FORMATS
        .iter()
        .chain(&["node20-buildid", "node20-multievent"])
    {
        let folder = scratch();
        let dumps = capture::folder(name);
        let input = capture::profile(name);
        let mut seen = Vec::new();
        for output in PIPE_AND_FILE {
            for compression in [None, Some("--compress"), Some("--compress=19")] {
                let mut more = vec!["--jitdump", tools::text(&dumps)];
                more.extend(compression);
                let output = write(folder.path(), &input, output, &more);
                let shown = shown::stacks(&output);
                let frames = || shown.iter().flat_map(|sample| &sample.frames);
                assert!(frames().any(|frame| frame.starts_with("JS:*")), "{name} {more:?}");
                seen.push((counts(&output).1, shown));
            }
        }
        let first = &seen[0];
        assert!(first.0 > 100);
        assert!(seen.iter().all(|other| other == first), "{name}");
    }
}

/// Removes everything from a file's content that depends on how and where its records are stored.
fn content(mut parts: Parts) -> Parts {
    // AUXTRACE, DIR_FORMAT, COMPRESSED, and the sections that perf does not write to pipes.
    const STORAGE: [usize; 7] = [15, 18, 19, 20, 24, 27, 30];
    parts.features.retain(|(id, _)| !STORAGE.contains(id));
    parts.offsets.clear();
    parts
}

fn parse(path: &Path) -> Parts {
    model::parse(&std::fs::read(path).unwrap())
}

#[test]
fn a_file_that_went_through_a_pipe_is_the_same() {
    for name in ["node20-buildid", "node20-multievent", "cpython313-dwarf"] {
        let folder = scratch();
        // Without its dump, so nothing changes.
        let input = folder.path().join("perf.data");
        std::fs::copy(capture::profile(name), &input).unwrap();
        for compression in [&[][..], &["--compress"]] {
            let piped = write(folder.path(), &input, "-", compression);
            let back = write(folder.path(), &piped, "back.data", &[]);
            assert!(content(parse(&input)) == content(parse(&back)), "{name}");
            let again = write(folder.path(), &piped, "-", compression);
            let again = write(folder.path(), &again, "again.data", &[]);
            assert!(content(parse(&input)) == content(parse(&again)), "{name}");
            let packed = write(folder.path(), &input, "packed.data", compression);
            let plain = write(folder.path(), &packed, "plain.data", &[]);
            assert!(content(parse(&input)) == content(parse(&plain)), "{name}");
        }
    }
}

#[test]
fn formats_of_tracepoints_and_unknown_records_pass_through_pipes() {
    let folder = scratch();
    let mut profile = ProfileWriter::new(ByteOrder::Little);
    profile.comm(1, "first", false, 1);
    // HEADER_EVENT_TYPE, which perf wrote to pipes before Linux 3.14, and an unknown type.
    profile.record(65, 0, &[7; 72]);
    profile.record(90, 0, b"whatever");
    profile.comm(1, "second", false, 2);
    let formats = b"tracing data of no multiple of 8".repeat(9)[..285].to_vec();
    profile.features = vec![
        (1, formats.clone()),
        (3, vec![0; 70_000]),
        (6, b"\x08\0\0\0x86_64\0\0".to_vec()),
    ];
    let input = folder.path().join("perf.data");
    std::fs::write(&input, profile.finish()).unwrap();
    let ran = attempt(
        &input,
        Path::new("-"),
        &["--elf-dir", tools::text(&folder.path().join("elf"))],
    );
    let left_out = Diagnostic::new(Issue::FeatureNotForPipes).with("id", 3);
    assert!(
        reports(&said(&ran), "JI167", &left_out.to_string()),
        "{}",
        said(&ran)
    );
    let piped = folder.path().join("out.pipe");
    std::fs::write(&piped, &ran.stdout).unwrap();
    let records = parse(&input).records;
    for again in [false, true] {
        let piped = if again {
            write(folder.path(), &piped, "-", &[])
        } else {
            piped.clone()
        };
        let back = parse(&write(folder.path(), &piped, "back.data", &[]));
        assert!(back.records == records);
        let ids: Vec<usize> = back.features.iter().map(|&(id, _)| id).collect();
        assert_eq!(ids, [1, 6]);
        let (data, padding) = back.features[0].1.split_at(formats.len());
        assert!(data == formats && padding == [0; 3]);
    }
}

/// The newest features of perf 7.3: CPU domains, the ELF machine and the size of cache lines. perf inject writes them to pipes.
#[test]
fn features_of_perf_7_3_pass_through_pipes_and_newer_ones_are_reported_but_stay_in_files() {
    let folder = scratch();
    let mut profile = ProfileWriter::new(ByteOrder::Little);
    profile.comm(1, "first", false, 1);
    profile.features = (32..=35).map(|id| (id, vec![id as u8; 8])).collect();
    let input = folder.path().join("perf.data");
    std::fs::write(&input, profile.finish()).unwrap();
    let all = parse(&input).features;
    let kept = parse(&write(folder.path(), &input, "kept.data", &[])).features;
    assert_eq!((all.len(), &kept), (4, &all));
    let elf = folder.path().join("elf");
    let ran = attempt(&input, Path::new("-"), &["--elf-dir", tools::text(&elf)]);
    let left_out = Diagnostic::new(Issue::FeatureNotForPipes).with("id", 35);
    assert!(
        reports(&said(&ran), "JI167", &left_out.to_string()),
        "{}",
        said(&ran)
    );
    let piped = folder.path().join("out.pipe");
    std::fs::write(&piped, &ran.stdout).unwrap();
    let back = parse(&write(folder.path(), &piped, "back.data", &[]));
    assert_eq!(back.features, all[..3]);
}

/// Returns the header and the records of the pipe format, without those of event attributes.
fn without_attributes(pipe: &[u8]) -> Vec<&[u8]> {
    const HEADER_ATTR: u8 = 64;
    let (head, mut rest) = pipe.split_at(16);
    let mut records = vec![head];
    while !rest.is_empty() {
        let size = u16::from_le_bytes([rest[6], rest[7]]);
        let (record, after) = rest.split_at(size.into());
        records.extend(Some(record).filter(|record| record[0] != HEADER_ATTR));
        rest = after;
    }
    records
}

#[test]
fn named_pipes_and_standard_files_do_as_well() {
    let folder = scratch();
    let (input, output) = (folder.path().join("in.fifo"), folder.path().join("out.fifo"));
    tools::run("mkfifo", &[tools::text(&input), tools::text(&output)]);
    let capture = std::fs::read(capture::profile("node20-pipe")).unwrap();
    let (writer, content) = (input.clone(), capture.clone());
    let writing = std::thread::spawn(move || {
        let mut file = File::options().write(true).open(writer).unwrap();
        file.write_all(&content).unwrap();
    });
    let reader = output.clone();
    let reading = std::thread::spawn(move || {
        let mut read = Vec::new();
        File::open(reader).unwrap().read_to_end(&mut read).unwrap();
        read
    });
    let ran = attempt(&input, &output, &[]);
    assert!(ran.status.success(), "{}", said(&ran));
    writing.join().unwrap();
    // There is no dump, so only the length of the attributes changes.
    let read = reading.join().unwrap();
    assert!(without_attributes(&read) == without_attributes(&capture));

    // A regular file as standard input is read in place.
    let stdin = File::open(capture::profile("node20-buildid")).unwrap();
    let arguments = ["-i", "-", "-o", "/dev/stdout", "--jitdump"];
    let ran = jitinject()
        .args(arguments)
        .arg(capture::folder("node20-buildid"))
        .current_dir(folder.path())
        .stdin(stdin)
        .output()
        .unwrap();
    assert!(
        said(&ran).contains("109 of them named (100.0 %)"),
        "{}",
        said(&ran)
    );
    assert!(ran.stdout.starts_with(b"PERFILE2\x10\0\0\0\0\0\0\0"));
}

#[test]
fn two_things_on_standard_output_are_refused() {
    let folder = scratch();
    let input = capture::profile("multi");
    let more = ["--summary", "-", "--elf-dir", tools::text(folder.path())];
    let ran = attempt(&input, Path::new("-"), &more);
    assert_eq!(ran.status.code(), Some(2), "{}", said(&ran));
    assert!(ran.stdout.is_empty());
}

/// Standard output has several names.
#[test]
fn a_summary_does_not_get_into_the_profile() {
    let folder = scratch();
    for (output, summary) in [
        ("-", "/dev/stdout"),
        ("/dev/stdout", "-"),
        ("/dev/fd/1", "/dev/stdout"),
    ] {
        let ran = jitinject()
            .args([
                "-i",
                tools::text(&capture::profile("php82")),
                "-o",
                output,
                "--summary",
                summary,
            ])
            .current_dir(folder.path())
            .output()
            .unwrap();
        assert_eq!(ran.status.code(), Some(1), "{output} {summary} {}", said(&ran));
        assert!(ran.stdout.is_empty());
    }
}

/// The terminal sends Ctrl-C to all programs of a pipeline.
#[test]
fn the_interrupt_that_ends_the_recording_does_not_end_the_reading() {
    let folder = scratch();
    let start = || {
        with_usual_signals(&mut jitinject())
            .args(["-q", "-i", "-", "-o", "out.data"])
            .current_dir(folder.path())
            .stdin(Stdio::piped())
            .spawn()
            .unwrap()
    };
    let mut child = start();
    let mut stdin = child.stdin.take().unwrap();
    let capture = std::fs::read(capture::profile("node20-pipe")).unwrap();
    let (first, rest) = capture.split_at(1000);
    stdin.write_all(first).unwrap();
    send_and_wait(&child, Signal::INT);
    stdin.write_all(rest).unwrap();
    drop(stdin);
    assert!(child.wait().unwrap().success());
    assert_eq!(shown::leaves(&folder.path().join("out.data")).len(), 320);
    // A second interrupt ends the program.
    let mut child = start();
    // wait() would close the pipe, and jitinject would exit at its end.
    let _stdin = child.stdin.take();
    send_and_wait(&child, Signal::INT);
    send(&child, Signal::INT);
    assert_eq!(child.wait().unwrap().signal(), Some(Signal::INT.as_raw()));
}

#[test]
fn a_reader_that_goes_away_is_an_error_and_leaves_nothing() {
    let folder = scratch();
    let mut child = jitinject()
        .args([
            "-q",
            "-i",
            tools::text(&capture::profile("node20-buildid")),
            "-o",
            "-",
            "--jitdump",
        ])
        .arg(capture::folder("node20-buildid"))
        .current_dir(folder.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let ran = child.wait_with_output().unwrap();
    assert_eq!(ran.status.code(), Some(1));
    let closed = Diagnostic::cannot_write(Path::new("standard output"), &Errno::PIPE.into());
    assert!(
        reports(&said(&ran), "JI401", &closed.to_string()),
        "{}",
        said(&ran)
    );
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

/// Writes a folder in which the records of a profile are distributed over several files, as by `perf record --threads`.
fn scatter(folder: &Path, profile: &Path, files: usize) -> PathBuf {
    let file = std::fs::read(profile).unwrap();
    let parts = model::parse(&file);
    let endian = parts.endian;
    let target = folder.join("scattered");
    std::fs::create_dir(&target).unwrap();
    let mut main = ProfileWriter::new(endian);
    let mut others = vec![Vec::new(); files];
    for (number, record) in parts.records.iter().enumerate() {
        let kind = model::kind(record, endian);
        if kind == 68 {
            continue;
        }
        // In groups, since a thread reads the records of one CPU after those of another.
        let at = number / 7 % (files + 1);
        let into = if at == files {
            &mut main.records
        } else {
            &mut others[at]
        };
        into.extend_from_slice(record);
    }
    main.features = vec![(24, 1u64.to_le_bytes().to_vec())];
    std::fs::write(target.join("data"), main.finish()).unwrap();
    for (number, records) in others.iter().enumerate() {
        std::fs::write(target.join(format!("data.{number}")), records).unwrap();
    }
    target
}

#[test]
fn the_files_of_a_folder_become_one_in_the_order_of_time() {
    let folder = scratch();
    let plan = Plan {
        functions: 300,
        samples: 20_000,
        processes: 3,
        places: 40,
        ..Plan::default()
    };
    let generated = generate(folder.path(), &plan);
    let scattered = scatter(folder.path(), &generated.profile, 12);
    let main = scattered.join("data");
    let ran = jitinject()
        .args(["report", "-i", tools::text(&main)])
        .output()
        .unwrap();
    assert!(
        !ran.status.success() && reports(&said(&ran), "JI139", "data.0"),
        "{}",
        said(&ran)
    );
    let dumps = ["--jitdump", tools::text(folder.path())];
    let output = write(folder.path(), &scattered, "out.data", &dumps);
    let stacks = shown::stacks(&output);
    assert_eq!(stacks.len(), generated.expected.len());
    for (sample, expected) in stacks.iter().zip(&generated.expected) {
        assert_eq!(
            (sample.pid, sample.time, &sample.frames),
            (expected.pid, expected.time, &expected.frames)
        );
    }
    let parts = parse(&output);
    let mut last = 0;
    for record in parts
        .records
        .iter()
        .filter(|record| model::kind(record, parts.endian) == 9)
    {
        let time = model::word(record, parts.endian, 24);
        assert!(last <= time);
        last = time;
    }
    let rounds = parts
        .records
        .iter()
        .filter(|record| model::kind(record, parts.endian) == 68);
    assert!(rounds.count() > 1);
    assert!(!parts.features.iter().any(|&(id, _)| id == 24));
}

fn shows_javascript(profile: &Path) -> bool {
    let leaves = shown::leaves(profile);
    leaves.iter().any(|sample| sample.frames[0].starts_with("JS:*"))
}

#[test]
fn copies_of_the_kernels_code_stay_with_the_profile() {
    let folder = scratch();
    let input = folder.path().join("perf.data");
    std::fs::create_dir_all(input.join("kcore_dir")).unwrap();
    std::fs::copy(capture::profile("node20-buildid"), input.join("data")).unwrap();
    for (name, content) in [("kcore", "code"), ("kallsyms", "names"), ("modules", "")] {
        std::fs::write(input.join("kcore_dir").join(name), content).unwrap();
    }
    let dumps = capture::folder("node20-buildid");
    let more = ["--jitdump", tools::text(&dumps), "--verify"];
    for _ in 0..2 {
        // The second run replaces the output of the first one.
        let output = write(folder.path(), &input, "out", &more);
        let kallsyms = std::fs::read_to_string(output.join("kcore_dir/kallsyms")).unwrap();
        assert_eq!(kallsyms, "names");
        assert!(shows_javascript(&output.join("data")));
        std::fs::remove_dir_all(folder.path().join("objects")).unwrap();
    }
    // A trailing slash does not put the objects into the output, and --elf-dir must not.
    for _ in 0..2 {
        let output = format!("{}/", folder.path().join("out").display());
        inject(&input, Path::new(&output), &more);
        assert!(shows_javascript(&folder.path().join("out/data")));
        assert!(folder.path().join("out.elf").is_dir());
    }
    let inside = folder.path().join("out/elf");
    let refused = [&more[..], &["--elf-dir", tools::text(&inside)]].concat();
    let ran = attempt(&input, &folder.path().join("out"), &refused);
    assert!(
        reports(&said(&ran), "JI405", tools::text(&inside)),
        "{}",
        said(&ran)
    );
    let piped = attempt(
        &input,
        Path::new("-"),
        &["--elf-dir", tools::text(&folder.path().join("elf"))],
    );
    assert!(has_code(&said(&piped), "JI168"), "{}", said(&piped));
    // Only a folder of a profile is replaced.
    let other = folder.path().join("other");
    std::fs::create_dir(&other).unwrap();
    std::fs::write(other.join("precious"), "").unwrap();
    let ran = attempt(&input, &other, &more);
    assert_eq!(ran.status.code(), Some(1), "{}", said(&ran));
    assert!(
        reports(&said(&ran), "JI413", tools::text(&other)),
        "{}",
        said(&ran)
    );
    assert!(other.join("precious").exists());
}
