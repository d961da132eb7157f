//! What can be typed about the files of runtimes, by every command that reads them beside a profile.

use std::path::PathBuf;

use clap::Args;
use jitinject::inject::Options;

/// Which files there are, and how they are read.
#[derive(Args, Debug)]
pub struct RuntimeFiles {
    /// A jitdump, or a folder to search for jitdumps; may be given more than once
    ///
    /// Dumps are looked for where the profile says they were, beside the profile, and here. A file that
    /// nothing in the profile points to is used for the process that its header names.
    #[arg(long, value_name = "PATH")]
    jitdump: Vec<PathBuf>,

    /// A perf map, or a folder to search for perf maps; may be given more than once
    ///
    /// Perf maps (perf-PID.map) name code that no jitdump knows. They are looked for here, beside the profile
    /// and in /tmp, that of the process first while it runs. Their names tell whose they are.
    #[arg(long, value_name = "PATH")]
    perf_map: Vec<PathBuf>,

    /// A log of Mono's profiler (.mlpd), or a folder to search for them; may be given more than once
    ///
    /// Names the code of the process that wrote it: start Mono with --profile=log, and record with -k mono.
    #[arg(long, value_name = "PATH")]
    pub mono_log: Vec<PathBuf>,

    /// The process that logs and traces are of, if they don't tell, or tell the number that it has in a container
    #[arg(long, value_name = "PID")]
    pid: Option<u32>,

    /// Nanoseconds to add to the times of jitdumps, logs and traces to get the profile's; may be negative
    ///
    /// Where the profile was recorded without -k mono, this distance is worked out from what the profile
    /// shows, but for traces. Use this where that fails.
    #[arg(
        long,
        visible_alias = "time-offset",
        value_name = "NS",
        allow_negative_numbers = true
    )]
    clock_offset: Option<i64>,

    /// Read files that belong to other users
    ///
    /// The profile must belong to you or to root; jitdumps and perf maps that you did not name yourself, to you, to
    /// root, to the owner of the profile or to that of the process.
    #[arg(short, long)]
    force: bool,

    /// Open no file outside the folder of the profile, except those named with options
    ///
    /// For profiles that others recorded: the paths in a profile can name any file that you may read. Symbolic links are
    /// not followed, and neither /tmp nor running processes are searched for jitdumps and perf maps. Needs Linux 5.6.
    #[arg(long)]
    confine: bool,
}

impl RuntimeFiles {
    /// The same as the library understands it; all else as if nothing was typed.
    pub fn options(&self) -> Options {
        Options {
            jitdumps: self.jitdump.clone(),
            perf_maps: self.perf_map.clone(),
            mono_logs: self.mono_log.clone(),
            pid: self.pid,
            clock_offset: self.clock_offset,
            force: self.force,
            confine: self.confine,
            ..Options::default()
        }
    }
}
