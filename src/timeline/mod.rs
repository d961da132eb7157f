//! The code cache over time: addresses and lifetimes of functions, their samples, and the share of samples in JIT
//! code.
//!
//! ```text
//! Recording ─► [samples]: samples by code and time ───────┐
//!     ├──────► [intervals]: code by address and time ─────┼─► [build] ─► Values ─► [page]: self-contained HTML
//!     └──────► [tiers]: compiler of each function ────────┘
//! ```

mod build;
mod inherited_code;
mod intervals;
mod page;
mod regions;
mod samples;
mod tiers;
mod values;

use crate::diagnostics::Diagnostic;
use crate::inject::report::shown_input;
use crate::inject::{Options, Progress, recording};

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

/// Reads a profile and the files of its runtimes. Only the input options are used, and `output`, the path to which
/// the caller will write the page, which must not be one of the files read.
pub fn timeline(options: &Options, progress: &mut dyn Progress) -> Result<Timeline, Diagnostic> {
    recording::read(options, progress, |recording, progress| {
        let timeline = build::timeline(recording, shown_input(&options.input), progress);
        recording.input.check()?;
        Ok(timeline)
    })
}
