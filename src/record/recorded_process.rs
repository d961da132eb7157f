//! What a recorded process was: its program, its namespaces, and the version of its runtime.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::geteuid;
use serde::Serialize;

use super::process_files::{has_same_root, ids_of, owner_of, runtime_in};
use crate::bytes::{base_name, printable};
use crate::files::open_file::is_trusted;
use crate::files::search::printable_path;
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
    program_file: Option<(PathBuf, Runtime)>,
}

impl RecordedProcess {
    /// Describes a process that runs, with these mappings; `None` if it has no known runtime.
    pub fn of(pid: u32, maps: &[u8]) -> Option<Self> {
        let runtime = runtime_in(pid, maps)?;
        let link = |name: &str| fs::read_link(format!("/proc/{pid}/{name}")).ok();
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
            program_file: (is_runtime && may_run(pid, &path)).then_some((path, runtime.runtime)),
        })
    }
}

/// Adds the versions of runtimes, each of which is asked once.
pub fn add_versions(processes: &mut [RecordedProcess]) {
    let mut known: Vec<(PathBuf, Option<String>)> = Vec::new();
    for process in processes {
        let Some((path, runtime)) = &process.program_file else {
            continue;
        };
        let found = known.iter().find(|(other, _)| other == path);
        let version = match found {
            Some((_, version)) => version.clone(),
            None => {
                let version = version_of(path, *runtime);
                known.push((path.clone(), version.clone()));
                version
            }
        };
        process.version = version;
    }
}

/// Returns the first line that a runtime prints about its version.
fn version_of(program: &Path, runtime: Runtime) -> Option<String> {
    let arguments: &[&str] = match runtime {
        Runtime::Erlang => {
            // beam.smp is started by erl only, and its version is in the name of a directory: erts-13.1.5/bin.
            let mut folders = program.ancestors().filter_map(Path::file_name);
            let folder = folders.find(|name| name.as_bytes().starts_with(b"erts-"));
            return folder.map(|name| printable(name.as_bytes()));
        }
        Runtime::DotNet => &["--list-runtimes"],
        Runtime::Node
        | Runtime::Deno
        | Runtime::Bun
        | Runtime::Python
        | Runtime::Php
        | Runtime::Java
        | Runtime::Mono
        | Runtime::Ruby
        | Runtime::Julia
        | Runtime::Lli
        | Runtime::Wasmtime
        | Runtime::Qemu => &["--version"],
        _ => return None,
    };
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .ok()?;
    let started = Instant::now();
    while child.try_wait().ok()?.is_none() {
        if started.elapsed() > PATIENCE {
            let _ = child.kill();
            let _ = child.wait();
            return None;
        }
        sleep(Duration::from_millis(5));
    }
    let output = child.wait_with_output().ok()?;
    let lines = output.stdout.split(|&byte| byte == b'\n');
    let line = lines.map(<[u8]>::trim_ascii).find(|line| !line.is_empty())?;
    let line = line.get(..MAX_VERSION).unwrap_or(line);
    output.status.success().then(|| printable(line))
}

/// Whether the user may run the program of a process: one that the user runs already, or that only the user and root can
/// change. The path of a program in another root directory is another program here, if there is any.
pub fn may_run(pid: u32, program: &Path) -> bool {
    let is_own = owner_of(pid) == Some(geteuid().as_raw());
    has_same_root(pid) && (is_own || is_safe_program(program))
}

/// Whether only the user and root can change a program.
fn is_safe_program(program: &Path) -> bool {
    /// Bits of a mode that let others write, and that let them only add files of their own.
    const WRITABLE: u32 = 0o022;
    const STICKY: u32 = 0o1000;
    let is_safe = |path: &Path| {
        let found = fs::symlink_metadata(path);
        found.is_ok_and(|found| {
            let is_shared = found.mode() & WRITABLE != 0 && !(found.is_dir() && found.mode() & STICKY != 0);
            is_trusted(found.uid()) && !found.is_symlink() && !is_shared
        })
    };
    program.is_absolute()
        && program
            .ancestors()
            .filter(|path| path.as_os_str() != OsStr::new(""))
            .all(is_safe)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn programs_that_others_can_change_are_not_run() {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("node");
        fs::write(&program, "#!/bin/sh\necho 'v20.1.0\u{1b}'\necho second\n").unwrap();
        let set = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        set(&program, 0o755);
        assert!(is_safe_program(&program));
        assert!(
            version_of(&program, Runtime::Node)
                .unwrap()
                .starts_with("v20.1.0")
        );
        set(&program, 0o757);
        assert!(!is_safe_program(&program));
        set(&program, 0o755);
        set(folder.path(), 0o777);
        assert!(!is_safe_program(&program));
        set(folder.path(), 0o755);
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(&program, &link).unwrap();
        assert!(!is_safe_program(&link));
        assert!(!is_safe_program(&folder.path().join("absent")));
        assert!(!is_safe_program(Path::new("node")));
    }

    #[test]
    fn programs_that_load_a_runtime_are_not_run() {
        let maps = b"7f00-7f01 r-xp 00000000 08:01 7  /usr/lib/libpython3.13.so.1.0\n";
        let mut processes = vec![RecordedProcess::of(std::process::id(), maps).unwrap()];
        assert_eq!(processes[0].runtime, "CPython");
        assert_eq!(processes[0].program_file, None);
        add_versions(&mut processes);
        assert_eq!(processes[0].version, None);
    }

    #[test]
    fn versions_are_those_of_programs_and_folders() {
        let erlang = Path::new("/usr/lib/erlang/erts-13.1.5/bin/beam.smp");
        assert_eq!(version_of(erlang, Runtime::Erlang).unwrap(), "erts-13.1.5");
        assert_eq!(version_of(Path::new("/bin/false"), Runtime::Node), None);
        assert_eq!(version_of(Path::new("/bin/true"), Runtime::SpiderMonkey), None);
    }
}
