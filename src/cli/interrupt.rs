//! Handles signals that end the program: Ctrl-C, `kill`, a closed terminal.

use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use jitinject::internals::files::{cleanup, kernel};
use jitinject::internals::record::ReceivedSignal;
use jitinject::internals::threads;
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGXFSZ};
use signal_hook::iterator::exfiltrator::origin::WithOrigin;
use signal_hook::iterator::{Signals, SignalsInfo};
use signal_hook::low_level::pipe;
use signal_hook::low_level::siginfo::Cause;
use signal_hook::{SigId, flag, low_level};

/// Ignores the first Ctrl-C while a stream is read. The terminal sends it to all programs of a pipeline, and it
/// is the usual way to stop a `perf record` that writes to jitinject; its output should still be used.
pub struct FirstInterrupt {
    ends_program: Arc<AtomicBool>,
}

impl FirstInterrupt {
    /// Stops ignoring Ctrl-C.
    pub fn stop_ignoring(&self) {
        self.ends_program.store(true, Ordering::Relaxed);
    }
}

/// Whether signals go to a recorded program, and must not end this one: earlier runs have left their handlers.
static ARE_PASSED: AtomicBool = AtomicBool::new(false);

/// Collects signals while another program runs, which they are passed to.
pub struct PassedSignals {
    signals: SignalsInfo<WithOrigin>,
    /// Has a byte for each signal.
    arrivals: UnixStream,
    registered: Vec<SigId>,
}

impl PassedSignals {
    /// Starts to collect signals, without those that this program ignores, except for SIGINT and SIGQUIT: shells ignore them in
    /// programs that a script starts in the background, but a recorded program may handle them, and perf ends by the first.
    pub fn new() -> io::Result<Self> {
        let passed = without_ignored([SIGTERM, SIGHUP, SIGUSR1, SIGUSR2]).chain([SIGINT, SIGQUIT]);
        let signals = SignalsInfo::new(passed.clone())?;
        ARE_PASSED.store(true, Ordering::Relaxed);
        let (arrivals, sender) = UnixStream::pair()?;
        arrivals.set_nonblocking(true)?;
        // Handlers run in the order of their registration: a signal is there before its byte.
        let registered = passed.map(|signal| pipe::register(signal, sender.try_clone()?));
        Ok(Self {
            signals,
            arrivals,
            registered: registered.collect::<io::Result<_>>()?,
        })
    }

    /// Returns the signals since the last call.
    pub fn take(&mut self) -> Vec<ReceivedSignal> {
        while self.arrivals.read(&mut [0; 64]).is_ok_and(|count| count > 0) {}
        let signals = self.signals.pending().map(|origin| ReceivedSignal {
            number: origin.signal,
            is_from_kernel: origin.cause == Cause::Kernel,
        });
        signals.collect()
    }

    /// Returns a descriptor that can be read when a signal has come.
    pub fn arrivals(&self) -> BorrowedFd<'_> {
        self.arrivals.as_fd()
    }
}

impl Drop for PassedSignals {
    fn drop(&mut self) {
        ARE_PASSED.store(false, Ordering::Relaxed);
        for registered in self.registered.drain(..) {
            low_level::unregister(registered);
        }
    }
}

/// Removes unfinished output when a signal ends the program. A second signal ends it at once. If `reads_stream`, the
/// first Ctrl-C is ignored.
pub fn handle_signals(reads_stream: bool) -> io::Result<FirstInterrupt> {
    let ends_program = Arc::new(AtomicBool::new(!reads_stream));
    // Exceeding the file size limit is an error like others and must not kill the program.
    flag::register(SIGXFSZ, Arc::default())?;
    let handled = without_ignored([SIGINT, SIGTERM, SIGHUP]);
    let is_ending = Arc::new(AtomicBool::new(false));
    for signal in handled.clone() {
        flag::register_conditional_default(signal, is_ending.clone())?;
    }
    let mut signals = Signals::new(handled)?;
    let first = FirstInterrupt {
        ends_program: ends_program.clone(),
    };
    threads::spawn("signals", move || {
        for signal in &mut signals {
            if ARE_PASSED.load(Ordering::Relaxed) {
                continue;
            }
            if signal == SIGINT && !ends_program.swap(true, Ordering::Relaxed) {
                continue;
            }
            is_ending.store(true, Ordering::Relaxed);
            cleanup::remove_all();
            // Only returns for signals that do not end the program.
            let _ = low_level::emulate_default_handler(signal);
        }
    })?;
    Ok(first)
}

/// Leaves out signals that the parent process set to be ignored, as `nohup` does.
fn without_ignored<const N: usize>(signals: [i32; N]) -> impl Iterator<Item = i32> + Clone {
    let ignored = kernel::own_bits("SigIgn");
    signals
        .into_iter()
        .filter(move |signal| !has_signal(ignored, *signal))
}

/// Whether a signal is in a set of the kernel.
pub fn has_signal(set: u64, signal: i32) -> bool {
    set >> (signal - 1) & 1 == 1
}
