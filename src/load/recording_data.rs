//! Memory of a loaded recording.

use std::cell::OnceCell;

use crate::files::{InputFile, StreamedFile};
use crate::load::find::jitdumps::FoundDumps;
use crate::load::find::perf_maps::FoundPerfMaps;
use crate::load::input::{InputFiles, RewrittenRecords};
use crate::results::diagnostics::Diagnostic;
use crate::traces::conversion::{OpenedFiles, SynthesizedProfile};

/// Files and records that a [`Recording`](super::Recording) borrows from. Each is filled once, by the step of
/// [`load`](super::load) that reads or writes it.
#[derive(Debug, Default)]
pub struct RecordingData {
    /// Files of the input.
    pub input: OnceCell<InputFiles>,
    /// A damaged profile, in memory.
    pub whole: OnceCell<InputFile>,
    /// Records after they were decompressed, merged and repaired.
    pub expanded: OnceCell<RewrittenRecords>,
    /// The same in memory, if there is damage inside compressed records.
    pub whole_expanded: OnceCell<InputFile>,
    /// Records after damage inside compressed ones was repaired.
    pub repaired: OnceCell<RewrittenRecords>,
    /// Logs and traces.
    pub logs: OnceCell<Vec<Box<dyn OpenedFiles>>>,
    /// Records with call chains from logs and traces.
    pub spliced: OnceCell<StreamedFile>,
    /// Records with call chains in place of copied stacks.
    pub unwound: OnceCell<StreamedFile>,
    /// Profile with events from logs and traces.
    pub synthesized: OnceCell<SynthesizedProfile>,
    /// Jitdumps.
    pub dumps: OnceCell<FoundDumps>,
    /// Perf maps.
    pub maps: OnceCell<FoundPerfMaps>,
}

impl RecordingData {
    /// Returns the error of an input that has become shorter since it was opened, or has changed between two reads, or of a
    /// temporary file that could not be read. Any other error may only be a consequence of it.
    pub fn check_input(&self) -> Result<(), Diagnostic> {
        self.input.get().map_or(Ok(()), InputFiles::check)?;
        let rewritten = self.rewritten().map(|records| &records.file);
        let synthesized = self.synthesized.get().map(|made| &made.records);
        let files = rewritten.chain(self.spliced.get()).chain(synthesized);
        let mut files = files.chain(self.unwound.get());
        files.try_for_each(StreamedFile::check)
    }

    /// Returns the records that replace those of the input, in the order in which they were made.
    pub fn rewritten(&self) -> impl Iterator<Item = &RewrittenRecords> {
        [&self.expanded, &self.repaired]
            .into_iter()
            .filter_map(OnceCell::get)
    }
}

/// Fills a cell, and returns its content. A cell that is filled keeps its first content.
pub fn keep<T>(cell: &OnceCell<T>, content: T) -> &T {
    cell.get_or_init(|| content)
}
