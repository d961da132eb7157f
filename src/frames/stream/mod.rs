//! The samples of a recording one by one, with tables of what is in their stacks.
//!
//! ```text
//! [rows]: samples in file order, stacks as numbers ─► [filter] ─► the caller's function, sample by sample
//!    └─► distinct stacks ─► [naming]: functions, lines, inlined calls ─► [tables]
//!                             [kinds]: language, native, kernel, compiler, GC, idle
//! ```
//!
//! Samples refer to rows of the tables, which have names when all samples are read: memory grows with functions and stacks,
//! not with samples.

mod filter;
mod kinds;
mod naming;
mod rows;
pub mod tables;
mod threads;

pub use filter::SampleFilter;
pub use kinds::Kind;
pub use tables::{Losses, Sample, Tables};

use crate::collections::indexed_table::index_of;
use crate::frames::attribution::call_tree::NodeIndex;
use crate::frames::attribution::{NativeCode, events_of};
use crate::frames::source_files::SourceOptions;
use crate::frames::source_files::v8_functions::V8Scripts;
use crate::frames::stream::naming::Namer;
use crate::frames::stream::rows::{Collected, Place, Rows, ThreadKey};
use crate::frames::stream::tables::{Event, Stack, StackIndex};
use crate::frames::unwind::{Kept, UnwindOptions, Unwound, unwind};
use crate::load::{Buffers, LoadOptions, NeededFunctions, Progress, Recording, load};
use crate::results::diagnostics::Diagnostic;

/// What to read.
#[derive(Clone, Debug, Default)]
pub struct StreamOptions {
    /// The profile and the files of its runtimes.
    pub load: LoadOptions,
    /// Where source files are, and which source maps are used.
    pub sources: SourceOptions,
    /// Name of the track that lines are taken from, for functions that have it; `None` for the usual lines.
    pub track: Option<Vec<u8>>,
    /// Which samples to read. [`Losses`] count all.
    pub filter: SampleFilter,
}

/// Calls `consumer` with each sample of a profile in file order, which is not that of time. Copied stacks are unwound. Returns
/// the tables that samples refer to.
pub fn read(
    options: &StreamOptions,
    consumer: &mut dyn FnMut(&Sample),
    progress: &mut dyn Progress,
) -> Result<Tables, Diagnostic> {
    let buffers = Buffers::default();
    let needed = NeededFunctions {
        all: false,
        unwinding: true,
    };
    let result = load(&options.load, needed, &buffers, progress).and_then(|recording| {
        let (recording, unwound) = match recording.profile.profile.attrs.copies_stacks() {
            true => {
                let how = UnwindOptions {
                    kept: Kept::Nothing,
                    fold_interpreter: false,
                    is_optional: false,
                };
                unwind(&options.load, how, recording, progress)?
            }
            false => (recording, Unwound::default()),
        };
        read_recording(options, &recording, &unwound, consumer, progress)
    });
    // The error may only be a consequence of an input that was truncated.
    buffers.check_input().and(result)
}

/// As [`read`], of a recording that is loaded.
pub fn read_recording(
    options: &StreamOptions,
    recording: &Recording<'_>,
    unwound: &Unwound,
    consumer: &mut dyn FnMut(&Sample),
    progress: &mut dyn Progress,
) -> Result<Tables, Diagnostic> {
    let (profile, index) = (&recording.profile.profile, &recording.profile.index);
    let native = NativeCode::of(&options.load, recording);
    let native_symbols = native.symbols();
    let selector = recording.selector();
    let symbols = native.with(&selector, &native_symbols);
    progress.start("reading samples", index.data_end);
    let mut events: Vec<Event> = events_of(profile)
        .into_iter()
        .zip(profile.attrs.all())
        .map(|(event, attr)| Event {
            name: event.name,
            unit: event.unit,
            without_kernel: attr.excludes_kernel,
            samples: 0,
            period: 0,
        })
        .collect();
    let filter = options.filter.of_profile(&events, index.times)?;
    let mut count = |sample: &Sample, thread: ThreadKey| {
        if !filter.has(sample.event, thread, sample.time) {
            return;
        }
        if let Some(event) = events.get_mut(sample.event as usize) {
            event.samples = event.samples.saturating_add(1);
            event.period = event.period.saturating_add(sample.period);
        }
        consumer(sample);
    };
    let mut collected = Collected::of_profile(index.data_end);
    selector.samples().visit(
        &index.marks,
        index.data_end,
        || Rows::walk(&symbols),
        |walks| collected.take(walks.iter_mut().map(|visited| &mut visited.visitor), &mut count),
        |bytes| progress.advance(bytes),
    );
    let Collected {
        tree,
        threads,
        counts,
        ..
    } = collected;
    let (nodes, _) = tree.into_nodes();
    let mut places: Vec<Place> = nodes.iter().map(|node| node.frame).collect();
    places.sort_unstable();
    places.dedup();
    progress.start("reading names", 1);
    let scripts = V8Scripts::read(
        recording,
        places.iter().filter_map(|place| place.function()),
        places.iter().filter_map(|place| place.symbol()),
        &options.sources,
        &options.load,
    );
    let v8_functions = scripts.functions();
    let mut namer = Namer::new(recording, &symbols, &v8_functions, options.track.as_deref());
    namer.add_all(&places);
    let mut tables = namer.tables;
    tables.stacks = nodes
        .iter()
        .map(|node| {
            let position = places.binary_search(&node.frame).unwrap_or_default();
            Stack {
                caller: node.caller.map(|NodeIndex(caller)| StackIndex(caller)),
                frame: index_of(position),
            }
        })
        .collect();
    threads::add(&mut tables, threads, &recording.profile);
    tables.losses = Losses::of(&counts, unwound, &events);
    tables.events = events;
    tables.times = index.times;
    tables.diagnostics = recording.diagnostics();
    tables.diagnostics.extend(unwound.diagnostics.iter().cloned());
    tables.diagnostics.extend(scripts.diagnostics().iter().cloned());
    tables.diagnostics.extend(native_symbols.refused());
    Ok(tables)
}
