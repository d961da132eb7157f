//! Traces of LLVM's XRay: events of a profile, and call chains.
//!
//! ```text
//! files ─► [read]: [clock], [threads] by the profile's IDs, [frame_addresses] of functions in the [binary]
//!            └─► [walk] of each thread
//!                   └─► [events]: XRay's part of a replay
//! ```
//!
//! - The instrumented binary has the addresses and names of functions, so no objects are needed, except for
//!   IDs missing from it. Separate profiles map the binary where Linux would without randomization. Beside
//!   a recording, the binary is where the recording mapped it, by build ID, or otherwise by path.
//! - The time between two records of a thread belongs to the stack of calls before the second one. An exit
//!   ends all calls inside its own that lost their exits, as with exceptions. Calls open at the end finish
//!   at the last record.
//! - A trace is read twice, by buffers and by records, and nothing of it is kept. Memory grows with
//!   buffers, threads and distinct stacks.

pub mod binary;
mod clock;
pub mod events;
pub mod format;
mod format_files;
mod frame_addresses;
mod read;
mod threads;
mod tick_clock;
mod traces;
mod walk;

pub use read::read;
pub use traces::Traces;
