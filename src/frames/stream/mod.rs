//! The samples of a recording one by one, with tables of what is in their stacks.
//!
//! ```text
//! [walk]: places of each sample, as [frame]s ─► [rows]: samples in file order, stacks of [call_tree] as numbers
//! rows ─┬─► [filter] ─► the caller's function, sample by sample
//!       └─► distinct stacks ─► [naming]: functions, [lines], inlined calls ─► [tables], [threads]
//!                                [code]: machine code of a symbol, and what it refers to
//!                                [kinds]: language, native, kernel, compiler, GC, idle
//! counts of rows ─► [losses]
//! ```
//!
//! Samples refer to rows of the tables, which have names when all samples are read: memory grows with functions and stacks,
//! not with samples. The size of the profile limits the number of stacks; samples with further ones have only their function.
//!
//! Frames of native code get symbols and lines ([native_lines]) from the files of this machine. A file without symbols is one
//! function. `kernel_symbols` come from the profile (records of eBPF programs, and its own copy), from the running kernel
//! or from the build-id cache, if it is the same build. `kept_paths` are those of source files
//! that an earlier run copied beside its objects.
//!
//! [`crate::frames::unwind`] has already unwound copied stacks.

pub mod call_tree;
mod code;
mod doubtful;
mod filter;
pub mod frame;
mod kept_paths;
mod kernel_symbols;
mod kinds;
mod lines;
pub mod losses;
mod naming;
pub mod native_lines;
pub mod native_names;
mod rows;
pub mod tables;
mod threads;
pub mod walk;

pub use code::MachineCode;
pub use filter::SampleFilter;
pub use kinds::Kind;
pub use losses::Losses;
pub use naming::Namer;
pub use tables::{Sample, Tables};

use std::mem;

use crate::code::profile_index::IndexedProfile;
use crate::code::samples::SampleVisitor;
use crate::code::timeline::FunctionId;
use crate::collections::indexed_table::{IndexedTable, index_of};
use crate::frames::events;
use crate::frames::source_files::SourceOptions;
use crate::frames::source_files::names_and_lines::{NamesAndLines, V8Scripts};
use crate::frames::stream::call_tree::{CallTreeNode, NodeIndex};
use crate::frames::stream::doubtful::DoubtfulSamples;
use crate::frames::stream::frame::FrameAddress;
use crate::frames::stream::losses::LossCounts;
use crate::frames::stream::native_lines::NativeLines;
use crate::frames::stream::native_names::NativeNames;
use crate::frames::stream::rows::{Collected, ThreadKey};
use crate::frames::stream::tables::{Stack, StackIndex, ThreadIndex};
use crate::frames::stream::walk::{Addresses, FrameSymbols, SampleWalk};
use crate::frames::unwind::{KeptStacks, UnwindOptions, Unwound, unwind};
use crate::load::{LoadOptions, NeededFunctions, Progress, Recording, RecordingData, load};
use crate::perf::Profile;
use crate::perf::sample::OFF_CPU_SUMMARY_TIME;
use crate::results::diagnostics::Diagnostic;
use crate::results::summary::profile::{EventSummary, Unit};

/// What to read.
#[derive(Clone, Debug, Default)]
pub struct StreamOptions {
    /// The profile and the files of its runtimes.
    pub load: LoadOptions,
    /// Where source files are, and which source maps are used.
    pub sources: SourceOptions,
    /// Name of the track that lines are taken from, for functions that have it; `None` for the usual lines.
    pub track: Option<Vec<u8>>,
    /// Whether lines and inlined calls of native code are left out.
    pub no_native_lines: bool,
    /// Which samples to read. [`Losses`] count all.
    pub filter: SampleFilter,
    /// Whether to read all functions of the runtimes' files, for the names of what code refers to.
    pub all_functions: bool,
}

/// Calls `consumer` with each sample of a profile in file order, which is not that of time. Copied stacks are unwound. Returns
/// the tables that samples refer to.
pub fn read(
    options: &StreamOptions,
    consumer: &mut dyn FnMut(&Sample),
    progress: &mut dyn Progress,
) -> Result<Tables, Diagnostic> {
    read_then(options, consumer, progress, |namer| {
        Ok(mem::take(&mut namer.tables))
    })
}

/// As [`read`]. Returns what `finish` makes of the tables and, while its files are open, of the machine code.
pub fn read_then<R>(
    options: &StreamOptions,
    consumer: &mut dyn FnMut(&Sample),
    progress: &mut dyn Progress,
    finish: impl FnOnce(&mut Namer<'_>) -> Result<R, Diagnostic>,
) -> Result<R, Diagnostic> {
    let data = RecordingData::default();
    let needed = NeededFunctions {
        all: options.all_functions,
        unwinding: true,
    };
    let result = load(|_| Ok(()), &options.load, needed, &data, progress).and_then(|recording| {
        let (recording, unwound) = if recording.profile.profile.attrs.copies_stacks() {
            let how = UnwindOptions {
                kept: KeptStacks::Nothing,
                fold_interpreter: false,
                is_optional: false,
            };
            unwind(&options.load, how, recording, progress)?
        } else {
            (recording, Unwound::default())
        };
        read_recording(options, &recording, &unwound, consumer, progress, finish)
    });
    // The error may only be a consequence of an input that was truncated.
    data.check_input().and(result)
}

/// As [`read_then`], of a recording that is loaded.
fn read_recording<R>(
    options: &StreamOptions,
    recording: &Recording<'_>,
    unwound: &Unwound,
    consumer: &mut dyn FnMut(&Sample),
    progress: &mut dyn Progress,
    finish: impl FnOnce(&mut Namer<'_>) -> Result<R, Diagnostic>,
) -> Result<R, Diagnostic> {
    let native = NativeNames::of(&options.load, recording);
    let selector = recording.selector();
    let symbols = native.with(&selector);
    let how = WalkOptions {
        filter: &options.filter,
        addresses: Addresses::All,
    };
    let start = || DoubtfulSamples::new(&selector);
    let (walked, doubtful) = walk(&symbols, &recording.profile, how, start, consumer, progress)?;
    let doubtful = DoubtfulSamples::sum(doubtful);
    progress.start("reading names", 1);
    let scripts = V8Scripts::read(
        recording,
        walked.functions(),
        walked.places.iter().filter_map(FrameAddress::symbol),
        &options.sources,
        &options.load,
    );
    let track = options.track.as_deref();
    let lines = (!options.no_native_lines).then(|| native.lines());
    let names_and_lines = scripts.functions();
    let mut namer = walked.namer(
        recording,
        &symbols,
        &names_and_lines,
        track,
        lines.as_ref(),
        unwound,
    );
    let tables = &mut namer.tables;
    tables.diagnostics.extend(recording.diagnostics());
    let clocks = recording.uncertain_clocks(&doubtful);
    tables.diagnostics.extend(clocks);
    tables.diagnostics.extend(unwound.diagnostics.iter().cloned());
    tables.diagnostics.extend(scripts.diagnostics().iter().cloned());
    tables.diagnostics.extend(symbols.native.refused());
    let of_lines = lines.iter().flat_map(NativeLines::diagnostics);
    tables.diagnostics.extend(of_lines);
    finish(&mut namer)
}

/// What the samples of a profile refer to, without names.
pub struct Walked {
    nodes: IndexedTable<NodeIndex, CallTreeNode<FrameAddress>>,
    /// The distinct frames of the nodes, sorted.
    places: Vec<FrameAddress>,
    threads: IndexedTable<ThreadIndex, ThreadKey>,
    events: Vec<EventSummary>,
    /// What the samples of each event lack, whether a filter selects them or not.
    counts: Vec<LossCounts>,
}

/// How to walk.
#[derive(Clone, Copy, Debug)]
pub struct WalkOptions<'o> {
    /// The samples that the caller gets.
    pub filter: &'o SampleFilter,
    /// Code whose frames have addresses.
    pub addresses: Addresses,
}

/// Calls `consumer` with the samples of a profile that a filter selects. `start` makes another visitor of samples for each
/// thread; returns these, too.
pub fn walk<V: SampleVisitor>(
    symbols: &FrameSymbols<'_>,
    IndexedProfile { profile, index }: &IndexedProfile<'_>,
    how: WalkOptions<'_>,
    start: impl Fn() -> V + Sync,
    consumer: &mut dyn FnMut(&Sample),
    progress: &mut dyn Progress,
) -> Result<(Walked, Vec<V>), Diagnostic> {
    progress.start("reading samples", index.data_end);
    let mut events = CountedEvents::of_profile(profile, how.filter.event.as_deref());
    let has_times = profile.attrs.has_times();
    let filter = how.filter.of_profile(&events.all, index.times, has_times)?;
    let mut count = |sample: &Sample, thread: ThreadKey| {
        let mut sample = Sample {
            event: events.counted_as(sample.event),
            ..*sample
        };
        // Waits that perf has summed up are of the whole recording.
        let is_sum = sample.time.is_some_and(|time| time >= OFF_CPU_SUMMARY_TIME);
        if !filter.has(sample.event, thread, sample.time.filter(|_| !is_sum)) {
            return;
        }
        if is_sum {
            sample.time = index.times.map(|(_, last)| last);
        }
        events.add(&sample);
        consumer(&sample);
    };
    let mut collected = Collected::of_profile(index.data_end);
    let visitors = symbols.selector.samples().visit(
        &index.marks,
        || (SampleWalk::new(symbols, how.addresses), start()),
        |walks| collected.take(walks.iter_mut().map(|visited| &mut visited.visitor.0), &mut count),
        |bytes| progress.advance(bytes),
    );
    let Collected {
        tree,
        threads,
        counts: recorded,
        ..
    } = collected;
    let nodes = tree.nodes;
    let mut places: Vec<FrameAddress> = nodes.iter().map(|node| node.frame).collect();
    places.sort_unstable();
    places.dedup();
    let walked = Walked {
        nodes,
        places,
        threads: threads.all,
        counts: events.losses(recorded),
        events: events.all,
    };
    Ok((walked, visitors.into_iter().map(|(_, visitor)| visitor).collect()))
}

/// The events of a profile, and their samples so far.
struct CountedEvents {
    /// The events, each once.
    all: Vec<EventSummary>,
    /// For each event of the profile, the index in `all` of the one that it counts as.
    counted_as: Vec<u32>,
}

impl CountedEvents {
    /// Starts with the events of a profile. Those of cores of different types are one, unless one of them is `wanted`.
    fn of_profile(profile: &Profile<'_>, wanted: Option<&str>) -> Self {
        let (all, counted_as) = events::of_profile(profile, wanted);
        Self { all, counted_as }
    }

    /// Returns the event that an event of the profile counts as.
    fn counted_as(&self, recorded: u32) -> u32 {
        self.counted_as
            .get(recorded as usize)
            .copied()
            .unwrap_or_default()
    }

    /// Counts a sample of one of the events.
    fn add(&mut self, sample: &Sample) {
        if let Some(event) = self.all.get_mut(sample.event as usize) {
            event.samples = event.samples.saturating_add(1);
            event.period = event.period.saturating_add(sample.period);
        }
    }

    /// Returns the losses of each event. `recorded` are those of events of the profile.
    fn losses(&self, recorded: impl IntoIterator<Item = (u32, LossCounts)>) -> Vec<LossCounts> {
        let mut losses = vec![LossCounts::default(); self.all.len()];
        for (event, of_event) in recorded {
            if let Some(losses) = losses.get_mut(self.counted_as(event) as usize) {
                losses.merge(&of_event);
            }
        }
        losses
    }
}

/// Whether no sampled event of time or cycles counts in the kernel. Events of logs and traces never do.
fn are_without_kernel(events: &[EventSummary], counts: &[LossCounts]) -> bool {
    let mut sampled = events
        .iter()
        .zip(counts)
        .filter(|(event, counts)| counts.losses.samples > 0 && is_time(event))
        .peekable();
    sampled.peek().is_some() && sampled.all(|(event, _)| event.excludes_kernel)
}

/// Whether an event counts time or cycles.
fn is_time(event: &EventSummary) -> bool {
    event.unit != Unit::Occurrences
}

impl Walked {
    /// Returns the functions of runtimes in the stacks.
    pub fn functions(&self) -> impl Iterator<Item = FunctionId> {
        self.places.iter().filter_map(FrameAddress::function)
    }

    /// Names everything, and returns the tables with what named them. Lines are those of `track` for functions that have it, and of
    /// `native_lines` for native code.
    pub fn namer<'a>(
        self,
        recording: &'a Recording<'_>,
        symbols: &'a FrameSymbols<'_>,
        names_and_lines: &'a NamesAndLines<'_>,
        track: Option<&'a [u8]>,
        native_lines: Option<&'a NativeLines<'a>>,
        unwound: &Unwound,
    ) -> Namer<'a> {
        let Self {
            nodes,
            places,
            threads,
            events,
            counts,
        } = self;
        let mut namer = Namer::new(recording, symbols, names_and_lines, track, native_lines);
        namer.add_all(&places);
        let tables = &mut namer.tables;
        tables.stacks = nodes
            .iter()
            .map(|node| {
                let position = places.binary_search(&node.frame).unwrap_or_default();
                Stack {
                    caller: node.caller().map(|NodeIndex(caller)| StackIndex(caller)),
                    frame: index_of(position),
                }
            })
            .collect();
        threads::add(tables, threads, &recording.profile);
        let lost = recording.profile.index.lost();
        let without_kernel = are_without_kernel(&events, &counts);
        let mut all = LossCounts::default();
        for (event, counts) in events.iter().zip(&counts) {
            all.merge(counts);
            let without_kernel = if is_time(event) {
                event.excludes_kernel
            } else {
                without_kernel
            };
            let losses = Losses::of(counts, lost, unwound, without_kernel);
            tables.event_losses.push(losses);
        }
        tables.losses = Losses::of(&all, lost, unwound, without_kernel);
        tables.events = events;
        tables.times = recording.profile.index.times;
        namer
    }
}
