//! Attribution of all samples to functions: of JIT code, native code and the kernel, in whole call stacks.
//!
//! ```text
//! [recorded]: threads, kernel ───────────┐
//! [crate::frames::native]: what they have mapped ┼─► [walk]: [frame]s of each sample ─► [call_tree] ─► [functions]: names and
//! [kernel_symbols] ──────────────────────┘                                          └──────► [stacks]     samples
//! ```
//!
//! Frames of native code get symbols from the files of this machine. [`crate::frames::unwind`] has already unwound copied
//! stacks.
//!
//! A summary counts all samples, because time can move between JIT code and native code. The nodes of the
//! call tree are references to functions, and names are looked up once per function. Own samples, totals,
//! callers and stacks all come from the tree, so they agree. A recursive function counts once per sample in
//! its total. The size of the profile limits the size of a tree; samples with further stacks count for
//! their function without callers.
//!
//! Kernel symbols come from the profile's own copy, from the build-id cache, or from the running kernel if it
//! is the same build. A file without symbols counts as a whole.

pub mod call_tree;
pub mod frame;
mod functions;
pub mod kernel_symbols;
pub mod recorded;
mod stacks;
pub mod walk;

pub use crate::frames::attribution::walk::Counts;

use std::collections::BTreeMap;

use jitdump::printable;

use crate::code::profile_index::ProfileIndex;
use crate::code::selection::{Selection, Selector};
use crate::collections::indexed_table::IndexedTable;
use crate::frames::attribution::call_tree::{Node, NodeIndex};
use crate::frames::attribution::functions::Functions;
use crate::frames::attribution::kernel_symbols::{KernelSymbols, kernel_build_id};
use crate::frames::attribution::recorded::Recorded;
use crate::frames::attribution::walk::{Symbols, Walk};
use crate::frames::native::files::NativeFiles;
use crate::frames::native::modules::Modules;
use crate::frames::native::symbols::NativeSymbols;
use crate::frames::source_files::v8_functions::V8Functions;
use crate::load::{LoadOptions, Recording};
use crate::perf::Profile;
use crate::perf::feature;
use crate::results::diagnostics::{Diagnostic, Issue};
use crate::results::name_style::NameStyle;
use crate::results::summary::event_counts::EventCounts;
use crate::results::summary::profile::Unit;
use crate::results::summary::profile::{EventSummary, ProfileSummary, ThreadSummary};
use crate::units::{Pid, Tid};

/// What names the frames of a recording outside of its JIT code.
pub struct NativeCode<'a> {
    /// Names of threads.
    pub recorded: Recorded<'a>,
    /// Mapped modules.
    pub modules: Modules,
    files: NativeFiles,
    kernel: KernelSymbols,
}

impl<'a> NativeCode<'a> {
    /// Finds it.
    pub fn of(options: &LoadOptions, recording: &'a Recording<'_>) -> Self {
        let recorded = Recorded::of(&recording.profile);
        let index = &recording.profile.index;
        let is_sampled = |space| index.has_samples(space);
        Self {
            modules: Modules::new(&recording.profile, &recorded.kernel_maps, is_sampled),
            files: NativeFiles::new(options),
            kernel: kernel_symbols(recording, &recorded, options),
            recorded,
        }
    }

    /// Prepares reading the symbols of modules.
    pub fn symbols(&self) -> NativeSymbols<'_> {
        NativeSymbols::new(&self.modules, &self.files)
    }

    /// Returns everything that names frames. `native` are the symbols of modules.
    pub fn with<'s>(&'s self, selector: &'s Selector<'s>, native: &'s NativeSymbols<'s>) -> Symbols<'s> {
        Symbols {
            selector,
            modules: &self.modules,
            native,
            kernel: &self.kernel,
        }
    }
}

/// Counts the samples of a recording by function and stack.
pub struct Attribution<'a> {
    recorded: &'a Recorded<'a>,
    symbols: Symbols<'a>,
}

impl<'a> Attribution<'a> {
    /// Prepares counting. `native_symbols` are those of `native`.
    pub fn new(
        selector: &'a Selector<'a>,
        native: &'a NativeCode<'a>,
        native_symbols: &'a NativeSymbols<'a>,
    ) -> Self {
        Self {
            recorded: &native.recorded,
            symbols: native.with(selector, native_symbols),
        }
    }

    /// Finds the code that samples hit, as [`Selector::walk`] does, and counts the samples.
    pub fn walk(&self, index: &ProfileIndex, progress: impl FnMut(u64)) -> (Selection, Counts) {
        let selector = self.symbols.selector;
        let mut counts = Counts::of_profile(index.data_end);
        let walks = selector.samples().visit(
            &index.marks,
            index.data_end,
            || (selector.start(), Walk::new(&self.symbols)),
            |walks| counts.take(walks.iter_mut().map(|visited| &mut visited.visitor.1)),
            progress,
        );
        let selection = selector.combine(walks.into_iter().map(|(selecting, _)| selecting));
        (selection, counts)
    }
}

/// Summarizes the counts of [`Attribution::walk`]. `v8_functions` has the original names of functions, `labels` are those of the
/// user.
pub fn profile_summary(
    recording: &Recording<'_>,
    attribution: &Attribution<'_>,
    counts: Counts,
    v8_functions: &V8Functions<'_>,
    labels: &BTreeMap<String, String>,
    names: &NameStyle,
) -> ProfileSummary {
    let (profile, index) = (&recording.profile.profile, &recording.profile.index);
    let Attribution { recorded, symbols } = attribution;
    let Counts { tree, threads } = counts;
    let (nodes, without_callers) = tree.into_nodes();
    let too_many =
        (without_callers > 0).then(|| Diagnostic::new(Issue::StacksTooMany).times(without_callers));
    let events = events(profile, &nodes);
    let functions = Functions::new(recording, symbols, v8_functions, names, &nodes, events.len());
    let (stacks, stacks_omitted) = stacks::stacks(&nodes, &functions);
    let threads = threads
        .into_iter()
        .map(|((pid, tid, event), samples)| (pid, tid, event, samples));
    let threads = thread_summaries(threads.collect(), recorded, events.len());
    let text = |id| feature::read_string(profile.feature(id)?, profile.endian).map(printable);
    let first = events.first();
    ProfileSummary {
        command: profile
            .feature(feature::COMMAND_LINE)
            .map_or_else(Vec::new, |content| {
                feature::command_line(content, profile.endian)
                    .map(printable)
                    .collect()
            }),
        host: text(feature::HOSTNAME).filter(|name| !name.is_empty()),
        os_release: text(feature::OS_RELEASE),
        arch: text(feature::ARCH),
        perf_version: text(feature::VERSION),
        cpus: profile
            .feature(feature::NR_CPUS)
            .and_then(|content| feature::online_cpus(content, profile.endian)),
        duration_ns: index.times.map(|(start, end)| end.0.saturating_sub(start.0)),
        cpu_time_ns: first
            .filter(|event| event.unit == Unit::Nanoseconds)
            .map(|event| event.period),
        labels: labels.clone(),
        events,
        threads,
        functions: functions.all.into_iter().collect(),
        stacks,
        stacks_omitted,
        without_callers,
        diagnostics: symbols.native.refused().into_iter().chain(too_many).collect(),
    }
}

/// Finds the symbols of the kernel that the profile was recorded on.
fn kernel_symbols(
    recording: &Recording<'_>,
    recorded: &Recorded<'_>,
    options: &LoadOptions,
) -> KernelSymbols {
    let profile = &recording.profile.profile;
    let Some(kernel) = recorded
        .kernel_maps
        .iter()
        .find(|map| map.name == b"[kernel.kallsyms]")
    else {
        return KernelSymbols::default();
    };
    let table = profile.feature(feature::BUILD_ID).unwrap_or_default();
    let listed = kernel_build_id(feature::build_ids(table, profile.endian), kernel.name);
    let build_id = kernel.build_id.or(listed);
    KernelSymbols::find(kernel, build_id, &recording.input.kernel_copies, options)
}

/// Returns the events, without their samples.
pub fn events_of(profile: &Profile<'_>) -> Vec<EventSummary> {
    let names = profile
        .feature(feature::EVENT_DESC)
        .map_or_else(Vec::new, |content| {
            feature::event_names(content, profile.endian)
                .map(printable)
                .collect()
        });
    let attrs = profile.attrs.all().iter().enumerate();
    attrs
        .map(|(index, attr)| EventSummary {
            name: names
                .get(index)
                .cloned()
                .unwrap_or_else(|| format!("event {index}")),
            unit: attr.unit,
            excludes_kernel: attr.excludes_kernel,
            samples: 0,
            period: 0,
        })
        .collect()
}

/// Returns the events with their samples.
fn events(profile: &Profile<'_>, nodes: &IndexedTable<NodeIndex, Node>) -> Vec<EventSummary> {
    let mut events = events_of(profile);
    for node in nodes {
        if let Some(event) = events.get_mut(node.event as usize) {
            event.samples = event.samples.saturating_add(node.own.samples);
            event.period = event.period.saturating_add(node.own.period);
        }
    }
    events
}

/// Number of samples of a thread for one event.
type ThreadSamples = (Option<Pid>, Option<Tid>, u32, u64);

fn thread_summaries(
    mut counts: Vec<ThreadSamples>,
    recorded: &Recorded<'_>,
    events: usize,
) -> Vec<ThreadSummary> {
    counts.sort_unstable();
    let mut threads: Vec<ThreadSummary> = Vec::new();
    for (pid, tid, event, samples) in counts {
        let (number, thread) = (pid.map(|pid| pid.0), tid.map(|tid| tid.0));
        if threads
            .last()
            .is_none_or(|last| (last.pid, last.tid) != (number, thread))
        {
            // A thread has the name of the one that started it, until it gets its own.
            let of_process = || recorded.names.get(&Tid(pid?.0));
            let name = tid.and_then(|tid| recorded.names.get(&tid)).or_else(of_process);
            threads.push(ThreadSummary {
                pid: number,
                tid: thread,
                name: name.map(|name| printable(name)),
                samples: EventCounts::zero(events),
            });
        }
        if let Some(last) = threads.last_mut() {
            last.samples.add(event, samples);
        }
    }
    threads.sort_by(|one, other| other.samples.cmp(&one.samples));
    threads
}
