//! Diagnostics of damaged, ambiguous and changing files that no other test of the suite expects.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Output, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use jitdump::ByteOrder;
use jitdump::internals::format::record::{DEBUG_INFO, EMBEDDED_SOURCE_FILE};
use rustix::fs::{Mode, OFlags};
use rustix::process::Signal;
use serde_json::Value;

use crate::support::dump::{DumpWriter, X86_64};
use crate::support::perf_map_case::{Case, SECOND, UNKNOWN, lines};
use crate::support::processes::{is_stopped, send, start_without_perf_map, wait_until};
use crate::support::profile::{ProfileWriter, field};
use crate::support::recording::{NAMED, PID, Recording};
use crate::support::reports::{inject_with_summary, only, reports};
use crate::support::scene::left_over;
use crate::support::{attempt, codes, has_code, jitinject, model, said, scratch, tools};

const CODE: u64 = 0x4000_0000;
const NOPS: [u8; 64] = [0x90; 64];

/// Runs jitinject on a recording. Checks that the sample in [`CODE`] is named; returns the summary.
fn inject_recording(recording: &Recording, more: &[&str]) -> Value {
    let (_, summary) = inject_with_summary(&recording.profile, &recording.output, more);
    assert_ne!(summary["samples"]["named"], 0, "{summary:#}");
    summary
}

/// Checks that a summary has one warning of a code, with a count of 1.
fn assert_warning(summary: &Value, code: &str, file: &Path, offset: Option<usize>) {
    let found = only(summary, code);
    assert_eq!(found["severity"], "warning", "{found}");
    assert_eq!(found["file"], tools::text(file), "{found}");
    assert_eq!(found["offset"], Value::from(offset), "{found}");
    assert_eq!(found["count"], 1, "{found}");
}

/// Returns `file` with the 64-bit number at `at` replaced.
fn with_word(file: &[u8], at: usize, word: usize) -> Vec<u8> {
    let mut file = file.to_vec();
    file[at..at + 8].copy_from_slice(&(word as u64).to_le_bytes());
    file
}

#[test]
fn a_jitdump_with_an_invalid_header_is_read_as_version_1() {
    let recording = Recording::new();
    let intact = fs::read(&recording.dump).unwrap();
    let size = intact.len() as u32;
    for (code, at, value) in [
        ("JI004", 4, 3_u32),
        ("JI005", 8, 39),
        ("JI005", 8, size + 1),
        ("JI005", 8, u32::MAX),
    ] {
        let mut dump = intact.clone();
        dump[at..at + 4].copy_from_slice(&value.to_le_bytes());
        fs::write(&recording.dump, dump).unwrap();
        let summary = inject_recording(&recording, &[]);
        assert_warning(&summary, code, &recording.dump, Some(at));
    }
}

/// The first LOAD record has a size that does not lead to another record.
#[test]
fn a_jitdump_record_with_a_wrong_size_is_recovered() {
    let recording = Recording::new();
    let mut dump = DumpWriter::new(ByteOrder::Little, X86_64, PID);
    let start = dump.bytes.len();
    dump.load(1000, CODE, 0, b"named", &NOPS);
    for number in 1..5 {
        dump.load(1000 + number, CODE + 64 * number, number, b"other", &NOPS);
    }
    dump.bytes[start + 4..start + 8].copy_from_slice(&300_u32.to_le_bytes());
    fs::write(&recording.dump, dump.bytes).unwrap();
    let summary = inject_recording(&recording, &[]);
    assert_warning(&summary, "JI011", &recording.dump, Some(start));
    assert_eq!(summary["functions"]["loaded"], 5, "{summary:#}");
}

#[test]
fn invalid_records_of_source_files_and_lines_are_skipped() {
    let recording = Recording::new();
    // One entry, whose file name has no end.
    let mut unterminated = Vec::new();
    for word in [CODE, 1, CODE, 7] {
        ByteOrder::Little.write_u64(&mut unterminated, word);
    }
    unterminated.extend_from_slice(b"app.js");
    for (code, kind, content) in [
        ("JI022", EMBEDDED_SOURCE_FILE, &[1_u8][..]),
        ("JI023", DEBUG_INFO, &unterminated),
    ] {
        let mut dump = DumpWriter::new(ByteOrder::Little, X86_64, PID);
        let start = dump.bytes.len();
        dump.record(kind, 999, content);
        dump.load(1000, CODE, 0, b"named", &NOPS);
        fs::write(&recording.dump, dump.bytes).unwrap();
        let summary = inject_recording(&recording, &[]);
        assert_warning(&summary, code, &recording.dump, Some(start));
    }
}

/// In a PID namespace, the dump's process is 1, and one of its two children is 7.
#[test]
fn records_of_one_of_several_children_are_skipped() {
    const START: u64 = 1000 * SECOND;
    let folder = scratch();
    let path = folder.path().join("jit-1.dump");
    let mut dump = DumpWriter::new(ByteOrder::Little, X86_64, 1);
    dump.load(START + 10, CODE, 0, b"of parent", &NOPS);
    dump.pid = 7;
    dump.load(START + 30, CODE, 0, b"of child", &NOPS);
    fs::write(&path, dump.bytes).unwrap();
    let mut profile = ProfileWriter::new(ByteOrder::Little);
    profile.comm(100, "program", true, START);
    profile.mmap2(100, 0x6000_0000, 4096, 0, tools::text(&path), START + 1);
    profile.fork(107, 100, START + 20);
    profile.fork(108, 100, START + 21);
    profile.sample(107, START + 40, &[CODE + 4], None);
    let input = folder.path().join("perf.data");
    fs::write(&input, profile.finish()).unwrap();
    let (_, summary) = inject_with_summary(&input, &folder.path().join("out.data"), &[]);
    assert_warning(&summary, "JI030", &path, None);
}

#[test]
fn a_named_perf_map_without_content_is_reported() {
    let mut case = Case::with_process(10);
    case.sample(10, 0x104, UNKNOWN);
    let map = case.write("perf-10.map", "");
    let said = case.check(&["--perf-map", tools::text(&map)]);
    let empty = format!("warning[JI053]: {}: ", map.display());
    assert!(said.contains(&empty), "{said}");
}

/// Removes a file in a shared folder.
struct Removed(PathBuf);

impl Drop for Removed {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// Sets the wall clock time at which the recording of a case ended.
fn end_recording(case: &mut Case, time: SystemTime) {
    const CLOCK_DATA: u32 = 29;
    let wall_clock = time.duration_since(UNIX_EPOCH).unwrap();
    let mut clocks = Vec::new();
    ByteOrder::Little.write_u32(&mut clocks, 1);
    ByteOrder::Little.write_u32(&mut clocks, 1);
    ByteOrder::Little.write_u64(&mut clocks, wall_clock.as_nanos() as u64);
    ByteOrder::Little.write_u64(&mut clocks, case.time);
    case.profile.features = vec![(CLOCK_DATA, clocks)];
}

/// Writes a perf map into `/tmp`; `None` if the file system does not store when it was created.
fn write_temporary_map(pid: u32) -> Option<Removed> {
    let map = Removed(PathBuf::from(format!("/tmp/perf-{pid}.map")));
    fs::write(&map.0, lines(&[(0x100, 0x40, "code")])).unwrap();
    fs::metadata(&map.0).unwrap().created().is_ok().then_some(map)
}

/// Another process with the same ID may have written it.
#[test]
fn a_perf_map_made_after_the_recording_is_used_only_if_it_is_named() {
    // A PID that no process can have.
    let exited = 5_000_000 + std::process::id();
    let Some(map) = write_temporary_map(exited) else {
        return;
    };
    let mut case = Case::with_process(exited);
    case.sample(exited, 0x104, "code");
    let now = SystemTime::now();
    end_recording(&mut case, now);
    assert!(!has_code(&case.check(&[]), "JI056"));
    end_recording(&mut case, now - Duration::from_secs(3600));
    let named = case.check(&["--perf-map", tools::text(&map.0)]);
    assert!(!has_code(&named, "JI056"), "{named}");
    case.expected[0].frames = vec![UNKNOWN.into()];
    let said = case.check(&[]);
    let later = format!("warning[JI056]: {}: ", map.0.display());
    assert!(said.contains(&later), "{said}");
}

/// A process has its own `/tmp`, which is mostly that of all.
#[test]
fn a_perf_map_that_is_not_used_is_reported_once_and_not_as_unreadable() {
    let running = start_without_perf_map();
    let pid = running.0.id();
    let Some(map) = write_temporary_map(pid) else {
        return;
    };
    let mut case = Case::with_process(pid);
    case.sample(pid, 0x104, UNKNOWN);
    end_recording(&mut case, SystemTime::now() - Duration::from_secs(3600));
    let said = case.check(&[]);
    let later = format!("warning[JI056]: {}: ", map.0.display());
    assert_eq!(said.matches("JI056").count(), 1, "{said}");
    assert!(said.contains(&later), "{said}");
    assert!(!has_code(&said, "JI178"), "{said}");
}

/// Offsets in the header of a profile: size of an attribute with its IDs, section of the attributes, section of the
/// records.
const ENTRY_SIZE: usize = 16;
const ATTRS: usize = 24;
const DATA: usize = 40;

#[test]
fn a_profile_whose_header_leads_outside_it_is_an_error() {
    let recording = Recording::new();
    let intact = fs::read(&recording.profile).unwrap();
    for (code, at, word) in [
        ("JI143", ATTRS, intact.len()),
        ("JI143", ATTRS + 8, 143),
        ("JI143", ENTRY_SIZE, 79),
        ("JI144", DATA, intact.len() + 1),
    ] {
        fs::write(&recording.profile, with_word(&intact, at, word)).unwrap();
        let ran = attempt(&recording.profile, &recording.output, &[]);
        assert_eq!(ran.status.code(), Some(1), "{}", said(&ran));
        let said = said(&ran);
        let start = format!("jitinject: error[{code}]: {}: ", recording.profile.display());
        assert!(said.starts_with(&start), "{said}");
        assert_eq!(codes(&said), [code], "{said}");
        assert!(!recording.output.exists());
    }
}

/// Adds a recording's process to a profile, with a sample of its function.
fn add_process(profile: &mut ProfileWriter, recording: &Recording) {
    profile.mmap2(PID, 0x6000_0000, 4096, 0, tools::text(&recording.dump), 500);
    profile.mmap2(PID, CODE, 4096, 0, "//anon", 501);
    profile.sample(PID, 2000, &[CODE + 4], None);
}

#[test]
fn a_feature_section_outside_a_profile_is_left_out() {
    const HOSTNAME: (u32, &[u8]) = (3, b"host");
    const OS_RELEASE: (u32, &[u8]) = (4, b"release");
    let recording = Recording::new();
    let mut profile = ProfileWriter::new(ByteOrder::Little);
    profile.features = [HOSTNAME, OS_RELEASE]
        .map(|(id, content)| (id, content.to_vec()))
        .to_vec();
    add_process(&mut profile, &recording);
    let size = profile.records.len();
    let table = profile.head(size as u64).len() + size;
    let intact = profile.finish();
    fs::write(&recording.profile, with_word(&intact, table, intact.len())).unwrap();
    let summary = inject_recording(&recording, &[]);
    assert_warning(&summary, "JI152", &recording.profile, Some(table));
    let output = model::parse(&fs::read(&recording.output).unwrap());
    let has = |(id, content): (u32, &[u8])| output.features.contains(&(id as usize, content.to_vec()));
    assert!(!has(HOSTNAME) && has(OS_RELEASE));
}

#[test]
fn a_repeated_feature_section_of_a_pipe_is_left_out() {
    const HEADER_FEATURE: u32 = 80;
    const HEADER_SIZE: usize = 16;
    let recording = Recording::new();
    let mut profile = ProfileWriter::new(ByteOrder::Little);
    let attr_size = profile.finish_pipe().len() - HEADER_SIZE;
    let feature = [&3_u64.to_le_bytes()[..], b"hostname"].concat();
    profile.record(HEADER_FEATURE, 0, &feature);
    let second = HEADER_SIZE + attr_size + profile.records.len();
    profile.record(HEADER_FEATURE, 0, &feature);
    add_process(&mut profile, &recording);
    fs::write(&recording.profile, profile.finish_pipe()).unwrap();
    let summary = inject_recording(&recording, &[]);
    assert_warning(&summary, "JI152", &recording.profile, Some(second));
}

#[test]
fn event_ids_outside_a_profile_are_left_out() {
    let recording = Recording::new();
    let mut profile = ProfileWriter::new(ByteOrder::Little);
    profile.sample_type |= field::IDENTIFIER;
    profile.ids = vec![77];
    add_process(&mut profile, &recording);
    let intact = profile.finish();
    let attrs = u64::from_le_bytes(*intact[ATTRS..].first_chunk().unwrap()) as usize;
    let ids = attrs + profile.attr_size;
    fs::write(&recording.profile, with_word(&intact, ids, intact.len())).unwrap();
    let summary = inject_recording(&recording, &[]);
    assert_warning(&summary, "JI153", &recording.profile, Some(attrs));
}

/// Returns a Zstandard frame with one block, which is not compressed.
fn frame(content: &[u8]) -> Vec<u8> {
    const IS_LAST: u32 = 1;
    let size = u8::try_from(content.len()).unwrap();
    let block = (u32::from(size) << 3 | IS_LAST).to_le_bytes();
    [&[0x28, 0xb5, 0x2f, 0xfd, 0x20, size], &block[..3], content].concat()
}

#[test]
fn compressed_records_inside_compressed_ones_are_kept() {
    const COMPRESSED: u32 = 81;
    let recording = Recording::new();
    let mut innermost = ProfileWriter::new(ByteOrder::Little);
    innermost.finished_round();
    let mut inner = ProfileWriter::new(ByteOrder::Little);
    inner.record(COMPRESSED, 0, &frame(&innermost.records));
    let mut profile = ProfileWriter::new(ByteOrder::Little);
    add_process(&mut profile, &recording);
    profile.record(COMPRESSED, 0, &frame(&inner.records));
    fs::write(&recording.profile, profile.finish()).unwrap();
    let summary = inject_recording(&recording, &[]);
    assert_warning(&summary, "JI158", &recording.profile, None);
    let output = model::parse(&fs::read(&recording.output).unwrap());
    assert!(output.records.contains(&inner.records));
}

/// Where a sample's fields end is only clear if all of them are known. If not, a sample that is too short is not
/// classified as damage.
#[test]
fn a_sample_shorter_than_its_fields_is_kept() {
    const UNKNOWN_FIELD: u64 = 1 << 40;
    /// Size of a call chain with one address: its length, the context marker and the address.
    const CHAIN: usize = 3 * 8;
    let recording = Recording::new();
    let mut profile = ProfileWriter::new(ByteOrder::Little);
    profile.sample_type |= UNKNOWN_FIELD;
    add_process(&mut profile, &recording);
    profile.sample(PID, 2001, &[CODE + 4], None);
    let chain = profile.records.len() - CHAIN;
    profile.records = with_word(&profile.records, chain, 99);
    fs::write(&recording.profile, profile.finish()).unwrap();
    let summary = inject_recording(&recording, &[]);
    assert_warning(&summary, "JI161", &recording.profile, None);
    assert_eq!(summary["samples"]["named"], 2, "{summary:#}");
}

/// Folders can be nested more deeply than a path can be long, so this one cannot be listed by its path, even by root.
#[test]
fn a_folder_that_cannot_be_searched_is_reported() {
    /// `PATH_MAX`.
    const LONGEST: usize = 4096;
    let recording = Recording::new();
    let root = recording.folder.path().join("deep");
    fs::create_dir(&root).unwrap();
    let name = "n".repeat(200);
    let mut path = root.clone();
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut folder = rustix::fs::open(root.as_path(), flags, Mode::empty()).unwrap();
    while path.as_os_str().len() < LONGEST {
        rustix::fs::mkdirat(&folder, &*name, Mode::RWXU).unwrap();
        folder = rustix::fs::openat(&folder, &*name, flags, Mode::empty()).unwrap();
        path.push(&name);
    }
    let summary = inject_recording(&recording, &["--jitdump", tools::text(&root)]);
    assert_warning(&summary, "JI200", &path, None);
    let ran = jitinject().arg("check").arg(&root).output().unwrap();
    assert!(
        reports(&said(&ran), "JI200", tools::text(&path)),
        "{}",
        said(&ran)
    );
}

/// Two containers, each with a process 1. The file of the second one is lost, and that of the first one has its name.
#[test]
fn the_jitdump_of_one_process_is_not_used_for_another() {
    const START: u64 = 1000 * SECOND;
    let folder = scratch();
    let mut profile = ProfileWriter::new(ByteOrder::Little);
    for (pid, path, start) in [
        (100, "/nowhere/a/jit-1.dump", START),
        (200, "/nowhere/b/jit-1.dump", START + 10 * SECOND),
    ] {
        profile.mmap2(pid, 0x6000_0000, 4096, 0, path, start);
        profile.sample(pid, start + 2 * SECOND, &[CODE + 4], None);
    }
    let mut dump = DumpWriter::new(ByteOrder::Little, X86_64, 1);
    dump.load(START + SECOND, CODE, 0, b"named", &NOPS);
    dump.load(START + 11 * SECOND, CODE + 64, 1, b"later", &NOPS);
    let path = folder.path().join("jit-1.dump");
    fs::write(&path, dump.bytes).unwrap();
    let input = folder.path().join("perf.data");
    fs::write(&input, profile.finish()).unwrap();
    let (_, summary) = inject_with_summary(&input, &folder.path().join("out.data"), &[]);
    assert_warning(&summary, "JI215", Path::new("/nowhere/b/jit-1.dump"), None);
    let message = only(&summary, "JI215")["message"].as_str().unwrap();
    let rejected = format!("{}: JI225: ", path.display());
    assert!(message.contains(&rejected), "{message}");
    assert_eq!(summary["samples"]["named"], 1, "{summary:#}");
}

/// Writes a file that takes some time to read: `content`, then a hole.
fn write_large(path: &Path, content: &[u8]) {
    const SIZE: u64 = 128 << 20;
    fs::write(path, content).unwrap();
    truncate(path, SIZE);
}

fn truncate(path: &Path, size: u64) {
    let file = File::options().write(true).open(path).unwrap();
    file.set_len(size).unwrap();
}

/// Returns whether a process has a file open. `path` has no symbolic links.
fn has_open(process: &Child, path: &Path) -> bool {
    let links = fs::read_dir(format!("/proc/{}/fd", process.id()));
    let mut links = links.into_iter().flatten().flatten();
    links.any(|link| fs::read_link(link.path()).is_ok_and(|target| target == path))
}

/// Writes a large file with `content`, runs jitinject, and calls `change` while jitinject is stopped and has the file
/// open. Returns the output of the run, which must report `code`.
///
/// Repeats this if jitinject ended too early, or was stopped just before it read the size of the file.
fn run_and_change(path: &Path, content: &[u8], arguments: &[&str], change: &dyn Fn(), code: &str) -> Output {
    const ATTEMPTS: usize = 20;
    for _ in 0..ATTEMPTS {
        write_large(path, content);
        let opened = fs::canonicalize(path).unwrap();
        let mut command = jitinject();
        command
            .args(arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut running = command.spawn().unwrap();
        wait_until("an open file", || {
            has_open(&running, &opened) || running.try_wait().unwrap().is_some()
        });
        // The ID of a process that has been waited for is invalid.
        if running.try_wait().unwrap().is_some() {
            continue;
        }
        send(&running, Signal::STOP);
        wait_until("a stopped process", || {
            is_stopped(&running) || running.try_wait().unwrap().is_some()
        });
        if running.try_wait().unwrap().is_some() {
            continue;
        }
        if has_open(&running, &opened) {
            change();
        }
        send(&running, Signal::CONT);
        let ran = running.wait_with_output().unwrap();
        if has_code(&said(&ran), code) {
            return ran;
        }
    }
    panic!("{code} not reported in {ATTEMPTS} attempts: {arguments:?}");
}

#[test]
fn a_profile_that_becomes_shorter_while_it_is_read_is_an_error() {
    let recording = Recording::new();
    let profile = &recording.profile;
    let content = fs::read(profile).unwrap();
    let input = ["-i", tools::text(profile)];
    let output = ["-o", tools::text(&recording.output)];
    for command in [&[][..], &["timeline"]] {
        let arguments = [command, &input, &output].concat();
        let cut = || {
            // That of an attempt that ended too early.
            let _ = fs::remove_file(&recording.output);
            truncate(profile, content.len() as u64);
        };
        let ran = run_and_change(profile, &content, &arguments, &cut, "JI149");
        assert_eq!(ran.status.code(), Some(1), "{}", said(&ran));
        let start = format!("jitinject: error[JI149]: {}: ", profile.display());
        assert!(said(&ran).starts_with(&start), "{}", said(&ran));
        assert!(!recording.output.exists());
        assert_eq!(left_over(recording.folder.path()), Vec::<PathBuf>::new());
    }
}

/// `check` fails, because the end of the file cannot be checked.
#[test]
fn a_jitdump_that_becomes_shorter_while_it_is_read_is_reported() {
    let recording = Recording::new();
    let dump = &recording.dump;
    let content = fs::read(dump).unwrap();
    let path = tools::text(dump);
    let (input, output) = (tools::text(&recording.profile), tools::text(&recording.output));
    for (arguments, severity, status) in [
        (&["-i", input, "-o", output][..], "warning", 0),
        (&["dump", path], "warning", 0),
        (&["check", path], "error", 1),
    ] {
        let cut = || truncate(dump, content.len() as u64);
        let ran = run_and_change(dump, &content, arguments, &cut, "JI226");
        let said = said(&ran);
        assert_eq!(ran.status.code(), Some(status), "{arguments:?}: {said}");
        assert!(said.contains(&format!("{severity}[JI226]: {path}: ")), "{said}");
        assert_eq!(codes(&said), ["JI226"], "{said}");
        assert!(arguments[0] != "-i" || said.contains(NAMED), "{said}");
    }
}
