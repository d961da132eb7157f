//! Profiles of older and newer versions of perf, and what these read of the output.

use std::path::{Path, PathBuf};

use jitdump::ByteOrder;

use crate::support::dump::{DumpWriter, X86_64};
use crate::support::model::{self, kind, word};
use crate::support::profile::{ProfileWriter, field};
use crate::support::{attempt, capture, inject, jitinject, objects_of, perf, said, scratch, tools};

const ORDERS: [ByteOrder; 2] = [ByteOrder::Little, ByteOrder::Big];

/// Returns a profile with two samples.
fn two_samples(endian: ByteOrder) -> ProfileWriter {
    let mut profile = ProfileWriter::new(endian);
    profile.comm(1, "program", false, 1);
    profile.sample(1, 2, &[0x1000], None);
    profile.sample(1, 3, &[0x2000], None);
    profile
}

/// Writes a profile and injects it; returns the output.
fn through(folder: &Path, input: &[u8], more: &[&str]) -> PathBuf {
    let path = folder.join("perf.data");
    std::fs::write(&path, input).unwrap();
    let output = folder.join("out.data");
    assert_eq!(inject(&path, &output, &[&["-q"], more].concat()), "");
    output
}

/// Returns the number of samples that Debian's perf, an older version, finds.
fn samples(profile: &Path) -> usize {
    let shown = perf::perf(&["script", "-f", "-F", "ip", "-G", "-i", tools::text(profile)]);
    let lines = shown.lines().map(str::trim);
    lines.filter(|line| matches!(*line, "1000" | "2000")).count()
}

/// `PERF_ATTR_SIZE_VER9`, which is 16 bytes more than in perf 6.1, and a size that no perf has yet.
#[test]
fn attributes_that_end_in_zeros_do_not_shut_out_older_readers() {
    for size in [144, 256] {
        for endian in ORDERS {
            let folder = scratch();
            let mut profile = two_samples(endian);
            profile.attr_size = size;
            for input in [profile.finish(), profile.finish_pipe()] {
                let output = through(folder.path(), &input, &[]);
                assert_eq!(samples(&output), 2, "{size} {endian:?}");
            }
        }
    }
}

/// The ELF machine and the size of cache lines, of perf 7.3. In a pipe, `perf report` of older versions stops at them.
#[test]
fn newer_metadata_of_a_pipe_does_not_shut_out_older_readers_of_a_file() {
    let folder = scratch();
    let mut profile = two_samples(ByteOrder::Little);
    profile.features = [33, 34].map(|id| (id, vec![0; 8])).to_vec();
    let path = folder.path().join("perf.data");
    std::fs::write(&path, profile.finish()).unwrap();
    let elf = folder.path().join("elf");
    let ran = attempt(&path, Path::new("-"), &["-q", "--elf-dir", tools::text(&elf)]);
    assert_eq!(said(&ran), "");
    let output = through(folder.path(), &ran.stdout, &[]);
    assert_eq!(samples(&output), 2);
    let report = perf::perf(&["report", "-f", "--stdio", "-i", tools::text(&output)]);
    assert!(report.contains("# Samples: 2 "), "{report}");
}

/// IDs follow an attribute at the size that it contains.
#[test]
fn attributes_in_pipes_are_shortened_before_their_ids() {
    let folder = scratch();
    let mut profile = two_samples(ByteOrder::Little);
    profile.sample_type |= field::IDENTIFIER;
    profile.ids = vec![0x71, 0x72];
    profile.attr_size = 144;
    profile.records.clear();
    profile.sample(1, 2, &[0x1000], None);
    let (file, pipe) = (profile.finish(), profile.finish_pipe());
    let expected = model::parse(&file);
    for input in [file, pipe] {
        let path = folder.path().join("perf.data");
        std::fs::write(&path, input).unwrap();
        let ran = attempt(
            &path,
            Path::new("-"),
            &["-q", "--elf-dir", tools::text(folder.path())],
        );
        // clockid is the last field that is not 0
        let (size, endian) = (96, ByteOrder::Little);
        assert_eq!(word(&ran.stdout, endian, 16) >> 48, 8 + size + 8);
        assert_eq!(word(&ran.stdout, endian, 24) >> 32, size);
        let back = model::parse(&std::fs::read(through(folder.path(), &ran.stdout, &[])).unwrap());
        assert!(back.attrs == expected.attrs && back.ids == expected.ids && back.records == expected.records);
    }
}

/// A pipe of perf 4.16 with four CPUs, and an entry of a build ID table as written by `perf inject -b`.
#[test]
fn records_of_odd_sizes_are_padded() {
    const CPU_MAP: u32 = 74;
    const EVENT_UPDATE: u32 = 78;
    const BUILD_ID: u32 = 67;
    let endian = ByteOrder::Little;
    let processors = [0, 0, 4, 0, 0, 0, 1, 0, 2, 0, 3, 0];
    let name = [&2_u64.to_le_bytes()[..], &9_u64.to_le_bytes(), b"abc\0"].concat();
    let mut build_id = [&[0xff; 4][..], &[7; 20], &[20, 0, 0, 0], b"/usr/bin/program"].concat();
    build_id.resize(92, 0);
    let mut profile = ProfileWriter::new(endian);
    profile.record(CPU_MAP, 0, &processors);
    profile.record(EVENT_UPDATE, 0, &name);
    profile.record(BUILD_ID, 2 | 1 << 15, &build_id);
    profile.comm(1, "program", false, 1);
    profile.sample(1, 2, &[0x1000], None);
    profile.finished_round();

    let mut padded = ProfileWriter::new(endian);
    padded.record(CPU_MAP, 0, &[&processors[..], &[0; 4]].concat());
    padded.record(EVENT_UPDATE, 0, &[&name[..], &[0; 4]].concat());
    padded.record(BUILD_ID, 2 | 1 << 15, &[&build_id[..], &[0; 4]].concat());
    padded.comm(1, "program", false, 1);
    padded.sample(1, 2, &[0x1000], None);
    padded.finished_round();

    let folder = scratch();
    let path = folder.path().join("perf.data");
    std::fs::write(&path, profile.finish_pipe()).unwrap();
    let ran = attempt(
        &path,
        Path::new("-"),
        &["-q", "--elf-dir", tools::text(&folder.path().join("elf"))],
    );
    assert!(ran.status.success() && said(&ran).is_empty(), "{}", said(&ran));
    assert!(ran.stdout.ends_with(&padded.records));

    let expected = model::parse(&padded.finish());
    for input in [profile.finish_pipe(), ran.stdout] {
        let file = model::parse(&std::fs::read(through(folder.path(), &input, &[])).unwrap());
        let is_kept = |record: &&Vec<u8>| kind(record, endian) != BUILD_ID;
        assert!(file.records.iter().eq(expected.records.iter().filter(is_kept)));
        let [(2, table)] = &file.features[..] else {
            panic!("a table of build-ids")
        };
        assert!(table[8..] == build_id, "as perf writes it to a file");
    }
}

const REGION: u64 = 0x7000_0000;
const PID: u32 = 7;
/// Another thread of the process.
const TID: u32 = 8;
const CONTEXT_USER: u64 = -512i64 as u64;

/// Returns the number of CPUs (`HEADER_NRCPUS`); perf 7.3 warns if it is missing.
fn processors() -> (u32, Vec<u8>) {
    (7, [2_u32; 2].map(u32::to_le_bytes).concat())
}

/// Returns an address in a function of [`with_functions`].
fn inside(number: u64) -> u64 {
    REGION + 0x200 * number + 8
}

/// Writes a dump with functions `fn_0` to `fn_5`, which the profile maps.
fn with_functions(folder: &Path, profile: &mut ProfileWriter) {
    let path = folder.join("jit-7.dump");
    let mut dump = DumpWriter::new(ByteOrder::Little, X86_64, PID);
    for number in 0..6 {
        let name = format!("fn_{number}");
        dump.load(1000, inside(number) - 8, number, name.as_bytes(), &[0x90; 64]);
    }
    std::fs::write(&path, dump.bytes).unwrap();
    profile.comm(PID, "program", true, 400);
    profile.mmap2(PID, 0x6000_0000, 4096, 0, tools::text(&path), 500);
    profile.mmap2(PID, REGION, 0x10000, 0, "//anon", 600);
    profile.thread(PID, TID, "worker", 700);
}

fn words(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// Returns the indices of the functions that have an object.
fn named(output: &Path) -> Vec<u64> {
    let symbols = objects_of(output)
        .into_iter()
        .map(|object| tools::run("readelf", &["-sW", tools::text(&object)]));
    let mut numbers: Vec<u64> = symbols
        .flat_map(|shown| {
            let names = shown
                .split_whitespace()
                .filter_map(|word| word.strip_prefix("fn_"));
            names.map(|number| number.parse().unwrap()).collect::<Vec<_>>()
        })
        .collect();
    numbers.sort_unstable();
    numbers
}

/// Returns the symbols of each sample as the newest perf prints them.
fn newest_stacks(program: &str, output: &Path) -> Vec<Vec<String>> {
    let cache = scratch();
    let samples = perf::stacks_with_cache(program, cache.path(), output, &[]);
    samples.into_iter().map(|sample| sample.frames).collect()
}

/// After a system call, the kernel writes the user part of the call chains of all samples with the same cookie. The
/// cookie is not an address.
#[test]
fn call_chains_that_come_later_are_those_of_their_samples() {
    const DEFERRED: u64 = -640i64 as u64;
    const CALLCHAIN_DEFERRED: u32 = 22;
    let folder = scratch();
    let mut profile = ProfileWriter::new(ByteOrder::Little);
    profile.flags = 1 << 38 | 1 << 39;
    profile.features = vec![processors()];
    with_functions(folder.path(), &mut profile);
    let task = u64::from(PID) | u64::from(PID) << 32;
    let cookie = inside(3);
    for time in [2000, 2001] {
        let sample = [inside(0), task, time, 0, 1_000_000, 2, DEFERRED, cookie];
        profile.record(9, 2, &words(&sample));
    }
    let chain = [
        cookie,
        4,
        CONTEXT_USER,
        inside(0),
        inside(1),
        inside(2),
        task,
        2002,
        0,
    ];
    profile.record(CALLCHAIN_DEFERRED, 2, &words(&chain));
    let input = profile.finish();
    let output = through(folder.path(), &input, &["--layout", "function"]);
    assert_eq!(named(&output), [0, 1, 2]);
    let (before, after) = (
        model::parse(&input),
        model::parse(&std::fs::read(&output).unwrap()),
    );
    let is_kept = |record: &&Vec<u8>| before.records.contains(*record);
    assert!(
        after.records.iter().filter(is_kept).eq(before
            .records
            .iter()
            .filter(|record| after.records.contains(*record)))
    );
    assert!(
        after
            .records
            .ends_with(&before.records[before.records.len() - 3..])
    );
    if let Some(newest) = perf::newest() {
        assert_eq!(
            newest_stacks(&newest, &output),
            [["fn_0", "fn_1", "fn_2"], ["fn_0", "fn_1", "fn_2"]]
        );
    }
}

/// Returns a sample of `perf record --off-cpu` since Linux 6.16: its own fields and its raw data.
fn off_cpu(fields: [u64; 6], ids: u64, chain: &[u64]) -> Vec<u8> {
    let raw = [
        &[ids, 5_000_000, chain.len() as u64 + 1, CONTEXT_USER],
        chain,
        &[0],
    ]
    .concat();
    let raw = words(&raw);
    let size = raw.len() as u32 + 4;
    [&words(&fields)[..], &size.to_le_bytes(), &raw, &[0; 4]].concat()
}

/// Returns the event's name (`HEADER_EVENT_DESC`), without which perf treats it like any BPF program's.
fn event_desc(profile: &ProfileWriter, name: &str) -> (u32, Vec<u8>) {
    let numbers = |numbers: [u32; 2]| numbers.map(u32::to_le_bytes).concat();
    let mut padded = name.as_bytes().to_vec();
    padded.resize(64, 0);
    let ids = words(&profile.ids);
    let attr = profile.attr();
    let content = [
        &numbers([1, attr.len() as u32]),
        &attr,
        &numbers([1, 64]),
        &padded,
        &ids,
    ];
    (12, content.map(|part| &part[..]).concat())
}

#[test]
fn functions_that_only_waiting_threads_are_in_have_names() {
    const RAW: u64 = 1 << 10;
    const ID: u64 = 0x71;
    const BPF_OUTPUT: u64 = 10;
    const END: u64 = u64::MAX << 32;
    const IN_KERNEL: u64 = 0xffff_ffff_8100_0000;
    for has_others in [false, true] {
        let folder = scratch();
        let mut profile = ProfileWriter::new(ByteOrder::Little);
        profile.config = BPF_OUTPUT;
        profile.sample_type = profile.sample_type & !field::CALLCHAIN | field::IDENTIFIER | RAW;
        profile.ids = vec![ID];
        profile.features = vec![processors(), event_desc(&profile, "offcpu-time")];
        with_functions(folder.path(), &mut profile);
        let (pid, tid) = (u64::from(PID), u64::from(TID));
        // During the recording, attributed to the idle task, with the process in the upper half.
        let fields = [ID, IN_KERNEL, 0, 2000, 0, 1];
        profile.record(9, 1, &off_cpu(fields, pid << 32 | tid, &[inside(0), inside(1)]));
        if has_others {
            // Data of another BPF program, which perf rejects in an event of this name.
            let fields = words(&[ID, IN_KERNEL, pid | pid << 32, 2001, 0, 1]);
            let raw = words(&[inside(5); 5]);
            profile.record(
                9,
                1,
                &[&fields[..], &44_u32.to_le_bytes(), &raw, &[0; 4]].concat(),
            );
        }
        // At the end, with the thread.
        profile.record(
            9,
            2,
            &off_cpu([ID, 0, 0, END, 0, 0], tid << 32 | pid, &[inside(2), inside(3)]),
        );
        let output = through(folder.path(), &profile.finish(), &["--layout", "function"]);
        assert_eq!(named(&output), [0, 1, 2, 3]);
        if let Some(newest) = perf::newest().filter(|_| !has_others) {
            let stacks = newest_stacks(&newest, &output);
            assert_eq!(stacks, [["fn_0", "fn_1"], ["fn_2", "fn_3"]]);
        }
        let report = |more: &[&str]| {
            let arguments = ["report", "--json", "-i", tools::text(&output)];
            let ran = jitinject().args(arguments).args(more).output().unwrap();
            serde_json::from_slice::<serde_json::Value>(&ran.stdout).unwrap()
        };
        let all = report(&[]);
        for function in ["fn_0", "fn_2"] {
            let rows = all["rows"].as_array().unwrap();
            let row = rows.iter().find(|row| row["name"] == function);
            let row = row.unwrap_or_else(|| panic!("{all:#}"));
            assert_eq!(row["self"]["samples"], 1, "{all:#}");
        }
        // What perf has summed up is of the whole recording, so of its last time and of any part of it.
        assert!(all["duration_ns"].as_u64().unwrap() < 10_000, "{all:#}");
        let part = report(&["--time", "0.5,"]);
        assert_eq!(part["event"]["samples"]["samples"], 1, "{part:#}");
    }
}

/// Written by perf 7.3.
#[test]
fn addresses_that_perf_replaced_are_reported() {
    let folder = scratch();
    let input = capture::folder("cpython313-dwarf").join("aslr.data");
    for command in [&[][..], &["timeline"]] {
        let mut jitinject = jitinject();
        jitinject.args(command).arg("-f").arg("-i").arg(&input);
        let ran = jitinject.current_dir(folder.path()).output().unwrap();
        assert!(!ran.status.success());
        let said = said(&ran);
        let replaced = format!("error[JI148]: {}: ", input.display());
        assert!(said.contains(&replaced), "{said}");
        assert!(said.contains("jitinject: help: "), "{said}");
    }
}
