//! Logs of Mono's profiler: symbols for a profile's JIT-compiled methods, events of the profile, and call chains.
//!
//! ```text
//! files ─► OpenLog ─► ReadLog ─► functions of the timeline
//!                       └─► [prepare]: clocks, [threads] by the profile's IDs ([thread_matching]), [frame_addresses]
//!                              └─► [walk] of each thread ─► [events]: what is particular to Mono in a replay
//! ```

pub mod events;
pub mod format;
mod frame_addresses;
mod heap_shots;
mod logs;
pub mod memory;
mod prepare;
mod thread_matching;
mod threads;
mod walk;

pub use logs::{Logs, OpenLog, ReadLog, UnpackedLog, architecture, read};
pub use prepare::prepare;
