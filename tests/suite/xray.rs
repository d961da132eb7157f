//! Real traces of XRay against what llvm-xray, LLVM's own reader, says of them.

use std::collections::BTreeMap;

use jitinject::bytes::ByteOrder;
use jitinject::runtime::xray::{Fault, Index, Mode, Trace, What, is_trace};
use jitinject::tally::Tally;

use crate::mono::gunzipped;
use crate::support::xray_trace::{self, VERSIONS, Writer};
use crate::support::{capture, scratch, tools};

/// Real traces, and those of older versions that were made from one of them.
pub const SOUND: [&str; 9] = [
    "xray-basic19",
    "xray-fdr-pie14",
    "xray-fdr-threshold14",
    "xray-fdr-tsc14",
    "xray-fdr-v1-synth",
    "xray-fdr-v3-synth",
    "xray-fdr-v4-synth",
    "xray-joined-mono14",
    "xray-joined-tsc-defclock14",
];

/// Its buffers end too early, since it has typed events.
pub const SHORT: &str = "xray-fdr-typed19";

/// A trace.
pub fn real(name: &str) -> Vec<u8> {
    std::fs::read(capture::folder(name).join("trace.xray")).unwrap()
}

/// A record as llvm-xray prints it, with its arguments, but for thread and process.
#[derive(Clone, Debug, PartialEq)]
struct Line {
    tick: u64,
    cpu: u16,
    kind: String,
    /// `None` for events, for which llvm-xray has any number there.
    function: Option<u32>,
    arguments: Vec<u64>,
    data: String,
}

/// By process, where it is told, and thread; in the order of time.
type Lines = BTreeMap<(Option<i32>, i32), Vec<Line>>;

/// Of one trace, with what was wrong with its records and buffers.
fn ours(file: &[u8]) -> (Lines, Tally<Fault>) {
    let trace = Trace::parse(file).unwrap();
    let index = Index::of(&trace);
    let mut faults = index.faults.clone();
    let mut lines = Lines::new();
    for thread in index.threads() {
        let mut all: Vec<Line> = Vec::new();
        for buffer in thread.buffers {
            let mut records = trace.records(buffer);
            for record in &mut records {
                if let What::Argument(argument) = record.what {
                    all.last_mut().unwrap().arguments.push(argument);
                    continue;
                }
                let text = |payload: &[u8]| String::from_utf8(payload.to_vec()).unwrap();
                let (kind, function, data) = match record.what {
                    What::Enter { function } => ("function-enter", Some(function), String::new()),
                    What::EnterWithArguments { function } => {
                        ("function-enter-arg", Some(function), String::new())
                    }
                    What::Exit { function } => ("function-exit", Some(function), String::new()),
                    What::TailExit { function } => ("function-tail-exit", Some(function), String::new()),
                    What::Custom { payload } => ("custom-event", None, text(payload)),
                    What::Typed { payload, .. } => ("typed-event", None, text(payload)),
                    What::Argument(_) => unreachable!(),
                };
                all.push(Line {
                    tick: record.tick,
                    cpu: record.cpu,
                    kind: kind.to_owned(),
                    function,
                    arguments: Vec::new(),
                    data,
                });
            }
            faults.merge(records.faults());
        }
        all.sort_by_key(|line| line.tick);
        lines.insert((thread.process, thread.thread), all);
    }
    (lines, faults)
}

/// What llvm-xray converts a trace to.
fn theirs(yaml: &str) -> Lines {
    let mut lines = Lines::new();
    for line in yaml.lines().filter(|line| line.starts_with("  - {")) {
        let (front, back) = line.rsplit_once(" cpu: ").unwrap();
        let field = |name: &str| {
            let behind = back.split_once(name)?.1;
            behind.split([',', ' ']).next()
        };
        let function = front
            .split_once("func-id: ")
            .unwrap()
            .1
            .split_once(',')
            .unwrap()
            .0;
        let arguments = front.rsplit_once("', args: [ ").map_or("", |(_, behind)| behind);
        let arguments = arguments.trim_end_matches([' ', ']', ',']);
        let kind = field("kind: ").unwrap().to_owned();
        let (_, data) = back.rsplit_once("data: ").unwrap();
        let parsed = Line {
            tick: field("tsc: ").unwrap().parse().unwrap(),
            cpu: back.split_once(',').unwrap().0.parse().unwrap(),
            function: kind.starts_with("function").then(|| function.parse().unwrap()),
            kind,
            arguments: arguments.split(", ").flat_map(str::parse).collect(),
            data: data.trim_end_matches([' ', '}']).trim_matches('\'').to_owned(),
        };
        let process = field("process: ").map(|it| it.parse::<u32>().unwrap() as i32);
        let thread = field("thread: ").unwrap().parse().unwrap();
        lines.entry((process, thread)).or_default().push(parsed);
    }
    lines
}

fn assert_same(name: &str, ours: &Lines, theirs: &Lines) {
    let threads = |lines: &Lines| lines.keys().copied().collect::<Vec<_>>();
    assert_eq!(threads(ours), threads(theirs), "{name}");
    for ((thread, ours), theirs) in ours.iter().zip(theirs.values()) {
        for (at, (ours, theirs)) in ours.iter().zip(theirs).enumerate() {
            assert_eq!(ours, theirs, "{name}: record {at} of {thread:?}");
        }
        assert_eq!(ours.len(), theirs.len(), "{name}");
    }
}

/// What llvm-xray said of a recording when it was made.
fn told(name: &str) -> Option<String> {
    let folder = capture::folder(name);
    let files = ["convert-nomap.yaml.gz", "convert.yaml.gz"].map(|file| folder.join(file));
    let bytes = gunzipped(files.iter().find(|it| it.exists())?);
    Some(String::from_utf8(bytes).unwrap())
}

fn converted(path: &std::path::Path) -> String {
    tools::checked("llvm-xray", &["convert", "-f", "yaml", tools::text(path)])
}

#[test]
fn a_trace_has_the_records_that_llvm_xray_finds() {
    let mut records = 0;
    let mut with_stored = 0;
    for name in SOUND {
        let (lines, faults) = ours(&real(name));
        assert!(faults.is_empty(), "{name}: {faults:?}");
        let live = converted(&capture::folder(name).join("trace.xray"));
        assert_same(name, &lines, &theirs(&live));
        if let Some(stored) = told(name) {
            assert_same(name, &lines, &theirs(&stored));
            with_stored += 1;
        }
        records += lines.values().map(Vec::len).sum::<usize>();
    }
    assert_eq!(with_stored, 7);
    assert!(records > 50_000, "{records}");
}

#[test]
fn a_trace_that_is_short_of_bytes_has_all_that_llvm_xray_finds_and_tells_what_is_lost() {
    let (lines, faults) = ours(&real(SHORT));
    let theirs = theirs(&told(SHORT).unwrap());
    assert_same(SHORT, &lines, &theirs);
    let all = || lines.values().flatten();
    let typed = all().filter(|line| line.kind == "typed-event").count() as u64;
    assert!(typed > 4 && all().any(|line| line.data == "typed-event #4"));
    // The events of each buffer, of which the last ones may be lost themselves.
    assert_eq!(faults.count(Fault::LostByWriter), 16 * typed);
    assert_eq!(faults.iter().count(), 1, "{faults:?}");
}

#[test]
fn threads_have_their_buffers_in_the_order_of_time() {
    let file = real("xray-fdr-tsc14");
    let trace = Trace::parse(&file).unwrap();
    let index = trace.index();
    let mut several = 0;
    for thread in index.threads() {
        let of_buffers = |buffer| {
            trace
                .records(buffer)
                .map(|record| record.tick)
                .collect::<Vec<_>>()
        };
        let ticks: Vec<u64> = thread.buffers.iter().flat_map(of_buffers).collect();
        assert!(ticks.is_sorted());
        let walls = || thread.buffers.iter().map(|it| it.anchor().unwrap().wall);
        assert!(walls().is_sorted() && thread.buffers.iter().all(|it| it.thread == thread.thread));
        several += usize::from(thread.buffers.len() > 1);
    }
    assert!(several > 0);
    let anchors: Vec<_> = index.buffers().iter().filter_map(|it| it.anchor()).collect();
    assert_eq!(anchors.len(), index.buffers().len());
    let header = trace.header();
    // Both clocks run alike, to what a thread may be interrupted for.
    let frequency = u128::from(header.frequency);
    let wall_of = |tick: u64| i128::try_from(u128::from(tick) * 1_000_000_000 / frequency).unwrap();
    let offsets = anchors.iter().map(|it| i128::from(it.wall.0) - wall_of(it.tick));
    let (least, most) = (offsets.clone().min().unwrap(), offsets.max().unwrap());
    assert!(most - least < 1_000_000, "{} ns", most - least);
}

#[test]
fn headers_tell_what_is_known_and_no_more() {
    let header = |name| *Trace::parse(&real(name)).unwrap().header();
    let fdr = header("xray-fdr-tsc14");
    assert_eq!(
        (fdr.mode, fdr.version, fdr.order),
        (Mode::Fdr, 5, ByteOrder::Little)
    );
    assert_eq!((fdr.frequency, fdr.buffer_size), (2_596_126_000, Some(4096)));
    assert!(fdr.constant_tsc && fdr.nonstop_tsc);
    let basic = header("xray-basic19");
    assert_eq!((basic.mode, basic.version), (Mode::Basic, 3));
    assert_eq!((basic.frequency, basic.buffer_size), (1_000_000_000, None));
    assert!(basic.constant_tsc && basic.nonstop_tsc);
}

#[test]
fn traces_are_known_by_their_content_and_nothing_else_is() {
    let mut traces = 0;
    let mut others = 0;
    let folders = std::fs::read_dir(capture::folder("xray-bad").parent().unwrap()).unwrap();
    for folder in folders.flatten().filter(|it| it.path().is_dir()) {
        for file in std::fs::read_dir(folder.path()).unwrap().flatten() {
            let path = file.path();
            if path.is_dir() {
                continue;
            }
            let bytes = std::fs::read(&path).unwrap();
            let name = path.to_string_lossy();
            let is_expected =
                name.ends_with(".xray") && !["ver6", "type2", "bad-hdr."].iter().any(|it| name.contains(it));
            assert_eq!(is_trace(&bytes), is_expected, "{name}");
            *if is_expected { &mut traces } else { &mut others } += 1;
        }
    }
    assert!(traces > 20 && others > 100, "{traces}, {others}");
    for (mode, version) in VERSIONS {
        for order in [ByteOrder::Little, ByteOrder::Big] {
            let mut writer = Writer::new(mode, version, order, 400);
            writer.buffer(&buffer());
            assert!(is_trace(&writer.finish()), "{mode:?} {version} {order:?}");
        }
    }
    for made in [
        &[][..],
        &[0; 100],
        &[1; 100],
        b"5\0\0\0",
        &[5, 0, 1, 0, 3, 0, 0, 0],
    ] {
        assert!(!is_trace(made), "{made:?}");
    }
}

/// A buffer that all versions can tell.
fn buffer() -> xray_trace::Buffer<'static> {
    let record = |(tick, what)| xray_trace::Record { tick, cpu: 3, what };
    let records = [
        (1000, What::Enter { function: 1 }),
        (1000, What::EnterWithArguments { function: 0xfff_ffff }),
        (1000, What::Argument(u64::MAX)),
        (5_000_000_000_000, What::TailExit { function: 0xfff_ffff }),
        (5_000_000_000_007, What::Exit { function: 1 }),
    ];
    xray_trace::Buffer {
        process: 4711,
        thread: 70_000,
        wall: (12, 345_678),
        records: records.map(record).to_vec(),
    }
}

#[test]
fn llvm_xray_reads_what_the_tests_write() {
    let folder = scratch();
    for (mode, version) in VERSIONS {
        // It takes what is left of older buffers for records, and can't read traces of other machines.
        if (mode, version) == (Mode::Fdr, 1) {
            continue;
        }
        let mut writer = Writer::new(mode, version, ByteOrder::Little, 4096);
        let mut made = buffer();
        writer.buffer(&made);
        made.thread += 1;
        if mode == Mode::Fdr {
            let payload = b"told";
            let what = What::Custom { payload };
            let (tick, cpu) = (5_000_000_000_009, if version == 4 { 9 } else { 3 });
            made.records.push(xray_trace::Record { tick, cpu, what });
        }
        if version == 5 {
            let what = What::Typed {
                kind: 6,
                payload: b"of a type",
            };
            made.records.push(xray_trace::Record {
                what,
                ..made.records[0]
            });
        }
        writer.buffer(&made);
        let file = writer.finish();
        let path = folder.path().join("trace.xray");
        std::fs::write(&path, &file).unwrap();
        let (lines, faults) = ours(&file);
        let known = [Fault::LostByWriter, Fault::TickBack];
        assert!(
            faults.iter().all(|(fault, _)| known.contains(&fault)),
            "{faults:?}"
        );
        let mut theirs = theirs(&converted(&path));
        // It takes what means nothing for the processor of a custom event.
        let events = theirs.values_mut().flatten().filter(|_| version < 4);
        events
            .filter(|line| line.kind == "custom-event")
            .for_each(|line| line.cpu = 3);
        // Where there is no process, llvm-xray takes the thread for it, or 0.
        if version < 3 {
            theirs = theirs
                .into_iter()
                .map(|((_, thread), lines)| ((None, thread), lines))
                .collect();
        }
        assert_same(&format!("{mode:?} {version}"), &lines, &theirs);
    }
}
