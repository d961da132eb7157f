//! Mono logs with several heap shots, with symbols of native code, and with buffers that are not in the order of time.

use jitdump::Address;
use jitinject::internals::traces::mono::format::event::{
    Kind, Method, MonitorEvent, Object, Pointer, ThreadId, TypeReference,
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
        log.kind(time, &Kind::HeapStart);
        for (at, &size) in (1u64..).zip(*sizes) {
            log.heap_object(time, (Object(0x8000 + 16 * at), CLASS, size), 0, &[]);
        }
        log.kind(time + 500, &Kind::HeapEnd);
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
    for (number, address) in (0u64..).zip([0x5000, 0x50ff, 0x5100, 0x8000]) {
        hit(&mut log, 1_000_000 + number, address);
    }
    for (start, name) in [(0x5100, &b"read"[..]), (0x5000, b"poll")] {
        let start = Address(start);
        log.kind(1_000_100, &Kind::NativeSymbol { start, size: 0, name });
    }
    std::fs::write(&path, log.finish()).unwrap();
    let shown = alone(&path, &[]);
    let names = by_leaf(&of(&shown, "sample"));
    let count = |name: &str| names.get(name).map(|&(_, count)| count);
    assert_eq!((count("poll"), count("read")), (Some(2), Some(1)), "{names:?}");
}

/// A method runs for 100 ms in the second buffer of the file, which is the first in time.
#[test]
fn buffers_of_a_thread_are_used_in_the_order_of_time() {
    let folder = scratch();
    let path = folder.path().join("order.mlpd");
    let mut log = Writer::new(17);
    let method = Method(0x5000);
    log.buffer(bases(200_000_000));
    let jit = Kind::Jit {
        method,
        code: Address(0x4000_0000),
        size: 0x80,
        name: b"Some:Method ()",
    };
    log.kind(200_000_000, &jit);
    log.monitor(200_000_001, MonitorEvent::Contention, Object(0x8000), &[]);
    log.buffer(bases(50_000_000));
    log.kind(50_000_000, &Kind::Enter(method));
    log.kind(150_000_000, &Kind::Leave(method));
    std::fs::write(&path, log.finish()).unwrap();
    let shown = alone(&path, &["--events", "calls"]);
    let (time, _) = sum(&of(&shown, "self-ns"));
    assert_eq!(time, 100_000_000);
    let (_, summary) = inject_with_summary(&path, &folder.path().join("out.data"), &[]);
    assert_eq!(only(&summary, "JI089")["count"], 1);
}
