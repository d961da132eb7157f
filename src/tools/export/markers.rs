//! What runtimes logged beside code: functions that they compiled, and garbage collections.
//!
//! Markers are on the thread that logged them. If that has no samples, they are on the first thread of its process.

use std::cmp::Reverse;

use jitdump::names::SourceLocation;
use jitdump::{Function, Time, names, printable};

use crate::collections::hash::{HashMap, HashSet};
use crate::frames::stream::frame::FrameCode;
use crate::frames::stream::tables::Thread;
use crate::frames::stream::{Namer, SampleFilter};
use crate::load::{Compilation, function_of};
use crate::results::name_style::{NameStyle, line_and_column};
use crate::results::summary::count;
use crate::units::{Pid, Tid};

/// Most markers of each kind. Runtimes can compile millions of functions, and viewers draw each marker.
const MAX_MARKERS: usize = 100_000;

/// Limit of thread IDs (`PID_MAX_LIMIT`).
const MAX_TID: u32 = 1 << 22;

/// A compiled function, or a garbage collection.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Marker {
    /// Position of its thread among those with samples, which [`Markers::put_on`] sets.
    pub thread: usize,
    /// Process that logged it.
    pid: Pid,
    /// Thread that logged it, if known.
    tid: Option<Tid>,
    /// Whether that is another thread than the marker's.
    is_elsewhere: bool,
    /// Nanoseconds since the first record.
    pub time: u64,
    /// What happened.
    pub event: MarkedEvent,
}

/// An event of a runtime.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum MarkedEvent {
    /// A function was compiled, and its code loaded.
    Compilation {
        /// Its own name.
        function: String,
        /// Where it is declared, if known.
        position: Option<String>,
        /// Compiler tier, if known.
        tier: Option<String>,
        /// Size of its code in bytes.
        size: u64,
    },
    /// Garbage was collected.
    Collection {
        /// The oldest generation that was collected.
        generation: u64,
        /// End in nanoseconds since the first record.
        end: u64,
    },
}

/// The markers of a profile.
#[derive(Clone, Debug, Default)]
pub struct Markers {
    /// The markers, by thread and time.
    pub all: Vec<Marker>,
    left_out: LeftOut,
}

/// Numbers of events without a marker, by the reason.
#[derive(Clone, Copy, Debug, Default)]
struct LeftOut {
    without_samples: u64,
    too_many: u64,
    without_time: u64,
    outside: u64,
    in_other_processes: u64,
    unpaired: u64,
}

/// Returns the first ones, as many as get a marker.
fn limited<T>(mut events: Vec<T>, left_out: &mut LeftOut) -> Vec<T> {
    let too_many = events.len().saturating_sub(MAX_MARKERS) as u64;
    left_out.too_many = left_out.too_many.saturating_add(too_many);
    events.truncate(MAX_MARKERS);
    events
}

/// The first and the last time.
type Interval = (Time, Time);

fn overlap((start, end): Interval, (first, last): Interval) -> bool {
    first <= end && start <= last
}

fn increment(counter: &mut u64) {
    *counter = counter.saturating_add(1);
}

/// Processes, threads and times of the events that have a marker.
struct MarkerSelection<'f> {
    filter: &'f SampleFilter,
    /// Time of the first and the last record.
    recorded: Interval,
    /// Times that the filter selects.
    wanted: Interval,
}

impl<'f> MarkerSelection<'f> {
    fn of(filter: &'f SampleFilter, recorded: Option<Interval>) -> Self {
        Self {
            filter,
            recorded: recorded.unwrap_or((Time(0), Time::MAX)),
            wanted: filter.times(recorded),
        }
    }

    /// Whether an event of a process is selected, also if its times or its thread are unknown. An interval is if any of it
    /// is. `tid` is asked only if threads are selected.
    fn has(&self, pid: Pid, times: Option<Interval>, tid: impl FnOnce() -> Option<Tid>) -> bool {
        self.filter.has_process(Some(pid))
            && times.is_none_or(|times| overlap(times, self.wanted))
            && (self.filter.tids.is_empty() || tid().is_none_or(|tid| self.filter.has_thread(Some(tid))))
    }

    /// Returns the times of a selected event if any of them is in the recording, and otherwise counts it in `left_out`.
    fn times_in_recording(&self, times: Option<Interval>, left_out: &mut LeftOut) -> Option<Interval> {
        let Some(times) = times else {
            increment(&mut left_out.without_time);
            return None;
        };
        let is_recorded = overlap(times, self.recorded);
        if !is_recorded {
            increment(&mut left_out.outside);
        }
        is_recorded.then_some(times)
    }

    fn since_start(&self, time: Time) -> u64 {
        time.0.saturating_sub(self.recorded.0.0)
    }
}

/// A compilation that may get a marker; if there are too many, the smallest in this order do.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct FoundCompilation {
    has_no_samples: bool,
    time: Time,
    compilation: Compilation,
}

impl Markers {
    /// Returns the markers of the selected processes, threads and times. Functions without samples have one only if
    /// `has_all_functions` is true.
    pub fn of(namer: &Namer<'_>, filter: &SampleFilter, has_all_functions: bool) -> Self {
        let selection = MarkerSelection::of(filter, namer.tables.times);
        let mut markers = Self::default();
        markers.add_compilations(namer, &selection, has_all_functions);
        markers.add_collections(namer, &selection);
        markers
    }

    /// Adds markers of compilations: of functions with samples, or of all if `has_all`. If there are too many, those of
    /// functions with samples come first, then the earliest.
    fn add_compilations(&mut self, namer: &Namer<'_>, selection: &MarkerSelection<'_>, has_all: bool) {
        let functions = namer.tables.frames.iter().filter_map(|frame| match frame.code {
            FrameCode::Function(id) => Some(id),
            _ => None,
        });
        let sampled: HashSet<_> = functions.collect();
        let recording = namer.recording;
        let files = &recording.runtime_files.used;
        let processes = &recording.profile.index.processes;
        let mut found: Vec<FoundCompilation> = Vec::new();
        for compilation in recording.runtime_files.compilations(processes) {
            let is_sampled = sampled.contains(&compilation.function);
            let is_wanted = is_sampled || has_all;
            let times = compilation.time.map(|time| (time, time));
            // The thread is only in the function's record, which is not read if it gets no marker anyway.
            let tid = || {
                if is_wanted {
                    thread_of(&function_of(files, compilation.function)?, &compilation)
                } else {
                    None
                }
            };
            if !selection.has(compilation.pid, times, tid) {
                continue;
            }
            let Some((time, _)) = selection.times_in_recording(times, &mut self.left_out) else {
                continue;
            };
            if is_wanted {
                found.push(FoundCompilation {
                    has_no_samples: !is_sampled,
                    time,
                    compilation,
                });
            } else {
                increment(&mut self.left_out.without_samples)
            }
        }
        found.sort_unstable();
        for FoundCompilation {
            time, compilation, ..
        } in limited(found, &mut self.left_out)
        {
            if let Some((tid, event)) = named(namer, &compilation) {
                let time = selection.since_start(time);
                self.all.push(Marker::new(compilation.pid, tid, time, event));
            }
        }
    }

    /// Adds markers of garbage collections; if there are too many, of the longest ones.
    fn add_collections(&mut self, namer: &Namer<'_>, selection: &MarkerSelection<'_>) {
        let recording = namer.recording;
        let alignments = recording.runtime_files.log_alignments();
        // With their durations.
        let mut found: Vec<(u64, Marker)> = Vec::new();
        for logged in recording.logs.garbage_collections(&alignments) {
            let (pid, alignment) = (logged.pid, logged.alignment);
            if !selection.filter.has_process(Some(pid)) {
                continue;
            }
            self.left_out.unpaired = self.left_out.unpaired.saturating_add(logged.unpaired);
            for collection in logged.all {
                let interval = (alignment.time(collection.start), alignment.time(collection.end));
                let times = alignment.has_times().then_some(interval);
                if !selection.has(pid, times, || collection.tid) {
                    continue;
                }
                let Some((start, end)) = selection.times_in_recording(times, &mut self.left_out) else {
                    continue;
                };
                let event = MarkedEvent::Collection {
                    generation: collection.generation,
                    end: selection.since_start(end),
                };
                let marker = Marker::new(pid, collection.tid, selection.since_start(start), event);
                found.push((end.0.saturating_sub(start.0), marker));
            }
        }
        found.sort_by_key(|&(duration, _)| Reverse(duration));
        let longest = limited(found, &mut self.left_out);
        self.all.extend(longest.into_iter().map(|(_, marker)| marker));
    }

    /// Puts the markers on threads: those with samples, which are in this order.
    pub fn put_on<'t>(&mut self, threads: impl Iterator<Item = &'t Thread>) {
        let mut positions: HashMap<(Pid, Tid), usize> = HashMap::default();
        // For each process, whether its main thread has no samples, and its main or else its first thread.
        let mut main_threads: HashMap<Pid, (bool, usize)> = HashMap::default();
        for (position, thread) in threads.enumerate() {
            let Some((pid, tid)) = thread.pid.zip(thread.tid) else {
                continue;
            };
            // There is one for each event.
            positions.entry((pid, tid)).or_insert(position);
            let candidate = (pid.0 != tid.0, position);
            let main = main_threads.entry(pid).or_insert(candidate);
            *main = candidate.min(*main);
        }
        let before = self.all.len();
        self.all.retain_mut(|marker| {
            let own = marker.tid.and_then(|tid| positions.get(&(marker.pid, tid)));
            let main = main_threads.get(&marker.pid).map(|(_, main)| main);
            marker.is_elsewhere = own.is_none();
            marker.thread = own.or(main).copied().unwrap_or_default();
            main.is_some()
        });
        self.left_out.in_other_processes = before.saturating_sub(self.all.len()) as u64;
        self.all.sort_by_key(|marker| (marker.thread, marker.time));
    }

    /// Returns how many there are, and what is left out; nothing if runtimes logged neither.
    pub fn text(&self) -> Option<String> {
        let LeftOut {
            without_samples,
            too_many,
            without_time,
            outside,
            in_other_processes,
            unpaired,
        } = self.left_out;
        let is_collection = |marker: &&Marker| matches!(marker.event, MarkedEvent::Collection { .. });
        let collections = self.all.iter().filter(is_collection).count() as u64;
        let functions = (self.all.len() as u64).saturating_sub(collections);
        let left_out = [
            (without_samples, "functions without samples (--markers adds them)"),
            (too_many, "over the limit"),
            (without_time, "without a time"),
            (outside, "before or after the recording"),
            (in_other_processes, "in processes without samples"),
            (unpaired, "starts or ends of collections without the other"),
        ];
        let left_out: Vec<String> = left_out
            .iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, what)| format!("{count} {what}"))
            .collect();
        let parts = [
            (functions > 0).then(|| format!("{} compiled", count(functions, "function"))),
            (collections > 0).then(|| count(collections, "garbage collection")),
            (!left_out.is_empty()).then(|| format!("left out: {}", left_out.join(", "))),
        ];
        let parts: Vec<String> = parts.into_iter().flatten().collect();
        (!parts.is_empty()).then(|| parts.join("; "))
    }
}

impl Marker {
    /// An event of a process and, if known, a thread, at a time since the first record.
    fn new(pid: Pid, tid: Option<Tid>, time: u64, event: MarkedEvent) -> Self {
        Self {
            thread: 0,
            pid,
            tid,
            is_elsewhere: false,
            time,
            event,
        }
    }

    /// Returns the thread that logged it, if it is on another one.
    pub fn other_tid(&self) -> Option<Tid> {
        self.tid.filter(|_| self.is_elsewhere)
    }
}

/// Returns a compiled function and, if known, the thread of the profile that compiled it.
fn named(namer: &Namer<'_>, compilation: &Compilation) -> Option<(Option<Tid>, MarkedEvent)> {
    let function = function_of(&namer.recording.runtime_files.used, compilation.function)?;
    let name = namer.names_and_lines.name(function.name);
    let parts = names::parts(&name);
    let parts = function
        .declaration()
        .map_or(parts, |declared| declared.or(parts));
    let tier = function.tier();
    let position = parts.location.map(position);
    let plain = NameStyle::Plain.apply_declared(name.clone(), || Some(parts), tier);
    let event = MarkedEvent::Compilation {
        function: printable(&plain),
        position,
        tier: tier.map(printable),
        size: function.range.size(),
    };
    Some((thread_of(&function, compilation), event))
}

/// Returns the thread of the profile that compiled a function, if known.
fn thread_of(function: &Function<'_>, compilation: &Compilation) -> Option<Tid> {
    let (Pid(pid), recorded_pid) = (compilation.pid, compilation.recorded_pid);
    // Quirk: Erlang writes the lower half of a pointer (capture erlang25).
    match function.tid.filter(|&tid| tid < MAX_TID)? {
        tid if pid == recorded_pid => Some(Tid(tid)),
        // In a PID namespace, the runtime has other IDs than the profile.
        tid if tid == recorded_pid => Some(Tid(pid)),
        _ => None,
    }
}

/// Returns a file, with the line and column if they are known.
fn position(location: SourceLocation<'_>) -> String {
    printable(location.path) + &line_and_column(location)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markers_have_a_limit() {
        let mut left_out = LeftOut::default();
        assert_eq!(limited(vec![(); 100_000], &mut left_out).len(), 100_000);
        assert_eq!(left_out.too_many, 0);
        assert_eq!(limited(vec![(); 100_003], &mut left_out).len(), 100_000);
        assert_eq!(left_out.too_many, 3);
        let markers = Markers {
            left_out,
            ..Markers::default()
        };
        assert_eq!(markers.text().as_deref(), Some("left out: 3 over the limit"));
        assert_eq!(Markers::default().text(), None);
    }
}
