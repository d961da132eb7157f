//! Recording: from a command to a profile in a new directory.
//!
//! ```text
//! options ─► [plan]: runtime, environment, perf's command ─► [session]: perf and the program
//!                                                               └─► [collection], [manifest] ─► [`crate::inject`]
//! ```
//!
//! The profile's markers have the paths of jitdumps, whatever the working directory of their process was. The
//! files are moved into the directory between the two steps of an injection: after the profile is indexed,
//! and before its runtime files are searched (`inject_after`). So the profile is read once. Files of
//! processes that still run are copied, jitdumps that are not at their path here from the process.
//!
//! The directory and `dumps` in it stay open ([`crate::files::folder`]): files are created, moved and copied
//! through their descriptors, also by the injection. So whoever can change the path cannot redirect them.
//! Copies of jitdumps and perf maps keep their owner, because ownership decides whether they are used and which
//! sources they may name. A process's files must belong to its owner, links on their path also to root, and only files with its
//! ID in their names are moved, if its owner is known. If not, a jitdump is also copied if it is the file that was mapped. So is
//! the user's own if a process has given up the user's rights, as servers do.

mod advice;
mod attach;
mod collection;
mod cpython_build;
mod environment;
mod environment_reset;
mod launch;
mod manifest;
mod mapped_dumps;
mod pack;
mod perf;
mod php;
mod plan;
mod process_files;
mod program;
mod recorded;
mod recorded_process;
mod ruby;
mod safe_program;
mod session;
mod short_command;
mod signals;
mod watch;

pub use crate::load::MANIFEST;
pub use collection::{Collected, CollectedFile};
pub use launch::launch;
pub use manifest::Manifest;
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
    pub use crate::files::kernel::mapped_files;
}
