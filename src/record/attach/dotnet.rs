//! .NET: its runtime has a socket for tools, which can make .NET 8 and later write a jitdump and a perf map.
//!
//! The protocol is described in documentation/design-docs/ipc-protocol.md of <https://github.com/dotnet/diagnostics>.

use std::ffi::OsStr;
use std::fmt;
use std::fs;
use std::io::{self, ErrorKind, Read};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{FileType, Mode, OFlags, fstat, openat};
use rustix::io::Errno;
use rustix::net::sockopt::socket_peercred;
use rustix::net::{
    AddressFamily, SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect, send, socket_with,
};

use crate::bytes::printable_path;
use crate::files::Folder;
use crate::files::folder::descriptor_path;
use crate::files::kernel;
use crate::files::walk::Scope;
use crate::load::running_processes::{ProcessStat, owner_of};
use crate::record::process_files::ids_of;
use crate::record::short_command::IsStopped;

/// How long to wait for a reply. The runtime writes the names of all code that it has compiled before it replies.
const PATIENCE: Duration = Duration::from_secs(10);

const MAGIC: [u8; 14] = *b"DOTNET_IPC_V1\0";

/// Size of a message in bytes, without what follows its header.
const HEADER: u16 = 20;

/// Error of a runtime that does not know a command (`DS_IPC_E_UNKNOWN_COMMAND`).
const UNKNOWN_COMMAND: u32 = 0x8013_1385;

/// A command for the runtime.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Command {
    /// Writes a jitdump and a perf map from now on, first of the code that exists.
    EnablePerfMap,
    /// Writes neither any longer.
    DisablePerfMap,
}

impl Command {
    /// Returns the message that gives a runtime the command.
    fn message(self) -> Vec<u8> {
        /// `PerfMapType::ALL`. The jitdump has precompiled methods, which the map lacks; the map has all code of stubs.
        const ALL: u32 = 1;
        let (command, parameter) = match self {
            Self::EnablePerfMap => ([0x04, 0x05], Some(ALL)),
            Self::DisablePerfMap => ([0x04, 0x06], None),
        };
        let size = HEADER + if parameter.is_some() { 4 } else { 0 };
        let mut message = MAGIC.to_vec();
        message.extend(size.to_le_bytes());
        message.extend(command);
        message.extend([0; 2]);
        message.extend(parameter.into_iter().flat_map(u32::to_le_bytes));
        message
    }
}

/// Why a command had no effect.
#[derive(Debug)]
enum Failure {
    /// There is no socket in the folder.
    NoSocket(PathBuf),
    /// Another process waits at the socket, or it is no socket of the process's owner.
    OtherProcess,
    /// There was no reply in time.
    Silence,
    /// The reply is not one of the protocol.
    BadReply,
    /// The runtime replied with an error.
    Refused(u32),
    /// The socket cannot be used.
    Io(io::Error),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSocket(folder) => write!(
                f,
                "it has no diagnostic socket in {}, as with DOTNET_EnableDiagnostics=0",
                printable_path(folder)
            ),
            Self::OtherProcess => f.write_str("its diagnostic socket is that of another process"),
            Self::Silence => f.write_str("its diagnostic socket does not reply"),
            Self::BadReply => f.write_str("its diagnostic socket does not reply as .NET does"),
            Self::Refused(UNKNOWN_COMMAND) => f.write_str("its version cannot, .NET 8 and later can"),
            Self::Refused(error) => write!(f, "it refuses with error {error:#010x}"),
            Self::Io(cause) => write!(f, "diagnostic socket: {cause}"),
        }
    }
}

impl From<io::Error> for Failure {
    fn from(cause: io::Error) -> Self {
        match cause.kind() {
            ErrorKind::WouldBlock | ErrorKind::TimedOut => Self::Silence,
            ErrorKind::UnexpectedEof => Self::BadReply,
            _ => Self::Io(cause),
        }
    }
}

impl From<Errno> for Failure {
    fn from(cause: Errno) -> Self {
        io::Error::from(cause).into()
    }
}

/// A running process that logs its code because it was asked to.
#[derive(Debug)]
pub struct LoggingProcess {
    pid: u32,
    /// Its start in clock ticks since the boot, which distinguishes processes with the same ID.
    start: u64,
    port: DiagnosticPort,
}

impl LoggingProcess {
    /// Makes a process log its code. Returns `None` if it already does, or why it cannot.
    pub fn start(pid: u32, is_stopped: IsStopped<'_>) -> Result<Option<Self>, String> {
        if is_logging(pid) {
            return Ok(None);
        }
        let start = start_of(pid).ok_or("it has ended")?;
        let port = DiagnosticPort::of_process(pid, start).map_err(|cause| cause.to_string())?;
        match port.ask(pid, Command::EnablePerfMap, PATIENCE, is_stopped) {
            Ok(()) => Ok(Some(Self { pid, start, port })),
            Err(cause) => {
                if matches!(cause, Failure::Silence) {
                    // It may still do it, so it is told to stop afterwards.
                    let _ = port.ask(pid, Command::DisablePerfMap, Duration::ZERO, is_stopped);
                }
                Err(cause.to_string())
            }
        }
    }

    /// Returns the process ID.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Ends the logging. Returns why it goes on.
    pub fn finish(&self, is_stopped: IsStopped<'_>) -> Result<(), String> {
        let is_running = || {
            let has_program = kernel::read_link(format!("/proc/{}/exe", self.pid)).is_ok();
            has_program && start_of(self.pid) == Some(self.start)
        };
        match self
            .port
            .ask(self.pid, Command::DisablePerfMap, PATIENCE, is_stopped)
        {
            // It removes the socket when it exits.
            Ok(()) | Err(Failure::NoSocket(_)) => Ok(()),
            // An interrupt ends the wait for its reply.
            Err(Failure::Silence) if is_stopped() => Ok(()),
            Err(cause) if is_running() => Err(format!("it logs it from now on: {cause}")),
            Err(_) => Ok(()),
        }
    }
}

fn start_of(pid: u32) -> Option<u64> {
    ProcessStat::of(pid)?.start()
}

/// Whether a process logs its code, and would no longer do so after [`Command::DisablePerfMap`].
fn is_logging(pid: u32) -> bool {
    let environment = kernel::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    let is_enabled = |name| value_of(&environment, name).is_some_and(|value| value != b"0");
    if is_enabled("DOTNET_PerfMapEnabled") || is_enabled("COMPlus_PerfMapEnabled") {
        return true;
    }
    // Another tool may have asked. Jitdumps stay open after the logging has ended.
    let map = format!("perf-{}.map", inner_pid(pid));
    let files = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten();
    let mut links = files
        .flatten()
        .filter_map(|file| kernel::read_link(file.path()).ok());
    links.any(|link| link.file_name() == Some(OsStr::new(&map)))
}

/// Returns the value of a variable in the contents of `/proc/PID/environ`.
fn value_of<'a>(environment: &'a [u8], name: &str) -> Option<&'a [u8]> {
    let mut variables = environment.split(|&byte| byte == 0);
    variables.find_map(|variable| variable.strip_prefix(name.as_bytes())?.strip_prefix(b"="))
}

/// Returns the ID that a process itself sees, which differs in a container.
fn inner_pid(pid: u32) -> u32 {
    ids_of(pid).last().copied().unwrap_or(pid)
}

/// The place of a diagnostic socket.
#[derive(Debug)]
struct DiagnosticPort {
    folder: Folder,
    /// Path of the folder in the file system of the process.
    folder_path: PathBuf,
    name: String,
}

impl DiagnosticPort {
    /// Finds that of a process, which has started `start` clock ticks after the boot.
    fn of_process(pid: u32, start: u64) -> Result<Self, Failure> {
        let environment = kernel::read(format!("/proc/{pid}/environ"))?;
        let folder = value_of(&environment, "TMPDIR").filter(|folder| !folder.is_empty());
        let folder = Path::new(OsStr::from_bytes(folder.unwrap_or(b"/tmp")));
        let name = format!("dotnet-diagnostic-{}-{start}-socket", inner_pid(pid));
        Self::open(&PathBuf::from(format!("/proc/{pid}/root")), folder, name)
    }

    /// Opens the folder of a socket. No link in its path leads out of `root`.
    fn open(root: &Path, folder: &Path, name: String) -> Result<Self, Failure> {
        let folder_path = folder.to_owned();
        match Folder::open(folder, Scope::Root(root)) {
            Ok(folder) => Ok(Self {
                folder,
                folder_path,
                name,
            }),
            Err(cause) if cause.kind() == ErrorKind::NotFound => Err(Failure::NoSocket(folder_path)),
            Err(cause) => Err(cause.into()),
        }
    }

    /// Sends a command to the process `pid`, and waits for the reply.
    fn ask(
        &self,
        pid: u32,
        command: Command,
        patience: Duration,
        is_stopped: IsStopped<'_>,
    ) -> Result<(), Failure> {
        let deadline = Instant::now() + patience;
        let socket = self.connect(owner_of(pid))?;
        // Others of the same owner may create sockets, too.
        if socket_peercred(&socket)?.pid.as_raw_nonzero().get() != pid.cast_signed() {
            return Err(Failure::OtherProcess);
        }
        let message = command.message();
        if send(&socket, &message, SendFlags::NOSIGNAL)? != message.len() {
            return Err(Failure::Silence);
        }
        let mut socket = UnixStream::from(socket);
        socket.set_nonblocking(false)?;
        read_reply(|buffer| read_until(&mut socket, buffer, deadline, is_stopped))
    }

    /// Connects without waiting to a socket of this user, but follows no link: others may create files in /tmp. A path through a
    /// descriptor is short enough for any folder.
    fn connect(&self, owner: Option<u32>) -> Result<OwnedFd, Failure> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let found = match openat(&self.folder, &self.name, flags, Mode::empty()) {
            Err(Errno::NOENT) => return Err(Failure::NoSocket(self.folder_path.clone())),
            other => other?,
        };
        let stat = fstat(&found)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::Socket || owner != Some(stat.st_uid) {
            return Err(Failure::OtherProcess);
        }
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        connect(&socket, &SocketAddrUnix::new(descriptor_path(&found))?)?;
        Ok(socket)
    }
}

/// Returns why a reply with these bytes is not that of a runtime that does as it is asked.
pub fn reply_error(mut reply: &[u8]) -> Option<String> {
    let read = read_reply(|buffer| reply.read_exact(buffer));
    read.err().map(|failure| failure.to_string())
}

/// Reads a reply, of which `read` fills a buffer with the next bytes.
fn read_reply(mut read: impl FnMut(&mut [u8]) -> io::Result<()>) -> Result<(), Failure> {
    let (mut magic, mut size, mut kind) = ([0; 14], [0; 2], [0; 4]);
    read(&mut magic)?;
    read(&mut size)?;
    read(&mut kind)?;
    let size = u16::from_le_bytes(size);
    if magic != MAGIC || size < HEADER {
        return Err(Failure::BadReply);
    }
    // A result, 0 for success, may follow. Anything longer is ignored.
    let mut result = [0; 4];
    let has_result = size >= HEADER + 4;
    if has_result {
        read(&mut result)?;
    }
    match (kind, u32::from_le_bytes(result)) {
        ([0xff, 0x00, ..], 0) => Ok(()),
        ([0xff, 0x00 | 0xff, ..], error) if has_result => Err(Failure::Refused(error)),
        _ => Err(Failure::BadReply),
    }
}

/// Fills a buffer before a deadline, unless the user wants to end that.
fn read_until(
    socket: &mut UnixStream,
    mut buffer: &mut [u8],
    deadline: Instant,
    is_stopped: IsStopped<'_>,
) -> io::Result<()> {
    /// Time between two looks at signals.
    const PERIOD: Duration = Duration::from_millis(50);
    while !buffer.is_empty() {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() || is_stopped() {
            return Err(ErrorKind::TimedOut.into());
        }
        socket.set_read_timeout(Some(left.min(PERIOD)))?;
        match socket.read(buffer) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(length) => buffer = buffer.split_at_mut_checked(length).unwrap_or_default().1,
            Err(cause) if matches!(cause.kind(), ErrorKind::Interrupted | ErrorKind::WouldBlock) => {}
            Err(cause) => return Err(cause),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::net::UnixListener;
    use std::thread;

    use rustix::fs::open;

    use super::*;

    const NAME: &str = "dotnet-diagnostic-1-2-socket";

    fn reply(kind: [u8; 2], size: u16, payload: &[u8]) -> Vec<u8> {
        [&MAGIC[..], &size.to_le_bytes(), &kind, &[0; 2], payload].concat()
    }

    /// Asks a server that sends `reply` and then closes the connection, or keeps it open. Returns the failure and the message that
    /// it got.
    fn ask(reply: Vec<u8>, is_closed: bool, patience: Duration) -> (Option<String>, Vec<u8>) {
        let root = tempfile::tempdir().unwrap();
        // Sockets have paths of at most 107 bytes.
        let folder = Path::new("/").join("f".repeat(120));
        let inside = root.path().join(folder.strip_prefix("/").unwrap());
        fs::create_dir(&inside).unwrap();
        let listener = {
            let folder = open(&inside, OFlags::PATH, Mode::empty()).unwrap();
            UnixListener::bind(descriptor_path(&folder).join(NAME)).unwrap()
        };
        let server = thread::spawn(move || {
            let mut client = listener.accept().unwrap().0;
            let mut message = [0; 64];
            let length = client.read(&mut message).unwrap();
            client.write_all(&reply).unwrap();
            if !is_closed {
                let _ = client.read(&mut [0]);
            }
            message[..length].to_vec()
        });
        let port = DiagnosticPort::open(root.path(), &folder, NAME.to_owned()).unwrap();
        let asked = port.ask(std::process::id(), Command::EnablePerfMap, patience, &mut || {
            false
        });
        (asked.err().map(|cause| cause.to_string()), server.join().unwrap())
    }

    fn failure(reply: Vec<u8>) -> Option<String> {
        ask(reply, true, PATIENCE).0
    }

    #[test]
    fn a_command_has_a_header_and_its_parameter() {
        let (failed, message) = ask(reply([0xff, 0], 24, &[0; 4]), false, PATIENCE);
        assert_eq!(failed, None);
        assert_eq!(message, b"DOTNET_IPC_V1\0\x18\0\x04\x05\0\0\x01\0\0\0");
        assert_eq!(
            Command::DisablePerfMap.message(),
            b"DOTNET_IPC_V1\0\x14\0\x04\x06\0\0"
        );
    }

    #[test]
    fn replies_of_any_size_are_understood() {
        for (size, payload) in [(20, &[][..]), (24, &[0; 4]), (28, &[0; 8]), (u16::MAX, &[0; 4])] {
            assert_eq!(failure(reply([0xff, 0], size, payload)), None, "{size}");
        }
    }

    #[test]
    fn errors_of_the_runtime_are_reported() {
        let unknown = reply([0xff, 0xff], 24, &UNKNOWN_COMMAND.to_le_bytes());
        assert_eq!(
            failure(unknown).unwrap(),
            "its version cannot, .NET 8 and later can"
        );
        for kind in [[0xff, 0xff], [0xff, 0]] {
            let other = reply(kind, 24, &0x8000_4005_u32.to_le_bytes());
            assert_eq!(failure(other).unwrap(), "it refuses with error 0x80004005");
        }
    }

    #[test]
    fn bytes_that_are_no_reply_are_rejected() {
        let good = reply([0xff, 0], 24, &[0; 4]);
        let cut = (0..good.len()).map(|length| good[..length].to_vec());
        let other = [
            b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec(),
            reply([0xff, 0], 19, &[0; 4]),
            reply([0xff, 0], 0, &[]),
            reply([0xff, 0xff], 20, &[]),
            reply([0x04, 0x05], 24, &[0; 4]),
        ];
        for bytes in cut.chain(other) {
            let failed = failure(bytes.clone());
            assert_eq!(
                failed.as_deref(),
                Some("its diagnostic socket does not reply as .NET does"),
                "{bytes:?}"
            );
        }
    }

    #[test]
    fn a_silent_socket_is_left_in_time() {
        let patience = Duration::from_millis(20);
        for part in [Vec::new(), MAGIC.to_vec()] {
            let started = Instant::now();
            let (failed, _) = ask(part, false, patience);
            assert_eq!(failed.unwrap(), "its diagnostic socket does not reply");
            assert!(started.elapsed() >= patience);
        }
    }

    #[test]
    fn a_silent_socket_is_left_when_the_user_wants_it() {
        let (mut client, _server) = UnixStream::pair().unwrap();
        let deadline = Instant::now() + Duration::from_secs(1000);
        let read = read_until(&mut client, &mut [0], deadline, &mut || true);
        assert_eq!(read.unwrap_err().kind(), ErrorKind::TimedOut);
    }

    #[test]
    fn a_full_queue_does_not_block() {
        let root = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(root.path().join(NAME)).unwrap();
        rustix::net::listen(&listener, 0).unwrap();
        let port = DiagnosticPort::open(root.path(), Path::new("/"), NAME.to_owned()).unwrap();
        let _first = port.connect(owner_of(std::process::id())).unwrap();
        let failed = port.ask(std::process::id(), Command::EnablePerfMap, PATIENCE, &mut || {
            false
        });
        assert!(matches!(failed, Err(Failure::Silence)), "{failed:?}");
    }

    #[test]
    fn only_the_process_itself_is_asked() {
        let root = tempfile::tempdir().unwrap();
        let open = |folder: &str| DiagnosticPort::open(root.path(), Path::new(folder), NAME.to_owned());
        let port = |folder: &str| {
            open(folder).and_then(|port| port.ask(1, Command::EnablePerfMap, PATIENCE, &mut || false))
        };
        let absent = "it has no diagnostic socket in /absent, as with DOTNET_EnableDiagnostics=0";
        assert_eq!(port("/absent").unwrap_err().to_string(), absent);
        assert!(matches!(port("/"), Err(Failure::NoSocket(_))));
        let listener = UnixListener::bind(root.path().join(NAME)).unwrap();
        assert!(matches!(port("/"), Err(Failure::OtherProcess)));
        // No link leads out of the root directory of the process.
        std::os::unix::fs::symlink(root.path(), root.path().join("out")).unwrap();
        assert!(matches!(port("/out"), Err(Failure::NoSocket(_))));
        drop(listener);
        let of_user = open("/").unwrap().connect(owner_of(std::process::id()));
        assert!(matches!(of_user, Err(Failure::Io(_))), "{of_user:?}");
    }

    #[test]
    fn neither_a_link_nor_a_socket_of_another_user_is_connected_to() {
        let root = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(root.path().join("other.sock")).unwrap();
        listener.set_nonblocking(true).unwrap();
        let me = owner_of(std::process::id()).unwrap();
        let port = DiagnosticPort::open(root.path(), Path::new("/"), NAME.to_owned()).unwrap();
        let place = root.path().join(NAME);
        std::os::unix::fs::symlink("other.sock", &place).unwrap();
        assert!(matches!(port.connect(Some(me)), Err(Failure::OtherProcess)));
        fs::remove_file(&place).unwrap();
        fs::rename(root.path().join("other.sock"), &place).unwrap();
        for owner in [None, Some(me + 1)] {
            assert!(matches!(port.connect(owner), Err(Failure::OtherProcess)));
        }
        assert_eq!(listener.accept().unwrap_err().kind(), ErrorKind::WouldBlock);
        assert!(port.connect(Some(me)).is_ok() && listener.accept().is_ok());
    }

    #[test]
    fn variables_are_found_by_their_whole_name() {
        let environment = b"XTMPDIR=/x\0TMPDIR=/a=b\0DOTNET_PerfMapEnabled=0\0";
        assert_eq!(value_of(environment, "TMPDIR").unwrap(), b"/a=b");
        assert_eq!(value_of(environment, "TMP"), None);
        assert!(!is_logging(std::process::id()));
        assert_eq!(inner_pid(std::process::id()), std::process::id());
    }
}
