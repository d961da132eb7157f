//! The summary of all samples by function and stack: of JIT code, native code and the kernel.
//!
//! ```text
//! samples of [`crate::frames::stream`] ─► [tree] of functions, with inlined ones ─► [functions]: their samples ─► [stacks]
//!                                           └─ [identity]: what functions of one row have in common
//! ```
//!
//! A summary counts all samples, because time can move between JIT code and native code. Own samples, totals, callers and
//! stacks all come from the tree, so they agree. A recursive function counts once per sample in its total.

mod functions;
mod identity;
mod stacks;
mod tree;

pub use crate::frames::attribution::identity::Counted;

use std::collections::BTreeMap;

use jitdump::printable;

use crate::collections::hash::HashMap;
use crate::frames::attribution::functions::Functions;
use crate::frames::attribution::identity::IdentityNamer;
use crate::frames::attribution::tree::FunctionTree;
use crate::frames::native::lines::NativeLines;
use crate::frames::ranking::counts::SamplesByStack;
use crate::frames::stream::Tables;
use crate::frames::stream::tables::{Thread, ThreadIndex};
use crate::perf::feature;
use crate::results::diagnostics::{Diagnostic, Issue};
use crate::results::name_style::NameStyle;
use crate::results::summary::event_counts::EventCounts;
use crate::results::summary::profile::{EventSummary, ProfileSummary, ThreadSummary, Unit};
use crate::units::{Pid, Tid};

impl Counted<'_> {
    /// Returns the summary. `labels` are those of the user, `names` is the form of the names of JIT code.
    pub fn summary(&self, labels: &BTreeMap<String, String>, names: &NameStyle) -> ProfileSummary {
        let Self {
            recording,
            symbols,
            tables,
            ..
        } = *self;
        let (profile, index) = (&recording.profile.profile, &recording.profile.index);
        let mut namer = IdentityNamer::new(self, names);
        let tree = FunctionTree::of(tables, self.counts, &mut namer, index.data_end);
        let without_callers = tables.losses.without_callers.saturating_add(tree.without_callers);
        let too_many =
            (without_callers > 0).then(|| Diagnostic::new(Issue::StacksTooMany).times(without_callers));
        let events = events(tables, &tree);
        let functions = Functions::new(&tree, namer, events.len());
        let (stacks, stacks_omitted) = stacks::stacks(&tree, &functions);
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
            threads: threads(tables, self.counts),
            events,
            functions: functions.all.into_iter().collect(),
            stacks,
            stacks_omitted,
            without_callers,
            diagnostics: symbols
                .native
                .refused()
                .into_iter()
                .chain(too_many)
                .chain(self.native_lines.into_iter().flat_map(NativeLines::diagnostics))
                .chain(tables.diagnostics.iter().cloned())
                .collect(),
        }
    }
}

/// Returns the events with the samples in the tree.
fn events(tables: &Tables, tree: &FunctionTree) -> Vec<EventSummary> {
    let events = tables.events.iter().map(|event| EventSummary {
        name: event.name.clone(),
        unit: event.unit,
        excludes_kernel: event.without_kernel,
        samples: 0,
        period: 0,
    });
    let mut events: Vec<EventSummary> = events.collect();
    for (node, own) in tree.nodes.iter().zip(&tree.own) {
        if let Some(event) = events.get_mut(node.frame.event as usize) {
            event.samples = event.samples.saturating_add(own.samples);
            event.period = event.period.saturating_add(own.period);
        }
    }
    events
}

/// Returns the threads, those with most samples first.
fn threads(tables: &Tables, counts: &SamplesByStack) -> Vec<ThreadSummary> {
    let mut samples: HashMap<ThreadIndex, EventCounts> = HashMap::default();
    for (event, _, thread, weight) in counts.iter() {
        let of_thread = samples.entry(thread);
        let of_thread = of_thread.or_insert_with(|| EventCounts::zero(tables.events.len()));
        of_thread.add(event, weight.samples);
    }
    let mut threads: Vec<(&Thread, EventCounts)> = samples
        .into_iter()
        .map(|(thread, samples)| (&tables.threads[thread], samples))
        .collect();
    threads.sort_by(|(one, samples), (other, other_samples)| {
        let by_samples = other_samples.cmp(samples);
        by_samples.then((one.pid, one.tid).cmp(&(other.pid, other.tid)))
    });
    let summaries = threads.into_iter().map(|(thread, samples)| ThreadSummary {
        pid: thread.pid.map(|Pid(pid)| pid),
        tid: thread.tid.map(|Tid(tid)| tid),
        name: Some(thread.name().to_owned()).filter(|name| !name.is_empty()),
        samples,
    });
    summaries.collect()
}
