//! Compares real logs of Mono's profiler with the reports of mprof-report, Mono's own reader.

use std::collections::BTreeMap;

use jitdump::Address;
use jitinject::internals::traces::mono::format::event::{
    CodeBufferKind, CollectionPhase, Metadata, ObjectMove, Stage,
};
use jitinject::internals::traces::mono::format::{
    Log, LogEvent, LogEventKind, LogIndex, LoggedFunction, Method, ThreadId,
};

use crate::support::capture;
use crate::support::capture::gunzipped;

/// Recordings whose log is not compressed.
pub const REAL: [&str; 4] = ["mono-alloc", "mono-calls", "mono-jit", "mono-joined"];

/// Returns the log of a recording.
pub fn real(name: &str) -> Vec<u8> {
    std::fs::read(capture::folder(name).join("trace.mlpd")).unwrap()
}

/// Returns mprof-report's stored report on a recording.
pub fn report(name: &str) -> String {
    std::fs::read_to_string(capture::folder(name).join("report.txt")).unwrap()
}

/// Returns the events of a log, which must have no faults.
pub fn events(file: &[u8]) -> Vec<LogEvent<'_>> {
    let log = Log::parse(file).unwrap();
    let mut events = log.events();
    let all = events.by_ref().collect();
    assert!(events.faults().is_empty(), "{:?}", events.faults());
    all
}

/// Returns the number after a label in a report.
fn number(report: &str, label: &str) -> u64 {
    let line = report.lines().find(|line| line.contains(label)).unwrap();
    let (_, rest) = line.split_once(label).unwrap();
    let digits = rest.trim_start_matches([':', ' ']);
    let digits: String = digits.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn pointer(address: u64) -> String {
    match address {
        0 => "(nil)".to_owned(),
        _ => format!("{address:#x}"),
    }
}

/// Returns the lines for an event in the debug output of mprof-report.
fn printed(event: &LogEvent<'_>, index: &LogIndex<'_>) -> Vec<String> {
    let time = event.time.0;
    let name = |method| text(index.names.method(method, event.time).unwrap());
    let loaded = |stage| match stage {
        Stage::LoadEnd => "loaded",
        _ => "unloaded",
    };
    let line = match event.kind {
        LogEventKind::Allocation { object, size, .. } => {
            format!("alloced object {}, size {size} at {time}", pointer(object.0))
        }
        LogEventKind::Moves(moves) => {
            let line = |it: ObjectMove| format!("moved obj {} to {}", pointer(it.from.0), pointer(it.to.0));
            return moves.iter().map(line).collect();
        }
        LogEventKind::Jit {
            method,
            code,
            size,
            name,
        } => format!(
            "jitted method {} ({}), size: {size}, code: {}",
            pointer(method.0),
            text(name),
            pointer(code.0)
        ),
        LogEventKind::Throw { object, .. } => format!("throw {}", pointer(object.0)),
        LogEventKind::Clause {
            clause_type,
            number,
            method,
            ..
        } => {
            let clause = ["catch", "filter", "finally", "", "fault"][clause_type as usize];
            format!("clause {clause} ({number}) in method {}", name(method))
        }
        LogEventKind::SampleHit {
            thread,
            addresses,
            frames,
            ..
        } => {
            let hit = |it: Address| {
                let (address, thread) = (pointer(it.0), pointer(thread.0));
                format!("sample hit, type: 1 at {address} for thread {thread}")
            };
            let frame = |(at, method)| format!("sample hit bt {at}: {}", name(method));
            let hits = addresses.iter().map(hit);
            return hits.chain(frames.iter().enumerate().map(frame)).collect();
        }
        LogEventKind::NativeSymbol { start, name, .. } => {
            format!("unmanaged symbol {} at {}", text(name), pointer(start.0))
        }
        LogEventKind::Enter(method) => format!("enter method {}", name(method)),
        LogEventKind::Leave(method) => format!("leave method {}", name(method)),
        LogEventKind::ExceptionLeave(method) => format!("exleave method {}", name(method)),
        LogEventKind::RootUnregister { start } => format!("root unregister address {}", pointer(start.0)),
        LogEventKind::RootRegister {
            start,
            size,
            source,
            key,
            name,
        } => format!(
            "root register address {} size {size} type {source} key {} name {}",
            pointer(start.0),
            pointer(key.0),
            text(name)
        ),
        LogEventKind::Metadata { stage, subject } => match subject {
            Metadata::Class { class, image, name } => format!(
                "{} class {} ({} in {}) at {time}",
                loaded(stage),
                pointer(class.0),
                text(name),
                pointer(image.0)
            ),
            Metadata::Image { image, name, .. } => {
                format!(
                    "{} image {} ({}) at {time}",
                    loaded(stage),
                    pointer(image.0),
                    text(name)
                )
            }
            Metadata::Assembly { assembly, name, .. } => format!(
                "{} assembly {} ({}) at {time}",
                loaded(stage),
                pointer(assembly.0),
                text(name)
            ),
            Metadata::VTable {
                vtable,
                domain,
                class,
            } => format!(
                "vtable {} for class {} in domain {} at {time}",
                pointer(vtable.0),
                pointer(class.0),
                pointer(domain.0)
            ),
            Metadata::Thread { thread, name } if stage == Stage::Name => {
                format!("thread {} named at {time}: {}", pointer(thread.0), text(name))
            }
            Metadata::Thread { thread, .. } => {
                format!("{} thread {} at {time}", loaded(stage), pointer(thread.0))
            }
            _ => return Vec::new(),
        },
        _ => return Vec::new(),
    };
    vec![line]
}

/// Reduces a line of mprof-report's debug output to what [`printed`] returns; `None` if that never returns it.
fn comparable(line: &str) -> Option<String> {
    const STARTS: [&str; 19] = [
        "alloced object ",
        "moved obj ",
        "jitted method ",
        "throw ",
        "clause ",
        "sample hit",
        "unmanaged symbol ",
        "enter method ",
        "leave method ",
        "exleave method ",
        "root unregister ",
        "root register ",
        "vtable ",
        "thread 0x",
        "loaded class ",
        "loaded image ",
        "loaded assembly ",
        "loaded thread 0x",
        "unloaded thread 0x",
    ];
    if !STARTS.iter().any(|start| line.starts_with(start)) {
        return None;
    }
    if line.starts_with("alloced object ") {
        // mprof-report does not resolve a class whose name comes later in the log.
        let (head, tail) = (
            line.split_once(" (").unwrap().0,
            line.rsplit_once(") at ").unwrap().1,
        );
        return Some(format!("{head} at {tail}"));
    }
    Some(line.to_owned())
}

#[test]
fn a_log_has_the_events_that_mprof_report_prints() {
    let file = real("mono-joined");
    let log = Log::parse(&file).unwrap();
    let index = LogIndex::of(&log);
    let ours: Vec<_> = log.events().flat_map(|event| printed(&event, &index)).collect();
    let theirs = gunzipped(&capture::folder("mono-joined").join("debug.txt.gz"));
    let theirs = String::from_utf8(theirs).unwrap();
    // A domain without an address is printed as a thread.
    let theirs: Vec<_> = theirs
        .lines()
        .filter(|line| !line.contains("loaded thread (nil)"))
        .filter_map(comparable)
        .collect();
    for (at, (ours, theirs)) in ours.iter().zip(&theirs).enumerate() {
        assert_eq!(ours, theirs, "line {at}");
    }
    assert_eq!(ours.len(), theirs.len());
    assert!(ours.len() > 5000);
}

#[test]
fn sums_are_those_of_mprof_report() {
    for name in REAL {
        let (file, report) = (real(name), report(name));
        let log = Log::parse(&file).unwrap();
        let index = LogIndex::of(&log);
        assert!(index.faults.is_empty(), "{name}: {:?}", index.faults);
        let header = log.header();
        assert_eq!(u64::from(header.pid), number(&report, "Program ID"));
        assert_eq!(
            u64::from(header.port.unwrap()),
            number(&report, "Server listening on")
        );
        assert!(report.contains(&text(header.arguments)) && header.architecture == b"x86-64");
        let mut sums: BTreeMap<&str, u64> = BTreeMap::new();
        let (mut helpers, mut helper_bytes) = (0, 0);
        for event in log.events() {
            let mut add = |label, count| *sums.entry(label).or_default() += count;
            match event.kind {
                LogEventKind::Allocation { size, .. } => {
                    add("Total memory allocated", size);
                    add("bytes in", 1);
                }
                LogEventKind::Enter(_) => add("Total calls", 1),
                LogEventKind::Throw { .. } => add("Throws", 1),
                LogEventKind::Clause { clause_type: 0, .. } => add("Executed catch clauses", 1),
                LogEventKind::Clause { clause_type: 2, .. } => add("Executed finally clauses", 1),
                LogEventKind::HeapResize { .. } => add("GC resizes", 1),
                LogEventKind::Moves(moves) => add("Object moves", moves.iter().len() as u64),
                LogEventKind::Collection {
                    phase: CollectionPhase::Start,
                    generation: 1,
                } => add("Gen1 collections", 1),
                LogEventKind::SampleHit { .. } => add("sample hits", 1),
                LogEventKind::Metadata {
                    stage: Stage::LoadEnd,
                    subject: Metadata::Image { .. },
                } => add("Loaded images", 1),
                LogEventKind::CodeBuffer { size, .. } => {
                    helpers += 1;
                    helper_bytes += size;
                }
                _ => {}
            }
        }
        assert_eq!(number(&report, "JIT helpers:"), helpers);
        assert_eq!(number(&report, "JIT helpers code size"), helper_bytes);
        sums.remove("sample hits");
        for (label, sum) in sums {
            assert_eq!(number(&report, label), sum, "{name}: {label}");
        }
    }
    let alloc = report("mono-alloc");
    assert!(alloc.contains("100344 bytes in 1996 objects"));
}

#[test]
fn all_types_of_objects_have_names() {
    let file = real("mono-alloc");
    let log = Log::parse(&file).unwrap();
    let index = LogIndex::of(&log);
    let mut by_name: BTreeMap<String, u64> = BTreeMap::new();
    for event in log.events() {
        if let LogEventKind::Allocation { class, .. } = event.kind {
            let name = index.names.class(class, event.time).unwrap();
            *by_name.entry(text(name)).or_default() += 1;
        }
    }
    assert_eq!(by_name["Work.Node"], 930);
    // mprof-report does not resolve the types of all of these.
    assert_eq!(by_name.values().sum::<u64>(), 1996);
}

#[test]
fn calls_and_returns_make_stacks() {
    let file = real("mono-calls");
    let log = Log::parse(&file).unwrap();
    let mut stacks: BTreeMap<ThreadId, Vec<Method>> = BTreeMap::new();
    let mut unmatched = 0;
    for event in log.events() {
        let stack = stacks.entry(event.thread).or_default();
        match event.kind {
            LogEventKind::Enter(method) => stack.push(method),
            LogEventKind::Leave(method) | LogEventKind::ExceptionLeave(method)
                if stack.last() == Some(&method) =>
            {
                stack.pop();
            }
            LogEventKind::Leave(_) | LogEventKind::ExceptionLeave(_) => unmatched += 1,
            _ => {}
        }
    }
    assert_eq!(unmatched, 1, "as in mprof-report's report");
    assert!(stacks.values().all(Vec::is_empty));
}

#[test]
fn code_has_its_name_and_the_time_it_was_made_at() {
    for name in REAL {
        let file = real(name);
        let log = Log::parse(&file).unwrap();
        let index = LogIndex::of(&log);
        let code = &index.code;
        let (mut named, mut helpers, mut without_range) = (0, 0, 0);
        for event in log.events() {
            match event.kind {
                LogEventKind::Jit { size: 0, .. } => without_range += 1,
                LogEventKind::Jit {
                    name,
                    code: start,
                    size,
                    method,
                } => {
                    named += 1;
                    let matches = |it: &&LoggedFunction<'_>| {
                        let is_there = it.range.start == start && it.range.size() == size;
                        is_there && it.methods.contains(&(method, name))
                    };
                    assert!(code.functions.iter().find(matches).unwrap().time <= event.time);
                }
                LogEventKind::CodeBuffer { kind, .. } if kind != CodeBufferKind::Method => helpers += 1,
                _ => {}
            }
        }
        let methods = || {
            code.functions
                .iter()
                .filter(|it| it.kind == CodeBufferKind::Method)
        };
        // A method that was logged without a code range may have got one by its first call.
        let with_code = methods().map(|it| it.methods.len()).sum::<usize>();
        assert!(
            (named..=named + without_range as usize).contains(&with_code),
            "{name}: {with_code}"
        );
        assert_eq!(code.functions.len() - methods().count(), helpers);
        let nameless = methods().filter(|it| it.methods.is_empty()).count();
        assert!(nameless < 30, "{name}: {nameless}");
        let compiled = methods().filter(|it| it.is_compiled);
        let with_names = compiled.clone().filter(|it| !it.methods.is_empty()).count();
        assert!(
            with_names > 80,
            "{name}: {with_names} compiled methods with names"
        );
        assert!(code.functions.is_sorted_by_key(|it| it.time));
        assert_eq!(code.without_range, without_range);
    }
}
