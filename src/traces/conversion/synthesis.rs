//! Makes synthetic events, which [`Synthesis`] writes as a profile of their own or adds to a recorded one.
//!
//! ```text
//!                        definitions ──► attributes, IDs, names ───────┐
//! samples, names, forks, mmaps ─► records ──┐                          ▼
//! recorded profile ──► with event IDs ──────┴── merged by time ────► profile
//! ```
//!
//! - A synthetic record is inserted before the first record, in file order, with a later time. Its time is
//!   never earlier than that of a preceding record, and readers get it in time, whatever the rounds of the
//!   recording.
//! - If records have no times or trailers, synthetic ones have none either.
//! - Attributes of all events have one size, because perf expects the position of the IDs directly after
//!   the size that an attribute gives.
//! - Synthetic IDs start at 2^62. A kernel counts its events from 1 since boot, and perf's AUX decoders
//!   continue from there.
//! - A recording without event names keeps the names that readers derive. EVENT_UPDATE records name the
//!   synthetic events.

mod definition;
mod event_desc;
mod identifier;
mod process;
mod recording;
mod sample;
mod stand_alone;
mod stream;
mod synthesized;

pub use definition::{Definition, SampleContent};
pub use process::{Comm, ThreadStart, write_comm, write_fork};
pub use sample::{SyntheticSample, UNKNOWN_CPU};
pub use stand_alone::EventOrigin;
pub use stream::Synthesis;
pub use synthesized::Synthesized;
