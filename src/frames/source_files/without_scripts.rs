//! In place of scripts, in programs without the feature `scripts`: functions have the names and lines that runtimes wrote.

use std::marker::PhantomData;

use jitdump::Function;
use jitdump::debug_info::DebugInfo;

use crate::code::CodeFile;
use crate::code::perf_map_symbols::SymbolId;
use crate::code::timeline::{FileIndex, FunctionId};
use crate::frames::source_files::paths::SourceOptions;
use crate::load::{LoadOptions, Recording};
use crate::results::diagnostics::{Diagnostic, Issue};

/// No scripts.
#[derive(Debug)]
pub struct V8Scripts<'a> {
    recording: PhantomData<&'a ()>,
    diagnostics: Vec<Diagnostic>,
}

impl<'a> V8Scripts<'a> {
    /// Reads nothing, and reports that if V8 wrote a jitdump.
    pub fn read(
        recording: &'a Recording<'_>,
        _: impl Iterator<Item = FunctionId>,
        _: impl Iterator<Item = SymbolId>,
        _: &SourceOptions,
        _: &LoadOptions,
    ) -> Self {
        let mut used = recording.runtime_files.used.iter();
        let has_v8_code =
            used.any(|used| matches!(&used.code, CodeFile::Jitdump(dump) if dump.has_v8_code()));
        let left_out = has_v8_code.then(|| {
            Diagnostic::new(Issue::FeatureLeftOut)
                .with("what", "inlined calls and source maps of V8's functions not read")
                .with("feature", "scripts")
                .as_note()
        });
        Self {
            recording: PhantomData,
            diagnostics: left_out.into_iter().collect(),
        }
    }

    /// Returns what scripts have of functions: nothing.
    pub fn by_path(&self) -> ScriptsByPath<'_> {
        ScriptsByPath(PhantomData)
    }

    /// Returns what was not read.
    pub fn diagnostics(&self) -> &[Diagnostic] {
        &self.diagnostics
    }
}

/// What scripts have of functions.
#[derive(Debug)]
pub struct ScriptsByPath<'a>(PhantomData<&'a ()>);

impl<'a> ScriptsByPath<'a> {
    /// Whether more is known of the functions of a jitdump than itself has.
    pub fn has_functions_of(&self, _: FileIndex) -> bool {
        false
    }

    /// Leaves lines as they are.
    pub fn use_source_maps(&self, _: &mut DebugInfo<'a>) {}

    /// Returns no other name.
    pub fn original_name(&self, _: &'a [u8]) -> Option<Vec<u8>> {
        None
    }

    /// Adds no calls.
    pub fn add_calls(&self, _: FileIndex, _: &Function<'a>, _: &mut DebugInfo<'a>) -> u64 {
        0
    }
}

#[cfg(test)]
mod tests {
    use std::iter;
    use std::path::Path;

    use super::*;
    use crate::load::{NeededFunctions, RecordingData, load};

    #[test]
    fn functions_of_v8_are_reported_without_scripts() {
        for (capture, issues) in [
            ("node20-inlined", &[Issue::FeatureLeftOut][..]),
            ("wasmtime", &[]),
        ] {
            let options = LoadOptions {
                input: Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("testdata/{capture}/perf.data")),
                force: true,
                ..LoadOptions::default()
            };
            let data = RecordingData::default();
            let recording = load(|_| Ok(()), &options, NeededFunctions::default(), &data, &mut ()).unwrap();
            let sources = SourceOptions::default();
            let none = (iter::empty(), iter::empty());
            let scripts = V8Scripts::read(&recording, none.0, none.1, &sources, &options);
            let found = scripts.diagnostics().iter().map(|found| found.issue);
            assert!(found.eq(issues.iter().copied()), "{capture}");
        }
    }
}
