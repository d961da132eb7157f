//! The files of Mono's log profiler (`.mlpd`): what a program on Mono did, event by event.
//!
//! ```text
//! header ── buffer ── buffer ── buffer ──  …      or all of it in one gzip stream  [packed]
//! [header]  [log]: a thread's events  [event], decoded in [decode], with lists in [list]
//!           JIT, JITHELPER ─► functions and code events  [code] ┐
//!           METADATA ─► names of classes, threads, …     [names]┴ [index]: a first walk
//!           all others: in a second walk, with the index at hand
//! ```
//!
//! The format is that of the comment in Mono's `mono/profiler/log.h` (`proflog.c` at first), from November 2010 on,
//! in all its data versions, 1 to 17. mprof-report, Mono's own reader, tells what the comment leaves out.

pub mod code;
mod cursor;
mod decode;
pub mod event;
pub mod header;
pub mod index;
pub mod list;
pub mod log;
pub mod names;
pub mod packed;

pub use code::{Code, Function};
pub use event::{Event, Kind, Method, Object, Pointer, ThreadId};
pub use header::{Error, Header};
pub use index::Index;
pub use log::{Buffer, Fault, Log};
pub use names::Names;
