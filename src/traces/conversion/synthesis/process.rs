//! Records about processes and threads.

use jitdump::{ByteOrder, Time};

use crate::bytes::{until_nul, write_padded};
use crate::perf::process_records::MAX_THREAD_NAME;
use crate::perf::record;
use crate::perf::synthetic::{RecordEvent, SyntheticThread, padded, write_header, write_trailer};

/// A new name of a thread. The name of the first thread is that of the process.
#[derive(Clone, Copy, Debug)]
pub struct Comm<'a> {
    /// The thread.
    pub thread: SyntheticThread,
    /// Time of the change.
    pub time: Time,
    /// The name. It ends at a NUL and after [`MAX_THREAD_NAME`] bytes.
    pub name: &'a [u8],
    /// Whether the process executes another program, which removes all its mappings.
    pub is_exec: bool,
}

/// The start of a thread. Readers show threads without such a record by TID.
#[derive(Clone, Copy, Debug)]
pub struct ThreadStart {
    /// The thread.
    pub thread: SyntheticThread,
    /// The thread that started it: of the same process for a new thread, of another one for a new process.
    pub parent: SyntheticThread,
    /// Time of the start.
    pub time: Time,
}

/// Appends a COMM record.
pub fn write_comm(out: &mut Vec<u8>, endian: ByteOrder, comm: &Comm<'_>, event: RecordEvent<'_>) {
    const FIXED: usize = record::HEADER_SIZE + 8;
    let name = until_nul(comm.name);
    let name = name.get(..MAX_THREAD_NAME).unwrap_or(name);
    let name_size = padded(name.len(), 8);
    let misc = if comm.is_exec { record::MISC_COMM_EXEC } else { 0 };
    let size = FIXED.saturating_add(name_size);
    write_header(out, endian, record::COMM, misc, size, event);
    endian.write_u32(out, comm.thread.pid.0);
    endian.write_u32(out, comm.thread.tid.0);
    write_padded(out, name, name_size);
    write_trailer(out, endian, comm.thread, comm.time, event);
}

/// Appends a FORK record: the start of a thread.
pub fn write_fork(out: &mut Vec<u8>, endian: ByteOrder, start: &ThreadStart, event: RecordEvent<'_>) {
    const SIZE: usize = record::HEADER_SIZE + 24;
    write_header(out, endian, record::FORK, 0, SIZE, event);
    let ThreadStart { thread, parent, time } = *start;
    for id in [thread.pid.0, parent.pid.0, thread.tid.0, parent.tid.0] {
        endian.write_u32(out, id);
    }
    endian.write_u64(out, time.0);
    // The kernel records the running thread, which is the parent.
    write_trailer(out, endian, parent, time, event);
}
