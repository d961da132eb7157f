//! What V8's jitdumps and perf maps, and the scripts on this machine, have of its functions.

use std::borrow::Cow;

use jitdump::debug_info::DebugInfo;
use jitdump::names::SourceLocation;
use jitdump::v8::known_functions::KnownFunctions;
use jitdump::v8::original_lines::SourceMaps;
use jitdump::v8::v8_inlining::{Evidence, Inlined, Scripts};
use jitdump::v8::{Position, original_lines, v8_inlining};
use jitdump::{Dump, Function, FunctionSources, Tally, names};

use crate::code::CodeFile;
use crate::code::perf_map_symbols::{SymbolId, SymbolTableIndex};
use crate::code::timeline::{FileIndex, FunctionId};
use crate::collections::hash::HashMap;
use crate::collections::indexed_table::IndexedTable;
use crate::frames::source_files::paths::{SourceFiles, SourceOptions};
use crate::frames::source_files::scripts::ScriptFiles;
use crate::frames::source_files::source_maps::SourceMapFiles;
use crate::load::{LoadOptions, Recording, UsedFile, UsedMap, function_of, symbol_of};
use crate::results::diagnostics::{Diagnostic, Issue};
use crate::threads;

/// The scripts of V8's functions, with their source maps, and the functions of each jitdump.
#[derive(Debug)]
pub struct V8Scripts<'a> {
    known: IndexedTable<FileIndex, Option<KnownFunctions<'a>>>,
    scripts: ScriptFiles,
    maps: SourceMapFiles,
    diagnostics: Vec<Diagnostic>,
}

impl<'a> V8Scripts<'a> {
    /// Reads the scripts of V8's code among `functions` and `symbols`, and their source maps.
    ///
    /// All functions of a jitdump are read if V8 wrote any of `functions`, because each may be inlined. Perf maps have no lines,
    /// so only the scripts of `symbols` are needed.
    pub fn read(
        recording: &'a Recording<'_>,
        functions: impl Iterator<Item = FunctionId>,
        symbols: impl Iterator<Item = SymbolId>,
        options: &SourceOptions,
        load: &LoadOptions,
    ) -> Self {
        let known = known_functions(&recording.runtime_files.used, &functions.collect::<Vec<_>>());
        let of_maps = known_symbols(&recording.maps, symbols);
        let sources = SourceFiles::new(options, load);
        let scripts = ScriptFiles::read(known.iter().flatten().chain([&of_maps]), &sources);
        let mut maps = SourceMapFiles::read(&scripts, &sources);
        let mut diagnostics: Vec<Diagnostic> = scripts.diagnostics().collect();
        diagnostics.append(&mut maps.diagnostics);
        Self {
            known,
            scripts,
            maps,
            diagnostics,
        }
    }

    /// Returns what is known of the functions.
    pub fn functions(&self) -> V8Functions<'_> {
        V8Functions {
            known: &self.known,
            scripts: self.scripts.by_path(),
            maps: self.maps.by_path(),
            kept: HashMap::default(),
        }
    }

    /// Returns what could not be used, and why.
    pub fn diagnostics(&self) -> &[Diagnostic] {
        &self.diagnostics
    }
}

/// The functions of each jitdump with code of V8 among `functions`.
fn known_functions<'a>(
    files: &'a IndexedTable<FileIndex, UsedFile<'_>>,
    functions: &[FunctionId],
) -> IndexedTable<FileIndex, Option<KnownFunctions<'a>>> {
    let has_v8_code = |file: FileIndex| match &files[file].code {
        CodeFile::Jitdump(dump) => dump.has_v8_code(),
        CodeFile::SymbolOnly(_) => false,
    };
    // Functions of other runtimes are only read when they are written.
    let has_name = |&function: &FunctionId| {
        has_v8_code(function.file)
            && function_of(files, function).is_some_and(|function| names::is_v8(function.name))
    };
    let mut is_v8 = files.map(|_| false);
    for (function, has_name) in functions.iter().zip(threads::map(functions, has_name)) {
        is_v8[function.file] |= has_name;
    }
    let known = files.enumerate().map(|(file, used)| match &used.code {
        CodeFile::Jitdump(dump) if is_v8[file] => Some(functions_of(dump)),
        _ => None,
    });
    known.collect()
}

/// The functions of V8 among symbols.
fn known_symbols<'a>(
    maps: &'a IndexedTable<SymbolTableIndex, UsedMap<'_>>,
    symbols: impl Iterator<Item = SymbolId>,
) -> KnownFunctions<'a> {
    let mut functions = KnownFunctions::default();
    for symbol in symbols.filter_map(|id| symbol_of(maps, id)) {
        if let Some(location) = names::source_locations(symbol.name).first()
            && names::is_v8(symbol.name)
            && location.column > 0
        {
            let name = names::v8_function_name(symbol.name, location).unwrap_or_default();
            let start = start_of(location);
            functions.add(location.path, start, name, Vec::new());
        }
    }
    functions.finish()
}

/// Returns the functions of a jitdump that V8 compiled from scripts.
fn functions_of<'a>(dump: &'a Dump<'_>) -> KnownFunctions<'a> {
    let mut functions = KnownFunctions::default();
    for number in 0..dump.function_count() as u32 {
        let Some(function) = dump
            .function(number)
            .filter(|function| names::is_v8(function.name))
        else {
            continue;
        };
        let entries = if names::is_v8_optimized(function.name) {
            None
        } else {
            function.line_entries()
        };
        let entries = entries.unwrap_or_default();
        let locations = names::source_locations(function.name);
        let known = locations
            .iter()
            .find(|location| entries.iter().any(|entry| entry.name == location.path));
        let Some(location) = known.or(locations.first()).filter(|location| location.column > 0) else {
            continue;
        };
        let start = start_of(location);
        let name = names::v8_function_name(function.name, location).unwrap_or_default();
        let positions = entries
            .iter()
            .filter(|entry| !entry.is_invalid() && entry.line > 0);
        let positions = positions.map(|entry| Position {
            line: entry.line,
            column: entry.column_or_discriminator,
        });
        functions.add(location.path, start, name, positions.collect());
    }
    functions.finish()
}

/// Returns where a function starts whose name has this location.
fn start_of(location: &SourceLocation<'_>) -> Position {
    Position {
        line: location.line,
        column: location.column,
    }
}

/// What is known of the functions of each jitdump.
#[derive(Debug)]
pub struct V8Functions<'a> {
    known: &'a IndexedTable<FileIndex, Option<KnownFunctions<'a>>>,
    scripts: Scripts<'a>,
    maps: SourceMaps<'a>,
    /// Lines in the files that the runtime compiled, of functions whose lines are needed more than once.
    kept: HashMap<FunctionId, Lines<'a>>,
}

/// Maximum size in bytes of the lines that are kept. Further ones are read again.
const MAX_KEPT: u64 = 64 << 20;

/// Number of functions whose lines are read at a time.
const READ_AT_ONCE: usize = 64;

/// Lines and inlined calls of a function, and the faults found in them.
pub type Lines<'a> = (Option<DebugInfo<'a>>, Tally<Issue>);

impl<'a> V8Functions<'a> {
    /// Reads the lines of functions that are needed more than once, and keeps them.
    pub fn keep_lines(&mut self, recording: &'a Recording<'_>, functions: impl Iterator<Item = FunctionId>) {
        let files = &recording.runtime_files.used;
        let of_v8 = functions.filter(|id| self.known[id.file].is_some());
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
            self.use_source_maps(info);
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
            let inlined = self.add_calls(file, function, info);
            faults.add_many(Issue::InlinedLineUnknown, inlined.unknown, 0);
        }
        (info, faults)
    }

    /// Replaces lines and names by those of the original files.
    fn use_source_maps(&self, info: &mut DebugInfo<'a>) {
        original_lines::replace(info, &self.maps, &self.scripts);
    }

    /// Returns debug information with only the declaration of a function that the runtime calls `name`.
    pub fn declaration(&self, name: &'a [u8]) -> Option<DebugInfo<'a>> {
        let mut info = names::declaration(name)?;
        self.use_source_maps(&mut info);
        Some(info)
    }

    /// Returns the name for a function that the runtime calls `name`: the original one, if its script has a source map.
    pub fn name(&self, name: &'a [u8]) -> Cow<'a, [u8]> {
        self.original_name(name).map_or(name.into(), Cow::Owned)
    }

    /// Returns the name of a function with its original name and position, if its script has a source map: prefix and tier
    /// stay.
    fn original_name(&self, name: &'a [u8]) -> Option<Vec<u8>> {
        if self.maps.is_empty() {
            return None;
        }
        let locations = names::source_locations(name);
        let mapped = |location: &&SourceLocation<'a>| self.maps.contains_key(location.path);
        let location = locations.iter().find(mapped)?;
        let own_name = names::v8_function_name(name, location)?;
        let start = start_of(location);
        let script = self.scripts.get(location.path).copied();
        let original = self.maps.get(location.path)?.function(script, start)?;
        // V8 names a function `name path:line:column`; prefix and tier are before the name.
        let head = memchr::memmem::rfind(name, location.path)?;
        let prefix = name.get(..head.checked_sub(own_name.len())?.checked_sub(1)?)?;
        let own_name = if original.name.is_empty() {
            own_name
        } else {
            original.name
        };
        let Position { line, column } = original.start;
        let position = format!(":{line}:{column}");
        Some([prefix, own_name, b" ", original.path, position.as_bytes()].concat())
    }

    /// Adds the inlined calls of a function, if V8 compiled it with any.
    fn add_calls(&self, file: FileIndex, function: &Function<'a>, info: &mut DebugInfo<'a>) -> Inlined {
        let Some(functions) = self.known[file]
            .as_ref()
            .filter(|_| names::is_v8_optimized(function.name))
        else {
            return Inlined::default();
        };
        let size = u32::try_from(function.range.size()).unwrap_or(u32::MAX);
        let evidence = Evidence {
            functions,
            scripts: &self.scripts,
        };
        v8_inlining::add_calls(info, size, evidence).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
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
        let recording = load(&options, needed, &data, &mut ()).unwrap();
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
