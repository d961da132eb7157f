//! What to do about errors that depend on more than their code.

use std::io;

/// What to do about an error of the operating system, if anything.
pub fn remedy_of(error: &io::Error) -> Option<&'static str> {
    Some(match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "Free some space there, or choose another place"
        }
        io::ErrorKind::FileTooLarge => {
            "The file exceeds a limit of the user (ulimit -f) or of the file system"
        }
        io::ErrorKind::OutOfMemory => {
            "Raise the memory limit (ulimit -v), or use a machine with more memory."
        }
        io::ErrorKind::ReadOnlyFilesystem => "Choose another place.",
        _ if error.raw_os_error() == Some(rustix::io::Errno::MFILE.raw_os_error()) => {
            "Raise the limit for open files (ulimit -n)."
        }
        _ => return None,
    })
}

/// What to do if the input does not exist.
pub const RECORD_FIRST: &str = "Name a profile with -i, or record one, such as jitinject record -- node app.js; the README lists the options of \
     runtimes for perf record.";
/// What to do if a file that an option names does not exist.
pub const CHECK_PATH: &str = "Check the path: each file and folder that an option names must exist.";
