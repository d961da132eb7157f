//! Lines of the frames of a function.

use std::sync::Arc;

use jitdump::debug_info::{self, DebugInfo};

use crate::frames::stream::tables::{Line, Location, NamedFunctionIndex, SourceFileIndex};

/// Owner of files whose paths are of an unknown user.
pub const NOBODY: u32 = u32::MAX;

/// Debug information of a function, and the same in the generated files.
#[derive(Debug)]
pub struct RecordedLines<'a> {
    /// The debug information.
    pub info: DebugInfo<'a>,
    /// The same in the generated files, if source maps led from there.
    pub generated: Option<DebugInfo<'a>>,
    /// User who chose the paths in it.
    pub owner: u32,
}

/// Lines and inlined calls of a function, with the functions and files in the tables.
pub struct FunctionLines<'a> {
    /// Functions, as in the debug information.
    pub functions: Vec<NamedFunctionIndex>,
    /// Places of the lines.
    pub places: DebugInfoWithFiles<'a>,
    /// Places in the generated files, if source maps led from there. Functions and calls are the same.
    pub generated: Option<DebugInfoWithFiles<'a>>,
}

/// Debug information, with the files in the tables.
pub struct DebugInfoWithFiles<'a> {
    /// The debug information.
    pub info: DebugInfo<'a>,
    /// Its files.
    pub files: Vec<Option<SourceFileIndex>>,
}

/// Returns the call chains at offsets; empty ones without debug information.
pub fn chains<'p>(
    places: Option<&'p DebugInfoWithFiles<'_>>,
    offsets: impl Iterator<Item = u32> + 'p,
) -> impl Iterator<Item = Vec<debug_info::SourceFrame>> + 'p {
    let chains = places.map(|places| places.info.frames_at_all(offsets));
    let chains = chains.into_iter().flatten();
    chains.chain(std::iter::repeat_with(Vec::new))
}

impl FunctionLines<'_> {
    /// Returns the lines of a call chain. `generated` is the same one in the generated files.
    pub fn of_chain(
        &self,
        chain: &[debug_info::SourceFrame],
        generated: &[debug_info::SourceFrame],
    ) -> Option<Arc<[Line]>> {
        if chain.is_empty() {
            return None;
        }
        let generated = generated
            .iter()
            .map(|frame| self.generated.as_ref()?.location(frame));
        let generated = generated.chain(std::iter::repeat(None));
        let lines = chain.iter().zip(generated).map(|(frame, generated)| {
            Some(Line {
                function: *self.functions.get(frame.function as usize)?,
                file: self.places.file(frame.file),
                line: frame.line,
                column: frame.column,
                generated,
            })
        });
        lines.collect()
    }
}

impl DebugInfoWithFiles<'_> {
    /// Returns a file.
    pub fn file(&self, file: Option<u32>) -> Option<SourceFileIndex> {
        self.files.get(file? as usize).copied().flatten()
    }

    fn location(&self, frame: &debug_info::SourceFrame) -> Option<Location> {
        Location::of(self.file(frame.file), frame.line, frame.column)
    }

    /// Returns where a function starts.
    pub fn declaration(&self, function: usize) -> Option<Location> {
        let function = self.info.functions.get(function)?;
        Location::of(self.file(function.file), function.line, function.column)
    }
}
