//! Thread pool for parallel work.
//!
//! rayon's global pool panics if threads cannot be started, under `ulimit -u`, a container's `pids.max`, or
//! with too little memory. This pool then does all work in the calling thread.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError, mpsc};
use std::thread;

use memmap2::MmapMut;
use rayon::prelude::*;
use rayon::{ThreadPool, ThreadPoolBuilder};

/// Stack size of a thread in bytes.
const STACK_SIZE: usize = 2 << 20;

/// Memory in bytes that a thread needs to start: its stack, and what it allocates before its code runs.
/// Rust's library panics if it cannot allocate the stack of its signal handler.
const THREAD_MEMORY: usize = STACK_SIZE + (1 << 20);

static POOL: OnceLock<Result<ThreadPool, String>> = OnceLock::new();

/// Makes the calling thread one of as many threads as there are CPUs, or as `RAYON_NUM_THREADS` specifies, and starts the others.
/// If that fails, returns the reason, and all work is done in one thread.
///
/// The calling thread must not end before the program does. Without this call, threads start when they are needed, beside the
/// calling one.
pub fn start() -> Result<(), &'static str> {
    match pool(ThreadPoolBuilder::new().use_current_thread()) {
        Ok(_) => Ok(()),
        Err(reason) => Err(reason),
    }
}

/// Returns the pool, which the first call creates, or why it could not be created.
fn pool(builder: ThreadPoolBuilder) -> &'static Result<ThreadPool, String> {
    POOL.get_or_init(|| new_pool(builder).map_err(|error| error.to_string()))
}

/// Creates a pool, and waits until all its threads have started.
fn new_pool(builder: ThreadPoolBuilder) -> io::Result<ThreadPool> {
    let count = number_of_threads();
    check_memory(count)?;
    let builder = builder.num_threads(count).stack_size(STACK_SIZE);
    let pool = builder.build().map_err(io::Error::other)?;
    pool.broadcast(|_| ());
    Ok(pool)
}

/// Returns the number in `RAYON_NUM_THREADS`, or of CPUs. rayon would find out the same.
fn number_of_threads() -> usize {
    let wanted = std::env::var("RAYON_NUM_THREADS").ok();
    let wanted = wanted.and_then(|number| number.parse().ok());
    let processors = || thread::available_parallelism().map_or(1, usize::from);
    wanted.filter(|&number| number > 0).unwrap_or_else(processors)
}

/// Starts a separate thread. Fails if it cannot be started.
pub fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    check_memory(1)?;
    let (started, has_started) = mpsc::channel::<()>();
    let builder = thread::Builder::new()
        .name(name.to_owned())
        .stack_size(STACK_SIZE);
    builder.spawn(move || {
        drop(started);
        work();
    })?;
    // Ends with an error when the other end is dropped.
    let _ = has_started.recv();
    Ok(())
}

fn check_memory(threads: usize) -> io::Result<()> {
    MmapMut::map_anon(THREAD_MEMORY.saturating_mul(threads)).map(drop)
}

/// Where parallel work runs.
enum Workers {
    /// In the current rayon pool, a caller's or this one, because this is one of its threads.
    Current,
    /// In this pool.
    Pool(&'static ThreadPool),
    /// In this thread only.
    None,
}

impl Workers {
    /// Returns the threads for work that starts in this one.
    fn get() -> Self {
        // If it failed to start, this thread may be one of a pool that has ended.
        let is_in_pool = rayon::current_thread_index().is_some() && !matches!(POOL.get(), Some(Err(_)));
        if is_in_pool {
            return Self::Current;
        }
        match pool(ThreadPoolBuilder::new()) {
            Ok(pool) => Self::Pool(pool),
            Err(_) => Self::None,
        }
    }
}

/// Returns the number of threads for parallel work.
#[expect(clippy::disallowed_methods)]
pub fn count() -> usize {
    match Workers::get() {
        Workers::Current => rayon::current_num_threads(),
        Workers::Pool(pool) => pool.current_num_threads(),
        Workers::None => 1,
    }
}

/// Does both in parallel.
pub fn join<A: Send, B: Send>(one: impl FnOnce() -> A + Send, other: impl FnOnce() -> B + Send) -> (A, B) {
    match Workers::get() {
        Workers::Current => rayon::join(one, other),
        Workers::Pool(pool) => pool.install(|| rayon::join(one, other)),
        Workers::None => (one(), other()),
    }
}

/// Applies `work` to each item in parallel. Returns the results in the order of the items.
pub fn map<T: Sync, R: Send>(items: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    map_with(items, || (), |(), item| work(item))
}

/// As [`map`], with a value that `work` reuses from one item to the next. Each thread makes some.
pub fn map_with<T: Sync, S, R: Send>(
    items: &[T],
    make: impl Fn() -> S + Sync,
    work: impl Fn(&mut S, &T) -> R + Sync,
) -> Vec<R> {
    map_items(items, make, work)
}

/// As [`map`], with items that `work` may change.
pub fn map_mut<T: Send, R: Send>(items: &mut [T], work: impl Fn(&mut T) -> R + Sync) -> Vec<R> {
    map_mut_with(items, || (), |(), item| work(item))
}

/// As [`map_with`], with items that `work` may change.
pub fn map_mut_with<T: Send, S, R: Send>(
    items: &mut [T],
    make: impl Fn() -> S + Sync,
    work: impl Fn(&mut S, &mut T) -> R + Sync,
) -> Vec<R> {
    map_items(items, make, work)
}

#[expect(clippy::disallowed_methods)]
fn map_items<I, S, R: Send>(
    items: I,
    make: impl Fn() -> S + Sync,
    work: impl Fn(&mut S, <I as IntoIterator>::Item) -> R + Sync,
) -> Vec<R>
where
    I: IntoIterator + IntoParallelIterator<Item = <I as IntoIterator>::Item> + Send,
    I::Iter: IndexedParallelIterator,
{
    let in_parallel = |items: I| items.into_par_iter().map_init(&make, &work).collect();
    match Workers::get() {
        Workers::Current => in_parallel(items),
        Workers::Pool(pool) => pool.install(|| in_parallel(items)),
        Workers::None => {
            let mut value = make();
            items.into_iter().map(|item| work(&mut value, item)).collect()
        }
    }
}

/// Does `work` with each item in parallel, and with a value for each thread, which `make` makes unless `values` has one that is
/// not in use. Each thread gets its items in their order. All values are in `values` afterwards.
pub fn for_each_in_order<T: Sync, S: Send>(
    items: &[T],
    values: &mut Vec<S>,
    make: impl Fn() -> S + Sync,
    work: impl Fn(&mut S, &T) + Sync,
) {
    let next = AtomicUsize::new(0);
    let spare = Mutex::new(values);
    on_all(|| {
        // Whoever had the value before had earlier items.
        let mut value = lock(&spare).pop();
        while let Some(item) = items.get(next.fetch_add(1, Ordering::Relaxed)) {
            work(value.get_or_insert_with(&make), item);
        }
        lock(&spare).extend(value);
    });
}

/// Does the same in all threads.
pub fn on_all(work: impl Fn() + Sync) {
    match Workers::get() {
        Workers::Current => drop(rayon::broadcast(|_| work())),
        Workers::Pool(pool) => drop(pool.broadcast(|_| work())),
        Workers::None => work(),
    }
}

/// Locks a mutex. A thread that panicked with the lock ends the program.
pub fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
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
    fn a_spawned_thread_runs() {
        let (sender, receiver) = mpsc::channel();
        spawn("test", move || {
            sender.send(thread::current().name().map(str::to_owned)).unwrap()
        })
        .unwrap();
        assert_eq!(receiver.recv().unwrap().as_deref(), Some("test"));
    }

    #[test]
    fn threads_without_memory_are_an_error() {
        assert!(check_memory(usize::MAX / 2).is_err());
    }
}
