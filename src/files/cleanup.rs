//! Removes unfinished output when the program ends early.
//!
//! A thread that waits for signals calls [`remove_all`] on a signal to end. From then on, other threads can
//! neither create output nor rename it to its target: they block until the program exits, which is soon.
//! Several renames that belong together are protected by a [`CommitGuard`].

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread;
use std::time::Duration;

use crate::files::out_of_memory;

#[derive(Debug)]
struct Unfinished {
    paths: Vec<PathBuf>,
    /// Number of [`CommitGuard`]s.
    guards: u32,
}

static UNFINISHED: Mutex<Unfinished> = Mutex::new(Unfinished {
    paths: Vec::new(),
    guards: 0,
});

/// Notified when a [`CommitGuard`] is dropped.
static GUARD_DROPPED: Condvar = Condvar::new();

fn lock() -> MutexGuard<'static, Unfinished> {
    UNFINISHED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Creates something at `path` and registers it as unfinished.
pub(super) fn create<T, E>(path: &Path, create: impl FnOnce(&Path) -> Result<T, E>) -> Result<T, E> {
    out_of_memory::keep_reserve();
    let mut unfinished = lock();
    let created = create(path)?;
    unfinished.paths.push(path.to_owned());
    Ok(created)
}

/// Modifies unfinished output.
pub(super) fn modify<T>(modify: impl FnOnce() -> T) -> T {
    let _unfinished = lock();
    modify()
}

/// Unregisters output that is finished or removed.
pub(super) fn unregister(path: &Path) {
    let mut unfinished = lock();
    unfinished.paths.retain(|other| other != path);
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
    remove_paths(&unfinished.paths);
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
            remove_paths(&unfinished.paths);
            return std::mem::forget(unfinished);
        }
        thread::sleep(Duration::from_millis(1));
    }
}

/// Milliseconds to wait for other threads that create something.
const MAX_TRIES: u32 = 200;

/// Removes files first, which takes no memory.
fn remove_paths(paths: &[PathBuf]) {
    // Only one of the calls fits. Nothing can be done if both fail.
    for path in paths {
        let _ = fs::remove_file(path);
    }
    for path in paths {
        let _ = fs::remove_dir_all(path);
    }
}
