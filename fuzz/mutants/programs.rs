//! Running programs that may do anything, within limits.

use std::fs::{self, File};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// How long a program may take.
const TIME: Duration = Duration::from_secs(10);
/// How many bytes of addresses it may have beside those of its inputs.
const ADDRESSES: u64 = 1 << 30;

/// How it ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum End {
    Status(i32),
    Signal(i32),
    TimeOut,
}

/// Runs a program with `inputs` bytes of input; what it says goes to a file of `folder`. Returns how it ended
/// and what it said.
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
        // Each thread of the allocator sets addresses aside.
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
