//! Logs and traces with one fault each, and the rules that they break.

use jitdump::{Address, ByteOrder, RuntimeTime};
use jitinject::internals::traces::mono::format::event::{
    CodeBufferKind, CollectionPhase, LogEventKind, ManagedObject, Method, MonitorEvent, Pointer, ThreadId,
    TypeReference,
};
use jitinject::internals::traces::mono::format::{LogEvent, packed};
use jitinject::internals::traces::xray::format::{RecordKind, TraceMode};

use crate::check_made::{TestFile, set_u64, test_file};
use crate::support::mono_log;
use crate::support::xray_trace::{Buffer, Record, Writer};

const ORDER: ByteOrder = ByteOrder::Little;

/// Returns a log with a method that is compiled, named and called.
fn clean_log() -> mono_log::Writer {
    let mut log = mono_log::Writer::new(17);
    log.buffer(mono_log::Bases {
        time: 1000,
        thread: 1,
        ..mono_log::Bases::default()
    });
    let code = Address(0x4000);
    for (time, kind) in [
        (
            1010,
            LogEventKind::CodeBuffer {
                kind: CodeBufferKind::Method,
                start: code,
                size: 64,
                name: b"",
            },
        ),
        (
            1020,
            LogEventKind::Jit {
                method: Method(8),
                code,
                size: 64,
                name: b"Work:Go ()",
            },
        ),
        (1030, LogEventKind::Enter(Method(8))),
        (1040, LogEventKind::Leave(Method(8))),
    ] {
        write_event(&mut log, time, kind);
    }
    log
}

/// Writes an event of thread 1.
fn write_event(log: &mut mono_log::Writer, time: u64, kind: LogEventKind<'_>) {
    assert!(log.event(&LogEvent {
        time: RuntimeTime(time),
        thread: ThreadId(1),
        offset: 0,
        kind,
    }));
}

/// Returns a log with an additional event.
fn log_with(rules: &[&'static str], time: u64, kind: LogEventKind<'_>) -> TestFile {
    let mut log = clean_log();
    write_event(&mut log, time, kind);
    test_file(rules, "app.mlpd", log.finish())
}

/// Returns a log with additional events, and a second named method.
fn log_with_all(rules: &[&'static str], kinds: &[LogEventKind<'static>]) -> TestFile {
    let mut log = clean_log();
    let second = LogEventKind::Jit {
        method: Method(9),
        code: Address(0x5000),
        size: 64,
        name: b"Work:More ()",
    };
    for (time, &kind) in (1050..).step_by(10).zip([second].iter().chain(kinds)) {
        write_event(&mut log, time, kind);
    }
    test_file(rules, "app.mlpd", log.finish())
}

/// Returns a log with more buffers at these times, with an event in each.
fn log_with_buffers(rules: &[&'static str], times: &[u64]) -> TestFile {
    let mut log = clean_log();
    for &time in times {
        log.buffer(mono_log::Bases {
            time,
            thread: 1,
            ..mono_log::Bases::default()
        });
        write_event(&mut log, time, LogEventKind::FinalizeStart);
    }
    test_file(rules, "app.mlpd", log.finish())
}

/// Returns an event of a lock.
fn wait(event: MonitorEvent) -> LogEventKind<'static> {
    LogEventKind::Monitor {
        event,
        object: ManagedObject(0x1000),
        frames: jitinject::internals::traces::mono::format::list::MethodFrames::NONE,
    }
}

/// Returns a log with a second buffer of these bytes.
pub fn log_with_content(rules: &[&'static str], content: &[u8]) -> TestFile {
    let mut file = clean_log().finish();
    file.extend(b"\x01LPM");
    file.extend((content.len() as u32).to_le_bytes());
    file.extend([0; 40]);
    file.extend(content);
    test_file(rules, "app.mlpd", file)
}

/// Returns the decompressed content of a log, with the faults of decompression.
fn packed_log(rules: &[&'static str], packed: &[u8]) -> TestFile {
    let mut file = Vec::new();
    let unpacked = packed::unpack(packed, packed::max_unpacked_size(packed.len() as u64), &mut file).unwrap();
    TestFile {
        unpacking: unpacked.faults,
        ..test_file(rules, "app.mlpd", file)
    }
}

/// Compresses bytes.
fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    std::io::Write::write_all(&mut encoder, bytes).unwrap();
    encoder.finish().unwrap()
}

/// Returns a log for each rule that no recording breaks, and others.
pub fn logs() -> Vec<TestFile> {
    let clean = clean_log().finish();
    let without_process = {
        let mut file = clean.clone();
        file[32..36].fill(0);
        file
    };
    let long_number = {
        let mut number = Vec::new();
        mono_log::unsigned(&mut number, u64::MAX >> 1);
        number
    };
    let torn = {
        let mut packed = gzip(&clean);
        let end = packed.len() - 4;
        packed[end - 4] ^= 0xff;
        packed
    };
    let bomb = [&clean[..], b"\x01LPM\0\0\0\x3f", &vec![0; 80 << 20]].concat();
    let allocation = LogEventKind::Allocation {
        class: TypeReference::VTable(Pointer(0x900)),
        object: ManagedObject(0x1000),
        size: 16,
        frames: jitinject::internals::traces::mono::format::list::MethodFrames::NONE,
    };
    vec![
        test_file(&[], "app.mlpd", clean.clone()),
        test_file(&["ML001"], "app.mlpd", Vec::new()),
        test_file(&["ML006"], "app.mlpd", without_process),
        log_with_content(&["ML010"], &[0xc1, 0]),
        log_with_content(&["ML011"], &[0x23, 0x80]),
        log_with_content(&["ML012"], &[&[0x31, 0][..], &long_number].concat()),
        log_with_content(&["ML013"], &[0x02, 0, 5, 0, b'n', b'a']),
        log_with_content(&["ML014"], &[&[0x23][..], &[0x80; 10], &[1]].concat()),
        log_with_content(&["ML015"], &[0x47, 0, 1, 9, 0, 0]),
        packed_log(&["ML019"], &torn),
        // Zeros are objects of unknown types.
        packed_log(&["ML018", "ML022", "ML035"], &gzip(&bomb)),
        packed_log(
            &["ML016", "ML021"],
            &gzip(&[&clean[..], &vec![0; 4 << 20]].concat()),
        ),
        packed_log(&["ML023"], &[gzip(&clean), b"more".to_vec()].concat()),
        log_with(&["ML030"], 1005, LogEventKind::Enter(Method(8))),
        log_with(&["ML035"], 1050, allocation),
        log_with(&["ML036"], 1050, LogEventKind::Enter(Method(16))),
        log_with(&["ML037"], 1050, LogEventKind::Leave(Method(8))),
        log_with_buffers(&["ML038"], &[3000, 2000]),
        log_with(
            &["ML039"],
            1050,
            LogEventKind::NativeSymbol {
                start: Address(0x9000),
                size: 1,
                name: b"\xff",
            },
        ),
        log_with(
            &["ML040"],
            1050,
            LogEventKind::Collection {
                phase: CollectionPhase::Other(99),
                generation: 0,
            },
        ),
        log_with_all(
            &["ML041"],
            &[
                LogEventKind::Enter(Method(8)),
                LogEventKind::Enter(Method(9)),
                LogEventKind::Leave(Method(8)),
            ],
        ),
        log_with(
            &["ML042"],
            1050,
            LogEventKind::Collection {
                phase: CollectionPhase::End,
                generation: 0,
            },
        ),
        log_with_all(
            &["ML042"],
            &[wait(MonitorEvent::Contention), wait(MonitorEvent::Contention)],
        ),
        log_with_all(&[], &[wait(MonitorEvent::Contention), wait(MonitorEvent::Fail)]),
        log_with_content(&["ML043"], &[0x47, 0, 1, 0, 2, 0]),
        test_file(&["ML035"], "app.mlpd", {
            let mut log = clean_log();
            let class = TypeReference::VTable(Pointer(0x900));
            log.heap_object(1050, (ManagedObject(0x1000), class, 16), 0, &[]);
            log.finish()
        }),
    ]
}

/// Returns a trace that breaks no rule, with records of one thread, and the offsets of the records.
fn trace(mode: TraceMode, version: u16, records: &[RecordKind<'static>]) -> (Vec<u8>, Vec<u64>) {
    let mut writer = Writer::new(mode, version, ORDER, 4096);
    let records = (100..).step_by(10).zip(records);
    let offsets = writer.buffer(&Buffer {
        process: 1,
        thread: 2,
        wall: (1, 0),
        records: records
            .map(|(tick, &kind)| Record { tick, cpu: 0, kind })
            .collect(),
    });
    let mut file = writer.finish();
    file[4..8].copy_from_slice(&3_u32.to_le_bytes());
    set_u64(&mut file, 8, 2_400_000_000);
    (file, offsets)
}

/// Returns a trace of the flight data recorder.
fn trace_of(rules: &[&'static str], records: &[RecordKind<'static>]) -> TestFile {
    test_file(rules, "xray-log.app", trace(TraceMode::Fdr, 5, records).0)
}

/// Returns a trace for each rule that no recording breaks, and others.
pub fn traces() -> Vec<TestFile> {
    const ENTER: RecordKind<'_> = RecordKind::Enter { function: 5 };
    const EXIT: RecordKind<'_> = RecordKind::Exit { function: 5 };
    const EVENT: RecordKind<'_> = RecordKind::Custom { payload: b"12345678" };
    const TYPED: RecordKind<'_> = RecordKind::Typed {
        kind: 1,
        payload: b"12345678",
    };
    let damaged = |rules: &[&'static str], change: &dyn Fn(&mut Vec<u8>, &[u64])| {
        let (mut file, offsets) = trace(TraceMode::Fdr, 5, &[ENTER, EVENT, EXIT]);
        change(&mut file, &offsets);
        test_file(rules, "xray-log.app", file)
    };
    let event_size = |value: u32| {
        move |file: &mut Vec<u8>, offsets: &[u64]| ORDER.set_u32(file, offsets[1] as usize + 1, value)
    };
    vec![
        trace_of(&[], &[ENTER, EVENT, EXIT]),
        test_file(&["XR001"], "xray-log.app", Vec::new()),
        test_file(&["XR002"], "xray-log.app", vec![5, 0, 1, 0, 3, 0, 0, 0]),
        damaged(&["XR003"], &|file, _| file[0] = 6),
        // An unknown action in place of the exit.
        damaged(&["XR011"], &|file, offsets| file[offsets[2] as usize] = 4 << 1),
        damaged(&["XR012"], &event_size(1 << 30)),
        damaged(&["XR013"], &event_size(u32::MAX)),
        damaged(&["XR014"], &|file, offsets| {
            // The event's time is a signed difference.
            ORDER.set_u32(file, offsets[1] as usize + 5, (-50_i32) as u32);
        }),
        damaged(&["XR015"], &|file, offsets| {
            // The tick of the buffer, in the record before the first one.
            set_u64(file, offsets[0] as usize - 13, u64::MAX);
            file[offsets[0] as usize + 4] = 9;
        }),
        damaged(&["XR007", "XR019"], &|file, _| file[32 + 64] = 0),
        damaged(&["XR020"], &|file, _| file[32 + 32] = 9 << 1 | 1),
        trace_of(&["XR030"], &[ENTER, RecordKind::Enter { function: 6 }, EXIT]),
        trace_of(&["XR031"], &[ENTER, EXIT, EXIT]),
        // Missing bytes cannot be detected, but LLVM always writes such buffers without them.
        trace_of(&["XR016", "XR034"], &[ENTER, TYPED, EXIT]),
        test_file(
            &["XR032", "XR034"],
            "xray-log.app",
            trace(TraceMode::Fdr, 4, &[ENTER, TYPED, EXIT]).0,
        ),
        test_file(&["XR008", "XR023"], "xray-log.app", {
            let (mut file, offsets) = trace(TraceMode::Fdr, 1, &[ENTER, EXIT]);
            file[offsets[1] as usize + 8..].fill(0);
            file
        }),
        test_file(&["XR024"], "xray-log.app", {
            let (mut file, _) = trace(TraceMode::Fdr, 5, &[ENTER, EXIT]);
            file.extend(file.clone());
            file
        }),
        damaged(&["XR025"], &|file, _| {
            // The microseconds after the seconds of the second record of the buffer.
            ORDER.set_u32(file, 32 + 32 + 9, 1_000_000);
        }),
        test_file(
            &["XR008", "XR036"],
            "xray-log.app",
            trace(TraceMode::Fdr, 2, &[ENTER, EVENT, EXIT]).0,
        ),
        trace_of(
            &["XR037"],
            &[
                RecordKind::Enter { function: 0 },
                RecordKind::Exit { function: 0 },
            ],
        ),
        trace_of(&["XR033"], &[ENTER, RecordKind::Custom { payload: b"" }, EXIT]),
        trace_of(&["XR035"], &[ENTER, EXIT, RecordKind::Argument(1)]),
        trace_of(
            &[],
            &[ENTER, RecordKind::Argument(1), RecordKind::Argument(2), EXIT],
        ),
        test_file(
            &["XR035"],
            "xray-log.app",
            trace(TraceMode::Basic, 3, &[ENTER, EXIT, RecordKind::Argument(1)]).0,
        ),
        test_file(
            &[],
            "xray-log.app",
            trace(TraceMode::Basic, 3, &[ENTER, RecordKind::Argument(1), EXIT]).0,
        ),
        test_file(
            &[],
            "xray-log.app",
            trace(
                TraceMode::Basic,
                3,
                &[
                    RecordKind::EnterWithArguments { function: 5 },
                    RecordKind::Argument(1),
                    EXIT,
                ],
            )
            .0,
        ),
    ]
}
