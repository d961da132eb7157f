//! Recording: from a command to a profile in a folder of its own.
//!
//! ```text
//! options ─► [plan]: runtime, environment, perf's command ─► [session]: perf and the program
//!                                                               └─► [dumps], [manifest] ─► [`crate::inject`]
//! ```

mod advice;
mod attach;
mod cpython_build;
mod dumps;
mod environment;
mod launch;
mod manifest;
mod pack;
mod perf;
mod php;
mod plan;
mod process_files;
mod process_stat;
mod program;
mod recorded;
mod recorded_process;
mod session;
mod short_command;
mod signals;
mod watch;

pub use dumps::CollectedFile;
pub use launch::launch;
pub use manifest::{MANIFEST, Manifest};
pub use pack::{archive_path, pack, refuse_existing};
pub use perf::PerfOptions;
pub use plan::{Plan, RecordOptions, SUMMARY, default_folder};
pub use recorded::{ProgramStatus, Recorded};
pub use recorded_process::RecordedProcess;
pub use session::{Control, Outcome, Session, create_folder};
pub use signals::ReceivedSignal;
pub use watch::Status;

/// Readers of what recorded processes show and answer, for fuzzing.
#[doc(hidden)]
pub mod readers {
    pub use super::attach::dotnet_reply_error;
    pub use super::process_files::mapped_files;
}
