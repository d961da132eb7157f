//! The code cache over time: addresses and lifetimes of functions, their samples, and the share of samples in JIT
//! code.
//!
//! ```text
//! Recording ─► [samples]: samples by code and time ───────┐
//!     │           of one [event]                          │
//!     ├──────► [intervals]: code by address and time ─────┼─► [build] ─► PageValues ─► [page]: self-contained HTML
//!     ├──────► [tiers]: compiler of each function ────────┤
//!     └──────► [source_lines]: by line, inlined function ─┘
//! ```

mod build;
mod code_box;
mod colors;
mod event;
mod inherited_code;
mod intervals;
mod page;
mod regions;
mod samples;
mod source_lines;
mod tiers;
mod values;

use std::path::PathBuf;

use crate::frames::source_files::SourceOptions;
use crate::frames::source_files::names_and_lines::V8Scripts;
use crate::load::{
    LoadOptions, NeededFunctions, Progress, RecordingData, all_symbols, load, refuse_input_as_output,
};
use crate::results::diagnostics::Diagnostic;

pub use page::html;
pub use values::{
    Boxes, FORMAT, FunctionColumns, InlinedColumns, LineColumns, Locations, PageValues, ProcessValues,
    Region, SampleColumns,
};

/// Default name of the page.
pub const DEFAULT_OUTPUT: &str = "timeline.html";

/// Content of the page, and diagnostics.
#[derive(Debug)]
pub struct TimelinePage {
    /// Content of the page.
    pub values: PageValues,
    /// Warnings and notes.
    pub diagnostics: Vec<Diagnostic>,
    /// Alignment of each file whose clock differs from the profile's.
    pub clocks: Vec<String>,
}

/// Options of [`timeline`].
#[derive(Clone, Debug, Default)]
pub struct TimelineOptions {
    /// What to read.
    pub load: LoadOptions,
    /// Name of the event to count; `None` for the first one with samples.
    pub event: Option<String>,
    /// Path to which the caller will write the page. It must not be one of the files that are read.
    pub output: PathBuf,
    /// Whether the page has source text around the lines with samples. Paths in a runtime's file can name any file.
    pub has_sources: bool,
    /// Where source files are, and which source maps are used.
    pub sources: SourceOptions,
    /// Name of the track that lines are taken from, for functions that have it; `None` for the usual lines.
    pub track: Option<Vec<u8>>,
}

/// Reads a profile and the files of its runtimes.
pub fn timeline(options: &TimelineOptions, progress: &mut dyn Progress) -> Result<TimelinePage, Diagnostic> {
    let data = RecordingData::default();
    let needed = NeededFunctions {
        all: true,
        unwinding: false,
    };
    let result = load(|_| Ok(()), &options.load, needed, &data, progress).and_then(|recording| {
        refuse_input_as_output(&options.load, &recording, [&options.output])?;
        let functions = recording.timeline.mappings.iter().map(|mapping| mapping.function);
        let symbols = all_symbols(&recording.maps).map(|(id, _)| id);
        let scripts = V8Scripts::read(&recording, functions, symbols, &options.sources, &options.load);
        build::timeline(&recording, &scripts, options, progress)
    });
    // An error may only be a consequence of an input that was truncated.
    data.check_input().and(result)
}
