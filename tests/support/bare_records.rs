//! A profile as another program than perf may write it: its attribute promises a trailer at the end of each record of the
//! kernel's, and some records have none. With a log of Mono's profiler, to add events.

use jitinject::bytes::ByteOrder;
use jitinject::runtime::mono::event::{Kind, Method, Object};
use jitinject::units::Address;

use super::mono_log::{Bases, Writer};
use super::profile::{ProfileWriter, field};

pub const SWITCH: u32 = 14;
pub const MMAP2: u32 = 10;
/// Process and thread, time, processor; the id comes with identifiers only.
pub const TRAILER: usize = 3 * 8;

/// The process that the log's header has.
const PID: u32 = 4711;
const CODE: u64 = 0x4000_0000;

/// A profile of so many events, with identifiers if there are several or it `has_ids`: ten samples, a SWITCH record before
/// each, and the map of a file whose name ends where its record does.
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

/// A log of the process, with an exception in a method of its own.
pub fn log() -> Vec<u8> {
    let mut log = Writer::new(17);
    log.buffer(Bases {
        time: 1000,
        thread: 0x7000,
        ..Bases::default()
    });
    let method = Method(0x5000);
    let kind = Kind::Jit {
        method,
        code: Address(CODE),
        size: 0x80,
        name: b"Some.Class:Of ()",
    };
    log.kind(1000, &kind);
    log.throw(1500, Object(0x8000), &[method]);
    log.finish()
}
