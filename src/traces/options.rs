//! Options for logs of Mono's profiler and XRay traces.

use std::path::PathBuf;

/// Which logs and traces to read, and what to take from them.
#[derive(Clone, Debug, Default)]
pub struct TraceOptions {
    /// Files and folders with logs of Mono's profiler.
    pub mono_logs: Vec<PathBuf>,
    /// Log events to convert to profile events. `None` converts all without a profile, and none beside one.
    pub mono_events: Option<Vec<MonoEvent>>,
    /// Core file to read machine code from, for functions in Mono logs, which contain only names.
    pub core_file: Option<PathBuf>,
    /// Files and folders with XRay traces.
    pub xray_logs: Vec<PathBuf>,
    /// Instrumented binary used to resolve XRay function IDs.
    pub xray_binary: Option<PathBuf>,
    /// Trace records to convert to profile events. `None` converts all, or none if the traces only replace
    /// the call chains of a profile.
    pub xray_events: Option<Vec<XrayEvent>>,
    /// Options that reduce the number of samples made from XRay traces.
    pub sampling: SamplingOptions,
    /// Whether samples in code of logs and traces get call chains made from the recorded calls.
    pub splice_stacks: bool,
    /// Process ID for logs and traces that carry none, or one from another PID namespace.
    pub pid: Option<u32>,
}

/// A kind of log event that can be converted, as selected on the command line.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[non_exhaustive]
pub enum MonoEvent {
    /// Objects that were allocated.
    Allocations,
    /// Exceptions that were thrown.
    Exceptions,
    /// Waits for locks.
    Contention,
    /// Garbage collections.
    Collections,
    /// Objects in the last heap snapshot.
    Heap,
    /// Objects in all heap snapshots.
    HeapShots,
    /// Samples that Mono's profiler took.
    Samples,
    /// Calls, and the time between them.
    Calls,
}

/// A kind of record that can be converted, as selected on the command line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum XrayEvent {
    /// Calls, and the time between them.
    Calls,
    /// Events that the program logged itself.
    Custom,
    /// Logged arguments of calls.
    Arguments,
    /// Durations of calls, one sample each.
    Durations,
}

/// Reduction of the number of samples.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SamplingOptions {
    /// Sampling interval per thread, in nanoseconds; `None` makes one sample of the time between two records.
    pub resample: Option<u64>,
    /// Whether there is one sample for each stack of each thread, with all time spent there.
    pub aggregate: bool,
}
