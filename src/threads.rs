//! The threads that share the work.
//!
//! They are a pool of our own: rayon's global pool panics where threads cannot be started, under `ulimit -u`, a
//! container's `pids.max`, or too little memory. Without threads, everything is done in the calling one.

use std::io;
use std::sync::OnceLock;
use std::sync::mpsc;
use std::thread;

use memmap2::MmapMut;
use rayon::prelude::*;
use rayon::{ThreadPool, ThreadPoolBuilder};

/// Bytes of stack of a thread.
const STACK: usize = 2 << 20;

/// Bytes of memory that a thread needs to start: its stack, and what it allocates before any of its code runs. Rust's
/// library panics if the stack for its signal handler is missing.
const ROOM: usize = STACK + (1 << 20);

static POOL: OnceLock<Result<ThreadPool, String>> = OnceLock::new();

/// Starts the threads, as many as there are processors, or as `RAYON_NUM_THREADS` says. Returns why all is done in one thread
/// if they cannot be started. Without a call, they start when they are needed.
pub fn start() -> Result<(), &'static str> {
    match POOL.get_or_init(|| pool().map_err(|error| error.to_string())) {
        Ok(_) => Ok(()),
        Err(reason) => Err(reason),
    }
}

fn pool() -> io::Result<ThreadPool> {
    let processors = thread::available_parallelism().map_or(1, usize::from);
    make_sure_of_room(processors)?;
    let pool = ThreadPoolBuilder::new().stack_size(STACK).build();
    let pool = pool.map_err(io::Error::other)?;
    // Returns once all have started.
    pool.broadcast(|_| ());
    Ok(pool)
}

/// Starts a thread for something else. Fails if it cannot be started.
pub fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    make_sure_of_room(1)?;
    let (started, has_started) = mpsc::channel::<()>();
    let builder = thread::Builder::new().name(name.to_owned()).stack_size(STACK);
    builder.spawn(move || {
        drop(started);
        work();
    })?;
    // Ends with an error once the other end is dropped.
    let _ = has_started.recv();
    Ok(())
}

fn make_sure_of_room(threads: usize) -> io::Result<()> {
    MmapMut::map_anon(ROOM.saturating_mul(threads)).map(drop)
}

/// Where work is shared.
enum Workers {
    /// In the rayon pool of a caller, or in ours, from one of its threads.
    Current,
    /// In ours.
    Own(&'static ThreadPool),
    /// In this thread alone.
    None,
}

impl Workers {
    fn get() -> Self {
        if rayon::current_thread_index().is_some() {
            return Self::Current;
        }
        // The reason was returned when they were started.
        let _ = start();
        match POOL.get() {
            Some(Ok(pool)) => Self::Own(pool),
            _ => Self::None,
        }
    }
}

/// How many threads share the work.
#[expect(clippy::disallowed_methods)]
pub fn count() -> usize {
    match Workers::get() {
        Workers::Current => rayon::current_num_threads(),
        Workers::Own(pool) => pool.current_num_threads(),
        Workers::None => 1,
    }
}

/// What `work` makes of each item, in their order.
pub fn map<T: Sync, R: Send>(items: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    map_with(items, || (), |(), item| work(item))
}

/// The same with a value that `work` uses for one item after another; some are made for each thread.
#[expect(clippy::disallowed_methods)]
pub fn map_with<T: Sync, S, R: Send>(
    items: &[T],
    make: impl Fn() -> S + Sync,
    work: impl Fn(&mut S, &T) -> R + Sync,
) -> Vec<R> {
    let share = || items.par_iter().map_init(&make, &work).collect();
    match Workers::get() {
        Workers::Current => share(),
        Workers::Own(pool) => pool.install(share),
        Workers::None => {
            let mut value = make();
            items.iter().map(|item| work(&mut value, item)).collect()
        }
    }
}

/// What `work` makes of each item, which it may change, in their order.
#[expect(clippy::disallowed_methods)]
pub fn map_mut<T: Send, R: Send>(items: &mut [T], work: impl Fn(&mut T) -> R + Sync) -> Vec<R> {
    match Workers::get() {
        Workers::Current => items.par_iter_mut().map(&work).collect(),
        Workers::Own(pool) => pool.install(|| items.par_iter_mut().map(&work).collect()),
        Workers::None => items.iter_mut().map(work).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_in_the_order_of_the_items() {
        let items: Vec<u32> = (0..10_000).collect();
        assert_eq!(map(&items, |&item| item), items);
        assert_eq!(
            map(&items, |_| map(&[1, 2], |item| item * 2)).concat().len(),
            20_000
        );
    }

    #[test]
    fn a_thread_runs_once_it_was_started() {
        let (sender, receiver) = mpsc::channel();
        spawn("test", move || {
            sender.send(thread::current().name().map(str::to_owned)).unwrap()
        })
        .unwrap();
        assert_eq!(receiver.recv().unwrap().as_deref(), Some("test"));
    }

    #[test]
    fn threads_without_room_are_an_error() {
        assert!(make_sure_of_room(usize::MAX / 2).is_err());
    }
}
