//! Standard input as the profile of a command line that names none.

use std::fs::{self, File, Metadata};
use std::io::{self, IsTerminal};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use jitinject::internals::files::stdio::is_standard;
use jitinject::internals::files::stream::open_input;
use jitinject::internals::load::may_be_input;
use jitinject::internals::load::running_processes::ProcessStat;
use jitinject::internals::perf::header::is_profile;
use jitinject::internals::record::Plan;
use jitinject::{Diagnostic, Issue};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::RecvFlags;
use rustix::pipe::SpliceFlags;

use crate::cli::terminal::report;

/// The default output of perf record.
const PERF_DATA: &str = "perf.data";

/// How long to wait for the first bytes of a pipe that no program of the pipeline holds. The program that started this one
/// may write to it, but many keep such a pipe open without ever using it.
const WAIT: Timespec = Timespec {
    tv_sec: 1,
    tv_nsec: 0,
};

/// Bytes that show what standard input has.
const START_SIZE: usize = 64;

/// Returns the profile to read: the one that the command line names, or that in the folder of a recording, else
/// [`default_profile`].
pub fn profile_of(named: Option<&PathBuf>, is_quiet: bool) -> Result<PathBuf, Diagnostic> {
    match named {
        Some(named) => Ok(Plan::profile_at(named.clone())),
        None => default_profile(is_quiet),
    }
}

/// Returns the profile to read if the command line names none: standard input if it has one, else `perf.data`. Nothing is
/// read from standard input.
///
/// As long as a program of the pipeline may write to the pipe, this waits, and if it then ends without data, that is an error.
/// Scripts often run with an empty pipe, or with one that they read themselves, and a pipeline whose programs have ended looks
/// the same. Then `perf.data` is the profile, with a warning unless `is_quiet`.
pub fn default_profile(is_quiet: bool) -> Result<PathBuf, Diagnostic> {
    let stdin = io::stdin();
    let stdin = stdin.as_fd();
    // What cannot be examined cannot be read either.
    let Ok(metadata) = metadata_of_stdin() else {
        return Ok(PERF_DATA.into());
    };
    let kind = metadata.file_type();
    let is_pipe = kind.is_fifo() || kind.is_socket();
    let start = if is_pipe {
        start_of_pipe(stdin, &metadata)?
    } else if kind.is_file() {
        start_of_file(stdin).unwrap_or_default()
    } else {
        Vec::new()
    };
    if may_be_input(&start) {
        return Ok("-".into());
    }
    if is_pipe && !is_quiet {
        report(&Diagnostic::new(Issue::StdinNotRead).with("profile", PERF_DATA));
    }
    Ok(PERF_DATA.into())
}

/// Returns whether an input is read from a pipe or a device, which may take until a recording has ended.
pub fn is_stream(input: &Path) -> bool {
    let metadata = if is_standard(input) {
        metadata_of_stdin()
    } else {
        fs::metadata(input)
    };
    metadata.is_ok_and(|metadata| !metadata.is_file() && !metadata.is_dir())
}

/// Returns whether the profile to read is certainly neither a log nor a trace. Nothing is read from pipes.
pub fn is_recorded(named: Option<&Path>) -> bool {
    let path = match named {
        Some(path) => path,
        None if io::stdin().is_terminal() => Path::new(PERF_DATA),
        None => return false,
    };
    let has_start = || {
        let mut start = [0_u8; START_SIZE];
        let size = open_input(path).and_then(|file| file.read_at(&mut start, 0));
        size.is_ok_and(|size| start.get(..size).is_some_and(is_profile))
    };
    let found = (!is_standard(path)).then(|| fs::metadata(path));
    found.is_some_and(|found| found.is_ok_and(|found| found.is_dir() || found.is_file() && has_start()))
}

fn metadata_of_stdin() -> io::Result<Metadata> {
    File::from(io::stdin().as_fd().try_clone_to_owned()?).metadata()
}

/// Returns the next bytes of a file.
fn start_of_file(stdin: BorrowedFd<'_>) -> io::Result<Vec<u8>> {
    let position = rustix::fs::tell(stdin)?;
    let mut start = vec![0; START_SIZE];
    let size = File::from(stdin.try_clone_to_owned()?).read_at(&mut start, position)?;
    start.truncate(size);
    Ok(start)
}

/// Returns the first bytes of a pipe, or nothing if it has none. Waits for them while a program of the pipeline may write.
/// Such programs are looked for again and again: others have the pipe open for a moment while they start.
fn start_of_pipe(stdin: BorrowedFd<'_>, metadata: &Metadata) -> Result<Vec<u8>, Diagnostic> {
    let failed = |cause: io::Error| Diagnostic::cannot_read(Path::new("standard input"), &cause);
    let is_ready = |timeout: &Timespec| {
        let mut stdin = [PollFd::new(&stdin, PollFlags::IN)];
        let ready = rustix::io::retry_on_intr(|| poll(&mut stdin, Some(timeout)));
        ready.map(|ready| ready > 0).map_err(|cause| failed(cause.into()))
    };
    let mut has_producer = false;
    let mut timeout = Timespec::default();
    let mut start = None;
    while start.is_none() {
        if is_ready(&timeout)? {
            start = Some(peek(stdin, metadata).map_err(failed)?);
        } else if has_producer_of(metadata) {
            has_producer = true;
        } else if timeout == WAIT {
            start = Some(Vec::new());
        }
        timeout = WAIT;
    }
    match start.unwrap_or_default() {
        start if start.is_empty() && has_producer => Err(Diagnostic::new(Issue::StdinWithoutData)),
        start => Ok(start),
    }
}

/// Returns bytes of a pipe or socket without removing them.
fn peek(stdin: BorrowedFd<'_>, metadata: &Metadata) -> io::Result<Vec<u8>> {
    let mut start = vec![0; START_SIZE];
    let size = if metadata.file_type().is_socket() {
        rustix::net::recv(stdin, &mut start[..], RecvFlags::PEEK | RecvFlags::DONTWAIT)?.0
    } else {
        let (reader, writer) = rustix::pipe::pipe()?;
        match rustix::pipe::tee(stdin, &writer, START_SIZE, SpliceFlags::NONBLOCK)? {
            0 => 0,
            _ => rustix::io::read(&reader, &mut start)?,
        }
    };
    start.truncate(size);
    Ok(start)
}

/// Returns whether another program of the pipeline has the pipe open for writing, or may have. A shell starts the programs of
/// a pipeline in one process group. Those that this program was started by are not part of it.
fn has_producer_of(pipe: &Metadata) -> bool {
    let mut ancestors = vec![std::process::id()];
    let field = |pid: u32, number| ProcessStat::of(pid)?.field::<u32>(number);
    let Some(group) = field(std::process::id(), ProcessStat::GROUP) else {
        return false;
    };
    while let Some(parent) = ancestors.last().and_then(|&pid| field(pid, ProcessStat::PARENT)) {
        ancestors.push(parent);
    }
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let mut pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.any(|pid| {
        let is_in_group = field(pid, ProcessStat::GROUP) == Some(group);
        is_in_group && !ancestors.contains(&pid) && may_write(pid, pipe)
    })
}

/// Returns whether a process has a pipe open for writing, or is another user's, whose files cannot be seen.
fn may_write(pid: u32, pipe: &Metadata) -> bool {
    /// Permission of the owner to write; links to open files have it if the file can be written.
    const WRITABLE: u32 = 0o200;
    let files = match fs::read_dir(format!("/proc/{pid}/fd")) {
        Ok(files) => files,
        Err(error) => return error.kind() == io::ErrorKind::PermissionDenied,
    };
    files.flatten().any(|file| {
        let is_pipe =
            fs::metadata(file.path()).is_ok_and(|file| (file.dev(), file.ino()) == (pipe.dev(), pipe.ino()));
        is_pipe && file.metadata().is_ok_and(|link| link.mode() & WRITABLE != 0)
    })
}
