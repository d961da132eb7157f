//! What a recorded process was: its program, its namespaces, and the version of its runtime.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use jitdump::printable;
use serde::Serialize;

use super::process_files::{has_same_root, ids_of, runtime_in};
use super::safe_program::SafeProgram;
use super::short_command;
use crate::bytes::base_name;
use crate::bytes::printable_path;
use crate::collections::hash::HashMap;
use crate::files::kernel;
use crate::runtimes::Runtime;

/// Longest version in bytes.
const MAX_VERSION: usize = 200;

/// Time that a program has to print its version.
const PATIENCE: Duration = Duration::from_secs(2);

/// A recorded process of a known runtime, as the kernel described it while it ran.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[non_exhaustive]
pub struct RecordedProcess {
    /// Process ID, as in the profile.
    pub pid: u32,
    /// Path of its program, in its own file system.
    pub program: String,
    /// Name of its runtime.
    pub runtime: &'static str,
    /// Version of the runtime, as its program prints it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Process IDs in the namespaces inside of the recorder's, from the outermost to its own.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub inner_pids: Vec<u32>,
    /// Namespaces of process IDs and of mounts, as links in `/proc/PID/ns` name them.
    pub namespaces: Vec<String>,
    /// Root directory, if it is not that of the recorder.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub root: Option<String>,
    /// File of its program, and its runtime, if the version can be asked for.
    #[serde(skip)]
    program_to_ask: Option<(PathBuf, Runtime)>,
}

impl RecordedProcess {
    /// Describes a process that runs, with these mappings; `None` if it has no known runtime.
    pub fn of(pid: u32, maps: &[u8]) -> Option<Self> {
        let runtime = runtime_in(pid, maps)?;
        let link = |name: &str| kernel::read_link(format!("/proc/{pid}/{name}")).ok();
        let path = link("exe")?;
        let namespaces = ["ns/pid", "ns/mnt"].into_iter().filter_map(link);
        let root = || printable_path(&link("root").unwrap_or_default());
        // Another program that loads the runtime may start its work whatever its options are.
        let is_runtime = runtime.has_file(base_name(path.as_os_str().as_bytes()));
        Some(Self {
            pid,
            program: printable_path(&path),
            runtime: runtime.name,
            version: None,
            inner_pids: ids_of(pid).into_iter().skip(1).collect(),
            namespaces: namespaces.map(|link| printable_path(&link)).collect(),
            root: (!has_same_root(pid)).then(root),
            program_to_ask: (is_runtime && SafeProgram::open(pid, &path).is_some())
                .then_some((path, runtime.runtime)),
        })
    }
}

/// Adds the versions of runtimes. Each program is asked once.
pub fn add_versions(processes: &mut [RecordedProcess]) {
    let mut versions: HashMap<PathBuf, Option<String>> = HashMap::default();
    for process in processes {
        if let Some((path, runtime)) = &process.program_to_ask {
            let ask = || {
                // The process may have ended. Its program was checked while it ran.
                let program = SafeProgram::of_user(path)?;
                version_of(&program, *runtime)
            };
            process.version = versions.entry(path.clone()).or_insert_with(ask).clone();
        }
    }
}

/// Returns the first line that a runtime prints about its version.
fn version_of(program: &SafeProgram, runtime: Runtime) -> Option<String> {
    if runtime == Runtime::Erlang {
        // beam.smp is started by erl only, and its version is in the name of a directory: erts-13.1.5/bin.
        let mut folders = program.path.ancestors().filter_map(Path::file_name);
        let folder = folders.find(|name| name.as_bytes().starts_with(b"erts-"));
        return folder.map(|name| printable(name.as_bytes()));
    }
    let argument = runtime.description().version_argument?;
    let mut command = program.command();
    command.arg(argument);
    let printed = short_command::run(command, false, PATIENCE, &mut || false).ok()?;
    let version = first_line(&printed.text)?;
    printed.status.success().then_some(version)
}

/// Returns the first line that is not empty, or the beginning of a long one.
pub(super) fn first_line(text: &[u8]) -> Option<String> {
    let lines = text.split(|&byte| byte == b'\n');
    let line = lines.map(<[u8]>::trim_ascii).find(|line| !line.is_empty())?;
    Some(printable(line.get(..MAX_VERSION).unwrap_or(line)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{Mode, OFlags};
    use std::fs;

    #[test]
    fn the_version_is_that_of_the_checked_file() {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("node");
        // No program can be started while it is open for writing, also in a child that another test starts.
        let write = |text: &str| {
            let script = "printf %s \"$2\" > \"$1\" && chmod 755 \"$1\"";
            let mut shell = std::process::Command::new("sh");
            shell.args(["-c", script, "sh"]).arg(&program).arg(text);
            assert!(shell.status().unwrap().success());
        };
        write("#!/bin/sh\necho 'v20.1.0\u{1b}'\necho second\n");
        let opened = SafeProgram::open(std::process::id(), &program).unwrap();
        fs::rename(&program, folder.path().join("old")).unwrap();
        write("#!/bin/sh\necho other\n");
        let version = version_of(&opened, Runtime::Node).unwrap();
        assert!(version.starts_with("v20.1.0"), "{version}");
    }

    #[test]
    fn programs_that_load_a_runtime_are_not_run() {
        let maps = b"7f00-7f01 r-xp 00000000 08:01 7  /usr/lib/libpython3.13.so.1.0\n";
        let mut processes = vec![RecordedProcess::of(std::process::id(), maps).unwrap()];
        assert_eq!(processes[0].runtime, "CPython");
        assert_eq!(processes[0].program_to_ask, None);
        add_versions(&mut processes);
        assert_eq!(processes[0].version, None);
    }

    #[test]
    fn versions_are_those_of_programs_and_folders() {
        let program = |path: &str, file: &str| SafeProgram {
            path: path.into(),
            file: rustix::fs::open(file, OFlags::PATH, Mode::empty()).unwrap(),
        };
        let erlang = program("/usr/lib/erlang/erts-13.1.5/bin/beam.smp", "/");
        assert_eq!(version_of(&erlang, Runtime::Erlang).unwrap(), "erts-13.1.5");
        assert_eq!(version_of(&program("false", "/bin/false"), Runtime::Node), None);
        assert_eq!(
            version_of(&program("true", "/bin/true"), Runtime::SpiderMonkey),
            None
        );
    }

    #[test]
    fn a_version_has_up_to_200_bytes() {
        assert_eq!(first_line(b"\n \n v1 \nv2\n").unwrap(), "v1");
        assert_eq!(first_line(b" \n"), None);
        for (size, expected) in [(200, 200), (201, 200)] {
            let version = first_line("7".repeat(size).as_bytes()).unwrap();
            assert_eq!(version.len(), expected);
        }
    }
}
