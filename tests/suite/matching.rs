//! Matching of dumps with processes where file names are not enough.

use std::path::{Path, PathBuf};

use jitdump::ByteOrder;
use jitinject::{Diagnostic, Issue};

use crate::support::dump::{DumpWriter, X86_64};
use crate::support::generator::Expected;
use crate::support::profile::ProfileWriter;
use crate::support::recording::set_mapped_file;
use crate::support::reports::reports;
use crate::support::shown::assert_named;
use crate::support::{capture, inject, scratch, tools};

const SECOND: u64 = 1_000_000_000;
const REGION: u64 = 0x7000_0000;

/// A profile that starts at second 1000, and its expected samples.
struct Case {
    folder: tempfile::TempDir,
    profile: ProfileWriter,
    expected: Vec<Expected>,
}

impl Case {
    fn new() -> Self {
        Self {
            folder: scratch(),
            profile: ProfileWriter::new(ByteOrder::Little),
            expected: Vec::new(),
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Adds the mapping of a process's dump.
    fn marker(&mut self, pid: u32, path: &str, time: u64) {
        let page = 0x6000_0000;
        self.profile.mmap2(pid, page, 0x1000, 0, path, time);
    }

    /// Adds a sample at [`REGION`], which must get a name.
    fn sample(&mut self, pid: u32, time: u64, name: &str) {
        self.profile.sample(pid, time, &[REGION + 4], None);
        self.expected.push(Expected {
            pid,
            time,
            frames: vec![name.to_owned()],
        });
    }

    /// Runs jitinject and checks the names of the samples. Returns the standard error.
    fn check(&self, more: &[&str]) -> String {
        let input = self.path("perf.data");
        std::fs::write(&input, self.profile.finish()).unwrap();
        let output = self.path("out.data");
        let said = inject(&input, &output, more);
        assert_named(&output, &self.expected);
        said
    }
}

/// Returns a jitdump with functions at [`REGION`]: process ID, time and name of each.
fn dump_with(pid: u32, loads: &[(u32, u64, &str)]) -> Vec<u8> {
    let mut dump = DumpWriter::new(ByteOrder::Little, X86_64, pid);
    for &(pid, time, name) in loads {
        dump.pid = pid;
        dump.load(time, REGION, 1, name.as_bytes(), &[0x90; 64]);
    }
    dump.bytes
}

fn write(path: &Path, content: &[u8]) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, content).unwrap();
}

#[test]
fn a_renamed_dump_is_known_by_its_header() {
    let folder = scratch();
    let profile = folder.path().join("perf.data");
    std::fs::copy(capture::profile("php82"), &profile).unwrap();
    let dump = folder.path().join("dumps").join("php.bin");
    write(
        &dump,
        &std::fs::read(capture::folder("php82").join("jit-26234.dump")).unwrap(),
    );
    let output = folder.path().join("out.data");
    let renamed = Diagnostic::new(Issue::DumpRenamed).in_file(&dump);
    let renamed = renamed.with("pid", 26234).with("path", "/tmp/jit-26234.dump");
    for path in [&dump, &folder.path().join("dumps")] {
        let said = inject(&profile, &output, &["-v", "--jitdump", tools::text(path)]);
        assert!(reports(&said, "JI218", &renamed.to_string()), "{said}");
        assert!(said.contains("198 of them named (100.0 %)"), "{said}");
    }
    // A dump of a process that is not in the profile.
    let other = capture::folder("node20-buildid").join("jit-11255.dump");
    let said = inject(&profile, &output, &["--jitdump", tools::text(&other)]);
    let unknown = Diagnostic::new(Issue::UnknownProcess).in_file(&other);
    assert!(
        reports(&said, "JI221", &unknown.with("pid", 11255).to_string()),
        "{said}"
    );
}

/// A runtime that limits the size of its log renames it, and starts another one.
#[test]
fn a_mapped_dump_that_was_renamed_is_not_replaced_by_that_of_its_name() {
    let mut case = Case::new();
    let [path, renamed] = ["jit-7.dump", "jit-7.dump.old"].map(|name| case.path(name));
    write(&renamed, &dump_with(7, &[(7, 1000 * SECOND + 1, "first")]));
    write(&path, &dump_with(7, &[(7, 1003 * SECOND, "second")]));
    for (file, time) in [(&renamed, 1000), (&path, 1002)] {
        let record = case.profile.records.len();
        case.marker(7, tools::text(&path), time * SECOND);
        set_mapped_file(&mut case.profile, record, &std::fs::metadata(file).unwrap());
    }
    case.sample(7, 1001 * SECOND, "first");
    case.sample(7, 1004 * SECOND, "second");
    let said = case.check(&["-v", "--jitdump", tools::text(case.folder.path())]);
    let found = Diagnostic::new(Issue::DumpRenamed).in_file(&renamed);
    let found = found.with("pid", 7).with("path", tools::text(&path));
    assert!(reports(&said, "JI218", &found.to_string()), "{said}");
    assert!(said.contains("2 jitdumps"), "{said}");
}

#[test]
fn ten_unusable_dumps_of_a_process_are_listed() {
    for (count, listed, more) in [(10, 10, None), (12, 10, Some("... (2 more)"))] {
        let mut case = Case::new();
        case.marker(8, "/nowhere/jit-8.dump", 1000 * SECOND);
        case.profile.sample(8, 1000 * SECOND, &[REGION], None);
        for number in 0..count {
            write(&case.path(&format!("dumps/{number}/jit-8.dump")), b"no jitdump");
        }
        let (input, dumps) = (case.path("perf.data"), case.path("dumps"));
        write(&input, &case.profile.finish());
        let said = inject(
            &input,
            &case.path("out.data"),
            &["--jitdump", tools::text(&dumps)],
        );
        let line = said.lines().find(|line| line.contains("JI215")).unwrap();
        assert_eq!(line.matches("/jit-8.dump: JI").count(), listed, "{said}");
        assert_eq!(line.contains("more)"), more.is_some(), "{said}");
        assert!(more.is_none_or(|more| line.ends_with(more)), "{said}");
    }
}

#[test]
fn a_dump_that_no_marker_leads_to_is_used_for_the_process_in_its_header() {
    let mut case = Case::new();
    case.profile.comm(7, "program", true, 1000 * SECOND);
    case.sample(7, 1002 * SECOND, "function");
    let dump = case.path("dumps/dump.bin");
    write(&dump, &dump_with(7, &[(7, 1001 * SECOND, "function")]));
    write(&case.path("dumps/copy.bin"), &std::fs::read(&dump).unwrap());
    let by_header = Diagnostic::new(Issue::DumpByHeader).with("pid", 7);
    for path in [dump, case.path("dumps")] {
        let said = case.check(&["-v", "--jitdump", tools::text(&path)]);
        assert!(reports(&said, "JI222", &format!(".bin: {by_header}")), "{said}");
        assert!(
            said.contains("1 jitdump, 1 function loaded"),
            "a copy was counted twice: {said}"
        );
    }
}

#[test]
fn the_second_dump_of_a_process_in_a_folder_is_named_if_it_is_not_used() {
    let mut case = Case::new();
    case.profile.comm(7, "program", true, 1000 * SECOND);
    case.sample(7, 1002 * SECOND, "function");
    write(
        &case.path("dumps/1.bin"),
        &dump_with(7, &[(7, 1001 * SECOND, "function")]),
    );
    let second = case.path("dumps/2.bin");
    write(&second, &dump_with(7, &[(7, 1001 * SECOND, "another")]));
    let said = case.check(&["-v", "--jitdump", tools::text(&case.path("dumps"))]);
    let not_used = Diagnostic::new(Issue::ProcessHasDump).in_file(&second);
    assert!(
        reports(&said, "JI229", &not_used.with("pid", 7).to_string()),
        "{said}"
    );
}

#[test]
fn a_dump_beside_the_profile_needs_no_marker() {
    for name in ["jit-7.dump", "dumps/jit-7.dump"] {
        let mut case = Case::new();
        case.profile.comm(7, "program", true, 1000 * SECOND);
        case.sample(7, 1002 * SECOND, "function");
        write(&case.path(name), &dump_with(7, &[(7, 1001 * SECOND, "function")]));
        let said = case.check(&["-v"]);
        let by_header = Diagnostic::new(Issue::DumpByHeader).with("pid", 7);
        assert!(reports(&said, "JI222", &format!(".dump: {by_header}")), "{said}");
    }
    // Another process's, and one of an earlier recording.
    for (pid, time) in [(8, 1001), (7, 2001)] {
        let mut case = Case::new();
        case.profile.comm(7, "program", true, 1000 * SECOND);
        case.profile.sample(7, 1002 * SECOND, &[REGION + 4], None);
        write(
            &case.path("jit-7.dump"),
            &dump_with(pid, &[(pid, time * SECOND, "function")]),
        );
        std::fs::write(case.path("perf.data"), case.profile.finish()).unwrap();
        let said = inject(&case.path("perf.data"), &case.path("out.data"), &[]);
        assert!(reports(&said, "JI174", "no process in the profile"), "{said}");
    }
}

/// CPython writes its jitdump to `/tmp`, Wasmtime to the working directory; `record` has moved both.
#[test]
fn two_dumps_of_one_name_are_found_in_the_folder_of_a_recording() {
    let mut case = Case::new();
    for (start, folder, written, name) in [
        (1000 * SECOND, "dumps", "/nowhere/tmp", "of_first"),
        (1010 * SECOND, "dumps/2", "/nowhere/work", "of_second"),
    ] {
        case.marker(7, &format!("{written}/jit-7.dump"), start);
        case.sample(7, start + 2 * SECOND, name);
        write(
            &case.path(&format!("{folder}/jit-7.dump")),
            &dump_with(7, &[(7, start + SECOND, name)]),
        );
    }
    let said = case.check(&["-v"]);
    assert!(said.contains("2 jitdumps"), "{said}");
    // Each is listed once, although it is found in two ways.
    for folder in ["dumps", "dumps/2"] {
        write(&case.path(&format!("{folder}/jit-7.dump")), b"no jitdump");
    }
    let dumps = case.path("dumps");
    let options = ["--jitdump", tools::text(&dumps)];
    let said = inject(&case.path("perf.data"), &case.path("out.data"), &options);
    let line = said.lines().find(|line| line.contains("JI215")).unwrap();
    assert_eq!(line.matches("/jit-7.dump: JI").count(), 2, "{said}");
}

#[test]
fn of_two_dumps_with_code_at_the_same_addresses_the_one_that_the_process_mapped_is_used() {
    // Two runtimes in one process have other addresses; a process that has replaced its program, other times.
    for (address, time, is_used) in [
        (REGION, 1001, false),
        (REGION + 0x1000, 1001, true),
        (REGION, 1004, true),
    ] {
        let mut case = Case::new();
        let mapped = case.path("mapped/jit-7.dump");
        case.marker(7, tools::text(&mapped), 1000 * SECOND);
        case.sample(7, 1002 * SECOND, "right");
        case.sample(7, 1005 * SECOND, if time == 1004 { "other" } else { "later" });
        let loads = [(7, 1000 * SECOND + 500, "right"), (7, 1003 * SECOND, "later")];
        write(&mapped, &dump_with(7, &loads));
        let mut other = DumpWriter::new(ByteOrder::Little, X86_64, 7);
        other.load(time * SECOND, address, 1, b"other", &[0x90; 64]);
        let path = case.path("jit-7.dump");
        write(&path, &other.bytes);
        let said = case.check(&["-v", "--jitdump", tools::text(&path)]);
        let not_used = Diagnostic::new(Issue::OtherDumpMapped).in_file(&path);
        let not_used = not_used.with("pid", 7).to_string();
        assert_eq!(reports(&said, "JI228", &not_used), !is_used, "{said}");
        assert_eq!(said.contains("2 jitdumps"), is_used, "{said}");
    }
}

#[test]
fn a_dump_of_an_earlier_run_does_not_hide_the_right_one() {
    let mut case = Case::new();
    case.marker(7, "/nowhere/jit-7.dump", 1000 * SECOND);
    case.sample(7, 1002 * SECOND, "right");
    // Beside the profile, which is searched first.
    write(
        &case.path("jit-7.dump"),
        &dump_with(7, &[(7, 100 * SECOND, "stale")]),
    );
    write(
        &case.path("old/jit-7.dump"),
        &dump_with(
            7,
            &[
                (7, 999 * SECOND, "older"),
                (7, 1001 * SECOND, "older still running"),
            ],
        ),
    );
    write(
        &case.path("new/jit-7.dump"),
        &dump_with(7, &[(7, 1000 * SECOND + 500, "right")]),
    );
    case.check(&["--jitdump", tools::text(case.folder.path())]);
}

/// Each container has its own process 1.
#[test]
fn dumps_of_one_name_go_to_the_processes_that_mapped_them() {
    let mut case = Case::new();
    for (pid, start, name) in [
        (100, 1000 * SECOND, "of_first"),
        (200, 1010 * SECOND, "of_second"),
    ] {
        case.marker(pid, "/tmp/nowhere/jit-1.dump", start);
        case.sample(pid, start + 2 * SECOND, name);
        // The folder of the second process is searched first.
        let folder = if pid == 100 { "b" } else { "a" };
        write(
            &case.path(&format!("{folder}/jit-1.dump")),
            &dump_with(1, &[(1, start + SECOND, name)]),
        );
    }
    case.check(&["--jitdump", tools::text(case.folder.path())]);
}

/// A container that is started again has another process 1, and V8 truncates the file that it finds.
#[test]
fn a_dump_that_was_written_anew_is_that_of_the_last_process() {
    for clock in [Some(1), None] {
        let mut case = Case::new();
        case.profile.clock = clock;
        let dump = case.path("jit-1.dump");
        case.marker(100, tools::text(&dump), 1000 * SECOND);
        case.profile.exit(100, 100, 1003 * SECOND);
        case.marker(200, tools::text(&dump), 1010 * SECOND);
        case.sample(200, 1012 * SECOND, "of_second");
        write(&dump, &dump_with(1, &[(1, 1011 * SECOND, "of_second")]));
        let said = case.check(&[]);
        let other = Diagnostic::new(Issue::UsedForOtherProcess).with("pid", 200);
        assert!(reports(&said, "JI215", "process 100 "), "{said}");
        assert!(reports(&said, "JI215", &other.to_string()), "{said}");
    }
}

/// A service has a /tmp of its own, which ends with it.
#[test]
fn a_dump_that_ended_with_the_mounts_of_its_process_is_not_said_to_have_moved() {
    const NAMESPACES: u32 = 16;
    // No process has this ID.
    const ENDED: u32 = 4_193_908;
    let mut case = Case::new();
    // Six namespaces, each with a device and an inode. The last one is that of the mounts. The trailer has IDs, time and CPU.
    let ids = u64::from(ENDED) << 32 | u64::from(ENDED);
    let words = [&[ids, 6][..], &[1; 12], &[ids, 1000 * SECOND, 0]].concat();
    let body: Vec<u8> = words.into_iter().flat_map(u64::to_le_bytes).collect();
    case.profile.record(NAMESPACES, 0, &body);
    case.marker(ENDED, "/nowhere/jit-7.dump", 1000 * SECOND);
    case.profile.sample(ENDED, 1002 * SECOND, &[REGION + 4], None);
    std::fs::write(case.path("perf.data"), case.profile.finish()).unwrap();
    let said = inject(&case.path("perf.data"), &case.path("out.data"), &[]);
    assert!(reports(&said, "JI213", "jit-7.dump"), "{said}");
    assert!(said.contains("The process had other mounts"), "{said}");
}

#[test]
fn children_in_a_container_are_found_by_their_fork() {
    let mut case = Case::new();
    let dump = case.path("jit-1.dump");
    case.profile.comm(100, "program", true, 1000 * SECOND);
    case.marker(100, tools::text(&dump), 1000 * SECOND + 1);
    case.profile.fork(107, 100, 1002 * SECOND);
    case.sample(107, 1003 * SECOND, "of_parent");
    case.sample(107, 1005 * SECOND, "of_child");
    case.sample(100, 1006 * SECOND, "of_parent");
    let loads = [(1, 1001 * SECOND, "of_parent"), (7, 1004 * SECOND, "of_child")];
    write(&dump, &dump_with(1, &loads));
    case.check(&[]);
}

/// perf was attached to both, so there is no record of the fork.
#[test]
fn children_that_were_there_before_the_profile_have_what_the_parent_had() {
    let mut case = Case::new();
    let dump = case.path("jit-100.dump");
    case.marker(100, tools::text(&dump), 0);
    case.marker(107, tools::text(&dump), 0);
    case.sample(100, 1001 * SECOND, "early");
    case.sample(107, 1002 * SECOND, "early");
    case.sample(107, 1004 * SECOND, "early");
    case.sample(100, 1005 * SECOND, "late");
    let loads = [(100, 900 * SECOND, "early"), (100, 1003 * SECOND, "late")];
    write(&dump, &dump_with(100, &loads));
    case.check(&[]);
}
