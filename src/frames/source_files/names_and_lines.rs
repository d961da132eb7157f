//! Names, lines and inlined calls of functions: as runtimes wrote them, with what the scripts of V8's functions add.

use std::borrow::Cow;

use jitdump::debug_info::DebugInfo;
use jitdump::{Function, FunctionSources, Tally, names};

use crate::code::timeline::{FileIndex, FunctionId};
use crate::collections::hash::HashMap;
use crate::load::{Recording, function_of};
use crate::results::diagnostics::Issue;
use crate::threads;

pub use crate::frames::source_files::v8_scripts::{ScriptsByPath, V8Scripts};

/// Names and lines of functions, in the files that people wrote.
#[derive(Debug)]
pub struct NamesAndLines<'a> {
    scripts: ScriptsByPath<'a>,
    /// Lines in the files that the runtime compiled, of functions whose lines are needed more than once.
    kept: HashMap<FunctionId, Lines<'a>>,
}

/// Maximum size in bytes of the lines that are kept. Further ones are read again.
const MAX_KEPT: u64 = 64 << 20;

/// Number of functions whose lines are read at a time.
const READ_AT_ONCE: usize = 64;

/// Lines and inlined calls of a function, and the faults found in them.
pub type Lines<'a> = (Option<DebugInfo<'a>>, Tally<Issue>);

impl V8Scripts<'_> {
    /// Returns names and lines of functions.
    pub fn functions(&self) -> NamesAndLines<'_> {
        NamesAndLines {
            scripts: self.by_path(),
            kept: HashMap::default(),
        }
    }
}

impl<'a> NamesAndLines<'a> {
    /// Reads the lines of functions that are needed more than once, and keeps them.
    pub fn keep_lines(&mut self, recording: &'a Recording<'_>, functions: impl Iterator<Item = FunctionId>) {
        let files = &recording.runtime_files.used;
        let of_v8 = functions.filter(|id| self.scripts.has_functions_of(id.file));
        let mut needed: Vec<FunctionId> = of_v8.collect();
        needed.sort_unstable();
        needed.dedup();
        let mut size = 0u64;
        for functions in needed.chunks(READ_AT_ONCE) {
            let read = |&id: &FunctionId| Some((id, self.read_lines(id.file, &function_of(files, id)?)));
            for (id, lines) in threads::map(functions, read).into_iter().flatten() {
                size = size.saturating_add(lines.0.as_ref().map_or(0, DebugInfo::memory_size));
                if size > MAX_KEPT {
                    return;
                }
                self.kept.insert(id, lines);
            }
        }
    }

    /// Returns the lines and inlined calls of a function, in the files that people wrote, and the faults found in them. Lines
    /// are those of `track` if the function has it.
    pub fn lines_of(&self, id: FunctionId, function: &Function<'a>, track: Option<&[u8]>) -> Lines<'a> {
        if let Some(track) = track.and_then(|track| function.track(track)) {
            return (track.info, track.faults.into_kinds());
        }
        let (mut info, mut faults) = self.generated_lines_of(id, function);
        if track.is_some() {
            faults.add(Issue::TrackMissing, 0);
        }
        if let Some(info) = &mut info {
            self.scripts.use_source_maps(info);
        }
        (info, faults)
    }

    /// Returns the same in the files that the runtime compiled.
    pub fn generated_lines_of(&self, id: FunctionId, function: &Function<'a>) -> Lines<'a> {
        match self.kept.get(&id) {
            Some(kept) => kept.clone(),
            None => self.read_lines(id.file, function),
        }
    }

    fn read_lines(&self, file: FileIndex, function: &Function<'a>) -> Lines<'a> {
        let FunctionSources { mut info, faults } = function.sources();
        let mut faults: Tally<Issue> = faults.into_kinds();
        if let Some(info) = &mut info {
            let unknown = self.scripts.add_calls(file, function, info);
            faults.add_many(Issue::InlinedLineUnknown, unknown, 0);
        }
        (info, faults)
    }

    /// Returns debug information with only the declaration of a function that the runtime calls `name`.
    pub fn declaration(&self, name: &'a [u8]) -> Option<DebugInfo<'a>> {
        let mut info = names::declaration(name)?;
        self.scripts.use_source_maps(&mut info);
        Some(info)
    }

    /// Returns the name for a function that the runtime calls `name`: the original one, if its script has a source map.
    pub fn name(&self, name: &'a [u8]) -> Cow<'a, [u8]> {
        self.scripts.original_name(name).map_or(name.into(), Cow::Owned)
    }
}

#[cfg(test)]
#[cfg(feature = "scripts")]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::code::CodeFile;
    use crate::frames::source_files::SourceOptions;
    use crate::load::{LoadOptions, UsedFile};
    use crate::load::{NeededFunctions, RecordingData, load};

    #[test]
    fn kept_lines_are_those_that_are_read_again() {
        let options = LoadOptions {
            input: Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/node20-inlined/perf.data"),
            force: true,
            ..LoadOptions::default()
        };
        let data = RecordingData::default();
        let needed = NeededFunctions {
            all: true,
            unwinding: false,
        };
        let recording = load(|_| Ok(()), &options, needed, &data, &mut ()).unwrap();
        let used = &recording.runtime_files.used;
        let of_file = |(file, used): (FileIndex, &UsedFile<'_>)| {
            let count = match &used.code {
                CodeFile::Jitdump(dump) => dump.function_count() as u32,
                CodeFile::SymbolOnly(_) => 0,
            };
            (0..count).map(move |function| FunctionId { file, function })
        };
        let functions: Vec<FunctionId> = used.enumerate().flat_map(of_file).collect();
        let sources = SourceOptions::default();
        let scripts = V8Scripts::read(
            &recording,
            functions.iter().copied(),
            [].into_iter(),
            &sources,
            &options,
        );
        let (read, mut kept) = (scripts.functions(), scripts.functions());
        kept.keep_lines(&recording, functions.iter().copied());
        assert_eq!(kept.kept.len(), functions.len());
        let mut calls = 0;
        for id in functions {
            let function = function_of(used, id).unwrap();
            let (lines, faults) = kept.lines_of(id, &function, None);
            let (read, read_faults) = read.lines_of(id, &function, None);
            calls += lines.as_ref().map_or(0, |info| info.calls.len());
            assert_eq!(lines, read);
            assert!(
                faults
                    .iter()
                    .map(|(_, fault)| fault.count)
                    .eq(read_faults.iter().map(|(_, fault)| fault.count))
            );
        }
        assert!(calls > 0);
    }
}
