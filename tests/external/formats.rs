//! Pipes, directories and AUX data, as perf writes and reads them.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use jitdump::ByteOrder;

use crate::support::formats::{counts, write};
use crate::support::generator::{Plan, generate};
use crate::support::profile::ProfileWriter;
use crate::support::{has_code, inject, jitinject, model, perf, said, scratch, tools};

const AUXTRACE: u32 = 71;

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
    // The header fields for the size of the records and for the features are written at the end.
    let data = recorded.join("data");
    let mut header = std::fs::read(&data).unwrap();
    let end = model::word(&header, ByteOrder::Little, 40) + model::word(&header, ByteOrder::Little, 48);
    header[48..56].fill(0);
    header.truncate(end as usize);
    std::fs::write(&data, header).unwrap();
    let output = folder.path().join("out.data");
    let said = inject(&recorded, &output, &["--fail-under", "100"]);
    assert!(has_code(&said, "JI150"), "{said}");
    assert_eq!(perf::leaves(&output).len(), samples.len());
}

/// Writes a profile with data of the Arm Statistical Profiling Extension, which perf can decode.
fn with_aux_data(folder: &Path) -> PathBuf {
    let plan = Plan {
        functions: 30,
        samples: 50,
        ..Plan::default()
    };
    let generated = generate(folder, &plan);
    let parts = model::parse(&std::fs::read(&generated.profile).unwrap());
    let mut profile = ProfileWriter::new(parts.endian);
    let endian = parts.endian;
    // ARM_SPE_PMU_TYPE, ARM_SPE_PER_CPU_MMAPS
    const ARM_SPE: u64 = 4;
    let mut info = Vec::new();
    for word in [ARM_SPE, 99, 1] {
        endian.write_u64(&mut info, word);
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
                endian.write_u64(&mut body, word);
            }
            for word in [0, u32::MAX, 0, 0] {
                endian.write_u32(&mut body, word);
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

/// Returns the offsets of AUX data according to the file's index, and the actual offsets.
fn places_of_aux_data(path: &Path) -> (Vec<usize>, Vec<usize>) {
    let parts = model::parse(&std::fs::read(path).unwrap());
    let (_, index) = parts.features.iter().find(|&&(id, _)| id == 18).unwrap();
    let count = model::word(index, parts.endian, 0) as usize;
    assert_eq!(index.len(), 8 + 16 * count);
    let indexed = (0..count).map(|at| {
        assert_eq!(model::word(index, parts.endian, 16 + 16 * at), 48);
        model::word(index, parts.endian, 8 + 16 * at) as usize
    });
    let indexed = indexed.collect();
    let records = parts.records.iter().zip(&parts.offsets);
    let real = records.filter(|(record, _)| model::kind(record, parts.endian) == AUXTRACE);
    (indexed, real.map(|(_, &offset)| offset).collect())
}

/// Returns the AUX data that perf decodes.
fn decoded(path: &Path) -> Vec<String> {
    let is_pipe = path.extension().is_some_and(|extension| extension == "pipe");
    let dump = if is_pipe {
        // perf decodes AUX data only in a real pipe, not in a file with a pipe's content.
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
            let (indexed, real) = places_of_aux_data(&output);
            assert_eq!(indexed, real);
        }
    }
    assert_eq!(decoded(&piped), before);
    // It is unknown which code the data refers to.
    let objects = std::fs::read_dir(folder.path().join("objects")).unwrap();
    assert_eq!(objects.count(), 30);
}

#[test]
fn a_killed_recording_keeps_its_samples() {
    // File size at which samples have been written.
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
        let said = inject(&recorded, &output, &[]);
        assert!(has_code(&said, "JI150"), "{said}");
        // Other readers accept it if its header has the size.
        let mut repaired = std::fs::read(&recorded).unwrap();
        let size = repaired.len() as u64 - model::word(&repaired, ByteOrder::Little, 40);
        repaired[48..56].copy_from_slice(&size.to_le_bytes());
        repaired[72..104].fill(0);
        std::fs::write(&recorded, repaired).unwrap();
        let (_, expected) = counts(&recorded);
        assert!(expected > 20, "{expected}");
        let script = ["script", "-f", "-F", "+pid", "-i", tools::text(&output)];
        let shown = perf::perf(&script);
        let samples = shown.lines().filter(|line| line.contains("cpu-clock"));
        assert_eq!(samples.count(), expected);
        assert_eq!(perf::complaints("perf", &script), [""; 0]);
        assert!(shown.contains("inner_"), "{shown}");
    }
}
