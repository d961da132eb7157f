//! The code cache over time: which function lay where and for how long, how often samples met it, and what share of the
//! samples JIT code has.
//!
//! ```text
//! Recording ─► [samples]: how many in what, and when ──┐
//!     ├──────► [lives]: which code was where, and when ─┴─► [gather] ─► Values ─► [page]: HTML with all of it inside
//!     └──────► [tiers]: which compiler made it
//! ```

mod build;
mod inherited_code;
mod intervals;
mod page;
mod regions;
mod samples;
mod tiers;
mod values;

use crate::inject::report::shown_input;
use crate::inject::{Error, Options, Progress, recording};
use crate::summary::Warning;

pub use page::html;
pub use values::{Boxes, FORMAT, Functions, Process, Region, Share, Values};

/// The page's name if none is chosen.
pub const DEFAULT_OUTPUT: &str = "timeline.html";

/// What the page shows, and what went wrong on the way there.
#[derive(Debug)]
pub struct Timeline {
    /// What it shows.
    pub values: Values,
    /// What is damaged or could not be used.
    pub warnings: Vec<Warning>,
}

/// Reads a profile and the files of its runtimes. Of the options, those for the input count; `output` is where the
/// caller will write the page, which must not be where anything is that is read.
pub fn timeline(options: &Options, progress: &mut dyn Progress) -> Result<Timeline, Error> {
    recording::read(options, progress, |recording, progress| {
        let values = build::values(recording, shown_input(&options.input), progress);
        recording.input.check()?;
        Ok(Timeline {
            values,
            warnings: recording.warnings(),
        })
    })
}
