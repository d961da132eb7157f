//! Readers treat synthesized events like recorded ones, alone and together with those.

use std::fs::{self, File};
use std::io::BufWriter;
use std::path::{Path, PathBuf};

use jitdump::internals::format::marker;
use jitdump::internals::units::{Pid, Tid};
use jitdump::{Address, AddressRange, ByteOrder, Time};
use jitinject::internals::code::profile_index::ProfileIndex;
use jitinject::internals::perf::Profile;
use jitinject::internals::perf::output::{Edits, Rewrite};
use jitinject::internals::perf::synthetic::{SyntheticMapping, SyntheticThread};
use jitinject::internals::traces::conversion::synthesis::{
    Comm, Definition, EventOrigin, SampleContent, Synthesis, Synthesized, SyntheticSample, ThreadStart,
};
use linux_perf_data::linux_perf_event_reader::EventRecord;
use linux_perf_data::{PerfFileReader, PerfFileRecord};

use crate::support::perf::{complaints, perf_with_cache, programs};
use crate::support::{bare_records, capture, inject, scratch, tools};

const DEFINITIONS: [Definition<'static>; 3] = [
    Definition {
        name: b"mono/self-ns/",
        measure: SampleContent::Nanoseconds,
    },
    Definition {
        name: b"mono/alloc-bytes/",
        measure: SampleContent::Count,
    },
    Definition {
        name: b"mono/log/",
        measure: SampleContent::Bytes,
    },
];

/// A PID that is in no recording.
const PID: Pid = Pid(4_190_001);
const THREAD: SyntheticThread = SyntheticThread {
    pid: PID,
    tid: Tid(4_190_002),
};
const CODE: u64 = 0x6a00_0000_0000;
const MESSAGE: &[u8] = b"a payload";

fn origin(endian: ByteOrder) -> EventOrigin<'static> {
    EventOrigin {
        endian,
        clock_id: Some(1),
        architecture: b"x86_64",
    }
}

/// Returns the call chain of the sample with an index.
fn chain(number: u64) -> Vec<Address> {
    (0..number % 5 + 1)
        .map(|frame| Address(CODE + 16 * frame))
        .collect()
}

/// Adds a process with two threads, and a sample of each event in turn at each of `times`.
fn add(synthesis: &mut Synthesis<'_, Vec<u8>>, times: &[u64]) {
    let first = SyntheticThread::first_of(PID);
    let time = Time(times[0]);
    let comm = |thread, name: &'static [u8], is_exec| Comm {
        thread,
        time,
        name,
        is_exec,
    };
    synthesis.comm(&comm(first, b"mono", true)).unwrap();
    let mapping = SyntheticMapping {
        pid: PID,
        time,
        range: AddressRange::new(Address(CODE), 0x1000).unwrap(),
        // Without a symbol, some perf versions print the address, others the file offset.
        file_offset: CODE,
        name: b"/no/such/library.so",
        build_id: None,
        is_code: true,
    };
    synthesis.map(&mapping).unwrap();
    let start = ThreadStart {
        thread: THREAD,
        parent: first,
        time,
    };
    synthesis.fork(&start).unwrap();
    synthesis.comm(&comm(THREAD, b"Finalizer", false)).unwrap();
    for (number, &time) in (0..).zip(times) {
        let sample = SyntheticSample {
            event: number as usize % 3,
            thread: THREAD,
            time: Time(time),
            cpu: 0,
            period: number + 100,
            chain: &chain(number),
            raw: if number % 3 == 2 { MESSAGE } else { b"" },
        };
        synthesis.sample(&sample).unwrap();
    }
}

/// Returns the lines that perf must print for the samples: a line each, and one for each frame.
fn expected(times: &[u64]) -> Vec<String> {
    let mut lines = Vec::new();
    for (number, time) in (0..).zip(times) {
        let name = String::from_utf8_lossy(DEFINITIONS[number as usize % 3].name).into_owned();
        let (seconds, nanoseconds) = (time / 1_000_000_000, time % 1_000_000_000);
        lines.push(format!(
            "Finalizer {}/{} {seconds}.{nanoseconds:09}: {} {name}:",
            PID.0,
            THREAD.tid.0,
            number + 100,
        ));
        let frames = chain(number).into_iter();
        lines.extend(frames.map(|frame| format!("{:x} [unknown] (/no/such/library.so)", frame.0)));
    }
    lines
}

/// Writes the profile, as a file and as a pipe.
fn write(synthesized: &Synthesized, records: &[u8], folder: &Path) -> (PathBuf, PathBuf) {
    let paths = (folder.join("out.data"), folder.join("out.pipe"));
    let profile = synthesized.profile(records.into());
    let profile_index = ProfileIndex::of(&profile, marker::dump_path);
    let rewrite = || Rewrite {
        profile: &profile,
        data_end: profile_index.data_end,
        auxtrace: &profile_index.auxtrace,
        edits: Edits::default(),
        build_ids: Vec::new(),
        compression: None,
    };
    let create = |path| BufWriter::new(File::create(path).unwrap());
    rewrite().write_file(&mut create(&paths.0)).unwrap();
    rewrite().write_pipe(&mut create(&paths.1)).unwrap();
    paths
}

fn stand_alone(folder: &Path, endian: ByteOrder) -> PathBuf {
    let mut synthesis = Synthesis::stand_alone(&origin(endian), &DEFINITIONS, Vec::new());
    add(&mut synthesis, &TIMES);
    let (synthesized, records) = synthesis.finish().unwrap();
    assert!(synthesized.faults.is_empty());
    write(&synthesized, &records, folder).0
}

/// Option for the directory of programs and libraries, which are needed only for unwinding; their symbols take
/// long.
fn files(folder: &Path, is_unwound: bool) -> String {
    if is_unwound {
        return "--symfs=/".into();
    }
    format!("--symfs={}", tools::text(folder))
}

/// Returns the non-empty lines of `perf script`, with one space between words.
fn script(program: &str, profile: &Path, files: &str) -> Vec<String> {
    let cache = scratch();
    let arguments = [
        "script",
        files,
        "-f",
        "-i",
        tools::text(profile),
        "--ns",
        "--no-inline",
        "--show-mmap-events",
        "--show-task-events",
        "-F",
        "comm,pid,tid,time,event,period,ip,sym,dso",
    ];
    let text = perf_with_cache(program, cache.path(), &arguments);
    let lines = text.lines().filter(|line| !line.trim().is_empty());
    lines
        .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
        .collect()
}

/// Splits lines into those of our own process and its samples, and the others.
fn part(lines: Vec<String>) -> (Vec<String>, Vec<String>) {
    let pid = PID.0.to_string();
    let mut is_own = false;
    lines.into_iter().partition(|line| {
        // A frame starts with its address and belongs to the line before it.
        let is_frame = !line.contains(": ") && !line.ends_with(':');
        if !is_frame {
            is_own = line.contains(&pid);
        }
        is_own
    })
}

fn samples(lines: Vec<String>) -> Vec<String> {
    lines
        .into_iter()
        .filter(|line| !line.contains("PERF_RECORD_"))
        .collect()
}

const TIMES: [u64; 6] = [
    1_000_000_000,
    1_000_000_500,
    1_000_000_500,
    2_000_000_001,
    2_000_000_002,
    3_000_000_000,
];

#[test]
fn events_that_stand_alone_come_back_from_perf_as_they_were_made() {
    let folder = scratch();
    let profile = stand_alone(folder.path(), ByteOrder::Little);
    for perf in programs() {
        assert_eq!(
            samples(script(&perf, &profile, "--symfs=/")),
            expected(&TIMES),
            "{perf}"
        );
        let path = tools::text(&profile);
        let events = tools::run(&perf, &["evlist", "-f", "-v", "-i", path]);
        for definition in DEFINITIONS {
            let name = String::from_utf8_lossy(definition.name);
            assert!(
                events.contains(&format!("{name}: type: 1 "))
                    || events.contains(&format!("{name}: type: 1,")),
                "{perf}: {events}"
            );
        }
        let report = ["report", "-f", "--stdio", "-i", path];
        assert_eq!(complaints(&perf, &report), [""; 0], "{perf}");
        let report = tools::run(&perf, &report);
        // two samples each, of 100 + 103 and 101 + 104
        assert!(report.contains("of event 'mono/self-ns/'"), "{perf}: {report}");
        for total in [203, 205] {
            assert!(
                report.contains(&format!("Event count (approx.): {total}")),
                "{perf}: {report}"
            );
        }
        let raw = tools::run(&perf, &["script", "-f", "-i", path, "-F", "event,bpf-output"]);
        assert!(raw.contains("a payl") && raw.contains("load"), "{perf}: {raw}");
        let head = tools::run(&perf, &["report", "-f", "--header-only", "-i", path]);
        for line in ["# arch : x86_64", "# cmdline : jitinject"] {
            assert!(head.contains(line), "{perf}: {head}");
        }
    }
}

#[test]
fn events_of_the_other_byte_order_come_back_from_perf_as_well() {
    let folder = scratch();
    let profile = stand_alone(folder.path(), ByteOrder::Big);
    for perf in programs() {
        let lines = script(&perf, &profile, "--symfs=/").into_iter();
        // A notice that it does not swap the bytes of programs.
        let lines = lines.filter(|line| !line.contains("Endianness of raw data"));
        assert_eq!(samples(lines.collect()), expected(&TIMES), "{perf}");
    }
}

/// Returns times before, during and after a recording.
fn times_across(profile: &Profile<'_>) -> Vec<u64> {
    let profile_index = ProfileIndex::of(profile, marker::dump_path);
    let (first, last) = profile_index.times.unwrap();
    let step = (last.0 - first.0) / 40;
    (0..60).map(|number| first.0 - 5 * step + number * step).collect()
}

const CAPTURES: [&str; 6] = [
    "node20",
    "node20-multievent",
    "node20-pipe",
    "node20-dwarf",
    "java17",
    "cpython313-dwarf",
];

#[test]
fn what_perf_shows_of_a_recording_does_not_change_with_events_beside_it() {
    for name in CAPTURES {
        let folder = scratch();
        let original = capture::profile(name);
        let bytes = fs::read(&original).unwrap();
        let recorded = Profile::parse(&bytes).unwrap();
        let times = times_across(&recorded);
        let mut synthesis = Synthesis::with_recording(&recorded, &DEFINITIONS, Vec::new()).unwrap();
        add(&mut synthesis, &times);
        let (synthesized, records) = synthesis.finish().unwrap();
        assert!(synthesized.faults.is_empty(), "{name}");
        let nothing = scratch();
        let files = files(nothing.path(), name == "cpython313-dwarf");
        let (merged, pipe) = write(&synthesized, &records, folder.path());
        for perf in programs() {
            let before = script(&perf, &original, &files);
            assert!(before.len() > 100, "{name}: {before:?}");
            for merged in [&merged, &pipe] {
                let (own, others) = part(script(&perf, merged, &files));
                for (before, after) in before.iter().zip(&others) {
                    assert_eq!(before, after, "{name}, {perf}");
                }
                assert_eq!(before.len(), others.len(), "{name}, {perf}");
                assert_eq!(samples(own), expected(&times), "{name}, {perf}");
            }
            let path = tools::text(&merged);
            let report = ["report", &files, "-f", "--stdio", "--no-inline", "-i", path];
            assert_eq!(complaints(&perf, &report), [""; 0], "{name}, {perf}");
            let events = tools::run(&perf, &["evlist", "-f", "-i", path]);
            let events: Vec<&str> = events.lines().filter(|line| !line.starts_with('#')).collect();
            let own = DEFINITIONS.map(|definition| std::str::from_utf8(definition.name).unwrap());
            assert_eq!(
                events.len(),
                recorded.attr_entries.len() + 3,
                "{name}: {events:?}"
            );
            assert!(events.ends_with(&own), "{name}: {events:?}");
        }
    }
}

/// Every perf prints all of a profile with records that lack their trailers, after injection without and with
/// events.
#[test]
fn perf_prints_what_was_recorded_without_trailers() {
    let folder = scratch();
    let path = |name: &str| folder.path().join(name);
    let (input, output, log) = (path("perf.data"), path("out.data"), path("a.mlpd"));
    fs::write(&log, bare_records::log()).unwrap();
    let more = ["--mono-log", tools::text(&log), "--events", "exception"];
    for (events, has_ids) in [(1, false), (1, true), (2, true)] {
        fs::write(&input, bare_records::profile(events, has_ids).finish()).unwrap();
        for (more, thrown) in [(&[][..], 0), (&more[..], 1)] {
            inject(&input, &output, more);
            for perf in programs() {
                let lines = script(&perf, &output, "--symfs=/");
                let count = |text: &str| lines.iter().filter(|line| line.contains(text)).count();
                assert_eq!(count("cpu-clock"), 10, "{perf}: {lines:?}");
                assert_eq!(count("mono/exception/"), thrown, "{perf}: {lines:?}");
                assert_eq!(count("libsomewhere"), 1, "{perf}: {lines:?}");
            }
        }
    }
}

#[test]
fn linux_perf_data_reads_events_beside_a_recording() {
    for name in ["node20", "node20-multievent", "node20-dwarf"] {
        let folder = scratch();
        let bytes = fs::read(capture::profile(name)).unwrap();
        let recorded = Profile::parse(&bytes).unwrap();
        let times = times_across(&recorded);
        let mut synthesis = Synthesis::with_recording(&recorded, &DEFINITIONS, Vec::new()).unwrap();
        add(&mut synthesis, &times);
        let (synthesized, records) = synthesis.finish().unwrap();
        let (merged, _) = write(&synthesized, &records, folder.path());
        let PerfFileReader {
            mut perf_file,
            mut record_iter,
        } = PerfFileReader::parse_file(File::open(&merged).unwrap()).unwrap();
        let attributes = perf_file.event_attributes();
        let names: Vec<_> = attributes.iter().filter_map(|it| it.name()).collect();
        assert!(
            names.ends_with(&["mono/self-ns/", "mono/alloc-bytes/", "mono/log/"]),
            "{names:?}"
        );
        let (mut periods, mut payloads) = (Vec::new(), 0);
        while let Some(record) = record_iter.next_record(&mut perf_file).unwrap() {
            let PerfFileRecord::EventRecord { record, .. } = record else {
                continue;
            };
            if let Ok(EventRecord::Sample(sample)) = record.parse()
                && sample.pid == Some(PID.0.cast_signed())
            {
                periods.push(sample.period.unwrap());
                let raw = sample.raw.map(|raw| raw.as_slice().into_owned());
                payloads += usize::from(raw.is_some_and(|raw| raw.starts_with(MESSAGE)));
            }
        }
        let expected: Vec<u64> = (0..60).map(|number| number + 100).collect();
        assert_eq!((periods, payloads), (expected, 20), "{name}");
    }
}
