//! `jitdump::symbolize` on a running program: the example keeps up with node, which compiles all the time.

use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::support::{scratch, tools};

/// Compiles a new function every millisecond or so, and ends by itself.
const PROGRAM: &str = "
let made = 0;
const start = Date.now();
while (Date.now() - start < 120000) {
    const work = new Function('n', `let sum = 0; for (let i = 0; i < n; i++) sum += i % 7 * ${made++}; return sum`);
    for (let turn = 0; turn < 300; turn++) work(400);
}
";

#[test]
fn the_live_symbolizer_keeps_up_with_node() {
    let folder = scratch();
    std::fs::write(folder.path().join("work.js"), PROGRAM).unwrap();
    let mut node = Command::new("node")
        .args(["--perf-prof", "work.js"])
        .current_dir(folder.path())
        .spawn()
        .unwrap_or_else(|error| panic!("node: {error}; scripts/test installs it"));
    let programs = Path::new(env!("CARGO_BIN_EXE_jitinject")).parent().unwrap();
    let pid = node.id().to_string();
    // perf ends with its group.
    let mut symbolizer = Command::new(programs.join("examples/live_symbolizer"))
        .arg(&pid)
        .stdout(Stdio::piped())
        .process_group(0)
        .spawn()
        .unwrap_or_else(|error| panic!("{error}; cargo build --examples builds the program"));
    let dump = folder.path().join(format!("jit-{pid}.dump"));
    let (mut new, mut behind, mut samples, mut named) = (0, 0, 0, 0);
    let lines = BufReader::new(symbolizer.stdout.take().unwrap()).lines();
    // 6 new functions in 1.2ms, 4096 bytes read, 450 of 499 samples in JIT code
    let seconds = lines
        .map_while(Result::ok)
        .filter(|line| line.ends_with("in JIT code"));
    for line in seconds.take(6) {
        let numbers: Vec<u64> = line.split(' ').filter_map(|word| word.parse().ok()).collect();
        let [functions, read, of_jit, all] = numbers[..] else {
            panic!("{line}")
        };
        new += functions;
        behind = std::fs::metadata(&dump).map_or(0, |file| file.len().saturating_sub(read));
        named += of_jit;
        samples += all;
    }
    tools::run("kill", &["-TERM", "--", &format!("-{}", symbolizer.id())]);
    node.kill().unwrap();
    node.wait().unwrap();
    symbolizer.wait().unwrap();
    assert!(new > 300, "{new} functions");
    // What node wrote while this test read a line.
    assert!(behind < 1 << 20, "{behind} bytes behind");
    // The rest is in node itself.
    assert!(named * 10 > samples, "{named} of {samples} samples");
}
