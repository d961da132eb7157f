//! What has no name yet, so that it goes when the program ends before its time.
//!
//! A thread that waits for signals calls [`remove`] when one asks for the end. From then on nobody makes
//! anything new, nor gives anything its name: who would waits for ever, which is not long. What belongs together
//! and gets its names one after another does so while it is [`CommitGuard`].

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError, TryLockError};

#[derive(Debug)]
struct Unfinished {
    paths: Vec<PathBuf>,
    /// How many have to be waited for.
    uninterrupted: u32,
}

static UNFINISHED: Mutex<Unfinished> = Mutex::new(Unfinished {
    paths: Vec::new(),
    uninterrupted: 0,
});

/// Told when nobody has to be waited for any longer.
static SETTLED: Condvar = Condvar::new();

fn lock() -> MutexGuard<'static, Unfinished> {
    UNFINISHED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Makes something at `path`, which is unfinished if that works.
pub(super) fn make<T, E>(path: &Path, make: impl FnOnce(&Path) -> Result<T, E>) -> Result<T, E> {
    let mut unfinished = lock();
    let made = make(path)?;
    unfinished.paths.push(path.to_owned());
    Ok(made)
}

/// Does something to what is unfinished.
pub(super) fn change<T>(change: impl FnOnce() -> T) -> T {
    let _unfinished = lock();
    change()
}

/// Something is finished, or gone.
pub(super) fn end(path: &Path) {
    let mut unfinished = lock();
    unfinished.paths.retain(|other| other != path);
}

/// While there is one, the program does not end.
#[derive(Debug)]
pub struct CommitGuard(());

impl CommitGuard {
    /// From now on until this is dropped. There may be several.
    pub fn begin() -> Self {
        lock().uninterrupted += 1;
        Self(())
    }
}

impl Drop for CommitGuard {
    fn drop(&mut self) {
        let mut unfinished = lock();
        unfinished.uninterrupted = unfinished.uninterrupted.saturating_sub(1);
        SETTLED.notify_all();
    }
}

/// Removes all that is unfinished, for a program that ends. Whoever makes something waits from now on.
pub fn remove() {
    let mut unfinished = lock();
    while unfinished.uninterrupted > 0 {
        unfinished = SETTLED.wait(unfinished).unwrap_or_else(PoisonError::into_inner);
    }
    remove_paths(&unfinished.paths);
    std::mem::forget(unfinished);
}

/// The same, unless that had to be waited for, as it may have to be by the very thread that calls this.
pub fn try_remove() {
    let unfinished = match UNFINISHED.try_lock() {
        Ok(unfinished) => unfinished,
        Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
        Err(TryLockError::WouldBlock) => return,
    };
    if unfinished.uninterrupted == 0 {
        remove_paths(&unfinished.paths);
        std::mem::forget(unfinished);
    }
}

fn remove_paths(paths: &[PathBuf]) {
    for path in paths {
        // One of them it is; about one that can't be removed nothing more can be done.
        let _ = fs::remove_file(path).or_else(|_| fs::remove_dir_all(path));
    }
}
