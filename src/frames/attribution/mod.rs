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

use std::collections::BTreeMap;

use jitdump::printable;

use crate::code::selection::{Selection, SelectionWalk, Selector};
use crate::code::timeline::FunctionId;
use crate::collections::hash::HashMap;
use crate::frames::attribution::functions::CountedFunctions;
use crate::frames::attribution::identity::{IdentityNamer, SummaryContext};
use crate::frames::attribution::tree::FunctionTree;
use crate::frames::ranking::counts::{SamplesByStack, StackSamples};
use crate::frames::ranking::first_event;
use crate::frames::source_files::names_and_lines::NamesAndLines;
use crate::frames::stream::native_lines::NativeLines;
use crate::frames::stream::tables::{Thread, ThreadIndex};
use crate::frames::stream::walk::{Addresses, FrameSymbols};
use crate::frames::stream::{self, Sample, SampleFilter, Tables, WalkOptions, Walked};
use crate::frames::unwind::Unwound;
use crate::load::{Progress, Recording};
use crate::perf::feature;
use crate::results::diagnostics::{Diagnostic, Issue};
use crate::results::name_style::NameStyle;
use crate::results::summary::event_counts::EventCounts;
use crate::results::summary::profile::{EventSummary, ProfileSummary, ThreadSummary, Unit};
use crate::units::{Pid, Tid};

pub use crate::frames::stream::native_names::NativeNames;

/// What gets all samples by stack, with the tables that they refer to.
pub type SampleObserver<'o> = Option<&'o mut dyn FnMut(Tables, &SamplesByStack)>;

/// All samples of a recording by stack, without names.
pub struct CountedSamples<'a, 'o> {
    recording: &'a Recording<'a>,
    native: &'a NativeNames,
    symbols: FrameSymbols<'a>,
    walked: Walked,
    counts: SamplesByStack,
    observe: SampleObserver<'o>,
}

impl<'a, 'o> CountedSamples<'a, 'o> {
    /// Counts the samples, and selects the code in them. `observe` gets lines of native code, too.
    pub fn count(
        recording: &'a Recording<'a>,
        native: &'a NativeNames,
        selector: &'a Selector<'a>,
        observe: SampleObserver<'o>,
        progress: &mut dyn Progress,
    ) -> Result<(Self, Selection), Diagnostic> {
        let symbols = native.with(selector);
        let how = WalkOptions {
            filter: &SampleFilter::default(),
            addresses: match observe {
                Some(_) => Addresses::All,
                None => Addresses::OfFunctions,
            },
        };
        let mut counts = SamplesByStack::default();
        let mut count = |sample: &Sample| counts.add(sample);
        let start = || SelectionWalk::new(selector);
        let (walked, found) = stream::walk(&symbols, &recording.profile, how, start, &mut count, progress)?;
        let samples = Self {
            recording,
            native,
            symbols,
            walked,
            counts,
            observe,
        };
        Ok((samples, selector.combine(found)))
    }

    /// Returns the functions of runtimes in the stacks.
    pub fn functions(&self) -> impl Iterator<Item = FunctionId> {
        self.walked.functions()
    }

    /// Names the functions, and returns the summary. `track` has the lines of functions that have it; `style` is the form of
    /// the names of JIT code. The observer gets the samples with the same names.
    pub fn summary(
        self,
        names_and_lines: &NamesAndLines<'_>,
        track: Option<&[u8]>,
        style: &NameStyle,
        unwound: &Unwound,
    ) -> ProfileSummary {
        let (recording, symbols) = (self.recording, &self.symbols);
        // The summary needs no lines of native code; only the observer does.
        let lines = self.observe.is_some().then(|| self.native.lines());
        let native_lines = lines.as_ref();
        let namer = self
            .walked
            .namer(recording, symbols, names_and_lines, track, native_lines, unwound);
        let (mut tables, mut counts) = (namer.tables, self.counts);
        put_sampled_event_first(&mut tables, &mut counts);
        let context = SummaryContext {
            recording,
            symbols,
            names_and_lines,
            native_lines,
            tables: &tables,
            counts: &counts,
        };
        let summary = context.profile_summary(style);
        if let Some(observe) = self.observe {
            observe(tables, &counts);
        }
        summary
    }
}

/// Puts the first event with samples in front: stacks and callers are those of the first event, which `compare` compares.
/// `intel_pt//` and the like have no samples.
fn put_sampled_event_first(tables: &mut Tables, counts: &mut SamplesByStack) {
    let first = first_event(tables);
    if first > 0 {
        tables.events.swap(0, first as usize);
        tables.event_losses.swap(0, first as usize);
        counts.put_first(first);
    }
}

impl SummaryContext<'_> {
    /// Returns the summary, without labels. `style` is the form of the names of JIT code.
    fn profile_summary(&self, style: &NameStyle) -> ProfileSummary {
        let Self {
            recording,
            symbols,
            tables,
            ..
        } = *self;
        let (profile, index) = (&recording.profile.profile, &recording.profile.index);
        let mut namer = IdentityNamer::new(self, style);
        let tree = FunctionTree::of(tables, self.counts, &mut namer, index.data_end);
        let without_callers = tables.losses.without_callers.saturating_add(tree.without_callers);
        let too_many =
            (without_callers > 0).then(|| Diagnostic::new(Issue::StacksTooMany).times(without_callers));
        let events = events(tables, &tree);
        let functions = CountedFunctions::new(&tree, namer, events.len());
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
            labels: BTreeMap::default(),
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
        samples: 0,
        period: 0,
        ..event.clone()
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
    for StackSamples {
        event,
        thread,
        weight,
        ..
    } in counts.iter()
    {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frames::stream::Losses;

    #[test]
    fn the_first_event_with_samples_comes_first() {
        let event = |name: &str, samples| EventSummary {
            name: name.to_owned(),
            unit: Unit::Cycles,
            excludes_kernel: false,
            samples,
            period: samples,
        };
        let losses = |samples| Losses {
            samples,
            ..Losses::default()
        };
        let mut tables = Tables {
            events: vec![event("intel_pt//u", 0), event("cycles", 2), event("faults", 1)],
            event_losses: [0, 2, 1].map(losses).into(),
            ..Tables::default()
        };
        let mut counts = SamplesByStack::default();
        for event in [1, 2, 1] {
            counts.add(&Sample {
                event,
                thread: ThreadIndex(0),
                time: None,
                cpu: None,
                period: 1,
                stack: None,
            });
        }
        put_sampled_event_first(&mut tables, &mut counts);
        let names: Vec<&str> = tables.events.iter().map(|event| &*event.name).collect();
        assert_eq!(names, ["cycles", "intel_pt//u", "faults"]);
        assert_eq!([0, 1, 2].map(|event| tables.losses_of(event).samples), [2, 0, 1]);
        let samples = |event| -> u64 {
            let of_event = counts.of_event(event).into_iter();
            of_event.map(|found| found.weight.samples).sum()
        };
        assert_eq!([0, 1, 2].map(samples), [2, 0, 1]);
    }
}
