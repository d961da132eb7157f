//! The manifest of a recording: what was run, how and where.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::process::{Command, Stdio};

use humantime::format_rfc3339_seconds;
use jitdump::printable;
use rustix::process::geteuid;
use rustix::system::uname;
use serde::Serialize;

use super::collection::CollectedFile;
use super::plan::Plan;
use super::recorded::{ProgramStatus, Recorded};
use super::recorded_process::{RecordedProcess, add_versions};
use crate::bytes::printable_path;
use crate::code::profile_index::ProfileIndex;

/// Version of the format. It changes when a field is removed or changes its meaning.
const FORMAT: u32 = 1;

/// What was run, how and where. Paths are relative to the folder of the recording, except for `folder`, `working_directory` and those
/// in the environment and in command lines.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Manifest {
    /// Version of the format.
    pub format: u32,
    /// Version of jitinject.
    pub jitinject_version: &'static str,
    /// Command that the user typed.
    pub command: Vec<String>,
    /// Command that was run, if options were added to it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recorded_command: Option<Vec<String>>,
    /// Processes that were recorded, if there is no command.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub pids: Vec<u32>,
    /// Absolute path of the folder, which the paths in `perf.jit.data` and in its lines start with.
    pub folder: String,
    /// Working directory.
    pub working_directory: Option<String>,
    /// Variables that were set for the program.
    pub environment: BTreeMap<&'static str, String>,
    /// Runtimes that the program was known to start.
    pub runtimes: Vec<&'static str>,
    /// Processes of known runtimes that ran for some time, in the order of their starts.
    pub processes: Vec<RecordedProcess>,
    /// User IDs of the owners of processes, by process ID, if they are others than the user who recorded.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub owners: BTreeMap<u32, u32>,
    /// Version of perf, as it prints it.
    pub perf_version: Option<String>,
    /// Arguments of perf, without the command.
    pub perf_arguments: Vec<String>,
    /// Whether kernel time was recorded.
    pub kernel_time: bool,
    /// Name of the machine.
    pub host: String,
    /// Version of its kernel.
    pub kernel: String,
    /// Architecture.
    pub arch: String,
    /// Start of the recording, in UTC.
    pub started: String,
    /// Seconds from the start to the end of perf.
    pub duration_seconds: f64,
    /// Exit status of the program.
    pub exit_status: Option<i32>,
    /// Signal that ended the program.
    pub signal: Option<i32>,
    /// Files of runtimes that were moved or copied into the folder.
    pub files: Vec<CollectedFile>,
}

fn texts(words: &[OsString]) -> Vec<String> {
    words.iter().map(|word| printable(word.as_bytes())).collect()
}

/// Returns what `perf --version` prints.
fn perf_version() -> Option<String> {
    let output = Command::new("perf")
        .arg("--version")
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output()
        .ok()?;
    let line = output.stdout.split(|&byte| byte == b'\n').next()?;
    Some(printable(line))
}

impl Manifest {
    /// Describes a recording. `index` is that of its profile.
    pub fn new(plan: &Plan, recorded: &Recorded, index: &ProfileIndex, files: Vec<CollectedFile>) -> Self {
        let system = uname();
        let (exit_status, signal) = match recorded.status {
            ProgramStatus::Exited(status) => (Some(status), None),
            ProgramStatus::Killed(signal) => (None, Some(signal)),
            ProgramStatus::Stopped => (None, None),
        };
        let environment = plan.environment.iter();
        let me = geteuid().as_raw();
        let of_files = files.iter().map(|file| file.owner);
        let mut owners: BTreeMap<u32, u32> = of_files.collect();
        owners.extend(&recorded.seen.owners);
        owners.retain(|_, owner| *owner != me);
        let mut processes = recorded.seen.processes.clone();
        add_versions(&mut processes);
        Self {
            format: FORMAT,
            jitinject_version: env!("CARGO_PKG_VERSION"),
            command: texts(&plan.options.command),
            recorded_command: (plan.command != plan.options.command).then(|| texts(&plan.command)),
            pids: plan.perf.pids.clone(),
            folder: printable_path(plan.path("").components().as_path()),
            working_directory: std::env::current_dir().ok().map(|path| printable_path(&path)),
            environment: environment
                .map(|(name, value)| (*name, printable(value.as_bytes())))
                .collect(),
            runtimes: plan.runtimes.iter().map(|runtime| runtime.name()).collect(),
            processes,
            owners,
            perf_version: perf_version(),
            perf_arguments: texts(&plan.perf.command_line(&plan.profile(), false)),
            kernel_time: !index.excludes_kernel,
            host: printable(system.nodename().to_bytes()),
            kernel: printable(system.release().to_bytes()),
            arch: printable(system.machine().to_bytes()),
            started: format_rfc3339_seconds(recorded.started).to_string(),
            duration_seconds: (recorded.duration.as_secs_f64() * 1000.0).round() / 1000.0,
            exit_status,
            signal,
            files,
        }
    }

    /// Returns the content of the file.
    pub(super) fn to_json(&self) -> io::Result<Vec<u8>> {
        let mut json = serde_json::to_vec_pretty(self)?;
        json.push(b'\n');
        Ok(json)
    }
}
