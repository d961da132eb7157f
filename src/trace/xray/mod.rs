//! Traces of LLVM's XRay: events of a profile, and call chains.
//!
//! ```text
//! files ─► [read]: [clock], [threads] by the profile's IDs, [frame_addresses] of functions in the [binary]
//!                       └─► [replay] in time order, optionally without short calls ([long_calls])
//!                              ├─► [event_selection] [events] of a profile
//!                              └─► [splice]: call chains of the profile's own samples
//! ```

pub mod binary;
mod clock;
pub mod event_selection;
pub mod events;
mod frame_addresses;
mod long_calls;
mod read;
mod replay;
mod splice;
mod threads;
mod traces;

pub use event_selection::{select_events, wanted};
pub use events::{count_records, event_sources};
pub use read::read;
pub use splice::stack_sources;
pub use traces::Traces;
