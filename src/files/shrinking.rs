//! Files that get shorter while they are mapped.
//!
//! Whoever may write to a file may cut it off as well. Reading what is gone through a map raises SIGBUS then, as
//! an error of the disk does, and that would be the end of the program. Instead, zeros take the place of all
//! bytes of the map from there on, and the map remembers that they did. The program reads on, and asks when
//! it has read.
//!
//! The signal is handled from the first map on. What it is raised for elsewhere goes to whoever handled it
//! before.

use std::ffi::{c_int, c_void};
use std::ops::Range;
use std::ptr;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::sync::{Mutex, OnceLock, PoisonError};

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};

/// Memory that a file is mapped to. The signal handler may look at it at any time, so it stays for ever, and is
/// used again for another map.
#[derive(Debug)]
struct Region {
    /// Address of the first byte, and of the one behind the last; both 0 while there is no map.
    start: AtomicUsize,
    end: AtomicUsize,
    /// How often they were set. Odd while they are being set.
    version: AtomicUsize,
    is_torn: AtomicBool,
    next: OnceLock<&'static Region>,
}

impl Region {
    const fn new() -> Self {
        Self {
            start: AtomicUsize::new(0),
            end: AtomicUsize::new(0),
            version: AtomicUsize::new(0),
            is_torn: AtomicBool::new(false),
            next: OnceLock::new(),
        }
    }

    fn set(&self, range: Range<usize>) {
        self.version.fetch_add(1, SeqCst);
        self.start.store(range.start, SeqCst);
        self.end.store(range.end, SeqCst);
        self.version.fetch_add(1, SeqCst);
    }

    /// Its addresses. One that is being set holds none: its map is not read yet, or not any longer.
    fn get(&self) -> Range<usize> {
        let version = self.version.load(SeqCst);
        let range = self.start.load(SeqCst)..self.end.load(SeqCst);
        let is_whole = version.is_multiple_of(2) && version == self.version.load(SeqCst);
        if is_whole { range } else { 0..0 }
    }
}

/// The list of all regions starts here.
static FIRST: Region = Region::new();

/// Regions without a map, and the last one of the list.
static POOL: Mutex<Pool> = Mutex::new(Pool {
    free: Vec::new(),
    last: &FIRST,
});

struct Pool {
    free: Vec<&'static Region>,
    last: &'static Region,
}

/// Watches over a map of a file.
#[derive(Debug)]
pub(super) struct Watch(&'static Region);

impl Watch {
    /// Watches over `bytes`, which must be all of a map. It must stay until this is dropped.
    pub fn over(bytes: &[u8]) -> Self {
        handle_signal();
        let mut pool = POOL.lock().unwrap_or_else(PoisonError::into_inner);
        let region = pool.free.pop().unwrap_or_else(|| {
            let region: &'static Region = Box::leak(Box::new(Region::new()));
            // Nothing else is ever put behind the last one, since only the holder of the lock does that.
            let _ = pool.last.next.set(region);
            pool.last = region;
            region
        });
        let start = bytes.as_ptr().addr();
        region.is_torn.store(false, SeqCst);
        region.set(start..start + bytes.len());
        Self(region)
    }

    /// Whether zeros have taken the place of bytes that could not be read.
    pub fn is_torn(&self) -> bool {
        self.0.is_torn.load(SeqCst)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.0.set(0..0);
        let mut pool = POOL.lock().unwrap_or_else(PoisonError::into_inner);
        pool.free.push(self.0);
    }
}

/// Who handled the signal before.
static BEFORE: OnceLock<libc::sigaction> = OnceLock::new();

#[expect(unsafe_code, reason = "handles a signal")]
fn handle_signal() {
    BEFORE.get_or_init(|| {
        // The handler needs it, and only the first one to ask has to do more than a handler may.
        rustix::param::page_size();
        // SAFETY: All zeros are a valid value of this plain structure: no flags, an empty mask, the default
        // action.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        let mut before = action;
        let handler: extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) = on_bus_error;
        action.sa_sigaction = handler as libc::sighandler_t;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        // SAFETY: Both structures are valid, and the handler does only what a handler may: it reads atomic
        // numbers and makes system calls.
        unsafe { libc::sigaction(libc::SIGBUS, &action, &mut before) };
        before
    });
}

#[expect(unsafe_code, reason = "is called by the kernel")]
extern "C" fn on_bus_error(signal: c_int, info: *mut libc::siginfo_t, _context: *mut c_void) {
    // SAFETY: With SA_SIGINFO, the kernel passes a valid structure, and for this signal one with an address.
    let (address, code) = unsafe { ((*info).si_addr().addr(), (*info).si_code) };
    let is_sent = code <= 0;
    if !is_sent && put_zeros(address) {
        return;
    }
    if let Some(before) = BEFORE.get() {
        // SAFETY: The structure was filled in by the kernel. The program makes the same access again then,
        // and whoever handled the signal before gets it.
        unsafe { libc::sigaction(signal, before, ptr::null_mut()) };
    }
    if is_sent {
        // SAFETY: It is always allowed to send oneself a signal; this one waits until the handler has ended.
        unsafe { libc::raise(signal) };
    }
}

/// Puts zeros in the place of what a map has at `address` and behind; `false` if there is no map.
#[expect(unsafe_code, reason = "puts pages in the place of others")]
fn put_zeros(address: usize) -> bool {
    let mut regions = std::iter::successors(Some(&FIRST), |region| region.next.get().copied());
    let found = regions.find_map(|region| {
        let range = region.get();
        range.contains(&address).then_some((region, range))
    });
    let Some((region, range)) = found else {
        return false;
    };
    let page = rustix::param::page_size();
    // Maps start at the start of a page.
    let start = range.start + (address - range.start) / page * page;
    // SAFETY: These are the pages of a map from one on up to its end. A thread is reading that one, so the map
    // is there until the handler has ended, and nothing else has these addresses. They are only ever read, as
    // plain bytes, for which zeros are as good as any others.
    let zeros = unsafe {
        mmap_anonymous(
            ptr::with_exposed_provenance_mut(start),
            range.end - start,
            ProtFlags::READ,
            MapFlags::PRIVATE | MapFlags::FIXED | MapFlags::NORESERVE,
        )
    };
    region.is_torn.store(true, SeqCst);
    zeros.is_ok()
}
