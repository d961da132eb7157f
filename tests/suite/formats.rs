//! However a profile was recorded, and whatever it is written as, readers see the same.

use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use linux_perf_data::{PerfFileReader, PerfFileRecord};

use crate::support::generator::{Plan, generate};
use crate::support::model::{self, Parts};
use crate::support::profile::ProfileWriter;
use crate::support::{attempt, capture, inject, jitinject, perf, said, scratch, tools};
use jitinject::bytes::ByteOrder;

const PIPE_AND_FILE: [&str; 2] = ["-", "out.data"];
const AUXTRACE: u32 = 71;

/// Runs the program on `input`; the profile is in the returned file, whichever way it was written.
fn write(folder: &Path, input: &Path, output: &str, more: &[&str]) -> PathBuf {
    let elf_dir = folder.join("objects");
    let mut command = jitinject();
    command
        .current_dir(folder)
        .arg("-i")
        .arg(input)
        .args(["-q", "-o", output]);
    let ran = command
        .arg("--elf-dir")
        .arg(&elf_dir)
        .args(more)
        .output()
        .unwrap();
    assert!(ran.status.success(), "{}", said(&ran));
    assert_eq!(said(&ran), "");
    if output == "-" {
        let path = folder.join("out.pipe");
        std::fs::write(&path, ran.stdout).unwrap();
        return path;
    }
    assert!(ran.stdout.is_empty());
    folder.join(output)
}

/// What `perf script` of some perf prints, and says.
fn script(program: &str, profile: &Path) -> (String, String) {
    let cache = scratch();
    let output = Command::new(program)
        .args([
            "--buildid-dir",
            tools::text(cache.path()),
            "script",
            "-f",
            "-F",
            "+pid",
        ])
        .args(["-i", tools::text(profile)])
        .output()
        .unwrap_or_else(|error| panic!("{program}: {error}; scripts/test installs it"));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr))
}

/// How many records, and how many samples among them, linux-perf-data finds.
fn counts(profile: &Path) -> (usize, usize) {
    let file = File::open(profile).unwrap();
    let is_pipe = profile.extension().is_some_and(|extension| extension == "pipe");
    let mut counts = (0, 0);
    let mut count = |record: PerfFileRecord<'_>| {
        counts.0 += 1;
        if let PerfFileRecord::EventRecord { record, .. } = record {
            counts.1 += usize::from(record.record_type.0 == 9);
        }
    };
    if is_pipe {
        let mut reader = PerfFileReader::parse_pipe(file).unwrap();
        while let Some(record) = reader.record_iter.next_record(&mut reader.perf_file).unwrap() {
            count(record);
        }
    } else {
        let mut reader = PerfFileReader::parse_file(file).unwrap();
        while let Some(record) = reader.record_iter.next_record(&mut reader.perf_file).unwrap() {
            count(record);
        }
    }
    counts
}

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
                let [old, new] = ["perf", &perf::newer()].map(|perf| script(perf, &output));
                assert_eq!((old.1, new.1), (String::new(), String::new()), "{name} {more:?}");
                assert!(old.0.contains("JS:*"), "{name} {more:?}");
                seen.push((old.0, new.0, counts(&output).1));
            }
        }
        let first = &seen[0];
        assert!(first.2 > 100);
        assert!(seen.iter().all(|other| other == first), "{name}");
    }
}

/// Everything in a regular file, but for what says how and where its records are stored.
fn content(mut parts: Parts) -> Parts {
    // AUXTRACE, DIR_FORMAT, COMPRESSED, and those that perf keeps out of pipes
    const STORAGE: [usize; 8] = [15, 18, 19, 20, 24, 27, 30, 32];
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
        // Copied alone, so that there is no dump, and nothing changes.
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
    // HEADER_EVENT_TYPE, as perf before Linux 3.14 wrote it to pipes, and one that nobody knows yet
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
    let told = said(&ran);
    assert!(
        told.contains("feature section 3 of the profile is not for pipes and was left out"),
        "{told}"
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

#[test]
fn a_pipe_is_read_to_its_end_and_written_as_one() {
    let folder = scratch();
    let program = tools::compile(folder.path(), "jit.c", &[]);
    let mut record = Command::new("perf")
        .args([
            "record",
            "-q",
            "-k",
            "mono",
            "-e",
            "cpu-clock",
            "-F",
            "999",
            "-g",
            "-o",
            "-",
        ])
        .args([tools::text(&program), "frames", "truth"])
        .current_dir(folder.path())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut inject = jitinject()
        .args(["-q", "-i", "-", "-o", "-"])
        .current_dir(folder.path())
        .stdin(record.stdout.take().unwrap())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let report = Command::new("perf")
        .args(["report", "-i", "-", "--stdio", "-g", "none"])
        .current_dir(folder.path())
        .stdin(inject.stdout.take().unwrap())
        .output()
        .unwrap();
    assert!(record.wait().unwrap().success() && inject.wait().unwrap().success());
    let text = String::from_utf8_lossy(&report.stdout);
    assert!(text.contains("inner_4"), "{text}{}", said(&report));
    assert!(folder.path().join("perf.jit.data.elf").is_dir());
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
    // No dump was beside it, so nothing but what is no record of its own changes.
    assert!(reading.join().unwrap() == capture);

    // A regular file as standard input is read where it is.
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

/// Whatever name standard output goes by.
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
        jitinject()
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
    // It listens to signals before it reads.
    let is_reading = || {
        !std::fs::read_to_string(format!("/proc/{}/wchan", child.id()))
            .unwrap()
            .is_empty()
    };
    while !is_reading() {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    std::thread::sleep(std::time::Duration::from_millis(300));
    tools::run("kill", &["-INT", &child.id().to_string()]);
    stdin.write_all(rest).unwrap();
    drop(stdin);
    assert!(child.wait().unwrap().success());
    assert_eq!(perf::leaves(&folder.path().join("out.data")).len(), 320);
    // A second one ends it.
    let mut child = start();
    std::thread::sleep(std::time::Duration::from_millis(300));
    for _ in 0..2 {
        tools::run("kill", &["-INT", &child.id().to_string()]);
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    assert!(!child.wait().unwrap().success());
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
    assert!(
        said(&ran).contains("standard output: Broken pipe"),
        "{}",
        said(&ran)
    );
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

/// Distributes the records of a profile over the files of a folder, as `perf record --threads` does.
fn scatter(folder: &Path, profile: &Path, files: usize) -> PathBuf {
    let file = std::fs::read(profile).unwrap();
    let parts = model::parse(&file);
    let order = parts.order;
    let target = folder.join("scattered");
    std::fs::create_dir(&target).unwrap();
    let mut main = ProfileWriter::new(order);
    let mut others = vec![Vec::new(); files];
    for (number, record) in parts.records.iter().enumerate() {
        let kind = model::kind(record, order);
        if kind == 68 {
            continue;
        }
        // In turns of several, as a thread reads one processor's records after another's.
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
    let dumps = ["--jitdump", tools::text(folder.path())];
    let output = write(folder.path(), &scattered, "out.data", &dumps);
    let stacks = perf::stacks(&output, &[]);
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
        .filter(|record| model::kind(record, parts.order) == 9)
    {
        let time = model::word(record, parts.order, 24);
        assert!(last <= time);
        last = time;
    }
    let rounds = parts
        .records
        .iter()
        .filter(|record| model::kind(record, parts.order) == 68);
    assert!(rounds.count() > 1);
    assert!(!parts.features.iter().any(|&(id, _)| id == 24));
}

#[test]
fn a_folder_of_compressed_files_that_was_not_finished_is_read() {
    let folder = scratch();
    let recorded = folder.path().join("perf.data");
    let program = tools::compile(folder.path(), "jit.c", &[]);
    let arguments = [
        "record",
        "-q",
        "-z",
        "--threads",
        "-k",
        "mono",
        "-e",
        "cpu-clock",
        "-F",
        "1999",
        "-o",
    ];
    let status = Command::new("perf")
        .args(arguments)
        .args([tools::text(&recorded), tools::text(&program), "frames", "truth"])
        .current_dir(folder.path())
        .status()
        .unwrap();
    assert!(status.success());
    let whole = write(folder.path(), &recorded, "whole.data", &["--fail-under", "100"]);
    let samples = perf::leaves(&whole);
    assert!(samples.len() > 100);
    // The size of the records, and with it the features, are written at the end.
    let data = recorded.join("data");
    let mut header = std::fs::read(&data).unwrap();
    let end = model::word(&header, ByteOrder::Little, 40) + model::word(&header, ByteOrder::Little, 48);
    header[48..56].fill(0);
    header.truncate(end as usize);
    std::fs::write(&data, header).unwrap();
    let output = folder.path().join("out.data");
    let told = inject(&recorded, &output, &["--fail-under", "100"]);
    assert!(told.contains("the recording was not finished"), "{told}");
    assert_eq!(perf::leaves(&output).len(), samples.len());
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
    let more = ["--jitdump", tools::text(&dumps)];
    for _ in 0..2 {
        // The second time, what is there is replaced.
        let output = write(folder.path(), &input, "out", &more);
        let kallsyms = std::fs::read_to_string(output.join("kcore_dir/kallsyms")).unwrap();
        assert_eq!(kallsyms, "names");
        let (shown, _) = script("perf", &output.join("data"));
        assert!(shown.contains("JS:*"));
        std::fs::remove_dir_all(folder.path().join("objects")).unwrap();
    }
    // A slash behind it does not lead the objects into it, and nothing else may.
    for _ in 0..2 {
        let output = format!("{}/", folder.path().join("out").display());
        inject(&input, Path::new(&output), &more);
        assert!(script("perf", &folder.path().join("out/data")).0.contains("JS:*"));
        assert!(folder.path().join("out.elf").is_dir());
    }
    let inside = folder.path().join("out/elf");
    let refused = [&more[..], &["--elf-dir", tools::text(&inside)]].concat();
    let ran = attempt(&input, &folder.path().join("out"), &refused);
    assert!(
        said(&ran).contains("for objects lies in the output"),
        "{}",
        said(&ran)
    );
    let piped = attempt(
        &input,
        Path::new("-"),
        &["--elf-dir", tools::text(&folder.path().join("elf"))],
    );
    assert!(
        said(&piped).contains("the copy of the kernel's code is not for pipes"),
        "{}",
        said(&piped)
    );
    // What is there must be a profile.
    let other = folder.path().join("other");
    std::fs::create_dir(&other).unwrap();
    std::fs::write(other.join("precious"), "").unwrap();
    let ran = attempt(&input, &other, &more);
    assert_eq!(ran.status.code(), Some(1), "{}", said(&ran));
    assert!(other.join("precious").exists());
}

/// A profile with data of the Arm Statistical Profiling Extension, which real perf decodes.
fn with_aux_data(folder: &Path) -> PathBuf {
    let plan = Plan {
        functions: 30,
        samples: 50,
        ..Plan::default()
    };
    let generated = generate(folder, &plan);
    let parts = parse(&generated.profile);
    let mut profile = ProfileWriter::new(parts.order);
    let order = parts.order;
    // ARM_SPE_PMU_TYPE, ARM_SPE_PER_CPU_MMAPS
    const ARM_SPE: u64 = 4;
    let mut info = Vec::new();
    for word in [ARM_SPE, 99, 1] {
        order.put_u64(&mut info, word);
    }
    profile.record(70, 0, &info);
    let mut places = Vec::new();
    for (number, record) in parts.records.iter().enumerate() {
        profile.records.extend_from_slice(record);
        if number % 20 == 5 {
            // A packet with an address, one with a time, and padding.
            let mut packets = vec![0xb0];
            packets.extend_from_slice(&(0x7f00_0000_1000 + number as u64).to_le_bytes());
            packets.push(0x71);
            packets.extend_from_slice(&(1000 + number as u64).to_le_bytes());
            packets.resize(24, 0);
            let mut body = Vec::new();
            for word in [packets.len() as u64, number as u64 * 100, 0] {
                order.put_u64(&mut body, word);
            }
            for word in [0, u32::MAX, 0, 0] {
                order.put_u32(&mut body, word);
            }
            places.push(profile.records.len());
            profile.record(AUXTRACE, 0, &body);
            profile.records.extend_from_slice(&packets);
        }
    }
    let mut index = (places.len() as u64).to_le_bytes().to_vec();
    for place in places {
        index.extend_from_slice(&(place as u64 + 104 + 144).to_le_bytes());
        index.extend_from_slice(&48u64.to_le_bytes());
    }
    profile.features = vec![(18, index)];
    let input = folder.join("aux.data");
    std::fs::write(&input, profile.finish()).unwrap();
    input
}

/// The places that the index of a file says AUX data are at, and where they are.
fn places_of_aux_data(path: &Path) -> (Vec<usize>, Vec<usize>) {
    let parts = parse(path);
    let (_, index) = parts.features.iter().find(|&&(id, _)| id == 18).unwrap();
    let count = model::word(index, parts.order, 0) as usize;
    assert_eq!(index.len(), 8 + 16 * count);
    let told = (0..count).map(|at| {
        assert_eq!(model::word(index, parts.order, 16 + 16 * at), 48);
        model::word(index, parts.order, 8 + 16 * at) as usize
    });
    let told = told.collect();
    let records = parts.records.iter().zip(&parts.offsets);
    let real = records.filter(|(record, _)| model::kind(record, parts.order) == AUXTRACE);
    (told, real.map(|(_, &offset)| offset).collect())
}

/// What real perf decodes of AUX data.
fn decoded(path: &Path) -> Vec<String> {
    let is_pipe = path.extension().is_some_and(|extension| extension == "pipe");
    let dump = if is_pipe {
        // perf decodes them in a real pipe only, not in a file with what went through one.
        let through_pipe = "cat \"$0\" | perf report -D -i -";
        tools::run("sh", &["-c", through_pipe, tools::text(path)])
    } else {
        perf::perf(&["report", "-D", "-i", tools::text(path)])
    };
    let lines = dump
        .lines()
        .filter(|line| line.contains("PC 0x") || line.contains(" TS "));
    lines.map(str::to_owned).collect()
}

#[test]
fn aux_data_stay_whole_and_their_index_points_at_them() {
    let folder = scratch();
    let input = with_aux_data(folder.path());
    let before = decoded(&input);
    assert_eq!(before.len(), 2 * places_of_aux_data(&input).0.len());
    assert!(before.len() > 4);
    let piped = write(folder.path(), &input, "-", &[]);
    let packed = write(folder.path(), &input, "packed.data", &["--compress"]);
    for (input, more) in [
        (&input, &[][..]),
        (&input, &["--compress"]),
        (&piped, &[]),
        (&packed, &[]),
    ] {
        let output = write(folder.path(), input, "out.data", more);
        assert_eq!(decoded(&output), before);
        if more.is_empty() {
            let (told, real) = places_of_aux_data(&output);
            assert_eq!(told, real);
        }
    }
    assert_eq!(decoded(&piped), before);
    // Nobody knows which code the data are about.
    let objects = std::fs::read_dir(folder.path().join("objects")).unwrap();
    assert_eq!(objects.count(), 30);
}

#[test]
fn a_killed_recording_keeps_its_samples() {
    // So many bytes are written when samples are among them.
    for (compression, enough) in [(&[][..], 6000), (&["-z"], 1200)] {
        let folder = scratch();
        let recorded = folder.path().join("perf.data");
        let program = tools::compile(folder.path(), "jit.c", &[]);
        let mut record = Command::new("perf")
            .args([
                "record",
                "-q",
                "-k",
                "mono",
                "-e",
                "cpu-clock",
                "-F",
                "1999",
                "-m",
                "4",
                "-o",
            ])
            .args([tools::text(&recorded)])
            .args(compression)
            .args([tools::text(&program), "frames", "truth"])
            .current_dir(folder.path())
            .spawn()
            .unwrap();
        let has_enough = || std::fs::metadata(&recorded).is_ok_and(|metadata| metadata.len() > enough);
        while !has_enough() {
            assert!(
                record.try_wait().unwrap().is_none(),
                "nothing was written in time"
            );
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        record.kill().unwrap();
        record.wait().unwrap();
        let output = folder.path().join("out.data");
        let told = inject(&recorded, &output, &[]);
        assert!(told.contains("the recording was not finished"), "{told}");
        // Others read it if its header tells how much there is.
        let mut mended = std::fs::read(&recorded).unwrap();
        let size = mended.len() as u64 - model::word(&mended, ByteOrder::Little, 40);
        mended[48..56].copy_from_slice(&size.to_le_bytes());
        mended[72..104].fill(0);
        std::fs::write(&recorded, mended).unwrap();
        let (_, expected) = counts(&recorded);
        assert!(expected > 20, "{expected}");
        let (shown, complaints) = script("perf", &output);
        let samples = shown.lines().filter(|line| line.contains("cpu-clock"));
        assert_eq!(samples.count(), expected);
        assert_eq!(complaints, "");
        assert!(shown.contains("inner_"), "{shown}");
    }
}
