//! Options for files of runtimes, shared by the commands that read a profile.

use std::path::{Path, PathBuf};

use clap::Args;
use jitinject::{LoadOptions, TraceOptions};

use crate::cli::commands::headings::{INPUT, LOGS};
use crate::cli::standard_input::is_recorded;

/// Files of runtimes and how to read them.
#[derive(Args, Debug)]
pub struct RuntimeFileArguments {
    /// Jitdump, or directory to search; may be repeated
    ///
    /// jitinject also searches the recorded paths and beside the profile. A file that no mapping of the profile refers to is
    /// used for the process in its header.
    #[arg(long, value_name = "PATH", help_heading = INPUT)]
    jitdump: Vec<PathBuf>,

    /// Perf map, or directory to search; may be repeated
    ///
    /// Perf maps (perf-PID.map) name code that no jitdump describes. jitinject also searches beside the profile, in the /tmp of
    /// running processes and in /tmp. The PID in the name decides which process a map belongs to.
    #[arg(long, value_name = "PATH", help_heading = INPUT)]
    perf_map: Vec<PathBuf>,

    /// Nanoseconds to add to the times of jitdumps, logs and traces
    ///
    /// Without perf record -k mono, the clock offset is estimated from the profile, except for traces. This option
    /// overrides the estimate. It may be negative.
    #[arg(
        long,
        visible_alias = "time-offset",
        value_name = "NS",
        allow_negative_numbers = true,
        help_heading = INPUT
    )]
    clock_offset: Option<i64>,

    /// Read files that belong to other users
    ///
    /// By default, the profile must belong to you or to root. Jitdumps and perf maps that no option names must belong to you,
    /// root, or the owner of the profile or of the process.
    #[arg(short, long, help_heading = INPUT)]
    force: bool,

    /// Open only files in the profile's directory, and those that options name
    ///
    /// For profiles from others: paths in a profile can name any file that you can read. Symbolic links are not followed, and
    /// neither /tmp nor running processes are searched. Needs Linux 5.6.
    #[arg(long, help_heading = INPUT)]
    confine: bool,
}

/// Mono logs, the process of logs and traces, and the program of traces.
#[derive(Args, Debug)]
pub struct LogFiles {
    /// Mono profiler log (.mlpd), or directory to search; may be repeated
    ///
    /// Names the code of the process that wrote it: start Mono with --profile=log, and record with -k mono.
    #[arg(long, value_name = "PATH", help_heading = LOGS)]
    pub mono_log: Vec<PathBuf>,

    /// PID for logs and traces that carry none, or one from another PID namespace
    #[arg(long, value_name = "PID", help_heading = LOGS, hide_short_help = true)]
    pub pid: Option<u32>,

    /// Instrumented binary, to resolve XRay function IDs
    #[arg(long, value_name = "FILE", help_heading = LOGS)]
    xray_binary: Option<PathBuf>,
}

impl LogFiles {
    /// Returns why the first of `options` that is given has no effect, if no log is named and `profile` is none.
    pub fn conflict(&self, options: &[(&str, bool)], profile: Option<&Path>) -> Option<String> {
        let (option, _) = options.iter().find(|(_, is_given)| *is_given)?;
        let is_unused = self.mono_log.is_empty() && is_recorded(profile);
        is_unused.then(|| format!("{option} needs a Mono log or an XRay trace"))
    }
}

impl RuntimeFileArguments {
    /// Returns the library's options, with defaults for those of other arguments.
    pub fn options(&self, logs: &LogFiles) -> LoadOptions {
        LoadOptions {
            jitdumps: self.jitdump.clone(),
            perf_maps: self.perf_map.clone(),
            trace: TraceOptions {
                mono_logs: logs.mono_log.clone(),
                pid: logs.pid,
                xray_binary: logs.xray_binary.clone(),
                ..TraceOptions::default()
            },
            clock_offset: self.clock_offset,
            force: self.force,
            confine: self.confine,
            ..LoadOptions::default()
        }
    }
}
