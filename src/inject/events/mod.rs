//! Conversion of logs and traces to events and call chains of a profile, as far as it is independent of their
//! formats.
//!
//! ```text
//! a log's records ─► EventSource ─► [synthesize]: a profile of them, alone or beside what was recorded
//!              └───► StackSource ─► [splice]: call chains of the profile's own samples
//! ```
//!
//! [`calls`] replays entries and exits, [`chain`] makes addresses of frames, [`synthetic_symbols`] has
//! addresses for frames without code, [`merge`] merges sources by time, and [`call_stack_replay`] finds the
//! stacks of samples.

pub mod call_stack_replay;
pub mod calls;
pub mod chain;
pub mod event_set;
pub mod merge;
pub mod splice;
pub mod synthesize;
pub mod synthetic_symbols;

pub use call_stack_replay::{CallRecord, CallStackReplay, SampleKey};
pub use calls::{Calls, Step};
pub use chain::Chain;
pub use event_set::EventSet;
pub use merge::{Ahead, Merge};
pub use splice::{StackSource, splice};
pub use synthesize::{EventSource, Made, synthesize};
pub use synthetic_symbols::SyntheticSymbols;
