//! Files whose bytes change while they are read: no command may crash, whatever it reads.
//!
//! The changes are made in place, so a program that maps the file may read different bytes each time.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use jitdump::ByteOrder;

use crate::support::dump::DumpWriter;
use crate::support::recording::{PID, Recording};
use crate::support::{capture, jitinject, said, scratch, tools};

/// Returns how often each command runs.
fn runs() -> usize {
    let runs = std::env::var("JITINJECT_RUNS").ok();
    runs.map_or(5, |runs| runs.parse().unwrap())
}

fn open_to_write(path: &Path) -> File {
    OpenOptions::new().read(true).write(true).open(path).unwrap()
}

/// Calls `run` while another thread calls `change` repeatedly.
fn while_changing(mut change: impl FnMut() + Send, run: impl FnOnce()) {
    struct Done<'a>(&'a AtomicBool);
    impl Drop for Done<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    let is_done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !is_done.load(Ordering::Relaxed) {
                change();
            }
        });
        let _done = Done(&is_done);
        run();
    });
}

/// Checks that jitinject has succeeded or reported an error, without a crash.
fn check(what: &str, output: &Output) {
    let code = output.status.code();
    assert!(
        matches!(code, Some(0 | 1)),
        "{what}: {}: {}",
        output.status,
        said(output)
    );
    assert!(!said(output).contains("panicked"), "{what}: {}", said(output));
}

/// Runs a command repeatedly.
fn run(command: &[&str]) {
    for _ in 0..runs() {
        check(
            &format!("{command:?}"),
            &jitinject().args(command).output().unwrap(),
        );
    }
}

/// Runs all commands that read a profile; `more` are options for runtime files.
fn read_profile(profile: &Path, output: &Path, more: &[&str]) {
    let (profile, output) = (tools::text(profile), tools::text(output));
    let page = format!("{output}.html");
    run(&[&["-i", profile, "-o", output, "--all"], more].concat());
    run(&["timeline", "-i", profile, "-o", &page]);
}

/// Runs all commands that read a runtime file.
fn read_runtime_file(file: &Path) {
    let file = tools::text(file);
    run(&["dump", file]);
    run(&["dump", "--json", file]);
    run(&["check", file]);
}

/// The last byte of each name alternates between valid and invalid UTF-8.
#[test]
fn names_that_change_while_they_are_read_do_no_harm() {
    const NAMES: u64 = 16;
    const LENGTH: usize = 64 << 10;
    const CODE: [u8; 64] = [0x90; 64];
    let recording = Recording::new();
    let mut dump = DumpWriter::new(ByteOrder::Little, 62, PID);
    let mut ends = Vec::new();
    for number in 0..NAMES {
        let address = 0x4000_0000 + 0x100 * number;
        let mut name = vec![b'A'; LENGTH - 1];
        name[0] = b'a' + (number % 26) as u8;
        dump.load(1000 + number, address, number, &name, &CODE);
        let name_end = dump.bytes.len() - CODE.len() - 1;
        ends.push(name_end as u64 - 1);
    }
    fs::write(&recording.dump, &dump.bytes).unwrap();
    let file = open_to_write(&recording.dump);
    let mut byte = b'A';
    let flip = || {
        byte = if byte == b'A' { 0xf0 } else { b'A' };
        for &end in &ends {
            file.write_all_at(&[byte], end).unwrap();
        }
    };
    while_changing(flip, || {
        read_profile(&recording.profile, &recording.output, &[]);
        read_runtime_file(&recording.dump);
    });
}

/// Random bytes of all files get random values, then their own again.
#[test]
fn files_that_change_while_they_are_read_do_no_harm() {
    let captures = [
        ("php82", &["--jitdump", "--perf-map"][..]),
        ("cpython312-map", &["--perf-map"]),
        ("mono-joined", &["--mono-log"]),
        ("xray-joined-mono14", &["--xray-log"]),
        ("node20-zstd", &["--jitdump"]),
    ];
    for (name, options) in captures {
        let folder = scratch();
        let mut files = Vec::new();
        for entry in fs::read_dir(capture::folder(name)).unwrap() {
            let from = entry.unwrap().path();
            let to = folder.path().join(from.file_name().unwrap());
            fs::copy(&from, &to).unwrap();
            let is_input = to
                .extension()
                .is_some_and(|kind| kind != "sh" && kind != "tsv" && kind != "gz");
            if is_input {
                files.push((open_to_write(&to), fs::read(&to).unwrap(), to));
            }
        }
        let mut state = 1_u64;
        let mut random = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state
        };
        let change = || {
            for (file, bytes, _) in &files {
                let at = random() as usize % bytes.len();
                file.write_all_at(&[random() as u8], at as u64).unwrap();
                file.write_all_at(&bytes[at..=at], at as u64).unwrap();
            }
        };
        let more: Vec<&str> = options
            .iter()
            .flat_map(|option| [option, tools::text(folder.path())])
            .collect();
        while_changing(change, || {
            let is_profile = |path: &&PathBuf| path.extension().is_some_and(|kind| kind == "data");
            let (profiles, others): (Vec<_>, Vec<_>) =
                files.iter().map(|(_, _, path)| path).partition(is_profile);
            for profile in profiles {
                read_profile(profile, &folder.path().join("out"), &more);
            }
            others.into_iter().for_each(|file| read_runtime_file(file));
        });
    }
}
