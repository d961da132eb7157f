//! Runs untrusted programs with limits.

use std::fs::{self, File};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Time limit of a program.
const TIME: Duration = Duration::from_secs(10);
/// Limit of its address space in bytes, in addition to the size of its inputs.
const ADDRESSES: u64 = 1 << 30;

/// How a program ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum End {
    Status(i32),
    Signal(i32),
    TimeOut,
}

/// Runs a program with `inputs` bytes of input; its output goes to a file in `folder`. Returns how it ended, and
/// the output.
pub fn run(program: &[&str], folder: &Path, inputs: u64) -> (End, String) {
    let said = folder.join("said");
    let limit = (ADDRESSES + inputs) / 1024;
    let mut child = Command::new("sh")
        .args([
            "-c",
            &format!("ulimit -v {limit}; ulimit -c 0; exec \"$@\""),
            "sh",
        ])
        .args(program)
        // The allocator reserves address space for each thread.
        .env("RAYON_NUM_THREADS", "2")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(File::create(&said).unwrap())
        .spawn()
        .unwrap();
    let start = Instant::now();
    let end = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break match status.signal() {
                Some(signal) => End::Signal(signal),
                None => End::Status(status.code().unwrap_or(-1)),
            };
        }
        if start.elapsed() > TIME {
            child.kill().unwrap();
            child.wait().unwrap();
            break End::TimeOut;
        }
        std::thread::sleep(Duration::from_millis(1));
    };
    let said = String::from_utf8_lossy(&fs::read(said).unwrap()).into_owned();
    (end, said)
}
