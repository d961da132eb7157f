//! What to do about errors that don't say that themselves: those of the system above all.

use std::io;

use crate::elf::{build_id_cache, store};
use crate::inject::Error;
use crate::perf;

impl Error {
    /// What the user can do about it, if more can be said than the error itself does.
    pub fn advice(&self) -> Option<&'static str> {
        of(match self {
            Self::Read { cause, .. } if cause.kind() == io::ErrorKind::NotFound => {
                return Some("check the path: each file and folder that an option names must exist");
            }
            Self::Input { cause, .. } if cause.kind() == io::ErrorKind::NotFound => {
                return Some(
                    "name a profile with -i, or record one, such as perf record -k mono -g -o perf.data node --perf-prof app.js; the \
                     README lists the options of other runtimes",
                );
            }
            Self::Profile {
                cause: perf::Error::NotAProfile,
                ..
            } => {
                return Some(
                    "-i is for what perf record wrote; files of runtimes go behind --jitdump, --perf-map, --mono-log or --xray-log",
                );
            }
            Self::Input { cause, .. }
            | Self::Read { cause, .. }
            | Self::Spool { cause }
            | Self::Summary { cause, .. }
            | Self::Write { cause, .. } => cause,
            Self::Objects(store::Error::Folder { cause, .. } | store::Error::Object { cause, .. }) => cause,
            Self::Cache(build_id_cache::Error { cause, .. }) => cause,
            _ => return None,
        })
    }
}

/// The same of an error of the system.
pub fn of(error: &io::Error) -> Option<&'static str> {
    Some(match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "make room there, or choose another place"
        }
        io::ErrorKind::FileTooLarge => {
            "files may not be as large: there is a limit (ulimit -f), or the file system has one"
        }
        io::ErrorKind::OutOfMemory => "there is a limit for memory (ulimit -v), or not enough of it",
        io::ErrorKind::ReadOnlyFilesystem => "choose another place",
        _ if error.raw_os_error() == Some(rustix::io::Errno::MFILE.raw_os_error()) => {
            "raise the limit for open files (ulimit -n)"
        }
        _ => return None,
    })
}
