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
pub const RECORD_FIRST: &str = "Name a profile with -i, or record one, such as jitinject record -- node app.js; docs/runtimes.md lists \
     the options of runtimes for perf record.";
/// What to do about a profile without bytes.
pub const RECORD_AGAIN: &str =
    "perf record writes the profile when it ends, and was perhaps interrupted or failed; record again.";
/// What to do if a file that an option names does not exist.
pub const CHECK_PATH: &str = "Check the path: what the option names must exist.";
/// What to do about a jitdump that is still written, and not at its path here.
pub const COPY_MEANWHILE: &str = "It is not at this path here, and may be gone with the process: copy {copy} as late as possible, and name the \
     copy with --jitdump.";
/// What to do about a jitdump of a process that had other mounts.
pub const COPY_OUT_OF_MOUNTS: &str = "The process had other mounts, such as a /tmp of its own. Let it write to a directory that is mounted there from \
     here, or copy the file out before the mounts end.";
/// What to do about JIT code of a program that is no known runtime.
pub const EMBEDDED_COMPILER: &str = "A program with a JIT compiler in it must request the jitdump: with Wasmtime, by \
     Config::profiler(ProfilingStrategy::JitDump); with LLVM, by createPerfJITEventListener() or ORC's PerfSupportPlugin.";
/// What to do if perf may not record whole CPUs.
pub const PERMIT_CPUS: &str = "All CPUs need 0: type sudo sysctl kernel.perf_event_paranoid=0 (on the host if this is a container), or put sudo \
     before jitinject.";
/// What to do if a process to record has ended.
pub const NAME_RUNNING: &str = "It may have ended. pidof NAME prints the processes of a program.";
/// What to do if perf may not record a process.
pub const RECORD_AS_ROOT: &str = "Record it as root: put sudo before jitinject.";
/// What to do about stacks that are larger than large copies.
pub const RECORD_LARGEST_COPIES: &str = "Record larger copies: --call-graph dwarf,65528.";
/// What to do about stacks that are larger than the largest copies.
pub const LARGEST_COPIES: &str = "The copies have the largest possible size.";
/// What to do if only code that the kernel maps into processes is lacking.
pub const UNWIND_THERE: &str =
    "This code is no file but the kernel's: only the kernel of the recording has it.";
/// What to do about a program that is not found with sudo.
pub const KEEP_PATH: &str =
    "sudo has a PATH of its own; keep yours: sudo env \"PATH=$PATH\" jitinject record -- COMMAND";
