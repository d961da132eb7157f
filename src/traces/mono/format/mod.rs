//! Reads the files of Mono's log profiler (`.mlpd`), which record the events of a program that runs on Mono.
//!
//! ```text
//! header ── buffer ── buffer ── buffer ──  …      optionally as one gzip stream  [packed]
//! [header]  [log]: a thread's events  [event], decoded in [decode], with lists in [list]
//!           JIT, JITHELPER ─► functions       [code] ┐
//!           METADATA ─► names of classes      [names]┴ [index]: first pass
//!           all others: second pass, which uses the index
//! ```
//!
//! The format is described in a comment in Mono's `mono/profiler/log.h` (`proflog.c` at first). This module
//! reads all data versions, 1 to 17, from November 2010 on. Where the comment is incomplete, Mono's own
//! reader, mprof-report, is the reference.

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

pub use code::{LogCode, LoggedFunction};
pub use event::{LogEvent, LogEventKind, ManagedObject, Method, Pointer, ThreadId};
pub use header::LogHeader;
pub use index::LogIndex;
pub use log::{Log, LogBuffer};
pub use names::LogNames;
