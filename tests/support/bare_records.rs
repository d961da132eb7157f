//! A profile that not perf, but another program may write: its attribute promises a trailer at the end of each
//! kernel record, but some records have none. Includes a log of Mono's profiler, to add events from.

use jitdump::{Address, ByteOrder};
use jitinject::internals::traces::mono::format::event::{LogEventKind, ManagedObject, Method};

use super::mono_log::{Bases, Writer};
use super::profile::{ProfileWriter, field};

pub const SWITCH: u32 = 14;
pub const MMAP2: u32 = 10;
/// Size of PID and TID, time and CPU; the ID is only present in profiles with identifiers.
pub const TRAILER: usize = 3 * 8;

/// PID in the header of the log.
const PID: u32 = 4711;
const CODE: u64 = 0x4000_0000;

/// Returns a profile with a number of events, with identifiers if there are several or `has_ids` is set. It has
/// ten samples, a SWITCH record before each, and the mapping of a file whose name ends at the end of its record.
pub fn profile(events: usize, has_ids: bool) -> ProfileWriter {
    let mut profile = ProfileWriter::new(ByteOrder::Little);
    if has_ids || events > 1 {
        profile.sample_type |= field::IDENTIFIER;
        profile.ids = (77..).take(events).collect();
    }
    profile.comm(PID, "mono", true, 100);
    profile.has_trailer = false;
    profile.mmap2(
        PID,
        0x7000_0000,
        0x1000,
        0,
        "/usr/lib/libsomewhere.so.1234567",
        200,
    );
    profile.has_trailer = true;
    profile.mmap2(PID, CODE, 0x1000, 0, "//anon", 300);
    for time in 0..10 {
        profile.record(SWITCH, 0, &[]);
        profile.sample(PID, 2000 + time, &[CODE + 4], None);
    }
    profile
}

/// Returns a log of the process, with an exception in a method of its own.
pub fn log() -> Vec<u8> {
    let mut log = Writer::new(17);
    log.buffer(Bases {
        time: 1000,
        thread: 0x7000,
        ..Bases::default()
    });
    let method = Method(0x5000);
    let kind = LogEventKind::Jit {
        method,
        code: Address(CODE),
        size: 0x80,
        name: b"Some.Class:Of ()",
    };
    log.kind(1000, &kind);
    log.throw(1500, ManagedObject(0x8000), &[method]);
    log.finish()
}
