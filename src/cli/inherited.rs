//! What a recorded program inherits: not what perf has changed for itself.
//!
//! perf ignores SIGUSR2, blocks SIGWINCH, and has an open file (`done_fd` in its `builtin-record.c`). Few programs undo that, and
//! shells cannot handle a signal that was ignored when they started.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::{fs, mem, ptr};

use jitinject::internals::files::kernel;
use signal_hook::consts::{SIGUSR2, SIGWINCH};
use signal_hook::flag;

use crate::cli::interrupt::has_signal;

/// Describes for [`restore`] the signals that this program ignores and blocks, and the files that another one inherits.
pub fn describe() -> String {
    let inherited = open_files().into_iter().filter(|file| is_inherited(*file));
    let files: Vec<String> = inherited.map(|file| file.to_string()).collect();
    let (ignored, blocked) = (kernel::own_bits("SigIgn"), kernel::own_bits("SigBlk"));
    format!("{ignored:x} {blocked:x} {}", files.join(" "))
}

/// Lets the program that takes this one's place inherit what was described. Returns `None` if that is incomplete.
pub fn restore(described: &str) -> Option<()> {
    let mut words = described.split_ascii_whitespace();
    let mut signals = || u64::from_str_radix(words.next()?, 16).ok();
    let (ignored, blocked) = (signals()?, signals()?);
    if !has_signal(ignored, SIGUSR2) {
        // The next program gets the default action in place of a handler. Until then, this one has the same effect.
        let _ = flag::register_conditional_default(SIGUSR2, Arc::new(AtomicBool::new(true)));
    }
    if !has_signal(blocked, SIGWINCH) {
        unblock(SIGWINCH);
    }
    let inherited: BTreeSet<i32> = words.filter_map(|word| word.parse().ok()).collect();
    let others = open_files().into_iter().filter(|file| !inherited.contains(file));
    others.for_each(close_in_next);
    Some(())
}

/// Returns the numbers of this program's open files, without the standard ones.
fn open_files() -> Vec<i32> {
    let names = fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    let numbers = names.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    numbers.filter(|number| *number > 2).collect()
}

/// Whether other programs inherit an open file of this one.
fn is_inherited(file: i32) -> bool {
    let description = kernel::read_text(format!("/proc/self/fdinfo/{file}")).unwrap_or_default();
    let mut lines = description.lines();
    let flags = lines.find_map(|line| i32::from_str_radix(line.strip_prefix("flags:")?.trim(), 8).ok());
    flags.is_some_and(|flags| flags & libc::O_CLOEXEC == 0)
}

/// Closes a file in the program that takes this one's place.
fn close_in_next(file: i32) {
    // SAFETY: The call changes a flag of the file. Without such a file, it has no effect.
    #[expect(unsafe_code, reason = "perf's files are known by their numbers only")]
    let _ = unsafe { libc::fcntl(file, libc::F_SETFD, libc::FD_CLOEXEC) };
}

/// Unblocks a signal.
fn unblock(signal: i32) {
    // SAFETY: The set of signals is a plain C structure, which the first call fills, and the pointers are to it.
    #[expect(unsafe_code, reason = "Rust has no function for it")]
    unsafe {
        let mut signals: libc::sigset_t = mem::zeroed();
        libc::sigemptyset(&raw mut signals);
        libc::sigaddset(&raw mut signals, signal);
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const signals, ptr::null_mut());
    }
}
