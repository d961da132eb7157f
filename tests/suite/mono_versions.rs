//! Mono logs of all data versions are read as they were written.

use jitdump::Address;
use jitinject::Issue;
use jitinject::internals::traces::mono::format::event::{
    CodeBufferKind, CollectionPhase, CounterChange, CounterDescription, CounterValue, Coverage, Metadata,
    MonitorEvent, ObjectMove, ObjectReference, Root, RootOrigin, Stage, TypeReference,
};
use jitinject::internals::traces::mono::format::list::MethodFrames;
use jitinject::internals::traces::mono::format::{
    Log, LogEvent, LogEventKind, LogHeader, ManagedObject, Method, Pointer, ThreadId,
};

use crate::mono::{REAL, events, real};
use crate::support::mono_log::{Bases, Writer};

/// Returns what a log of an older version has of an event.
fn aged<'a>(event: &LogEvent<'a>, version: u8) -> LogEventKind<'a> {
    let class_of = |class| match class {
        TypeReference::VTable(pointer) if version < 15 => TypeReference::Class(pointer),
        class => class,
    };
    match event.kind {
        LogEventKind::Allocation {
            class,
            object,
            size,
            frames,
        } => LogEventKind::Allocation {
            class: class_of(class),
            object,
            size,
            frames,
        },
        LogEventKind::Metadata { stage, subject } => LogEventKind::Metadata {
            stage,
            subject: match subject {
                Metadata::Image { image, name, .. } if version < 16 => Metadata::Image {
                    image,
                    name,
                    mvid: b"",
                },
                Metadata::Assembly { assembly, name, .. } if version < 14 => Metadata::Assembly {
                    assembly,
                    image: None,
                    name,
                },
                subject => subject,
            },
        },
        LogEventKind::Clause {
            clause_type,
            number,
            method,
            ..
        } if version < 14 => LogEventKind::Clause {
            clause_type,
            number,
            method,
            object: None,
        },
        LogEventKind::SampleHit {
            thread,
            addresses,
            frames,
            ..
        } => LogEventKind::SampleHit {
            sample_type: (version < 14).then_some(1),
            thread: if version < 11 { event.thread } else { thread },
            addresses,
            frames: if version < 6 { MethodFrames::NONE } else { frames },
        },
        LogEventKind::Counters { values, .. } => LogEventKind::Counters {
            milliseconds: (version < 13).then_some(event.time.0 / 1_000_000),
            values,
        },
        kind => kind,
    }
}

#[test]
fn real_logs_written_in_older_versions_tell_the_same() {
    for name in REAL {
        let file = real(name);
        let log = Log::parse(&file).unwrap();
        for version in 1..=17 {
            let mut writer = Writer::new(version);
            let mut expected = Vec::new();
            for buffer in log.buffers() {
                writer.buffer(Bases {
                    time: buffer.time_base.0,
                    pointer: buffer.pointer_base(),
                    object: buffer.object_base(),
                    thread: buffer.thread.0,
                    method: buffer.method_base(),
                });
                expected.extend(buffer.events().filter(|event| writer.event(event)));
            }
            let written = writer.finish();
            let found = events(&written);
            for (found, expected) in found.iter().zip(&expected) {
                match (found.kind, aged(expected, version)) {
                    // Units had other values while they were single bytes.
                    (
                        LogEventKind::CounterDescriptions(found),
                        LogEventKind::CounterDescriptions(expected),
                    ) if (13..15).contains(&version) => {
                        let names =
                            [found, expected].map(|all| all.iter().map(|it| it.name).collect::<Vec<_>>());
                        assert_eq!(names[0], names[1]);
                    }
                    (found, expected) => assert_eq!(found, expected, "{name}, version {version}"),
                }
                assert_eq!(found.thread, expected.thread);
                let is_timed = version >= 13
                    || !matches!(
                        found.kind,
                        LogEventKind::NativeSymbol { .. }
                            | LogEventKind::CounterDescriptions(_)
                            | LogEventKind::Counters { .. }
                    );
                assert!(!is_timed || found.time == expected.time);
            }
            assert_eq!(found.len(), expected.len(), "{name}, version {version}");
            if version == 17 && ["mono-calls", "mono-jit"].contains(&name) {
                // Other logs have allocations with an empty stack, which reads like a missing one.
                let contents = [&written[..], &file].map(|it| &it[LogHeader::parse(it).unwrap().size..]);
                assert!(
                    contents[0] == contents[1],
                    "{name}: not the bytes that Mono wrote"
                );
            }
        }
    }
}

const CLASS: Pointer = Pointer(0x7000_1000);
const OBJECT: ManagedObject = ManagedObject(0x7f00_0000_1238);
const FRAMES: [Method; 3] = [Method(0x5000_0300), Method(0x4fff_0000), Method(0x9000_0000_0000)];
const BASES: Bases = Bases {
    time: 1_000_000_000,
    pointer: 0x7000_0000,
    object: 0x7f00_0000_1000 >> 3,
    thread: 0x7f11,
    method: 0x5000_0000,
};

/// Returns events without lists, as they are read from a log of a version.
fn plain_kinds(version: u8) -> Vec<LogEventKind<'static>> {
    let phases = [
        CollectionPhase::Start,
        CollectionPhase::MarkStart,
        CollectionPhase::MarkEnd,
        CollectionPhase::ReclaimStart,
        CollectionPhase::ReclaimEnd,
        CollectionPhase::End,
        CollectionPhase::PreStopWorld,
        CollectionPhase::PostStopWorld,
        CollectionPhase::PreStartWorld,
        CollectionPhase::PostStartWorld,
        CollectionPhase::PreStopWorldLocked,
        CollectionPhase::PostStartWorldUnlocked,
        CollectionPhase::Other(99),
    ];
    let collections = phases.map(|phase| LogEventKind::Collection { phase, generation: 1 });
    let code_buffers = [
        CodeBufferKind::Method,
        CodeBufferKind::MethodTrampoline,
        CodeBufferKind::UnboxTrampoline,
        CodeBufferKind::InterfaceTrampoline,
        CodeBufferKind::GenericsTrampoline,
        CodeBufferKind::SpecificTrampoline,
        CodeBufferKind::Helper,
        CodeBufferKind::Monitor,
        CodeBufferKind::DelegateInvoke,
        CodeBufferKind::ExceptionHandling,
        CodeBufferKind::Other(40),
    ];
    let code_buffers = code_buffers.map(|kind| LogEventKind::CodeBuffer {
        kind,
        start: Address(0x4100_0000),
        size: 300,
        name: match kind {
            CodeBufferKind::SpecificTrampoline => b"vcall",
            _ => b"",
        },
    });
    let mut kinds = [&collections[..], &code_buffers].concat();
    for stage in [
        Stage::Name,
        Stage::LoadStart,
        Stage::LoadEnd,
        Stage::UnloadStart,
        Stage::UnloadEnd,
        Stage::LoadError,
    ] {
        let name = |name: &'static [u8]| if stage == Stage::Name { name } else { b"" };
        let subjects = [
            Metadata::Class {
                class: CLASS,
                image: Pointer(8),
                name: b"N.Class",
            },
            Metadata::Image {
                image: Pointer(8),
                name: b"/lib/a.dll",
                mvid: if version >= 16 && stage == Stage::LoadEnd {
                    b"4F-2"
                } else {
                    b""
                },
            },
            Metadata::Assembly {
                assembly: Pointer(16),
                image: (version >= 14).then_some(Pointer(8)),
                name: b"",
            },
            Metadata::Domain {
                domain: Pointer(0),
                name: name(b"app.exe"),
            },
            Metadata::Thread {
                thread: ThreadId(u64::MAX),
                name: name("größer".as_bytes()),
            },
            Metadata::Context {
                context: Pointer(24),
                domain: Pointer(32),
            },
            Metadata::VTable {
                vtable: Pointer(40),
                domain: Pointer(0),
                class: CLASS,
            },
        ];
        kinds.extend(subjects.map(|subject| LogEventKind::Metadata { stage, subject }));
    }
    let methods = Coverage {
        methods: 300,
        fully: 20,
        partially: 1,
    };
    kinds.extend([
        LogEventKind::HeapResize { size: 1 << 40 },
        LogEventKind::FinalizeStart,
        LogEventKind::FinalizeEnd,
        LogEventKind::FinalizeObjectStart(OBJECT),
        LogEventKind::FinalizeObjectEnd(OBJECT),
        LogEventKind::Enter(FRAMES[0]),
        LogEventKind::Leave(FRAMES[0]),
        LogEventKind::ExceptionLeave(FRAMES[2]),
        LogEventKind::Jit {
            method: FRAMES[1],
            code: Address(0xffff_ffff_ffff_0000),
            size: 0,
            name: b"N.Class:Method (int,string)",
        },
        LogEventKind::Clause {
            clause_type: 4,
            number: 200,
            method: FRAMES[0],
            object: (version >= 14).then_some(OBJECT),
        },
        LogEventKind::HeapStart,
        LogEventKind::HeapEnd,
        LogEventKind::RootRegister {
            start: Address(0x1000),
            size: 8,
            source: 250,
            key: CLASS,
            name: b"Thread Pinning",
        },
        LogEventKind::RootUnregister {
            start: Address(0x1000),
        },
        LogEventKind::NativeSymbol {
            start: Address(0x7fff_0000_0000),
            size: 0,
            name: b"memcpy",
        },
        LogEventKind::NativeBinary {
            start: Address(0x7fff_0000_0000),
            offset: 4096,
            size: 1 << 20,
            name: b"/lib/libc.so.6",
        },
        LogEventKind::CoverageAssembly {
            name: b"a",
            guid: b"guid",
            file: b"/a.exe",
            methods,
        },
        LogEventKind::CoverageMethod {
            assembly: b"a",
            class: b"C",
            name: b"m",
            signature: b"()",
            file: b"/a.cs",
            token: 0x0600_0001,
            id: 1,
            statements: 1,
        },
        LogEventKind::CoverageStatement {
            method: 1,
            offset: 5,
            count: u64::MAX,
            line: 200,
            column: 9,
        },
        LogEventKind::CoverageClass {
            assembly: b"a",
            name: b"C",
            methods,
        },
        LogEventKind::SyncPoint(2),
        LogEventKind::AotId(b"8F1B"),
    ]);
    kinds
}

/// Returns the time of the n-th event. Most times increase, some decrease.
fn time(at: usize) -> u64 {
    let at = at as u64;
    BASES.time + at * 1000 - if at % 5 == 4 { 70_000 } else { 0 }
}

#[test]
fn events_without_lists_are_read_in_each_version_as_they_were_written() {
    let mut most = 0;
    for version in 1..=17 {
        let mut writer = Writer::new(version);
        writer.buffer(BASES);
        let mut expected = Vec::new();
        for (at, kind) in plain_kinds(version).into_iter().enumerate() {
            if writer.kind(time(at), &kind) {
                expected.push((time(at), kind));
            }
        }
        let file = writer.finish();
        let found = events(&file);
        for (found, (time, kind)) in found.iter().zip(&expected) {
            assert_eq!(found.kind, *kind, "version {version}");
            let untimed = matches!(
                kind,
                LogEventKind::NativeSymbol { .. }
                    | LogEventKind::CoverageAssembly { .. }
                    | LogEventKind::CoverageMethod { .. }
                    | LogEventKind::CoverageStatement { .. }
                    | LogEventKind::CoverageClass { .. }
            );
            assert!(
                version < 13 && untimed || found.time.0 == *time,
                "version {version}: {kind:?}"
            );
            assert_eq!(found.thread, ThreadId(BASES.thread));
        }
        assert_eq!(found.len(), expected.len(), "version {version}");
        most = most.max(found.len());
    }
    assert_eq!(most, 80);
}

#[test]
fn events_with_lists_are_read_in_each_version_as_they_were_written() {
    for version in 1..=17 {
        let mut writer = Writer::new(version);
        writer.buffer(BASES);
        let mut expected = Vec::new();
        let mut expect = |exists: bool, text: String| {
            if exists {
                expected.push(text);
            }
        };
        let class = match version {
            15.. => TypeReference::VTable(CLASS),
            _ => TypeReference::Class(CLASS),
        };
        let all = format!("{FRAMES:?}");
        let later = |since| if version >= since { &all[..] } else { "[]" };

        writer.allocation(time(0), class, OBJECT, 24, &FRAMES);
        expect(
            true,
            format!("Allocation {{ class: {class:?}, object: {OBJECT:?}, size: 24, frames: {all} }}"),
        );
        let moved = ObjectMove {
            from: OBJECT,
            to: ManagedObject(8),
        };
        writer.moves(time(1), &[moved, moved]);
        expect(true, format!("Moves([{moved:?}, {moved:?}])"));
        let exists = writer.handle(time(2), (3, 77), Some(OBJECT), &FRAMES);
        expect(
            exists,
            format!(
                "HandleCreated {{ handle_type: 3, handle: 77, object: {OBJECT:?}, frames: {} }}",
                later(11)
            ),
        );
        let exists = writer.handle(time(3), (3, 77), None, &FRAMES);
        expect(
            exists,
            format!(
                "HandleDestroyed {{ handle_type: 3, handle: 77, frames: {} }}",
                later(11)
            ),
        );
        writer.throw(time(4), OBJECT, &FRAMES);
        expect(true, format!("Throw {{ object: {OBJECT:?}, frames: {all} }}"));
        for event in [MonitorEvent::Contention, MonitorEvent::Done, MonitorEvent::Fail] {
            writer.monitor(time(5), event, OBJECT, &FRAMES);
            let since = if event == MonitorEvent::Contention { 1 } else { 14 };
            expect(
                true,
                format!(
                    "Monitor {{ event: {event:?}, object: {OBJECT:?}, frames: {} }}",
                    later(since)
                ),
            );
        }
        let references = [8, 24, 400].map(|offset| ObjectReference {
            offset: (version >= 2).then_some(offset),
            object: OBJECT,
        });
        writer.heap_object(time(6), (OBJECT, class, 64), 1, &references);
        let generation = (version >= 16).then_some(1_u8);
        expect(
            true,
            format!(
                "HeapObject {{ object: {OBJECT:?}, class: {class:?}, size: 64, generation: {generation:?}, \
                 references: {references:?} }}"
            ),
        );
        let origin = match version {
            15.. => RootOrigin::Address(Address(0x1000)),
            _ => RootOrigin::Kind { kind: 5, extra: 900 },
        };
        let roots = [OBJECT, ManagedObject(16)].map(|object| Root { object, origin });
        let exists = writer.roots(time(7), 4, &roots);
        let collection = (version < 15).then_some(4_u64);
        expect(
            exists,
            format!("HeapRoots {{ collection: {collection:?}, roots: {roots:?} }}"),
        );
        let addresses = [Address(0x41), Address(u64::MAX)];
        let exists = writer.sample(time(8), ThreadId(0x7f12), &addresses, &FRAMES);
        let sample_type = (version < 14).then_some(1_u64);
        let thread = ThreadId(if version >= 11 { 0x7f12 } else { BASES.thread });
        expect(
            exists,
            format!(
                "SampleHit {{ sample_type: {sample_type:?}, thread: {thread:?}, addresses: {addresses:?}, \
                 frames: {} }}",
                later(6)
            ),
        );
        let description = |section, section_name| CounterDescription {
            section,
            section_name,
            name: b"Methods",
            value_type: 3,
            unit: 2,
            variance: 1,
            index: 300,
        };
        let counters = [description(1 << 15, b"mine"), description(1 << 8, b"")];
        let exists = writer.counter_descriptions(time(9), &counters);
        expect(exists, format!("CounterDescriptions({counters:?})"));
        let changes = [
            (CounterValue::Signed(-1), 0),
            (CounterValue::Unsigned(u64::MAX), 1),
            (CounterValue::Signed(i64::MIN), 2),
            (CounterValue::Signed(70), 3),
            (CounterValue::Unsigned(200), 4),
            (CounterValue::Double(0.5), 5),
            (CounterValue::Text(None), 6),
            (CounterValue::Text(Some(b"text")), 6),
            (CounterValue::Signed(i64::MAX), 7),
        ]
        .map(|(value, kind)| (CounterChange { index: 300, value }, kind));
        let exists = writer.counters(time(10), &changes);
        let milliseconds = (version < 13).then_some(time(10) / 1_000_000);
        let changes = changes.map(|(change, _)| change);
        expect(
            exists,
            format!("Counters {{ milliseconds: {milliseconds:?}, values: {changes:?} }}"),
        );
        writer.kind(time(11), &LogEventKind::Enter(FRAMES[0]));
        expect(true, format!("Enter({:?})", FRAMES[0]));

        let file = writer.finish();
        let found: Vec<_> = events(&file)
            .iter()
            .map(|event| format!("{:?}", event.kind))
            .collect();
        assert_eq!(found, expected, "version {version}");
    }
}

#[test]
fn headers_of_all_versions_are_read() {
    let old = Writer::new(1).finish();
    let header = LogHeader::parse(&old).unwrap();
    assert_eq!((header.major, header.data_version, header.port), (0, 1, None));
    assert_eq!((header.size, header.pid, header.startup_ns), (32, 4711, None));
    let later = Writer::new(12).finish();
    assert_eq!(LogHeader::parse(&later).unwrap().port, Some(12345));
    let newest = Writer::new(17).finish();
    let header = LogHeader::parse(&newest).unwrap();
    assert_eq!(header.startup_ns, Some(77));
    assert_eq!(
        (header.arguments, header.architecture, header.system),
        (&b"log:jit"[..], &b"x86-64"[..], &b"linux"[..])
    );
    for version in 1..=17 {
        let whole = Writer::new(version).finish();
        assert_eq!(LogHeader::parse(&whole).unwrap().size, whole.len());
        for cut in 1..whole.len() {
            let error = LogHeader::parse(&whole[..cut]).unwrap_err();
            assert_eq!(error.issue, Issue::MonoTooShort);
        }
    }
    assert_eq!(LogHeader::parse(b"").unwrap_err().issue, Issue::MonoEmpty);
}

#[test]
fn pointers_of_small_programs_stay_small() {
    let mut writer = Writer::new(13);
    writer.buffer(Bases {
        pointer: 0xffff_0000,
        ..Bases::default()
    });
    writer.kind(
        5,
        &LogEventKind::NativeSymbol {
            start: Address(0x1_0000_1000),
            size: 1,
            name: b"",
        },
    );
    let mut file = writer.finish();
    file[7] = 4;
    let LogEventKind::NativeSymbol { start, .. } = events(&file)[0].kind else {
        panic!("another event");
    };
    assert_eq!(start, Address(0x1000));
}
