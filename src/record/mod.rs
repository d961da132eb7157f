//! Recording: from a command to a profile in a folder of its own.
//!
//! ```text
//! options ─► [plan]: runtime, environment, perf's command ─► [session]: perf and the program
//!                                                               └─► [dumps], [manifest] ─► [`crate::inject`]
//! ```

mod attach;
mod dumps;
mod environment;
mod launch;
mod manifest;
mod perf;
mod plan;
mod runtime;
mod session;
mod time;

pub use dumps::CollectedFile;
pub use launch::launch;
pub use manifest::Manifest;
pub use perf::PerfOptions;
pub use plan::{Plan, RecordOptions};
pub use runtime::Runtime;
pub use session::{Control, Outcome, ProgramStatus, Recorded, Session};
pub use time::default_folder;
