//! Finds the function, source line and inlined calls at an address and time, while jitdumps are still written.
//!
//! For profilers that need names for addresses of a running process. [`Process`] finds the jitdumps of a
//! process by its mappings; [`Jitdump`] is one file, of a process that runs or has ended.
//!
//! ```text
//! jitdump ─► update(): records since the last call ─► index: functions, and their addresses over time
//!                          function_at(address, time) ──┘ ─► Function
//!                          symbol(function), frames(function, address) ─► names and lines, read from the file
//! ```
//!
//! An update reads only what is new. A record whose end is not written yet waits for the next update. Memory holds the
//! index, about 100 bytes per function: names, code and line tables are read from the file when they are asked for,
//! and not kept. Callers that resolve an address often should keep its frames.
//!
//! Nothing here panics or blocks on what a file contains. Damaged records are skipped and counted as in
//! [`Dump`](crate::Dump).
//!
//! In V8's optimized code, a line may be that of an inlined function, which is not named: that takes the scripts (feature `v8`).
//!
//! Times are the file's: CLOCK_MONOTONIC for nearly all runtimes, as for `perf record -k mono`. All processes that write to
//! one file share a timeline. Forks, other clocks and mappings over code are ignored, because only a profile has them.
//!
//! # Example
//!
//! ```no_run
//! use jitdump::symbolize::Process;
//! use jitdump::{Address, Time};
//!
//! let mut process = Process::new(4711);
//! process.update()?;
//! let address = Address(0x7f12_8f00_106e);
//! if let Some((dump, function)) = process.function_at(address, Time::LAST) {
//!     for frame in dump.frames(function, address) {
//!         let (name, line) = (String::from_utf8_lossy(&frame.function), frame.line.unwrap_or(0));
//!         println!("{address:#x} {name}:{line}");
//!     }
//! }
//! # Ok::<(), jitdump::Error>(())
//! ```

mod file_now;
mod growing_history;
mod jitdump;
mod process;

pub use jitdump::{Frame, Function, Jitdump, Symbol};
pub use process::Process;
