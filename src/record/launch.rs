//! The start of the recorded program, in a process that perf has started.
//!
//! perf ends the program with SIGTERM when it gets SIGINT itself, so Ctrl-C must not reach perf. It therefore has a process
//! group of its own, which the program leaves for that of the terminal.
//!
//! In the foreground of a terminal, this process joins the group of the first jitinject. So Ctrl-C reaches
//! the program once, and perf ends after it. Signals that a process sends to jitinject alone, which their
//! origin shows, are passed on. Elsewhere the program gets a group of its own, which no other program sends
//! signals to, and jitinject passes on all that it gets. Signals that come before the program has started
//! wait for its process ID.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use rustix::process::{Pid, getpid, setpgid};

use crate::bytes::printable_path;
use crate::results::diagnostics::{Diagnostic, Issue};

/// Beginning of the file if the program could not be started.
const FAILED: &str = "failed: ";

/// Variables that perf sets for itself, and the program inherits. In front of `PATH`, it puts its own folders: started as
/// `/usr/bin/perf`, that is `/usr/bin`, which hides the programs of version managers. The functions are `setup_path` and
/// `exec_cmd_init` in perf's `exec-cmd.c`, `set_buildid_dir`, and `perf_debuginfod_setup`. With Intel PT, it also sets
/// `JITDUMP_USE_ARCH_TIMESTAMP`, but for the program.
pub(super) const SET_BY_PERF: [&str; 4] = [PATH, "PREFIX", "PERF_BUILDID_DIR", "DEBUGINFOD_URLS"];

const PATH: &str = "PATH";

/// Returns the variable that has the user's value of one of these, if there is one.
pub(super) fn user_variable(name: &str) -> String {
    format!("JITINJECT_USER_{name}")
}

/// Process group for [`launch`]: a new one.
pub(super) const OWN_GROUP: i32 = 0;

/// Joins a process group, writes the process ID to a file, and replaces this program by the one to record. Only returns
/// if that fails. Group 0 is a new one.
pub fn launch(pid_file: &Path, group: i32, command: &[OsString]) -> Diagnostic {
    let Some((program, arguments)) = command.split_first() else {
        return Diagnostic::new(Issue::ProgramNotFound);
    };
    // Without the group, Ctrl-C does not reach the program.
    let _ = setpgid(None, Pid::from_raw(group));
    // From now on, the session leaves Ctrl-C to the terminal.
    let pid = getpid().as_raw_nonzero().to_string();
    if let Err(cause) = write(pid_file, &pid) {
        return Diagnostic::cannot_write(pid_file, &cause);
    }
    let mut recorded = Command::new(program);
    recorded.args(arguments);
    for name in SET_BY_PERF {
        let of_user = user_variable(name);
        if let Some(value) = std::env::var_os(&of_user) {
            // The program is looked for in this `PATH`, too.
            recorded.env(name, value).env_remove(of_user);
        } else if name != PATH {
            // Without one, the program was found where programs usually are, which perf's has, too.
            recorded.env_remove(name);
        }
    }
    let cause = recorded.exec();
    let _ = write(pid_file, &format!("{FAILED}{cause}"));
    not_started(program.as_ref(), &cause)
}

/// Returns the error of a program that cannot be started.
pub fn not_started(program: &Path, cause: &dyn std::fmt::Display) -> Diagnostic {
    let failed = Diagnostic::new(Issue::ProgramNotFound);
    failed
        .with("program", printable_path(program))
        .with("cause", cause)
}

/// Writes a file that never has only a part of its content. Its folder is private.
#[expect(clippy::disallowed_methods, reason = "its folder is private")]
fn write(path: &Path, content: &str) -> io::Result<()> {
    let unfinished = path.with_extension("new");
    File::create_new(&unfinished)?.write_all(content.as_bytes())?;
    fs::rename(unfinished, path)
}

/// What became of the start.
#[derive(PartialEq, Eq, Debug)]
pub enum Start {
    /// perf has not started a process yet.
    Pending,
    /// The process with this ID has been started.
    Started(i32),
    /// The program could not be started, for this reason.
    Failed(String),
}

impl Start {
    /// Reads the file that [`launch`] writes.
    #[expect(clippy::disallowed_methods, reason = "its folder is private")]
    pub fn read(pid_file: &Path) -> Self {
        let Ok(text) = fs::read_to_string(pid_file) else {
            return Self::Pending;
        };
        match text.strip_prefix(FAILED) {
            Some(cause) => Self::Failed(cause.to_owned()),
            None => text.parse().map_or(Self::Pending, Self::Started),
        }
    }
}
