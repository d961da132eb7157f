//! Traces of LLVM's XRay: events of a profile, and call chains.
//!
//! ```text
//! files ─► [read]: [clock], [threads] by the profile's IDs, [frame_addresses] of functions in the [binary]
//!            └─► [walk] of each thread
//!                   └─► [events]: what is particular to XRay in a replay
//! ```

pub mod binary;
mod clock;
pub mod events;
pub mod format;
mod frame_addresses;
mod read;
mod threads;
mod tick_clock;
mod traces;
mod walk;

pub use read::read;
pub use traces::Traces;
