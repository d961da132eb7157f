//! Removes unfinished output when the program ends early.
//!
//! A thread that waits for signals calls [`remove_all`] on a signal to end. From then on, other threads can
//! neither create output nor rename it to its target: they block until the program exits, which is soon.
//! Several renames that belong together are protected by a [`CommitGuard`].
//!
//! What a killed run has left is removed by a later run of the same user in the same directory (`remove_leftovers`).

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread;
use std::time::Duration;

use rustix::fs::{FileType, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{Pid, geteuid, test_kill_process};

use crate::files::folder::{Folder, NameInFolder};
use crate::files::open_file::is_trusted;

#[derive(Debug)]
struct Unfinished {
    places: Vec<NameInFolder>,
    /// Number of [`CommitGuard`]s.
    guards: u32,
}

static UNFINISHED: Mutex<Unfinished> = Mutex::new(Unfinished {
    places: Vec::new(),
    guards: 0,
});

/// Notified when a [`CommitGuard`] is dropped.
static GUARD_DROPPED: Condvar = Condvar::new();

fn lock() -> MutexGuard<'static, Unfinished> {
    UNFINISHED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Creates something and registers it as unfinished.
pub(super) fn create<T, E>(
    place: &NameInFolder,
    create: impl FnOnce(&NameInFolder) -> Result<T, E>,
) -> Result<T, E> {
    let mut unfinished = lock();
    let created = create(place)?;
    unfinished.places.push(place.clone());
    Ok(created)
}

/// Modifies unfinished output.
pub(super) fn modify<T>(modify: impl FnOnce() -> T) -> T {
    let _unfinished = lock();
    modify()
}

/// Unregisters output that is finished or removed.
pub(super) fn unregister(place: &NameInFolder) {
    lock().places.retain(|other| !other.is_same(place));
}

/// Delays the end of the program while it exists.
#[derive(Debug)]
pub struct CommitGuard(());

impl CommitGuard {
    /// Delays the end of the program until this is dropped. There may be several guards.
    pub fn begin() -> Self {
        lock().guards += 1;
        Self(())
    }
}

impl Drop for CommitGuard {
    fn drop(&mut self) {
        let mut unfinished = lock();
        unfinished.guards = unfinished.guards.saturating_sub(1);
        GUARD_DROPPED.notify_all();
    }
}

/// Removes all unfinished output before the program exits. From then on, threads that create output block.
pub fn remove_all() {
    let mut unfinished = lock();
    while unfinished.guards > 0 {
        unfinished = GUARD_DROPPED
            .wait(unfinished)
            .unwrap_or_else(PoisonError::into_inner);
    }
    remove_places(&unfinished.places);
    std::mem::forget(unfinished);
}

/// As [`remove_all`], but gives up if it would have to wait for long, since the calling thread itself may hold
/// the lock or a guard.
pub fn try_remove_all() {
    for _ in 0..MAX_TRIES {
        let unfinished = match UNFINISHED.try_lock() {
            Ok(unfinished) => Some(unfinished),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        };
        if let Some(unfinished) = unfinished.filter(|unfinished| unfinished.guards == 0) {
            remove_places(&unfinished.places);
            return std::mem::forget(unfinished);
        }
        thread::sleep(Duration::from_millis(1));
    }
}

/// Attempts, a millisecond apart, to get the lock from threads that are creating something.
const MAX_TRIES: u32 = 200;

/// Removes files first, which takes no memory.
fn remove_places(places: &[NameInFolder]) {
    // Only one of the calls fits. Nothing can be done if both fail.
    for place in places {
        let _ = place.remove();
    }
    for place in places {
        let _ = place.remove_all();
    }
}

/// Returns the name of unfinished output of this process.
pub(super) fn hidden_name(attempt: u32) -> String {
    format!(".jitinject-{}-{attempt}.tmp", std::process::id())
}

/// Returns the ID of the process whose unfinished output has this name.
fn process_of(name: &OsStr) -> Option<Pid> {
    let name = name.to_str()?.strip_prefix(".jitinject-")?;
    let (pid, attempt) = name.strip_suffix(".tmp")?.split_once('-')?;
    let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if !is_number(pid) || !is_number(attempt) || attempt.is_empty() {
        return None;
    }
    Pid::from_raw(pid.parse().ok()?)
}

/// Locks unfinished output as long as it is open, because its process may be hidden from others, in another PID namespace or
/// on another machine. Returns whether it is still at its place: another run may have taken it for a leftover before.
pub(super) fn lock_unfinished(handle: impl AsFd, place: &NameInFolder) -> bool {
    let locked = rustix::fs::flock(&handle, FlockOperation::NonBlockingLockShared);
    locked != Err(Errno::WOULDBLOCK) && place.holds(handle)
}

/// Removes what killed runs of this user have left in a directory. Does nothing where other users could give the name of
/// unfinished output to other files of this user.
pub(super) fn remove_leftovers(folder: &Folder) {
    if !is_private(folder) {
        return;
    }
    for (place, kind, process) in unfinished(folder.entries().into_iter().flatten()) {
        // What cannot be removed does not matter for this run.
        let _ = remove_leftover(&place, kind, process);
    }
}

/// Returns what has the name of unfinished output among the first entries of a directory, with its process.
fn unfinished(
    entries: impl Iterator<Item = io::Result<(NameInFolder, FileType)>>,
) -> impl Iterator<Item = (NameInFolder, FileType, Pid)> {
    /// Maximum number of entries that are looked at.
    const MAX_ENTRIES: usize = 10_000;
    entries.take(MAX_ENTRIES).flatten().filter_map(|(place, kind)| {
        let process = process_of(&place.name)?;
        Some((place, kind, process))
    })
}

/// Whether only this user and root can rename this user's files in a directory.
fn is_private(folder: &Folder) -> bool {
    rustix::fs::fstat(folder).is_ok_and(|found| {
        let mode = Mode::from_raw_mode(found.st_mode);
        let is_shared = mode.intersects(Mode::WGRP | Mode::WOTH);
        is_trusted(found.st_uid) && (!is_shared || mode.contains(Mode::SVTX))
    })
}

/// Removes what is at a place if it is the unfinished output of a process that has ended.
fn remove_leftover(place: &NameInFolder, kind: FileType, process: Pid) -> io::Result<()> {
    let has_ended = test_kill_process(process) == Err(Errno::SRCH);
    let is_output = matches!(kind, FileType::RegularFile | FileType::Directory);
    if !has_ended || !is_output || place.stat()?.st_uid != geteuid().as_raw() {
        return Ok(());
    }
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let leftover = rustix::fs::openat(&place.folder, &place.name, flags, Mode::empty())?;
    if !has_local_locks(leftover.as_fd()) {
        return Ok(());
    }
    rustix::fs::flock(&leftover, FlockOperation::NonBlockingLockExclusive)?;
    place.remove_all()
}

/// Whether a file system is known to show its locks to all processes that use it, and to exchange names atomically. Others
/// may show those of one machine only.
fn has_local_locks(file: BorrowedFd<'_>) -> bool {
    // ext2 to ext4, XFS, Btrfs, tmpfs, overlayfs, F2FS (linux/magic.h)
    const LOCAL: [i64; 6] = [
        0xef53,
        0x5846_5342,
        0x9123_683e,
        0x0102_1994,
        0x794c_7630,
        0xf2f5_2010,
    ];
    #[allow(clippy::useless_conversion, reason = "it has 32 bits on some machines")]
    rustix::fs::fstatfs(file).is_ok_and(|found| LOCAL.contains(&i64::from(found.f_type)))
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File, Permissions};
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;
    use crate::files::walk::Scope;

    #[test]
    fn leftovers_of_ended_processes_are_removed_and_nothing_else_is() {
        let scratch = tempfile::tempdir().unwrap();
        let folder = scratch.path().join("folder");
        fs::create_dir(&folder).unwrap();
        let mut child = std::process::Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        let ended = child.id();
        let leftover = |attempt: u32| format!(".jitinject-{ended}-{attempt}.tmp");
        let kept = [
            format!(".jitinject-{}-0.tmp", std::process::id()),
            format!(".jitinject-{ended}.tmp"),
            format!(".jitinject-{ended}-.tmp"),
            format!(".jitinject-{ended}-1x.tmp"),
            format!("jitinject-{ended}-1.tmp"),
            ".jitinject-1-0.tmp".to_owned(),
        ];
        for name in kept.iter().chain([&leftover(0), &leftover(4)]) {
            fs::write(folder.join(name), "").unwrap();
        }
        fs::create_dir_all(folder.join(leftover(1)).join("sources")).unwrap();
        fs::write(folder.join(leftover(1)).join("sources/text"), "").unwrap();
        let precious = scratch.path().join("precious");
        fs::create_dir(&precious).unwrap();
        fs::write(precious.join("file"), "").unwrap();
        symlink(&precious, folder.join(leftover(1)).join("link")).unwrap();
        symlink(&precious, folder.join(leftover(2))).unwrap();
        fs::create_dir(folder.join(leftover(3))).unwrap();
        // As if another PID namespace had the process.
        let locked = File::open(folder.join(leftover(3))).unwrap();
        assert!(lock_unfinished(
            &locked,
            &NameInFolder::of(&folder.join(leftover(3))).unwrap()
        ));
        let names = || {
            let entries = fs::read_dir(&folder).unwrap();
            let mut names: Vec<String> = entries
                .map(|entry| entry.unwrap().file_name().into_string().unwrap())
                .collect();
            names.sort();
            names
        };

        // Here, others could rename any file.
        fs::set_permissions(&folder, Permissions::from_mode(0o777)).unwrap();
        let all = names();
        remove_leftovers(&Folder::open(&folder, Scope::Named).unwrap());
        assert_eq!(names(), all);

        fs::set_permissions(&folder, Permissions::from_mode(0o1777)).unwrap();
        remove_leftovers(&Folder::open(&folder, Scope::Named).unwrap());
        let mut expected: Vec<String> = kept.to_vec();
        expected.extend([leftover(2), leftover(3)]);
        expected.sort();
        assert_eq!(names(), expected);
        assert!(precious.join("file").exists());
        drop(locked);
        remove_leftovers(&Folder::open(&folder, Scope::Named).unwrap());
        assert!(!names().contains(&leftover(3)));
    }

    #[test]
    fn leftovers_are_looked_for_among_ten_thousand_entries() {
        let folder = Folder::open(&std::env::temp_dir(), Scope::Named).unwrap();
        let found = |others: usize| {
            let others = std::iter::repeat_n("other", others);
            let names = others.chain([".jitinject-7-0.tmp"]);
            let entries = names.map(|name| Ok((folder.at(name), FileType::RegularFile)));
            unfinished(entries).count()
        };
        assert_eq!(found(9_999), 1);
        assert_eq!(found(10_000), 0);
    }
}
