//! Logs of Mono's profiler: symbols for a profile's JIT-compiled methods, events of the profile, and call chains.
//!
//! ```text
//! files ─► OpenLog ─► ReadLog ─► functions of the timeline
//!                       └─► [prepare]: clocks, [threads] by the profile's IDs ([thread_matching]), [frame_addresses]
//!                              └─► [walk] of each thread ─► [events]: Mono's part of a replay
//! ```
//!
//! - Ahead-of-time code is excluded: it is in libraries with better names.
//! - Mono's code has no frame pointer, so the calls of a log replace the call chains of samples in its
//!   code.
//! - A log is read as often as needed, and no events are kept: first for names and code, then for threads,
//!   finally in time order, merging the buffers of all threads.
//! - Every frame of a stack has an address: that of the method's code, or a synthetic address where the
//!   process has nothing. Allocated types, collections and methods without code have synthetic ones. A name
//!   may appear in the log after its first use, so functions begin at whichever is earlier.
//! - An exit ends all calls inside its own. Exits without a call are skipped and counted.
//! - With `calls`, Mono writes no stacks for other events. These get the stack of the calls around them.
//! - The time between two events of a thread's calls belongs to the innermost call before the second event.

pub mod events;
pub mod format;
mod format_files;
mod frame_addresses;
mod garbage_collections;
mod heap_shots;
mod logs;
pub mod memory;
mod prepare;
mod thread_matching;
mod threads;
mod walk;

pub use logs::{Logs, OpenLog, ReadLog, read};
