//! Mono logs with several heap shots, with symbols of native code, and with buffers that are not in the order of time.

use jitdump::Address;
use jitinject::internals::traces::mono::format::event::{
    LogEventKind, ManagedObject, Metadata, Method, MonitorEvent, Pointer, Stage, ThreadId, TypeReference,
};

use crate::support::mono_log::{Bases, Writer};
use crate::support::mono_sums::{alone, by_leaf, of, sum};
use crate::support::perf::Event;
use crate::support::reports::{inject_with_summary, only};
use crate::support::{diagnostics, scratch};

const CLASS: TypeReference = TypeReference::VTable(Pointer(0x9000));

fn bases(time: u64) -> Bases {
    Bases {
        time,
        thread: 0x7000,
        ..Bases::default()
    }
}

/// Writes a log with a heap shot for each list of sizes of objects.
fn shots(log: &mut Writer, shots: &[&[u64]]) {
    log.buffer(bases(1_000_000));
    for (number, sizes) in (0u64..).zip(shots) {
        let time = 1_000_000 + number * 1000;
        log.kind(time, &LogEventKind::HeapStart);
        for (at, &size) in (1u64..).zip(*sizes) {
            log.heap_object(time, (ManagedObject(0x8000 + 16 * at), CLASS, size), 0, &[]);
        }
        log.kind(time + 500, &LogEventKind::HeapEnd);
    }
}

fn outermost(event: &Event) -> &str {
    &event.frames.last().unwrap().symbol
}

#[test]
fn heap_shots_are_not_added_up() {
    let folder = scratch();
    let path = folder.path().join("shots.mlpd");
    let mut log = Writer::new(17);
    shots(&mut log, &[&[16, 32], &[16, 32, 64], &[16]]);
    std::fs::write(&path, log.finish()).unwrap();
    for more in [&[][..], &["--events", "heap"]] {
        let shown = alone(&path, more);
        let objects = of(&shown, "heap-bytes");
        assert_eq!(sum(&objects), (16, 1));
        assert_eq!(outermost(objects[0]), "[heap shot 3]");
        let (_, summary) = inject_with_summary(&path, &folder.path().join("out.data"), more);
        assert_eq!(only(&summary, "JI088")["count"], 1);
    }
    let shown = alone(&path, &["--events", "heap-shots"]);
    let objects = of(&shown, "heap-bytes");
    let bytes = |name| {
        let of_shot = objects.iter().filter(|event| outermost(event) == name);
        of_shot.map(|event| event.period).sum::<u64>()
    };
    let shots = ["[heap shot 1]", "[heap shot 2]", "[heap shot 3]"].map(bytes);
    assert_eq!(shots, [48, 112, 16]);
    let (_, summary) = inject_with_summary(
        &path,
        &folder.path().join("out.data"),
        &["--events", "heap-shots"],
    );
    assert!(diagnostics(&summary, "JI088").is_empty());
}

#[test]
fn the_only_heap_shot_has_no_frame_of_its_own() {
    let folder = scratch();
    let path = folder.path().join("shots.mlpd");
    let mut log = Writer::new(17);
    shots(&mut log, &[&[16, 32]]);
    std::fs::write(&path, log.finish()).unwrap();
    let shown = alone(&path, &[]);
    let objects = of(&shown, "heap-bytes");
    assert_eq!(sum(&objects), (48, 2));
    assert!(objects.iter().all(|event| event.frames.len() == 1));
}

#[test]
fn native_samples_get_the_names_that_the_log_has() {
    let folder = scratch();
    let path = folder.path().join("native.mlpd");
    let mut log = Writer::new(17);
    log.buffer(bases(1_000_000));
    let hit = |log: &mut Writer, time, address| {
        log.sample(time, ThreadId(0x7000), &[Address(address)], &[]);
    };
    for (number, address) in (0u64..).zip([0x5000, 0x50ff, 0x5100, 0x60ff, 0x6100]) {
        hit(&mut log, 1_000_000 + number, address);
    }
    for (start, name) in [(0x5100, &b"read"[..]), (0x5000, b"poll")] {
        let start = Address(start);
        log.kind(1_000_100, &LogEventKind::NativeSymbol { start, size: 0, name });
    }
    std::fs::write(&path, log.finish()).unwrap();
    let shown = alone(&path, &[]);
    let names = by_leaf(&of(&shown, "sample"));
    let count = |name: &str| names.get(name).map(|&(_, count)| count);
    // The last symbol has no size, and ends after 4 KiB.
    assert_eq!((count("poll"), count("read")), (Some(2), Some(2)), "{names:?}");
}

/// Mono gives the ID of a thread that has ended to another one, and logs samples in the buffers of its sampler, which come
/// later.
#[test]
fn a_sample_of_an_earlier_thread_with_the_same_id_ends_no_wait() {
    let folder = scratch();
    let path = folder.path().join("reused.mlpd");
    let mut log = Writer::new(17);
    let thread = |log: &mut Writer, time, stage| {
        let thread = ThreadId(0x7000);
        let subject = Metadata::Thread { thread, name: b"" };
        log.kind(time, &LogEventKind::Metadata { stage, subject });
    };
    for (start, object) in [(1_000_000, 0x10), (2_000_000, 0x20)] {
        log.buffer(bases(start));
        thread(&mut log, start, Stage::LoadEnd);
        log.monitor(start + 1000, MonitorEvent::Contention, ManagedObject(object), &[]);
        log.monitor(start + 5000, MonitorEvent::Done, ManagedObject(object), &[]);
        thread(&mut log, start + 6000, Stage::UnloadEnd);
    }
    log.buffer(Bases {
        thread: 0x8000,
        ..bases(1_000_000)
    });
    log.sample(1_003_000, ThreadId(0x7000), &[Address(0x5000)], &[]);
    std::fs::write(&path, log.finish()).unwrap();
    let shown = alone(&path, &["--events", "contention"]);
    assert_eq!(sum(&of(&shown, "contention-ns")), (8000, 2));
}

/// A method runs for 100 ms in the second buffer of the file, which is the first in time.
#[test]
fn buffers_of_a_thread_are_used_in_the_order_of_time() {
    let folder = scratch();
    let path = folder.path().join("order.mlpd");
    let mut log = Writer::new(17);
    let method = Method(0x5000);
    log.buffer(bases(200_000_000));
    let jit = LogEventKind::Jit {
        method,
        code: Address(0x4000_0000),
        size: 0x80,
        name: b"Some:Method ()",
    };
    log.kind(200_000_000, &jit);
    log.monitor(200_000_001, MonitorEvent::Contention, ManagedObject(0x8000), &[]);
    log.buffer(bases(50_000_000));
    log.kind(50_000_000, &LogEventKind::Enter(method));
    log.kind(150_000_000, &LogEventKind::Leave(method));
    std::fs::write(&path, log.finish()).unwrap();
    let shown = alone(&path, &["--events", "calls"]);
    let (time, _) = sum(&of(&shown, "self-ns"));
    assert_eq!(time, 100_000_000);
    let (_, summary) = inject_with_summary(&path, &folder.path().join("out.data"), &[]);
    assert_eq!(only(&summary, "JI089")["count"], 1);
}

fn stack(event: &Event) -> Vec<&str> {
    event.symbols()
}

/// Writes a log with two named methods at 0x4000_0000 and 0x4000_1000; `write` writes its events from time 2,000,000 on.
fn log_with_methods(version: u8, write: impl FnOnce(&mut Writer)) -> Vec<u8> {
    let mut log = Writer::new(version);
    log.buffer(bases(1_000_000));
    for (method, name) in [(0x5000, &b"Some:Outer ()"[..]), (0x5008, b"Some:Inner ()")] {
        let jit = LogEventKind::Jit {
            method: Method(method),
            code: Address(0x4000_0000 + (method - 0x5000) * 0x200),
            size: 0x80,
            name,
        };
        log.kind(1_000_000, &jit);
    }
    write(&mut log);
    log.finish()
}

#[test]
fn locks_and_failed_waits_are_frames() {
    let folder = scratch();
    let path = folder.path().join("locks.mlpd");
    let log = log_with_methods(17, |log| {
        let frames = [Method(0x5000)];
        for (time, lock, end) in [
            (2_000_000, 0x8000, MonitorEvent::Done),
            (3_000_000, 0x8010, MonitorEvent::Fail),
        ] {
            log.monitor(time, MonitorEvent::Contention, ManagedObject(lock), &frames);
            log.monitor(time + 700, end, ManagedObject(lock), &[]);
        }
    });
    std::fs::write(&path, log).unwrap();
    let shown = alone(&path, &["--events", "contention"]);
    let waits = of(&shown, "contention-ns");
    assert_eq!(sum(&waits), (1400, 2));
    assert_eq!(stack(waits[0]), ["[lock 0x8000]", "Some:Outer ()"]);
    assert_eq!(stack(waits[1]), ["[failed]", "[lock 0x8010]", "Some:Outer ()"]);
}

#[test]
fn return_addresses_are_callers_where_there_are_no_managed_frames() {
    let folder = scratch();
    let path = folder.path().join("samples.mlpd");
    let addresses = [Address(0x4000_1008), Address(0x4000_0010)];
    let log = log_with_methods(17, |log| {
        log.sample(2_000_000, ThreadId(0x7000), &addresses, &[]);
        log.sample(2_000_100, ThreadId(0x7000), &addresses, &[Method(0x5008)]);
    });
    std::fs::write(&path, log).unwrap();
    let shown = alone(&path, &["--events", "sample"]);
    let samples = of(&shown, "sample");
    assert_eq!(stack(samples[0]), ["Some:Inner ()", "Some:Outer ()"]);
    assert_eq!(stack(samples[1]), ["Some:Inner ()"]);
}

/// The document has a stack after contention alone. A flag at another event is followed by none.
#[test]
fn old_logs_have_stacks_of_contention_alone() {
    let mut log = log_with_methods(12, |log| {
        let frames = [Method(0x5000)];
        log.monitor(
            2_000_000,
            MonitorEvent::Contention,
            ManagedObject(0x8000),
            &frames,
        );
        log.monitor(2_000_700, MonitorEvent::Done, ManagedObject(0x8000), &[]);
    });
    const DONE: u8 = 0x25;
    let at = log.iter().rposition(|&byte| byte == DONE).unwrap();
    log[at] |= 0x80;
    let read = jitinject::internals::traces::mono::format::Log::parse(&log).unwrap();
    let events = read.events().filter_map(|event| match event.kind {
        LogEventKind::Monitor { event, frames, .. } => Some((event, frames.iter().count())),
        _ => None,
    });
    let expected = [(MonitorEvent::Contention, 1), (MonitorEvent::Done, 0)];
    assert_eq!(events.collect::<Vec<_>>(), expected);
}

#[test]
fn samples_of_a_log_are_of_no_processor() {
    /// Offset of the CPU in a sample, after its header, ID, address, process and time.
    const CPU: usize = 40;
    const SAMPLE: u32 = 9;
    let folder = scratch();
    let path = folder.path().join("samples.mlpd");
    let log = log_with_methods(17, |log| {
        for at in 0..3 {
            log.sample(2_000_000 + at, ThreadId(0x7000), &[Address(0x4000_0008)], &[]);
        }
    });
    std::fs::write(&path, log).unwrap();
    let output = crate::support::inject_into(folder.path(), &path, &[]);
    let profile = std::fs::read(output).unwrap();
    let u32_at = |at: usize| u32::from_le_bytes(profile[at..at + 4].try_into().unwrap());
    let u64_at = |at: usize| u64::from_le_bytes(profile[at..at + 8].try_into().unwrap()) as usize;
    // Offset and size of the records.
    let (mut at, size) = (u64_at(40), u64_at(48));
    let end = at + size;
    let mut cpus = Vec::new();
    while at < end {
        if u32_at(at) == SAMPLE {
            cpus.push(u32_at(at + CPU));
        }
        at += usize::from(u16::from_le_bytes(profile[at + 6..at + 8].try_into().unwrap()));
    }
    assert_eq!(cpus, [u32::MAX; 3]);
}
