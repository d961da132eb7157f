//! Logs of Mono's profiler: symbols for a profile's JIT-compiled methods, events of the profile, and call chains.
//!
//! ```text
//! files ─► OpenLog ─► ReadLog ─► functions of the timeline
//!                       └─► [prepare]: clocks, [threads] by the profile's IDs, [frame_addresses]
//!                              └─► [replay] in time order
//!                                     ├─► [event_selection] [events] of a profile
//!                                     └─► [splice]: call chains of the profile's own samples
//! ```

pub mod event_selection;
mod events;
mod frame_addresses;
mod logs;
pub mod memory;
mod prepare;
mod replay;
mod splice;
mod threads;

pub use event_selection::{select_events, wanted};
pub use events::event_sources;
pub use logs::{Logs, OpenLog, ReadLog, UnpackedLog, architecture, read};
pub use prepare::prepare;
pub use splice::stack_sources;
