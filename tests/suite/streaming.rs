//! Large profiles are read in blocks: the output is that of profiles in memory, memory does not grow with them, and a change
//! while they are read is an error.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use jitdump::ByteOrder;
use jitinject::inject;
use jitinject::internals::tools::timeline::{TimelineOptions, html, timeline};
use jitinject::{InjectOptions, KeptStacks, LoadOptions, TraceOptions, UnwindOptions};

use crate::support::dump::DumpWriter;
use crate::support::profile::ProfileWriter;
use crate::support::recording::PID;
use crate::support::{capture, has_code, jitinject, said, scratch, tools};

/// Returns the content of all files in a folder and below.
fn contents(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(contents(&path))
        } else {
            drop(found.insert(path.clone(), fs::read(&path).unwrap()))
        }
    }
    found
}

/// Returns all files that are made of a profile that is in memory up to a size in bytes, and the texts about it.
fn made(folder: &Path, options: &InjectOptions, max_in_memory: u64) -> BTreeMap<PathBuf, Vec<u8>> {
    let folder = folder.join("out");
    fs::create_dir(&folder).unwrap();
    let load = LoadOptions {
        max_in_memory: Some(max_in_memory),
        ..options.load.clone()
    };
    let options = InjectOptions {
        load: load.clone(),
        output: folder.join("out.data"),
        ..options.clone()
    };
    let summary = inject(&options, &mut ()).unwrap();
    let page = TimelineOptions {
        load,
        output: folder.join("page.html"),
        ..TimelineOptions::default()
    };
    let page = timeline(&page, &mut ()).unwrap();
    let mut files = contents(&folder);
    let texts = format!(
        "{:?}{}{:?}",
        summary.diagnostics,
        summary.text(true),
        page.diagnostics
    );
    files.insert("texts".into(), texts.into_bytes());
    files.insert("page".into(), html(&page.values).unwrap().into_bytes());
    fs::remove_dir_all(&folder).unwrap();
    files
}

/// Checks that the profile of a capture makes the same files in blocks as in memory.
fn check(name: &str, profile: &Path, change: impl Fn(&mut InjectOptions)) {
    let scratch = scratch();
    let folder = capture::folder(name);
    let mut options = InjectOptions {
        load: LoadOptions {
            input: profile.to_owned(),
            jitdumps: vec![folder.clone()],
            perf_maps: vec![folder.clone()],
            ..LoadOptions::default()
        },
        ..InjectOptions::default()
    };
    change(&mut options);
    let [in_memory, in_blocks] = [u64::MAX, 0].map(|size| made(scratch.path(), &options, size));
    let names: Vec<_> = in_memory.keys().collect();
    assert_eq!(names, in_blocks.keys().collect::<Vec<_>>(), "{name}");
    for (path, content) in &in_memory {
        assert!(in_blocks[path] == *content, "{name}: {}", path.display());
    }
}

#[test]
fn profiles_in_blocks_give_the_files_of_those_in_memory() {
    for name in [
        "node20",
        "php82",
        "cpython312-map",
        "node20-dir",
        "node20-zstd",
        "java17-tsc",
    ] {
        check(name, &capture::profile(name), |options| {
            options.all = name == "php82";
            options.compression = (name == "node20").then_some(1);
        });
    }
}

#[test]
fn unwound_profiles_in_blocks_give_the_files_of_those_in_memory() {
    for name in ["cpython313-dwarf", "node20-dwarf"] {
        check(name, &capture::profile(name), |options| {
            options.unwind = Some(UnwindOptions {
                is_optional: false,
                kept: KeptStacks::Nothing,
                fold_interpreter: false,
            });
        });
    }
}

#[test]
fn pipes_in_blocks_give_the_files_of_those_in_memory() {
    let name = "node20-pipe";
    let pipe = capture::folder(name).join("perf.pipe");
    check(name, &pipe, |_| {});
    check(name, &pipe, |options| options.compression = Some(1));
}

#[test]
fn profiles_with_logs_in_blocks_give_the_files_of_those_in_memory() {
    for splice_stacks in [false, true] {
        check("mono-joined", &capture::profile("mono-joined"), |options| {
            options.load.trace = TraceOptions {
                mono_logs: vec![capture::folder("mono-joined").join("trace.mlpd")],
                pid: Some(25926),
                splice_stacks,
                ..TraceOptions::default()
            };
        });
        check(
            "xray-joined-mono14",
            &capture::profile("xray-joined-mono14"),
            |options| {
                options.load.trace = TraceOptions {
                    xray_logs: vec![capture::folder("xray-joined-mono14").join("trace.xray")],
                    splice_stacks,
                    ..TraceOptions::default()
                };
            },
        );
    }
}

/// Damages a profile at its middle.
type Damage = fn(&mut Vec<u8>, usize);

/// Damage is found only in memory. Bytes are missing, wrong, or follow the last record.
#[test]
fn damaged_profiles_in_blocks_give_the_files_of_those_in_memory() {
    let folder = scratch();
    let sound = fs::read(capture::profile("node20")).unwrap();
    let path = folder.path().join("perf.data");
    let middle = sound.len() / 2;
    let damage: [Damage; 3] = [
        |bytes, middle| bytes[middle..middle + 500].fill(0xff),
        |bytes, middle| drop(bytes.drain(middle..middle + 3)),
        Vec::truncate,
    ];
    for spoil in damage {
        let mut bytes = sound.clone();
        spoil(&mut bytes, middle);
        fs::write(&path, bytes).unwrap();
        check("node20", &path, |_| {});
    }
}

/// Size of a sample with raw data, in bytes: the largest one that a record can have.
const SAMPLE_SIZE: u64 = 65_528;

/// Writes a profile of samples with much raw data, which are holes in the file, in one function of a dump beside it.
fn write_large(folder: &Path, samples: u64) -> PathBuf {
    const RAW: u64 = 1 << 10;
    const CODE: u64 = 0x4000_0000;
    let dump = folder.join(format!("jit-{PID}.dump"));
    let mut writer = DumpWriter::new(ByteOrder::Little, 62, PID);
    writer.load(1000, CODE, 0, b"named", &[0x90; 64]);
    fs::write(&dump, writer.bytes).unwrap();
    let mut writer = ProfileWriter::new(ByteOrder::Little);
    writer.sample_type |= RAW;
    writer.mmap2(PID, 0x6000_0000, 4096, 0, tools::text(&dump), 500);
    writer.mmap2(PID, CODE, 4096, 0, "//anon", 501);
    let first = writer.records.len() as u64;
    let head = writer.head(first + samples * SAMPLE_SIZE);
    let path = folder.join("perf.data");
    let file = File::create(&path).unwrap();
    file.write_all_at(&head, 0).unwrap();
    file.write_all_at(&writer.records, head.len() as u64).unwrap();
    let start = head.len() as u64 + first;
    for index in 0..samples {
        writer.records.clear();
        writer.sample(PID, 2000 + index, &[CODE + index % 64], None);
        let fields = writer.records.len() as u64;
        let size = (SAMPLE_SIZE - fields - 4) as u32;
        writer.records.extend_from_slice(&size.to_le_bytes());
        writer.records[6..8].copy_from_slice(&(SAMPLE_SIZE as u16).to_le_bytes());
        file.write_all_at(&writer.records, start + index * SAMPLE_SIZE)
            .unwrap();
    }
    file.set_len(start + samples * SAMPLE_SIZE).unwrap();
    path
}

#[test]
fn profiles_may_be_larger_than_memory() {
    const SAMPLES: u64 = 8000;
    let folder = scratch();
    let profile = write_large(folder.path(), SAMPLES);
    let size = fs::metadata(&profile).unwrap().len();
    let output = folder.path().join("out.data");
    // Of addresses, in KiB: half of the profile.
    let limited = format!("ulimit -v {}; exec \"$@\"", size / 2 / 1024);
    for input_is_pipe in [false, true] {
        let mut command = Command::new("sh");
        command.args(["-c", &limited, "sh", env!("CARGO_BIN_EXE_jitinject")]);
        command.args(["--jitdump", tools::text(folder.path())]);
        command.args(["-o", tools::text(&output)]);
        // The memory that threads allocate in advance does not count.
        command.env("MALLOC_ARENA_MAX", "1").env("RAYON_NUM_THREADS", "2");
        let mut copying = None;
        if input_is_pipe {
            let mut cat = Command::new("cat");
            cat.arg(&profile).stdout(Stdio::piped());
            let mut cat = cat.spawn().unwrap();
            command.args(["-i", "-"]).stdin(cat.stdout.take().unwrap());
            copying = Some(cat);
        } else {
            command.args(["-i", tools::text(&profile)]);
        }
        let ran = command.output().unwrap();
        copying
            .into_iter()
            .for_each(|mut cat| assert!(cat.wait().unwrap().success()));
        assert!(ran.status.success(), "{}", said(&ran));
        let expected = format!("{SAMPLES} in JIT code, {SAMPLES} of them named");
        assert!(
            said(&ran).replace(',', "").contains(&expected.replace(',', "")),
            "{}",
            said(&ran)
        );
        assert!(fs::metadata(&output).unwrap().len() > SAMPLES * SAMPLE_SIZE);
        fs::remove_file(&output).unwrap();
    }
}

/// The changed bytes are raw data, which has no meaning for anything but the copy.
#[test]
fn a_large_profile_that_changes_while_it_is_read_is_an_error() {
    const ATTEMPTS: usize = 20;
    let folder = scratch();
    let profile = write_large(folder.path(), 500);
    let output = folder.path().join("out.data");
    let file = File::options().write(true).open(&profile).unwrap();
    let is_done = AtomicBool::new(false);
    let mut is_reported = false;
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut value = 0_u64;
            while !is_done.load(Ordering::Relaxed) {
                value += 1;
                for sample in 1..500 {
                    file.write_all_at(&value.to_le_bytes(), sample * SAMPLE_SIZE - 30_000)
                        .unwrap();
                }
            }
        });
        for _ in 0..ATTEMPTS {
            let ran = jitinject()
                .args(["-i", tools::text(&profile), "-o", tools::text(&output)])
                .args(["--jitdump", tools::text(folder.path())])
                .output()
                .unwrap();
            is_reported = has_code(&said(&ran), "JI187");
            if is_reported {
                assert_eq!(ran.status.code(), Some(1), "{}", said(&ran));
                assert!(!output.exists());
                break;
            }
        }
        is_done.store(true, Ordering::Relaxed);
    });
    assert!(is_reported);
}
