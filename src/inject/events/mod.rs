//! What logs and traces tell of, as events of a profile and as call chains of its samples: all that does not depend on
//! their formats.
//!
//! ```text
//! a log's records ─► EventSource ─► [synthesize]: a profile of them, alone or beside what was recorded
//!              └───► StackSource ─► [splice]: call chains of the profile's own samples
//! ```
//!
//! On the way, [`calls`] follows entries and exits, [`chain`] makes addresses of the frames, [`synthetic_symbols`] has addresses for
//! what has none, [`merge`] keeps several of them in the order of time, and [`moments`] finds the stacks of samples.

pub mod call_stack_replay;
pub mod calls;
pub mod chain;
pub mod event_set;
pub mod loss;
pub mod merge;
pub mod splice;
pub mod synthesize;
pub mod synthetic_symbols;

pub use call_stack_replay::{CallRecord, CallStackReplay, SampleKey};
pub use calls::{Calls, Step};
pub use chain::Chain;
pub use event_set::EventSet;
pub use loss::Loss;
pub use merge::{Ahead, Merge};
pub use splice::{StackSource, splice};
pub use synthesize::{EventSource, Made, synthesize};
pub use synthetic_symbols::SyntheticSymbols;
