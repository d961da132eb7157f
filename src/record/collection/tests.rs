//! Tests of collecting files.

use super::*;
use std::fs::File;
use std::os::unix::fs::{PermissionsExt, chown};
use std::process::Command;
use std::time::Duration;

use jitdump::Time;
use rustix::process::geteuid;

use crate::perf::process_records::FileId;
use crate::record::plan::{Plan, RecordOptions};
use crate::record::watch::Watch;

/// No process has this ID.
pub(super) const ENDED: u32 = 4_193_901;

pub(super) fn marker(pid: u32, path: &Path, file: Option<&fs::Metadata>) -> FileMarker {
    FileMarker {
        pid: Pid(pid),
        time: Time(0),
        path: path.as_os_str().as_bytes().to_vec(),
        file: file.map(|file| FileId {
            major: rustix::fs::major(file.dev()),
            minor: rustix::fs::minor(file.dev()),
            inode: file.ino(),
        }),
        record: 0,
    }
}

/// Collects the files of a recording that started all its processes, into a new folder in its own.
pub(super) fn run(
    (folder, name): (&Folder, &str),
    seen: &Seen,
    index: &ProfileIndex,
    started: SystemTime,
    end: Option<SystemTime>,
) -> Collected {
    let dumps = folder.at(name).create_private_folder().unwrap();
    run_into(folder, &dumps, seen, index, (started, end))
}

/// Collects them into this folder.
fn run_into(
    folder: &Folder,
    dumps: &Folder,
    seen: &Seen,
    index: &ProfileIndex,
    (started, end): (SystemTime, Option<SystemTime>),
) -> Collected {
    let collection = Collection {
        folder,
        dumps,
        seen,
        mapped: MappingTimes::new(None, index, end),
        started,
        is_own: true,
    };
    collection.run(index)
}

/// Collects a jitdump that a process has mapped which has ended, and a log, with an ID in their names, from a folder of this
/// mode. Returns the number of files that stay, and that are collected.
fn collect(number: u32, owners: &BTreeMap<u32, u32>, mode: u32) -> (usize, usize) {
    collect_from_root(number, owners, mode, false)
}

/// Does the same. If the process has a root directory of its own, the path in the profile starts there.
fn collect_from_root(number: u32, owners: &BTreeMap<u32, u32>, mode: u32, has_root: bool) -> (usize, usize) {
    let started = SystemTime::now();
    let scratch = tempfile::tempdir().unwrap();
    let work = scratch.path().join("work");
    fs::create_dir(&work).unwrap();
    fs::set_permissions(&work, fs::Permissions::from_mode(mode)).unwrap();
    let dump = work.join(format!("jit-{number}.dump"));
    for path in [&dump, &work.join(format!("isolate0x1-{number}-v8.log"))] {
        fs::write(path, "content").unwrap();
    }
    let folder = Folder::create_all(&scratch.path().join("r")).unwrap();
    let file = fs::metadata(&dump).unwrap();
    let mut seen = Seen {
        owners: owners.clone(),
        ..Seen::default()
    };
    let mut path = dump.clone();
    if has_root {
        path = Path::new("/nowhere").join(dump.file_name().unwrap());
        let mapping = format!("1-2 r-xp 0 0:0 {} {}", file.ino(), dump.display());
        seen.dumps.add(ENDED, mapping.as_bytes());
    }
    let mut index = ProfileIndex::default();
    index
        .markers
        .push(marker(ENDED, &path, has_root.then_some(&file)));
    let found = run((&folder, "dumps"), &seen, &index, started, None);
    assert!(found.left_out.is_empty(), "{:?}", found.left_out);
    (fs::read_dir(work).unwrap().count(), found.files.len())
}

#[test]
fn nothing_is_moved_of_a_process_whose_owner_is_another_or_unknown() {
    let me = geteuid().as_raw();
    assert_eq!(collect(ENDED, &BTreeMap::from([(ENDED, me)]), 0o777), (0, 2));
    assert_eq!(collect(ENDED, &BTreeMap::from([(ENDED, me + 1)]), 0o755), (2, 0));
    // Nobody else could have written into the second folder.
    for (mode, of_root) in [(0o777, (2, 1)), (0o755, (0, 2))] {
        let of_unknown = if me == 0 { of_root } else { (0, 2) };
        assert_eq!(collect(ENDED, &BTreeMap::new(), mode), of_unknown, "{mode:o}");
    }
}

#[test]
fn files_of_a_process_with_a_root_of_its_own_are_moved_from_where_they_were_seen() {
    let owners = BTreeMap::from([(ENDED, geteuid().as_raw())]);
    assert_eq!(collect_from_root(ENDED, &owners, 0o755, true), (0, 2));
}

/// V8 removes it with --perf-prof-delete-file. The program of the process stands in for the jitdump that it has mapped.
#[test]
fn a_removed_jitdump_is_kept_when_its_process_has_ended() {
    let started = SystemTime::now();
    let scratch = tempfile::tempdir().unwrap();
    let dump = scratch.path().join("jit-77.dump");
    let copy = Command::new("cp").arg("/bin/sleep").arg(&dump).status();
    assert!(copy.unwrap().success());
    let content = fs::read(&dump).unwrap();
    let open = File::open(&dump).unwrap();
    let file = open.metadata().unwrap();
    let mut process = Command::new(&dump).arg("60").stdin(open).spawn().unwrap();
    fs::remove_file(&dump).unwrap();
    let pid = process.id();
    let folder = Folder::create_all(&scratch.path().join("r")).unwrap();
    let mut options = RecordOptions {
        output: folder.path().to_owned(),
        ..RecordOptions::default()
    };
    options.perf.pids.push(pid);
    let plan = Plan::new(options).unwrap();
    let mut watch = Watch::of_processes(&plan, &folder.path().join("perf.data"));
    watch.look(Duration::ZERO);
    let map = fs::read_dir(format!("/proc/{pid}/map_files"));
    let may_open = !geteuid().is_root()
        || map
            .unwrap()
            .flatten()
            .any(|link| fs::metadata(link.path()).is_ok());
    process.kill().unwrap();
    process.wait().unwrap();
    let mut index = ProfileIndex::default();
    index.markers.push(marker(pid, &dump, Some(&file)));
    let found = run((&folder, "dumps"), &watch.into_seen(), &index, started, None);
    assert!(found.left_out.is_empty(), "{:?}", found.left_out);
    // Root of a container may not have the right to open what is mapped.
    assert_eq!(found.files.len(), usize::from(may_open));
    for CollectedFile { path, is_left, .. } in found.files {
        assert!(!is_left && fs::read(folder.path().join(path)).unwrap() == content);
    }
}

/// Root cannot ask whose a process was that has ended.
#[test]
fn of_a_process_of_an_unknown_owner_the_mapped_jitdump_is_copied() {
    const OTHER: u32 = 54_321;
    // Nobody else can give a file away, or record processes of others.
    if !geteuid().is_root() {
        return;
    }
    let scratch = tempfile::tempdir().unwrap();
    let dump = scratch.path().join(format!("jit-{ENDED}.dump"));
    fs::write(&dump, "content").unwrap();
    chown(&dump, Some(OTHER), None).unwrap();
    let found = fs::metadata(&dump).unwrap();
    let created = found.created().unwrap();
    let folder = Folder::create_all(&scratch.path().join("r")).unwrap();
    let mut index = ProfileIndex::default();
    index.markers.push(marker(ENDED, &dump, Some(&found)));
    let collect = |name: &str, owners: &[(u32, u32)], end| {
        let seen = Seen {
            owners: owners.iter().copied().collect(),
            ..Seen::default()
        };
        let found = run((&folder, name), &seen, &index, created, Some(end));
        (found.files, found.left_out)
    };
    let (collected, left_out) = collect("1", &[], created);
    assert!(left_out.is_empty(), "{left_out:?}");
    assert!(collected.len() == 1 && collected[0].is_left && collected[0].owner == (ENDED, OTHER));
    let copy = fs::metadata(folder.path().join(&collected[0].path)).unwrap();
    assert_eq!(copy.uid(), OTHER);
    // The inode of the mapped one was free again.
    let (collected, left_out) = collect("2", &[], created - Duration::from_secs(1));
    assert_eq!((collected.len(), left_out.len()), (0, 0));
    // Injection uses it, so it is not lost silently.
    let (collected, left_out) = collect("3", &[(ENDED, OTHER + 1)], created);
    assert_eq!((collected.len(), left_out.len()), (0, 1));
}

/// A process may map any file that it can read.
#[test]
fn files_of_other_programs_are_copied_and_not_moved() {
    let owners = BTreeMap::from([(ENDED, geteuid().as_raw())]);
    assert_eq!(collect(77, &owners, 0o755), (2, 1));
}

#[test]
fn a_file_for_which_nothing_can_be_created_stays_and_is_reported() {
    let scratch = tempfile::tempdir().unwrap();
    let dump = scratch.path().join(format!("jit-{ENDED}.dump"));
    let started = SystemTime::now();
    fs::write(&dump, "content").unwrap();
    let mut index = ProfileIndex::default();
    let file = fs::metadata(&dump).unwrap();
    index.markers.push(marker(ENDED, &dump, Some(&file)));
    let folder = Folder::create_all(&scratch.path().join("r")).unwrap();
    let dumps = folder.at("dumps").create_private_folder().unwrap();
    fs::remove_dir(dumps.path()).unwrap();
    let collected = run_into(&folder, &dumps, &Seen::default(), &index, (started, None));
    assert!(dump.exists() && collected.files.is_empty());
    assert_eq!(collected.left_out.len(), 1);
}
