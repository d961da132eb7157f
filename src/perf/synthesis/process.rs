//! Records that tell about processes and threads.

use crate::bytes::{ByteOrder, until_nul};
use crate::perf::record;
use crate::perf::synthesis::{Event, padded, put_padded, put_trailer};
use crate::units::{Pid, Tid, Time};

/// A thread.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Thread {
    /// Its process.
    pub pid: Pid,
    /// Itself.
    pub tid: Tid,
}

impl Thread {
    /// The first one of a process, which has the process' number.
    pub fn first_of(pid: Pid) -> Self {
        Self { pid, tid: Tid(pid.0) }
    }
}

/// A thread that is called something from now on. The first thread's name is the process' name.
#[derive(Clone, Copy, Debug)]
pub struct Comm<'a> {
    /// Which thread.
    pub thread: Thread,
    /// When.
    pub time: Time,
    /// What it is called. What is behind a NUL or [`Comm::LONGEST`] bytes is left out.
    pub name: &'a [u8],
    /// Whether it executes another program from now on, so that all of its maps are gone.
    pub is_exec: bool,
}

impl Comm<'_> {
    /// The longest name in bytes. A kernel's have 15 at most; readers take them as long as they come.
    pub const LONGEST: usize = 255;
}

/// A thread that starts or ends. One without a record that says so is shown by its number.
#[derive(Clone, Copy, Debug)]
pub struct Task {
    /// Which thread.
    pub thread: Thread,
    /// The one that started it: of the same process for a new thread, of another one for a new process.
    pub parent: Thread,
    /// When.
    pub time: Time,
}

/// Appends a COMM record.
pub fn put_comm(out: &mut Vec<u8>, order: ByteOrder, comm: &Comm<'_>, event: Event<'_>) {
    const FIXED: usize = record::HEADER_SIZE + 8;
    let name = until_nul(comm.name);
    let name = name.get(..Comm::LONGEST).unwrap_or(name);
    let name_size = padded(name.len(), 8);
    let misc = if comm.is_exec { record::MISC_COMM_EXEC } else { 0 };
    put_header(
        out,
        order,
        record::COMM,
        misc,
        FIXED.saturating_add(name_size),
        event,
    );
    order.put_u32(out, comm.thread.pid.0);
    order.put_u32(out, comm.thread.tid.0);
    put_padded(out, name, name_size);
    put_trailer(out, order, comm.thread, comm.time, event);
}

/// Appends a FORK record: the thread starts.
pub fn put_fork(out: &mut Vec<u8>, order: ByteOrder, task: &Task, event: Event<'_>) {
    // The kernel writes down who is running, which is the one that forks.
    put_task(out, order, record::FORK, task, task.parent, event);
}

/// Appends an EXIT record: the thread ends.
pub fn put_exit(out: &mut Vec<u8>, order: ByteOrder, task: &Task, event: Event<'_>) {
    put_task(out, order, record::EXIT, task, task.thread, event);
}

fn put_task(out: &mut Vec<u8>, order: ByteOrder, kind: u32, task: &Task, running: Thread, event: Event<'_>) {
    const SIZE: usize = record::HEADER_SIZE + 24;
    put_header(out, order, kind, 0, SIZE, event);
    for number in [
        task.thread.pid.0,
        task.parent.pid.0,
        task.thread.tid.0,
        task.parent.tid.0,
    ] {
        order.put_u32(out, number);
    }
    order.put_u64(out, task.time.0);
    put_trailer(out, order, running, task.time, event);
}

/// Appends the header of a record of `size` bytes and a trailer.
fn put_header(out: &mut Vec<u8>, order: ByteOrder, kind: u32, misc: u16, size: usize, event: Event<'_>) {
    let size = size.saturating_add(event.attr.trailer_size());
    record::put_header(out, order, kind, misc, u16::try_from(size).unwrap_or(u16::MAX));
}
