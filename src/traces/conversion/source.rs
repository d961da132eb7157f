//! Events of logs and traces, in the form in which they are replayed, whatever their format.

use std::fmt::Debug;
use std::hash::Hash;
use std::io;

use jitdump::{Address, RuntimeTime, Tally, Time};

use crate::code::clock::Alignment;
use crate::perf::synthetic::SyntheticThread;
use crate::results::diagnostics::Issue;
use crate::traces::conversion::call_tree::CallStep;
use crate::traces::conversion::chain::CallChain;
use crate::traces::conversion::event_selection::ProfileEvent;
use crate::traces::conversion::synthesize::Out;
use crate::units::Pid;

/// First thread ID that the kernel never assigns (`PID_MAX_LIMIT`). Threads that the profile does not have, or not
/// with their own ID, get one from here on.
pub const FIRST_SYNTHETIC_TID: u32 = 1 << 22;

/// A thread of a log or trace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TracedThread<'a> {
    /// Process and thread ID in the profile.
    pub thread: SyntheticThread,
    /// Whether its start and name need no records: the profile has the thread, or an earlier one is the same.
    pub is_introduced: bool,
    /// Its name, if the log has one.
    pub name: Option<&'a [u8]>,
}

/// Where and when an event was logged.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct EventContext {
    /// Index of the thread in [`ReplaySource::threads`].
    pub thread: usize,
    /// Time in nanoseconds, as in the log.
    pub time: RuntimeTime,
    /// CPU; [`UNKNOWN_CPU`](crate::traces::conversion::synthesis::UNKNOWN_CPU) if the format has none.
    pub cpu: u32,
    /// Offset in the file, in bytes.
    pub offset: u64,
}

/// An event of a log or trace.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct TraceEvent<F, O> {
    /// Where and when it was logged.
    pub context: EventContext,
    /// What happened.
    pub kind: EventKind<F, O>,
}

/// Content of an event.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum EventKind<F, O> {
    /// Entry or exit of a function `F`.
    Call(CallStep<F>),
    /// Another event, as the format has it.
    Other(O),
}

/// The event of a [`ReplaySource`].
pub type EventOf<S> = TraceEvent<<S as ReplaySource>::Function, <S as ReplaySource>::Other>;

/// A sample to make from an event that is no call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EventSample {
    /// The event of the profile.
    pub event: ProfileEvent,
    /// Period in the unit of the event.
    pub period: u64,
    /// Whether the thread's current calls are the callers.
    pub is_in_calls: bool,
}

/// Logs or traces of one format that are replayed together.
pub trait ReplaySource: Sized {
    /// Event for the time between entries and exits.
    const SELF_TIME: ProfileEvent;
    /// Event for calls.
    const CALL: ProfileEvent;
    /// Event for the durations of calls, if the format has one.
    const CALL_TIME: Option<ProfileEvent>;

    /// Identifies a function.
    type Function: Copy + Eq + Hash + Default + Debug;
    /// An event that is no call.
    type Other: Copy + Debug;
    /// Iterator over the events of one thread, in time order.
    type Events: Iterator<Item = EventOf<Self>> + Debug;

    /// Returns the threads; `None` for those whose events are not used.
    fn threads(&self) -> Vec<Option<TracedThread<'_>>>;

    /// Returns the conversion of the events' times to the profile's clock.
    fn alignment(&self) -> Alignment;

    /// Returns the events of each thread. Events of threads at the same time are replayed in this order.
    fn events(&self) -> impl Iterator<Item = Self::Events>;

    /// Appends functions of process `pid` to a call chain, innermost first, with their addresses at `time`. Returns
    /// `false` if the chain is full before all are added.
    #[must_use]
    fn add_frames(
        &mut self,
        chain: &mut CallChain,
        pid: Pid,
        functions: impl Iterator<Item = Self::Function>,
        time: RuntimeTime,
    ) -> bool;

    /// Appends the callers at an event to a call chain, and counts a chain that is cut.
    fn add_callers(
        &mut self,
        chain: &mut CallChain,
        pid: Pid,
        functions: impl Iterator<Item = Self::Function>,
        context: &EventContext,
    ) {
        if !self.add_frames(chain, pid, functions, context.time)
            && let Some(faults) = self.faults(context.thread)
        {
            faults.add(Issue::ChainTooLong, context.offset);
        }
    }

    /// Returns the counts of a thread's events that could not be used in full.
    fn faults(&mut self, thread: usize) -> Option<&mut Tally<Issue>>;

    /// Returns the sample for an event that is no call, if there is one. Appends its frames to `chain`, and the bytes
    /// that the program logged to `raw`; both are empty.
    fn sample(
        &mut self,
        context: &EventContext,
        other: Self::Other,
        chain: &mut CallChain,
        raw: &mut Vec<u8>,
    ) -> Option<EventSample>;

    /// Writes the names and mappings of processes that no profile describes, as of `start`.
    fn write_processes(&self, out: &mut Out<'_>, start: Time) -> io::Result<()>;

    /// Counts what is incomplete after a replay. `threads` are its iterators over the threads' events.
    fn finish(self, threads: impl Iterator<Item = Self::Events>);

    /// Returns the processes, each with its name for messages.
    fn processes(&self) -> Vec<(Pid, String)>;

    /// Whether the source has the callers of code at an address.
    fn covers(&self, pid: Pid, leaf: Address) -> bool;

    /// Whether `leaf` is in the code of a function.
    fn is_inside(&mut self, pid: Pid, function: Self::Function, leaf: Address) -> bool;
}
