//! Options for loading a recording.

use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::files::Reach;
use crate::files::input_file::MAX_SMALL_FILE;
use crate::traces::options::TraceOptions;

/// What to load, for [`inject`](crate::inject::inject) and the page of `timeline`.
#[derive(Clone, Debug, Default)]
pub struct LoadOptions {
    /// Path of the profile, or of a log or trace to convert to a profile; `-` is standard input.
    pub input: PathBuf,
    /// Type of the input; `None` detects it by content.
    pub input_kind: Option<InputKind>,
    /// Files and folders with jitdumps, in addition to those that are found automatically.
    pub jitdumps: Vec<PathBuf>,
    /// Files and folders with perf maps, in addition to those that are found automatically.
    pub perf_maps: Vec<PathBuf>,
    /// Logs of Mono's profiler and XRay traces.
    pub trace: TraceOptions,
    /// Folder with the files of the recorded machine below their paths, instead of `/`.
    pub symfs: Option<PathBuf>,
    /// Nanoseconds to add to runtime times to get profile times, if known. Cycle counts are always converted
    /// as the profile specifies.
    pub clock_offset: Option<i64>,
    /// Whether to read a profile and runtime files that belong to other users.
    pub force: bool,
    /// Owners of processes, as user IDs by process ID, if they are known: their jitdumps and perf maps of these processes are
    /// used, too.
    pub process_owners: BTreeMap<u32, u32>,
    /// Whether to open files only in the folder of the profile and below, and to follow no symbolic links to
    /// runtime files. Running processes and `/tmp` are not searched then.
    pub confine: bool,
    /// Size in bytes up to which a profile is read into memory, and larger ones in blocks, several times; `None` for what
    /// takes less time.
    pub max_in_memory: Option<u64>,
}

impl LoadOptions {
    /// Returns the restriction of the files that may be opened.
    pub(crate) fn reach(&self) -> Reach {
        Reach::of(&self.input, self.confine)
    }

    /// Whether a profile of this size, in bytes, is read in blocks.
    pub(crate) fn streams(&self, size: u64) -> bool {
        size > self.max_in_memory.unwrap_or(MAX_SMALL_FILE)
    }
}

/// Functions that a command looks up, in addition to those at addresses recorded with samples.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct NeededFunctions {
    /// Whether it looks up all others.
    pub all: bool,
    /// Whether it looks up all others of a profile with copied stacks, including those in the executable mapping of a file:
    /// the stacks are unwound before anybody else does it.
    pub unwinding: bool,
}

/// Type of the input.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum InputKind {
    /// Profile.
    Profile,
    /// Log of Mono's profiler, which is converted to a profile.
    MonoLog,
    /// XRay trace, which is converted to a profile.
    XrayTrace,
}
