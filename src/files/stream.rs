//! Opens outputs that are streams instead of files.
//!
//! An output is a new file ([`crate::files::StagedFile`]) or a stream. Streams are what links in `/dev` and `/proc` lead to
//! (`/dev/stdout`, `/dev/fd/3`, `/proc/self/fd/3`), and FIFOs and character devices that the
//! path names without a link and that belong to the user or to root. Others could have been planted: a link
//! to a FIFO is replaced, as every link is, instead of followed.

use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Component, Path};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;

use crate::files::open_file::is_trusted;
use crate::files::stdio;

/// How long to wait for a reader of a FIFO, which may be started just after the program: `jitinject -o fifo &
/// perf report -i fifo`.
const READER_TIMEOUT: Duration = Duration::from_secs(5);
/// Time between two attempts to open a FIFO.
const RETRY_INTERVAL: Duration = Duration::from_millis(10);

/// Size of pipes, in bytes: the largest that Linux allows everybody by default.
const PIPE_SIZE: usize = 1 << 20;

/// Flags for opening streams, without waiting for a reader or acquiring a controlling terminal.
const WRITE_FLAGS: OFlags = OFlags::WRONLY
    .union(OFlags::NONBLOCK)
    .union(OFlags::NOCTTY)
    .union(OFlags::CLOEXEC);

/// Whether a path is that of a stream. [`open`] may still reject it.
pub fn is_stream(path: &Path) -> bool {
    match fs::symlink_metadata(path) {
        Ok(found) if found.is_symlink() => is_system_link(path),
        Ok(found) => !found.is_file() && !found.is_dir(),
        Err(_) => false,
    }
}

/// Whether a path, as written, is that of a link directly in `/dev` or of an open file of a process. Only root and the process
/// can create links there, so it is followed, wherever it leads.
fn is_system_link(path: &Path) -> bool {
    let names: Option<Vec<&str>> = path
        .components()
        .map(|component| match component {
            Component::RootDir => Some("/"),
            Component::Normal(name) => Some(name.to_str().unwrap_or_default()),
            _ => None,
        })
        .collect();
    matches!(
        names.as_deref(),
        Some(
            ["/", "dev", _]
                | ["/", "dev", "fd", _]
                | ["/", "proc", _, "fd", _]
                | ["/", "proc", _, "task", _, "fd", _]
        )
    )
}

/// Opens a stream for writing.
pub fn open(path: &Path) -> io::Result<File> {
    if path == Path::new("/dev/stdout") && stdio::stdout_was_closed() {
        return Err(io::Error::other("standard output is closed"));
    }
    let found = fs::symlink_metadata(path)?;
    if found.is_symlink() && is_system_link(path) {
        let file: File = rustix::fs::openat(CWD, path, WRITE_FLAGS, Mode::empty())
            .map_err(|error| explained(error, "has no reader, or is a socket, to which only - can write"))?
            .into();
        return set_blocking(file);
    }
    // Opening a device may have side effects.
    refuse_untrusted(&found)?;
    let file = open_waiting(path)?;
    refuse_untrusted(&file.metadata()?)?;
    set_blocking(file)
}

/// Opens an input of any kind that the user named. Waits for a writer of a FIFO.
#[expect(clippy::disallowed_methods, reason = "the user named it")]
pub fn open_input(path: &Path) -> io::Result<File> {
    File::open(path)
}

/// Enlarges a pipe, so that the programs at its ends wait for each other less often. Nothing happens to other files, or if
/// the user has too many large pipes.
pub fn enlarge_pipe(file: &File) {
    let _ = rustix::pipe::fcntl_setpipe_size(file, PIPE_SIZE);
}

/// Opens a stream without following a link. Waits some time for the reader of a FIFO.
fn open_waiting(path: &Path) -> io::Result<File> {
    let start = Instant::now();
    loop {
        match rustix::fs::openat(CWD, path, WRITE_FLAGS | OFlags::NOFOLLOW, Mode::empty()) {
            Err(Errno::NXIO) if start.elapsed() < READER_TIMEOUT => sleep(RETRY_INTERVAL),
            other => {
                let file = other.map_err(|error| explained(error, "nothing reads from it"))?;
                return Ok(file.into());
            }
        }
    }
}

/// Replaces ENXIO ("no such device or address") by its `meaning`: a FIFO has no reader, or a link leads to a socket.
fn explained(error: Errno, meaning: &'static str) -> io::Error {
    match error {
        Errno::NXIO => io::Error::other(meaning),
        error => error.into(),
    }
}

/// Rejects anything that another user may have created.
fn refuse_untrusted(found: &Metadata) -> io::Result<()> {
    let (kind, owner) = (found.file_type(), found.uid());
    if !kind.is_fifo() && !kind.is_char_device() {
        return Err(io::Error::other(
            "is neither a file nor a FIFO nor a character device",
        ));
    }
    if !is_trusted(owner) {
        return Err(io::Error::other(format!(
            "belongs to user {owner}, who is neither you nor root; redirect standard output (-) to write to it"
        )));
    }
    Ok(())
}

/// Makes writes wait for the reader.
fn set_blocking(file: File) -> io::Result<File> {
    let flags = rustix::fs::fcntl_getfl(&file)?;
    rustix::fs::fcntl_setfl(&file, flags - OFlags::NONBLOCK)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::symlink;

    #[test]
    fn links_of_the_system_are_recognized_as_written() {
        for path in [
            "/dev/stdout",
            "/dev/fd/1",
            "/proc/self/fd/1",
            "/proc/thread-self/fd/1",
        ] {
            assert!(is_system_link(Path::new(path)), "{path}");
        }
        let folder = tempfile::tempdir().unwrap();
        let link = folder.path().join("fd");
        symlink("/proc/self/fd", &link).unwrap();
        let linked = link.join("1");
        for path in [
            linked.to_str().unwrap(),
            "stdout",
            "/dev/shm/1",
            "/proc/self/root/tmp/1",
            "/proc/../fd/1",
            "/proc/self/cwd/fd/1",
        ] {
            assert!(!is_system_link(Path::new(path)), "{path}");
        }
    }

    #[test]
    fn a_link_to_a_socket_is_explained() {
        let (socket, _other_end) = std::os::unix::net::UnixStream::pair().unwrap();
        let link = format!("/proc/self/fd/{}", socket.as_raw_fd());
        assert!(is_stream(Path::new(&link)));
        let error = open(Path::new(&link)).unwrap_err();
        assert!(error.to_string().contains("is a socket"), "{error}");
    }

    #[test]
    fn links_and_sockets_are_not_opened() {
        let folder = tempfile::tempdir().unwrap();
        let link = folder.path().join("link");
        symlink("/dev/null", &link).unwrap();
        assert!(!is_stream(&link));
        assert!(open(&link).is_err());
        let socket = folder.path().join("socket");
        let _listening = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        assert!(is_stream(&socket));
        assert!(open(&socket).is_err());
        assert!(open(Path::new("/dev/null")).is_ok());
    }
}
