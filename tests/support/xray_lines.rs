//! Records of real XRay traces, as `llvm-xray convert` prints them.

use std::collections::BTreeMap;
use std::path::Path;

use jitdump::Tally;
use jitinject::Issue;
use jitinject::internals::traces::xray::format::{RecordKind, Trace, TraceIndex};

use super::capture::{self, gunzipped};
use super::{tools, xray_trace};

/// Real traces, and traces of older versions derived from one of them.
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

/// A trace whose buffers end too early, because it has typed events.
pub const SHORT: &str = "xray-fdr-typed19";

/// Reads a trace.
pub fn real(name: &str) -> Vec<u8> {
    std::fs::read(capture::folder(name).join("trace.xray")).unwrap()
}

/// A record with its arguments as llvm-xray prints it, without thread and process.
#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    pub tick: u64,
    pub cpu: u16,
    pub kind: String,
    /// `None` for events, for which llvm-xray prints an arbitrary ID.
    pub function: Option<u32>,
    pub arguments: Vec<u64>,
    pub data: String,
}

/// Records by process, if known, and thread; by ascending time.
pub type Lines = BTreeMap<(Option<i32>, i32), Vec<Line>>;

/// Returns the records of a trace, and the faults in its records and buffers.
pub fn ours(file: &[u8]) -> (Lines, Tally<Issue>) {
    let trace = Trace::parse(file).unwrap();
    let index = TraceIndex::of(&trace);
    let mut faults = index.faults.clone();
    let mut lines = Lines::new();
    for thread in index.threads() {
        let mut all: Vec<Line> = Vec::new();
        for buffer in thread.buffers {
            let mut records = trace.records(buffer);
            for record in &mut records {
                if let RecordKind::Argument(argument) = record.kind {
                    all.last_mut().unwrap().arguments.push(argument);
                    continue;
                }
                let text = |payload: &[u8]| String::from_utf8(payload.to_vec()).unwrap();
                let (kind, function, data) = match record.kind {
                    RecordKind::Enter { function } => ("function-enter", Some(function), String::new()),
                    RecordKind::EnterWithArguments { function } => {
                        ("function-enter-arg", Some(function), String::new())
                    }
                    RecordKind::Exit { function } => ("function-exit", Some(function), String::new()),
                    RecordKind::TailExit { function } => {
                        ("function-tail-exit", Some(function), String::new())
                    }
                    RecordKind::Custom { payload } => ("custom-event", None, text(payload)),
                    RecordKind::Typed { payload, .. } => ("typed-event", None, text(payload)),
                    RecordKind::Argument(_) => unreachable!(),
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

/// Parses a trace converted by llvm-xray.
pub fn theirs(yaml: &str) -> Lines {
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

pub fn assert_same(name: &str, ours: &Lines, theirs: &Lines) {
    let threads = |lines: &Lines| lines.keys().copied().collect::<Vec<_>>();
    assert_eq!(threads(ours), threads(theirs), "{name}");
    for ((thread, ours), theirs) in ours.iter().zip(theirs.values()) {
        for (at, (ours, theirs)) in ours.iter().zip(theirs).enumerate() {
            assert_eq!(ours, theirs, "{name}: record {at} of {thread:?}");
        }
        assert_eq!(ours.len(), theirs.len(), "{name}");
    }
}

/// Returns the stored output of llvm-xray for a recording.
pub fn llvm_output(name: &str) -> Option<String> {
    let folder = capture::folder(name);
    let files = ["convert-nomap.yaml.gz", "convert.yaml.gz"].map(|file| folder.join(file));
    let bytes = gunzipped(files.iter().find(|it| it.exists())?);
    Some(String::from_utf8(bytes).unwrap())
}

pub fn converted(path: &Path) -> String {
    tools::run("llvm-xray", &["convert", "-f", "yaml", tools::text(path)])
}

/// Returns a buffer with records that all versions support.
pub fn buffer() -> xray_trace::Buffer<'static> {
    let record = |(tick, kind)| xray_trace::Record { tick, cpu: 3, kind };
    let records = [
        (1000, RecordKind::Enter { function: 1 }),
        (1000, RecordKind::EnterWithArguments { function: 0xfff_ffff }),
        (1000, RecordKind::Argument(u64::MAX)),
        (5_000_000_000_000, RecordKind::TailExit { function: 0xfff_ffff }),
        (5_000_000_000_007, RecordKind::Exit { function: 1 }),
    ];
    xray_trace::Buffer {
        process: 4711,
        thread: 70_000,
        wall: (12, 345_678),
        records: records.map(record).to_vec(),
    }
}
