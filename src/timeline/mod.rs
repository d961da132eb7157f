//! The code cache over time: addresses and lifetimes of functions, their samples, and the share of samples in JIT
//! code.
//!
//! ```text
//! Recording ─► [samples]: samples by code and time ───────┐
//!     ├──────► [intervals]: code by address and time ─────┼─► [build] ─► Values ─► [page]: self-contained HTML
//!     └──────► [tiers]: compiler of each function ────────┘
//! ```

mod build;
mod code_box;
mod inherited_code;
mod intervals;
mod page;
mod regions;
mod samples;
mod tiers;
mod values;

use std::path::PathBuf;

use crate::diagnostics::Diagnostic;
use crate::load::{Buffers, LoadOptions, NeededFunctions, Progress, load, refuse_input_as_output};

pub use page::html;
pub use values::{Boxes, FORMAT, Functions, Process, Region, Share, Values};

/// Default name of the page.
pub const DEFAULT_OUTPUT: &str = "timeline.html";

/// Content of the page, and diagnostics.
#[derive(Debug)]
pub struct Timeline {
    /// Content of the page.
    pub values: Values,
    /// Warnings and notes.
    pub diagnostics: Vec<Diagnostic>,
    /// Alignment of each file whose clock differs from the profile's.
    pub clocks: Vec<String>,
}

/// Reads a profile and the files of its runtimes. `output` is the path to which the caller will write the page. It
/// must not be one of the files that are read.
pub fn timeline(
    options: &LoadOptions,
    output: &PathBuf,
    progress: &mut dyn Progress,
) -> Result<Timeline, Diagnostic> {
    let buffers = Buffers::default();
    let result = load(options, NeededFunctions::All, &buffers, progress).and_then(|recording| {
        refuse_input_as_output(options, &recording, [output])?;
        Ok(build::timeline(&recording, progress))
    });
    // An error may only be a consequence of an input that was truncated.
    buffers.check_input().and(result)
}
