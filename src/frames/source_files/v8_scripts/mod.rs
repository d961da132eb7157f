//! Scripts of V8's functions on this machine, with their source maps: inlined calls, and original lines and names.

mod room;
mod scripts;
mod source_maps;

use std::collections::BTreeMap;

use jitdump::debug_info::DebugInfo;
use jitdump::internals::format::debug_info::LineEntry;
use jitdump::names::SourceLocation;
use jitdump::v8::known_functions::KnownFunctions;
use jitdump::v8::original_lines::SourceMaps;
use jitdump::v8::v8_inlining::{InliningEvidence, Scripts};
use jitdump::v8::{TextPosition, original_lines, v8_inlining};
use jitdump::{Dump, Function, names};

use crate::code::CodeFile;
use crate::code::perf_map_symbols::{SymbolId, SymbolTableIndex};
use crate::code::timeline::{FileIndex, FunctionId};
use crate::collections::indexed_table::IndexedTable;
use crate::frames::source_files::paths::{SourceFiles, SourceOptions};
use crate::frames::source_files::v8_scripts::scripts::ScriptFiles;
use crate::frames::source_files::v8_scripts::source_maps::SourceMapFiles;
use crate::load::{LoadOptions, Recording, UsedFile, UsedPerfMap, function_of, symbol_of};
use crate::results::diagnostics::Diagnostic;
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
        let used = &recording.runtime_files.used;
        let of_files = known
            .enumerate()
            .filter_map(|(file, known)| Some((used[file].found.file.origin().owner, known.as_ref()?)));
        let of_maps = of_maps.iter().map(|(&owner, known)| (owner, known));
        let sources = SourceFiles::new(options, load);
        let scripts = ScriptFiles::read(of_files.chain(of_maps), &sources);
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

    /// Returns what the scripts have of the functions.
    pub fn by_path(&self) -> ScriptsByPath<'_> {
        ScriptsByPath {
            known: &self.known,
            scripts: self.scripts.by_path(),
            maps: self.maps.by_path(),
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

/// The functions of V8 among symbols, by the owner of the perf map.
fn known_symbols<'a>(
    maps: &'a IndexedTable<SymbolTableIndex, UsedPerfMap<'_>>,
    symbols: impl Iterator<Item = SymbolId>,
) -> BTreeMap<u32, KnownFunctions<'a>> {
    let mut of_owners: BTreeMap<u32, KnownFunctions<'a>> = BTreeMap::new();
    for (id, symbol) in symbols.filter_map(|id| Some((id, symbol_of(maps, id)?))) {
        if let Some(location) = names::source_locations(symbol.name).first()
            && names::is_v8(symbol.name)
            && location.column > 0
        {
            let name = names::v8_function_name(symbol.name, location).unwrap_or_default();
            let start = start_of(location);
            let functions = of_owners.entry(maps[id.table].file.owner()).or_default();
            functions.add(location.path, start, name, Vec::new());
        }
    }
    let of_owners = of_owners.into_iter();
    of_owners
        .map(|(owner, functions)| (owner, functions.finish()))
        .collect()
}

/// Returns the functions of a jitdump that V8 compiled from scripts.
fn functions_of<'a>(dump: &'a Dump<'_>) -> KnownFunctions<'a> {
    /// Number of functions that are read before they are added.
    const BATCH: usize = 1 << 14;

    let numbers: Vec<u32> = (0..dump.function_count() as u32).collect();
    let mut functions = KnownFunctions::default();
    for batch in numbers.chunks(BATCH) {
        let scripted = threads::map(batch, |&number| ScriptedFunction::of(&dump.function(number)?));
        for function in scripted.into_iter().flatten() {
            functions.add(function.path, function.start, function.name, function.positions);
        }
    }
    functions.finish()
}

/// A function that V8 compiled from a script, as its record describes it.
struct ScriptedFunction<'a> {
    /// Path of the script as V8 wrote it.
    path: &'a [u8],
    start: TextPosition,
    name: &'a [u8],
    /// Positions of its code; empty if inlined functions may be among them.
    positions: Vec<TextPosition>,
}

impl<'a> ScriptedFunction<'a> {
    /// Returns `None` for other functions.
    fn of(function: &Function<'a>) -> Option<Self> {
        if !names::is_v8(function.name) {
            return None;
        }
        let entries = if names::is_v8_optimized(function.name) {
            None
        } else {
            function.line_entries()
        };
        let entries = entries.unwrap_or_default();
        let locations = names::source_locations(function.name);
        let with_lines = locations
            .iter()
            .find(|location| entries.iter().any(|entry| entry.name == location.path));
        let by_file = || names::v8_location(function.name, only_file(&entries)?);
        let location = with_lines.copied().or_else(by_file);
        let location = location.or(locations.first().copied());
        let location = location.filter(|location| location.column > 0)?;
        let positions = entries
            .iter()
            .filter(|entry| !entry.is_invalid() && entry.line > 0);
        let positions = positions.map(|entry| TextPosition {
            line: entry.line,
            column: entry.column_or_discriminator,
        });
        Some(Self {
            path: location.path,
            start: start_of(&location),
            name: names::parts_in(function.name, Some(location.path)).function,
            positions: positions.collect(),
        })
    }
}

/// Returns the file of all lines of a function.
fn only_file<'a>(entries: &[LineEntry<'a>]) -> Option<&'a [u8]> {
    let valid = entries
        .iter()
        .filter(|entry| !entry.is_invalid() && !entry.name.is_empty());
    // Any number of lines can have the same name.
    let mut names = valid.filter(|entry| !entry.is_same_name).map(|entry| entry.name);
    let first = names.next()?;
    names.all(|name| name == first).then_some(first)
}

/// Returns where a function starts whose name has this location.
fn start_of(location: &SourceLocation<'_>) -> TextPosition {
    TextPosition {
        line: location.line,
        column: location.column,
    }
}

/// What scripts and source maps have of the functions of each jitdump.
#[derive(Debug)]
pub struct ScriptsByPath<'a> {
    known: &'a IndexedTable<FileIndex, Option<KnownFunctions<'a>>>,
    scripts: Scripts<'a>,
    maps: SourceMaps<'a>,
}

impl<'a> ScriptsByPath<'a> {
    /// Whether a jitdump has functions of V8.
    pub fn has_functions_of(&self, file: FileIndex) -> bool {
        self.known[file].is_some()
    }

    /// Replaces lines and names by those of the original files.
    pub fn use_source_maps(&self, info: &mut DebugInfo<'a>) {
        original_lines::replace(info, &self.maps, &self.scripts);
    }

    /// Returns the name of a function with its original name and position, if its script has a source map: prefix and tier
    /// stay.
    pub fn original_name(&self, name: &'a [u8]) -> Option<Vec<u8>> {
        if self.maps.is_empty() {
            return None;
        }
        let locations = names::source_locations(name);
        let mapped = |location: &&SourceLocation<'a>| self.maps.get(location.path).is_some();
        let location = locations.iter().find(mapped)?;
        let own_name = names::v8_function_name(name, location)?;
        let start = start_of(location);
        let script = self.scripts.get(location.path);
        let original = self.maps.get(location.path)?.function(script, start)?;
        // V8 names a function `name path:line:column`; prefix and tier are before the name.
        let head = memchr::memmem::rfind(name, location.path)?;
        let prefix = name.get(..head.checked_sub(own_name.len())?.checked_sub(1)?)?;
        let own_name = if original.name.is_empty() {
            own_name
        } else {
            original.name
        };
        let TextPosition { line, column } = original.start;
        let position = format!(":{line}:{column}");
        Some([prefix, own_name, b" ", original.path, position.as_bytes()].concat())
    }

    /// Adds the inlined calls of a function, if V8 compiled it with any. Returns the number of rows without a line, because the
    /// function that they are in was not found.
    pub fn add_calls(&self, file: FileIndex, function: &Function<'a>, info: &mut DebugInfo<'a>) -> u64 {
        let Some(functions) = self.known[file]
            .as_ref()
            .filter(|_| names::is_v8_optimized(function.name))
        else {
            return 0;
        };
        let size = u32::try_from(function.range.size()).unwrap_or(u32::MAX);
        let evidence = InliningEvidence {
            functions,
            scripts: &self.scripts,
        };
        let inlined = v8_inlining::add_calls(info, size, evidence);
        inlined.unwrap_or_default().unknown
    }
}
