//! Programs that are run for what they print. They may be slow, or print without end.

use std::io::{self, ErrorKind, Read};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitStatus, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::io::ioctl_fionbio;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};

/// Whether the user wants to end what this program does.
pub type IsStopped<'a> = &'a mut dyn FnMut() -> bool;

/// Time between two looks at a program.
pub const PERIOD: Duration = Duration::from_millis(5);

/// Bytes that are kept of what a program prints: the last ones.
const KEPT: usize = 4 << 10;

/// Number of reads between two looks at a program.
const MAX_READS: u32 = 16;

/// What a program has printed.
#[derive(Debug)]
pub struct Printed {
    /// How it ended.
    pub status: ExitStatus,
    /// The end of its standard output, and of its standard error if that was requested.
    pub text: Vec<u8>,
}

/// Runs a program. Fails if it takes too long or the user wants to end it. In any case, no process of its process group
/// is left.
pub fn run(
    mut command: Command,
    has_errors: bool,
    patience: Duration,
    is_stopped: IsStopped<'_>,
) -> io::Result<Printed> {
    let (mut reader, writer) = io::pipe()?;
    ioctl_fionbio(&reader, true)?;
    command.process_group(0).stdin(Stdio::null());
    if has_errors {
        command.stderr(writer.try_clone()?)
    } else {
        command.stderr(Stdio::null())
    };
    let mut child = command.stdout(writer).spawn()?;
    drop(command);
    let pid = Pid::from_child(&child);
    let started = Instant::now();
    let mut text = Vec::new();
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    let end = loop {
        // Until it is waited for, its ID belongs to no other process group.
        let has_exited = !matches!(waitid(WaitId::Pid(pid), options), Ok(None));
        read_available(&mut reader, &mut text);
        if has_exited {
            break None;
        } else if is_stopped() {
            break Some(ErrorKind::Interrupted);
        } else if started.elapsed() > patience {
            break Some(ErrorKind::TimedOut);
        }
        sleep(PERIOD);
    };
    let _ = kill_process_group(pid, Signal::KILL);
    let status = child.wait()?;
    match end {
        None => Ok(Printed { status, text }),
        Some(kind) => Err(kind.into()),
    }
}

/// Reads what a pipe has, within limits, and keeps the last bytes.
fn read_available(reader: &mut impl Read, text: &mut Vec<u8>) {
    let mut buffer = [0; 16 << 10];
    for _ in 0..MAX_READS {
        let Ok(count) = reader.read(&mut buffer) else {
            return;
        };
        text.extend(buffer.iter().take(count));
        text.drain(..text.len().saturating_sub(KEPT));
        if count == 0 {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sh(script: &str, patience: Duration) -> io::Result<Printed> {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        run(command, true, patience, &mut || false)
    }

    const LONG: Duration = Duration::from_secs(600);

    #[test]
    fn the_end_of_what_is_printed_is_kept() {
        let printed = sh("echo one; echo two >&2; exit 3", LONG).unwrap();
        assert_eq!(printed.text, b"one\ntwo\n");
        assert_eq!(printed.status.code(), Some(3));
        let printed = sh("head -c 3000000 /dev/zero; echo end", LONG).unwrap();
        assert_eq!(printed.text.len(), 4096);
        assert!(printed.text.ends_with(b"\0end\n"));
    }

    #[test]
    fn neither_a_slow_program_nor_an_endless_one_is_waited_for() {
        for script in ["sleep 1000", "cat /dev/zero", "trap '' TERM INT; sleep 1000"] {
            let failed = sh(script, Duration::from_millis(100)).unwrap_err();
            assert_eq!(failed.kind(), ErrorKind::TimedOut, "{script}");
            let mut command = Command::new("sh");
            command.args(["-c", script]);
            let failed = run(command, false, LONG, &mut || true).unwrap_err();
            assert_eq!(failed.kind(), ErrorKind::Interrupted, "{script}");
        }
    }

    #[test]
    fn a_quarter_of_a_mebibyte_is_read_between_two_looks() {
        let mut endless = io::repeat(b'x').take(u64::MAX);
        let mut text = Vec::new();
        read_available(&mut endless, &mut text);
        assert_eq!(u64::MAX - endless.limit(), 256 << 10);
        assert_eq!(text, [b'x'; 4096]);
    }

    /// A child of the program holds its output open.
    #[test]
    fn no_child_of_a_program_is_waited_for_or_left() {
        let printed = sh("sleep 1000 & echo $!", LONG).unwrap();
        let child = String::from_utf8(printed.text).unwrap();
        let program = format!("/proc/{}/exe", child.trim());
        let started = Instant::now();
        // It may be a zombie.
        while std::fs::read_link(&program).is_ok() {
            assert!(started.elapsed() < LONG);
            sleep(PERIOD);
        }
    }
}
