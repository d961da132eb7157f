//! What logs and traces tell of, as events of a profile and as call chains of its samples: all that does not depend on
//! their formats.
//!
//! ```text
//! a log's records ─► EventSource ─► [synthesize]: a profile of them, alone or beside what was recorded
//!              └───► StackSource ─► [splice]: call chains of the profile's own samples
//! ```
//!
//! On the way, [`calls`] follows entries and exits, [`chain`] makes addresses of the frames, [`made_up`] has addresses for
//! what has none, [`merge`] keeps several of them in the order of time, and [`moments`] finds the stacks of samples.

pub mod asked;
pub mod calls;
pub mod chain;
pub mod loss;
pub mod made_up;
pub mod merge;
pub mod moments;
pub mod splice;
pub mod synthesize;

pub use asked::Asked;
pub use calls::{Calls, Step};
pub use chain::Chain;
pub use loss::Loss;
pub use made_up::MadeUpFunctions;
pub use merge::{Ahead, Merge};
pub use moments::{Followed, Moment, Told};
pub use splice::{StackSource, splice};
pub use synthesize::{EventSource, Made, synthesize};
